"""How the command begins and ends: Ctrl-C before there is anything to break off, and a reader that has gone."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest

from gpuctl.cli import app, entry
from gpuctl.cli.errors import guarded
from gpuctl.core.exit_codes import READER_GONE


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN])
def test_ctrl_c_is_as_it_was_once_the_commands_are_there(before: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(app, "main", lambda: seen.append(signal.getsignal(signal.SIGINT)))
    signal.signal(signal.SIGINT, before)
    entry.main()
    assert seen == [before]


def test_output_that_nobody_reads_any_more_is_not_called_a_problem_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # click wraps it
    monkeypatch.setattr(sys, "stderr", sys.stderr)

    @click.command()
    def show() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(SystemExit) as ended:
        guarded(lambda **given: show.main([], **given))
    assert ended.value.code == READER_GONE
