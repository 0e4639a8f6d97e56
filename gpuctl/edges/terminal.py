"""Terminal settings, and new terminal windows."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from gpuctl.edges.programs import need

INSIDE = ("TMUX", "TMUX_PANE")
BEGIN_S = 2.0  # a program that cannot open a window ends within this time


def has(program: str) -> bool:
    """True if a program is on the PATH."""
    return shutil.which(program) is not None


@contextlib.contextmanager
def as_it_was() -> Iterator[None]:
    """Restore the terminal's settings after the block, even if a program in it crashed."""
    try:
        before = termios.tcgetattr(sys.stdin)
    except (termios.error, OSError, ValueError):  # no terminal
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(termios.error, OSError):  # it may be closed
            _write_back(before)


def _write_back(settings: list[Any]) -> None:
    """Write terminal settings; a background job would otherwise be stopped for that."""
    handler = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)
    finally:
        signal.signal(signal.SIGTTOU, handler)


def ask(prompt: str) -> str | None:
    """Return the line that the user types on the process's terminal; None if nobody can answer there.

    A background job, such as a child of `timeout`, cannot read its terminal: the kernel would stop it.
    """
    try:
        with Path("/dev/tty").open("r+b", buffering=0) as terminal:
            if os.tcgetpgrp(terminal.fileno()) != os.getpgrp():
                return None
            terminal.write(prompt.encode())
            return bytes(terminal.readline()).decode(errors="replace")
    except OSError:
        return None


class _Declined(BaseException):
    """Ctrl-C at a question; not KeyboardInterrupt, which ends the command."""


def ask_until_interrupt(prompt: str) -> str | None:
    """Ask like `ask`; None after Ctrl-C, which then reaches nobody else. SIGTERM and SIGHUP end the command, too."""
    ends = signal.getsignal(signal.SIGINT)

    def decline(*_: object) -> None:
        raise _Declined

    def end(_: int, frame: FrameType | None) -> None:
        if not callable(ends):
            raise KeyboardInterrupt
        ends(signal.SIGINT, frame)
        raise _Declined

    with _handled({signal.SIGINT: decline, **dict.fromkeys((signal.SIGTERM, signal.SIGHUP), end)}):
        try:
            return ask(prompt)
        except _Declined:
            return None


def open_window(argv: Sequence[str]) -> str:
    """Start a program that opens a window and outlives gpuctl; return its error, or ""."""
    try:
        process = subprocess.Popen(
            argv,
            env=_outside(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        code = process.wait(BEGIN_S)
    except subprocess.TimeoutExpired:
        return ""
    except OSError as error:
        return str(error)
    return f"{argv[0]} ended with status {code}" if code else ""


def show(argv: Sequence[str], folder: str | None = None) -> int:
    """Run a program on the user's terminal, and return its exit status, 128 and more for a signal, as shells do.

    Ctrl-C reaches only the program.

    The terminal's settings are restored in any case.
    """
    need(argv[0])
    with as_it_was(), subprocess.Popen(list(argv), cwd=folder) as process:
        # Handlers instead of SIG_IGN, which the program would inherit.
        ending = dict.fromkeys((signal.SIGTERM, signal.SIGHUP), lambda *_: process.terminate())
        with _handled({signal.SIGINT: lambda *_: None, **ending}):
            code = process.wait()
        return code if code >= 0 else 128 - code


def feed(
    argv: Sequence[str], text: str, *, stdout: int | None = None, environment: Mapping[str, str] | None = None
) -> int:
    """Pass a text to a program on standard input, once; it writes to the user's terminal. Return its exit status.

    `stdout`: a descriptor for its standard output. `environment`: all its variables; None for those of this process.
    Ctrl-C, SIGTERM and SIGHUP end the program, twice: kill it, and raise KeyboardInterrupt. OSError if it cannot be
    started.
    """
    signals = list[int]()
    with (
        as_it_was(),
        subprocess.Popen(list(argv), stdin=subprocess.PIPE, stdout=stdout, env=environment) as process,
    ):

        def end(number: int, _frame: object) -> None:
            signals.append(number)
            (process.kill if len(signals) > 1 else process.terminate)()

        with _handled(dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), end)):
            process.communicate(text.encode(errors="replace"))  # it may end without reading all of it
    if signals:
        raise KeyboardInterrupt
    return process.returncode


@contextlib.contextmanager
def _handled(handlers: Mapping[signal.Signals, Callable[[int, Any], object]]) -> Iterator[None]:
    """Handle signals in a block, and restore the handlers before it."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def become(argv: Sequence[str], more: Mapping[str, str] | None = None) -> NoReturn:
    """Replace gpuctl with another program in this terminal. `more`: further environment variables."""
    os.execvpe(argv[0], list(argv), {**_outside(os.environ), **(more or {})})  # noqa: S606 - its purpose


def _outside(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that tell tmux that it runs inside another tmux."""
    return {name: value for name, value in environment.items() if name not in INSIDE}
