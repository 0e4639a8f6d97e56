"""The output of background programs."""

from __future__ import annotations

import time

from gpuctl.edges.background import BackgroundProgram

FORWARDS = "echo 'Forwarding from 127.0.0.1:1 -> 2'; seq -f 'Handling connection for %g' {count}; {more}"
ORDINARY = ("Forwarding from", "Handling connection for")


def started(count: int, more: str) -> BackgroundProgram:
    """A stand-in for `kubectl port-forward`, once it has written a file's worth of connections."""
    running = BackgroundProgram(["sh", "-c", FORWARDS.format(count=count, more=more)], "Forwarding from", ORDINARY)
    until = time.monotonic() + 10
    while not running.current_error and not running.exited and time.monotonic() < until:
        time.sleep(0.01)
    return running


def test_a_line_that_says_ready_is_counted_however_much_output_follows() -> None:
    running = started(25, "echo 'error: at last'; exec sleep 30")
    assert (running.ready, running.current_error) == (1, "at last")
    running.stop()
    assert running.exited


def test_the_exit_error_is_the_last_error_and_not_ordinary_output() -> None:
    running = started(25, "echo 'error: lost connection to pod'")
    running.stop()
    assert running.exit_error == "lost connection to pod"
    quiet = started(3, "exit 1")
    quiet.stop()
    assert quiet.exit_error == "it failed without a message"
