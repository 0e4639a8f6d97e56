"""The one place where errors are caught: print them, choose the exit code, keep a log of our own faults."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from gpuctl.core.errors import GpuctlError

OURS = 4
INTERRUPTED = 130
AGAIN = "the same command goes on from here"


class Unread(Exception):
    """Nobody reads our output any more; the exit code still tells how it ended."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


def guarded(command: Callable[..., Any]) -> None:
    """Run the command line and end the process with its exit code."""
    try:
        code = command(standalone_mode=False)
    except GpuctlError as error:
        _say(str(error), error.hint)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort as error:
        # Asked whether to go on: nothing has begun yet. Ctrl-C elsewhere is Abort by another cause.
        hint = AGAIN if isinstance(error.__cause__, KeyboardInterrupt) else "nothing was changed"
        _say("broken off", hint)
        code = INTERRUPTED
    except KeyboardInterrupt:
        _say("broken off", AGAIN)
        code = INTERRUPTED
    except (BrokenPipeError, Unread) as error:  # the reader of our output has gone, as `| head` does
        code = getattr(error, "exit_code", 0)
    except Exception as error:  # noqa: BLE001 - the one place that catches our own faults, and logs them whole
        _say(f"gpuctl itself failed: {error}", f"please report it with this file: {_log()}")
        code = OURS
    _leave_unread()
    sys.exit(code if isinstance(code, int) else 0)


def _leave_unread() -> None:
    """What nobody reads any more is dropped: else Python complains of it at its end, with an exit code of its own."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _say(wrong: str, hint: str) -> None:
    with contextlib.suppress(OSError):
        click.echo(f"gpuctl: {wrong}" + (f"\n  hint: {hint}" if hint else ""), err=True)


def _log() -> str:
    import traceback

    from gpuctl.core.paths import private, state_dir, write_atomically

    text = f"{' '.join(sys.argv)}\n{traceback.format_exc()}"
    try:
        path = private(state_dir() / "faults") / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        write_atomically(path, text)
    except OSError as error:
        click.echo(text, err=True)
        return f"the lines above; no file, because of {error}"
    return str(path)
