"""The one place where errors are caught: print them, choose the exit code, keep a log of our own faults."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from gpuctl.core.errors import GpuctlError

OURS = 4
INTERRUPTED = 130


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
    except (KeyboardInterrupt, click.Abort):
        _say("broken off", "what was begun on a host was finished there; run the same command again to go on")
        code = INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:  # noqa: BLE001 - the one place that catches our own faults, and logs them whole
        _say(f"gpuctl itself failed: {error}", f"please report it with this file: {_log()}")
        code = OURS
    sys.exit(code if isinstance(code, int) else 0)


def _say(wrong: str, hint: str) -> None:
    click.echo(f"gpuctl: {wrong}", err=True)
    if hint:
        click.echo(f"  hint: {hint}", err=True)


def _log() -> str:
    import traceback

    from gpuctl.core.paths import private, state_dir, write_atomically

    path = private(state_dir() / "faults") / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    write_atomically(path, f"{' '.join(sys.argv)}\n{traceback.format_exc()}")
    return str(path)
