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


@pytest.mark.parametrize(("trap", "presses"), [("", 1), ("trap '' INT TERM;", 2)])
def test_ctrl_c_ends_the_program_and_a_second_one_kills_it(trap: str, presses: int, tmp_path: Path) -> None:
    running = tmp_path / "running"

    def press() -> None:
        # A press that comes when the program is not there, or has ended, would interrupt whatever test is running.
        while not running.exists():
            time.sleep(0.01)
        for _ in range(presses):
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    user = threading.Thread(target=press)
    user.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        terminal.feed(["sh", "-c", f"{trap} touch {running}; exec sleep 30"], "x" * 1_000_000)
    assert time.monotonic() - started < 10
    assert signal.getsignal(signal.SIGINT) is before
    user.join()
