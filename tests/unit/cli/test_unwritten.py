"""Output that cannot be written is told as that, and not as a fault of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOG = Path(__file__).parents[2] / "data" / "nccl" / "h100_2n16g_allreduce.log"
COMMANDS = (["baselines", "list"], ["parse", str(LOG)], ["parse", "-o", "csv", str(LOG)], ["judge", str(LOG)])
FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.is_char_device(), reason="Linux has it, other systems do not")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_full_disk_is_told_and_ends_with_3(words: list[str], buffered: str, tmp_path: Path) -> None:
    environment = {**os.environ, "GPUCTL_STATE_DIR": str(tmp_path), "PYTHONUNBUFFERED": buffered}
    with FULL.open("w") as full:
        command = [str(Path(sys.executable).with_name("gpuctl")), "nccl", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == 3, done.stderr
    assert "cannot write the output: No space left on device" in done.stderr
    assert "gpuctl itself failed" not in done.stderr
    assert not (tmp_path / "faults").exists()


def test_a_reader_that_has_gone_is_no_trouble(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        command = [str(Path(sys.executable).with_name("gpuctl")), "nccl", "baselines", "list"]
        environment = {**os.environ, "GPUCTL_STATE_DIR": str(tmp_path)}
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.stderr == ""


def test_wrong_usage_that_nobody_reads_of_still_ends_with_2(tmp_path: Path) -> None:
    """As in `gpuctl nccl baselines list --no-such-option 2>&1 | true`."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        command = [str(Path(sys.executable).with_name("gpuctl")), "nccl", "baselines", "list", "--no-such-option"]
        environment = {**os.environ, "GPUCTL_STATE_DIR": str(tmp_path)}
        done = subprocess.run(command, stdout=gone, stderr=gone, env=environment, check=False)
    assert done.returncode == 2
