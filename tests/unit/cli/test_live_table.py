"""The live table shows a host's output as plain text."""

from __future__ import annotations

from functools import partial

from rich.console import Console

from gpuctl.cli.hosts.live_table import LiveTable
from gpuctl.cli.hosts.report import line
from gpuctl.hosts.model import HostResult


def test_brackets_in_what_a_host_says_are_shown_as_they_are() -> None:
    live = LiveTable(["gpu-[1]", "gpu-2"], strict=False, describe=partial(line, strict=False))
    live.rows["gpu-[1]"] = HostResult("gpu-[1]", wrong="bash: [/etc/motd] no such file [notice]", unreachable=True)
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(live._table())
    text = console.export_text()
    assert "gpu-[1]" in text
    assert "bash: [/etc/motd] no such file [notice]" in text
