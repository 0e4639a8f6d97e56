"""The program that answers questions: it gets a text on standard input, once, and writes to the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges import programs, terminal


def program(command: str, configured: Sequence[str]) -> Sequence[str]:
    """Return the arguments of a command, split as a shell does but run without one; else the configured ones.

    `InvalidInput` if it is not installed, or the command cannot be read.
    """
    argv = _split(command) if command else configured
    if not programs.installed(argv[0]):
        hint = "name another with --program" if command else "set another command in the settings: ask"
        raise InvalidInput(f"ask {argv[0]}", "it is not installed", hint)
    return argv


def _split(command: str) -> Sequence[str]:
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise InvalidInput(
            f"read the program {command!r}", str(error), "quote it as in a shell: 'claude -p'"
        ) from error
    if not argv or not argv[0]:
        raise InvalidInput(f"read the program {command!r}", "it is empty", "name a program: 'claude -p'")
    return argv


def ask(argv: Sequence[str], text: str) -> None:
    """Pass the text to the program; `GpuctlError` if it fails. Ctrl-C ends it: KeyboardInterrupt."""
    doing = f"ask {argv[0]}"
    try:
        code = terminal.feed(argv, text)
    except OSError as error:
        raise GpuctlError(doing, error.strerror or str(error), "is it a program that this machine can run?") from error
    if code:
        how = f"it ended with exit status {code}" if code > 0 else f"it was killed by signal {-code}"
        raise GpuctlError(doing, how, "its messages are above; the text was passed to it once and is not sent again")
