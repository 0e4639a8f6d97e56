"""What is known of a program that runs beside gpuctl."""

from __future__ import annotations

import time

from gpuctl.edges.background import Running

FORWARDS = "echo 'Forwarding from 127.0.0.1:1 -> 2'; seq -f 'Handling connection for %g' {count}; {more}"
ORDINARY = ("Forwarding from", "Handling connection for")


def started(count: int, more: str) -> Running:
    """A stand-in for `kubectl port-forward`, once it has written a file's worth of connections."""
    running = Running(["sh", "-c", FORWARDS.format(count=count, more=more)], "Forwarding from", ORDINARY)
    until = time.monotonic() + 10
    while not running.said and not running.ended and time.monotonic() < until:
        time.sleep(0.01)
    return running


def test_what_says_that_it_listens_is_counted_however_much_is_said_after_it() -> None:
    running = started(25, "echo 'error: at last'; exec sleep 30")
    assert (running.ready, running.said) == (1, "at last")
    running.stop()
    assert running.ended


def test_its_last_words_are_its_last_complaint_not_a_connection() -> None:
    running = started(25, "echo 'error: lost connection to pod'")
    running.stop()
    assert running.last_words == "lost connection to pod"
    quiet = started(3, "exit 1")
    quiet.stop()
    assert quiet.last_words == "kubectl failed and said nothing"
