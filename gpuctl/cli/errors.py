"""The one place where errors are caught: print them, choose the exit code, keep a log of our own faults."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import click

from gpuctl.core.errors import GpuctlError

OURS = 4
UNWRITTEN = 3
INTERRUPTED = 130
UNHEARD = 141  # 128 and SIGPIPE, as of any program whose reader has gone: not 1, which says that problems were found


class Unread(Exception):
    """Nobody reads our output any more; the exit code still tells how it ended."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


def guarded(command: Callable[..., Any]) -> None:
    """Run the command line and end the process with its exit code."""
    code, lost = _ended(command)
    lost = _leave_unread() or lost
    if lost is not None:
        _say(f"cannot write the output: {lost.strerror or lost}", "write it where there is room, then do it again")
        code = code if code in (OURS, INTERRUPTED) else UNWRITTEN
    sys.exit(code if isinstance(code, int) else 0)


Ended = tuple[Any, OSError | None]  # the exit code, and why the output could not be written


def _ended(command: Callable[..., Any]) -> Ended:
    """Every way a command ends, told where it has to be."""
    output = sys.stdout
    try:
        return command(standalone_mode=False), None
    except (GpuctlError, click.ClickException) as error:
        if isinstance(error, GpuctlError):
            _say(str(error), error.hint)
        else:
            with contextlib.suppress(OSError):  # nobody reads it; the exit code still tells
                error.show()
        return error.exit_code, None
    except (click.Abort, KeyboardInterrupt) as error:
        return _broken_off(error), None
    except (BrokenPipeError, Unread) as error:  # the reader of our output has gone, as `| head` does
        return getattr(error, "exit_code", UNHEARD), None
    except SystemExit as error:  # a command that chose its exit code so
        # Where the reader has gone click puts something around our output, and says 1.
        return UNHEARD if sys.stdout is not output else error.code, None
    except Exception as error:  # noqa: BLE001 - the one place that catches our own faults, and logs them whole
        return _fault(error)


def _broken_off(error: BaseException) -> int:
    # Asked whether to go on: nothing has begun yet. Ctrl-C elsewhere is Abort by another cause.
    asked = isinstance(error, click.Abort) and not isinstance(error.__cause__, KeyboardInterrupt)
    _say("broken off", "nothing was changed" if asked else "")
    return INTERRUPTED


def _fault(error: Exception) -> Ended:
    """A fault of ours, unless it is the output that could not be written."""
    if isinstance(error, OSError) and _of_output(error):
        return UNWRITTEN, error
    _say(f"gpuctl itself failed: {error}", f"please report it with this file: {_log()}")
    return OURS, None


def _of_output(error: OSError) -> bool:
    """Whether it is what we print that could not be written, and not a file of somebody's."""
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    return innermost.f_code is click.echo.__code__


def _leave_unread() -> OSError | None:
    """What nobody can read is dropped: else Python complains of it at its end, with an exit code of its own.

    Returns why it cannot be written, where it is not that its reader has gone.
    """
    lost = None
    for stream in (sys.stderr, sys.stdout):
        try:
            if stream is not None:  # closed before we began
                stream.flush()
        except OSError as error:
            lost = error if stream is sys.stdout and not isinstance(error, BrokenPipeError) else None
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return lost


def _say(wrong: str, hint: str) -> None:
    with contextlib.suppress(OSError):
        click.echo(f"gpuctl: {wrong}" + (f"\n  hint: {hint}" if hint else ""), err=True)


def _log() -> str:
    from gpuctl.core.paths import private, state_dir, write_atomically

    text = f"{' '.join(sys.argv)}\n{traceback.format_exc()}"
    try:
        path = private(state_dir() / "faults") / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        write_atomically(path, text)
    except OSError as error:
        click.echo(text, err=True)
        return f"the lines above; no file, because of {error}"
    return str(path)
