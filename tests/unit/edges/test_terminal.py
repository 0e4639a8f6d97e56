"""A program that gets a text, and is ended by Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from gpuctl.edges import terminal


def test_a_program_gets_the_text_once_and_its_status_is_returned(tmp_path: Path) -> None:
    assert terminal.feed(["sh", "-c", f"cat >{tmp_path}/text; exit 3"], "whole\ntext ü\n") == 3
    assert (tmp_path / "text").read_text() == "whole\ntext ü\n"


def test_a_program_that_reads_nothing_is_no_error() -> None:
    assert terminal.feed(["true"], "x" * 1_000_000) == 0


@pytest.mark.parametrize(("script", "presses"), [("exec sleep 30", 1), ("trap '' INT TERM; exec sleep 30", 2)])
def test_ctrl_c_ends_the_program_and_a_second_one_kills_it(script: str, presses: int) -> None:
    before = signal.getsignal(signal.SIGINT)
    timers = [threading.Timer(0.1 * n, os.kill, (os.getpid(), signal.SIGINT)) for n in range(1, presses + 1)]
    for timer in timers:
        timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        terminal.feed(["sh", "-c", script], "x" * 1_000_000)
    assert time.monotonic() - started < 10
    assert signal.getsignal(signal.SIGINT) is before
    for timer in timers:
        timer.join()
