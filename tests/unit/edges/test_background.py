"""The output of background programs."""

from __future__ import annotations

import time
from pathlib import Path

from gpuctl.edges.background import BackgroundProgram

FORWARDS = "echo 'Forwarding from 127.0.0.1:1 -> 2'; seq -f 'Handling connection for %g' {count}; {more}"
ORDINARY = ("Forwarding from", "Handling connection for")


def started(count: int, more: str, until_exit: bool = False) -> BackgroundProgram:
    """A stand-in for `kubectl port-forward`, once it has written a file's worth of connections, or has ended."""
    running = BackgroundProgram(["sh", "-c", FORWARDS.format(count=count, more=more)], "Forwarding from", ORDINARY)
    until = time.monotonic() + 10
    while not (running.current_error and not until_exit) and not running.exited and time.monotonic() < until:
        time.sleep(0.01)
    return running


def test_a_line_that_says_ready_is_counted_however_much_output_follows() -> None:
    running = started(25, "echo 'error: at last'; exec sleep 30")
    assert (running.ready, running.current_error) == (1, "at last")
    running.stop()
    assert running.exited


def test_the_exit_error_is_the_last_error_and_not_ordinary_output() -> None:
    running = started(25, "echo 'error: lost connection to pod'", until_exit=True)
    assert running.exit_error == "lost connection to pod"
    quiet = started(3, "exit 1", until_exit=True)
    assert quiet.exit_error == "it failed without a message"


# As kubectl 1.32 prints what a proxy answers to a port-forward; nothing follows its last line.
PAGE = """error: error upgrading connection: unable to upgrade connection: <!DOCTYPE HTML>
<html lang="en">
    <head>
        <title>502 Bad Gateway</title>
    </head>
    <body>
        <p>nginx</p>
    </body>
</html>
"""


def test_an_error_page_of_several_lines_is_told_by_its_title(tmp_path: Path) -> None:
    (tmp_path / "page").write_text(PAGE)
    running = started(3, f"cat {tmp_path}/page", until_exit=True)
    assert running.exit_error == "502 Bad Gateway"
    running = started(3, f"cat {tmp_path}/page; echo 'error: lost connection to pod'", until_exit=True)
    assert running.exit_error == "lost connection to pod"
