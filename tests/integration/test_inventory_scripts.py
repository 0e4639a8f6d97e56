"""Inventory scripts that hang or print without end: refused with the reason, within bounds, and nothing is left."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.edges import inventory
from tests.rig.command import Gpuctl
from tests.rig.host import wait_until

MIB = 2**20
HANGS = '#!/bin/sh\necho $$ > "$(dirname "$0")/pid"\nexec sleep 600\n'
ENDLESS = '#!/bin/sh\nprintf \'{"all": {"hosts": ["\'\nexec yes gpu\n'


def script(folder: Path, text: str) -> Path:
    path = folder / "hosts.sh"
    path.write_text(text)
    path.chmod(0o755)
    return path


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_script_that_hangs_is_given_up_and_ended(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"it was not read within 5 s: .* hang\?") as refused:
        inventory.read(script(tmp_path, HANGS), "", limit_s=5)
    assert refused.value.exit_code == 2
    wait_until(lambda: ended(int((tmp_path / "pid").read_text())), 20, "the script still runs")


def test_a_pipe_that_nobody_writes_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "prod").mkdir()
    (tmp_path / "prod/hosts").write_text("gpu-1\n")
    os.mkfifo(tmp_path / "prod/more")
    with pytest.raises(InvalidInput, match=r"prod/more is a pipe") as refused:
        inventory.read(tmp_path / "prod", "", limit_s=4)
    assert refused.value.exit_code == 2


def test_a_script_that_prints_without_end_is_stopped(tmp_path: Path) -> None:
    """Ansible itself collects what a script prints, so its memory is bounded as well."""
    with pytest.raises(InvalidInput, match=r"more than 64 MiB of memory: .* print endlessly\?"):
        inventory.read(script(tmp_path, ENDLESS), "", most_memory=64 * MIB)


def test_ctrl_c_ends_a_script_that_hangs(gpuctl: Gpuctl, tmp_path: Path) -> None:
    running = gpuctl.start("drift", "-i", script(tmp_path, HANGS))
    wait_until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()), 30, "no script runs")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=20)
    assert running.returncode == 130
    assert "interrupted" in err
    wait_until(lambda: ended(int((tmp_path / "pid").read_text())), 20, "the script still runs")


def test_a_slow_inventory_is_named_while_it_is_read(gpuctl: Gpuctl, tmp_path: Path) -> None:
    path = script(tmp_path, HANGS)
    running = gpuctl.start("drift", "-i", path)
    assert running.stderr is not None
    began = time.monotonic()
    assert str(path) in running.stderr.readline()
    assert time.monotonic() - began < 60
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=20)
