"""The one place where errors are caught: print them, choose the exit code, log gpuctl's own faults."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gpuctl.core.errors import GpuctlError
from gpuctl.core.exit_codes import INTERNAL_ERROR, INTERRUPTED, NOT_DONE, READER_GONE

NOT_WRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
NOT_PERMITTED = (errno.EACCES, errno.EPERM)
FOLDERS = "set other folders with GPUCTL_CONFIG_DIR, GPUCTL_STATE_DIR and GPUCTL_CACHE_DIR"


class OutputUnread(Exception):
    """The reader of standard output is gone, but the command has finished with this exit code."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


def guarded(command: Callable[..., Any]) -> None:
    """Run the command line and end the process with its exit code."""
    code, write_error = _exit_code(command)
    write_error = _discard_unwritten() or write_error
    if write_error is not None:
        _print_error(
            f"cannot write the output: {write_error.strerror or write_error}",
            "redirect it to a place with free space, then run the command again",
        )
        code = code if code in (INTERNAL_ERROR, INTERRUPTED) else NOT_DONE
    sys.exit(code if isinstance(code, int) else 0)


Ending = tuple[Any, OSError | None]  # the exit code, and the error that kept the output from being written


def _exit_code(command: Callable[..., Any]) -> Ending:
    output = sys.stdout
    try:
        return command(standalone_mode=False), None
    except (GpuctlError, click.ClickException) as error:
        if isinstance(error, GpuctlError):
            _print_error(str(error), error.hint)
        else:
            with contextlib.suppress(OSError):  # without a reader, the exit code still reports it
                error.show()
        return error.exit_code, None
    except (click.Abort, KeyboardInterrupt) as error:
        return _interrupted(error), None
    except (BrokenPipeError, OutputUnread) as error:  # the reader is gone, as with `| head`
        return getattr(error, "exit_code", READER_GONE), None
    except SystemExit as error:  # the command chose its exit code
        # When the reader is gone, click replaces sys.stdout and exits with 1.
        return READER_GONE if sys.stdout is not output else error.code, None
    except Exception as error:  # noqa: BLE001 - gpuctl's own faults are caught only here, and logged
        return _fault(error)


def _interrupted(error: BaseException) -> int:
    # Abort without KeyboardInterrupt: the user declined a confirmation, so nothing has started.
    declined = isinstance(error, click.Abort) and not isinstance(error.__cause__, KeyboardInterrupt)
    _print_error("interrupted", "nothing was changed" if declined else "")
    return INTERRUPTED


def _fault(error: Exception) -> Ending:
    if isinstance(error, OSError) and _is_output_error(error):
        return NOT_DONE, error
    known = known_text(error)
    _print(known or fault_text(error))
    return NOT_DONE if known else INTERNAL_ERROR, None


def _is_own_file(name: object) -> bool:
    """True for a file in gpuctl's own folders, and for a missing folder above them, which gpuctl would create."""
    from gpuctl.core.paths import own_dirs

    if not isinstance(name, str):
        return False
    path = Path(name).absolute()
    folders = [folder.absolute() for folder in own_dirs()]
    return any(path.is_relative_to(folder) for folder in folders) or (
        any(folder.is_relative_to(path) for folder in folders) and not os.path.lexists(path)
    )


def _is_output_error(error: OSError) -> bool:
    """True if standard output could not be written, rather than some other file."""
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    return innermost.f_code is click.echo.__code__


def _discard_unwritten() -> OSError | None:
    """Discard output that cannot be written: Python would complain at exit, with an exit code of its own.

    Returns the error, unless the reader is merely gone.
    """
    write_error = None
    for stream in (sys.stderr, sys.stdout):
        try:
            if stream is not None:  # None if it was closed before gpuctl started
                stream.flush()
        except OSError as error:
            write_error = error if stream is sys.stdout and not isinstance(error, BrokenPipeError) else None
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return write_error


def _print_error(message: str, hint: str) -> None:
    _print(error_text(message, hint))


def _print(text: str) -> None:
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def error_text(message: str, hint: str) -> str:
    """An error as it is printed, without control characters."""
    from gpuctl.engine import printable

    return printable(f"gpuctl: {message}" + (f"\n  hint: {hint}" if hint else ""))


def known_text(error: Exception) -> str | None:
    """An error as it is printed; None for a fault of gpuctl."""
    if isinstance(error, GpuctlError):
        return error_text(str(error), error.hint)
    if isinstance(error, click.ClickException):
        return error_text(error.format_message(), "")
    if isinstance(error, OSError) and error.errno in NOT_WRITABLE:
        message = f"cannot write {error.filename or 'a file'}: {error.strerror}"
        return error_text(message, f"free some space or make it writable, or {FOLDERS}")
    if isinstance(error, OSError) and error.errno in NOT_PERMITTED and _is_own_file(error.filename):
        message = f"cannot use {error.filename}: {error.strerror}"
        return error_text(message, f"give your user access to it, or {FOLDERS}")
    return None


def fault_text(error: Exception) -> str:
    """A fault of gpuctl as it is printed; its traceback is written to a log file. Call it while it is handled."""
    return error_text(f"gpuctl itself failed: {error}", f"please report it with this file: {_write_log()}")


def _write_log() -> str:
    """Write the traceback to a file and return its path; if no folder can be written, print the traceback."""
    from gpuctl.core.paths import private, state_dir, write_atomically

    text, name = (
        f"{' '.join(sys.argv)}\n{traceback.format_exc()}",
        f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log",
    )
    try:
        path = private(state_dir() / "faults") / name
        write_atomically(path, text)
    except OSError:
        try:
            path = Path(tempfile.mkdtemp(prefix="gpuctl-faults-")) / name
            write_atomically(path, text)
        except OSError as error:
            click.echo(text, err=True)
            return f"the lines above (no log file: {error})"
    return str(path)
