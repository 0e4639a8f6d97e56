"""Programs that a full-screen command hands the terminal to, until they end."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gpuctl.edges import terminal
from gpuctl.edges.programs import gpuctl_program

YES = ("y", "yes")


def run(argv: Sequence[str], question: str = "", *, pauses: bool = True) -> int | None:
    """Run a program on the terminal, and return its exit code; None if the user does not agree to `question`.

    `pauses`: wait for Enter, so that its output can be read. An exit code other than 0 always waits.
    """
    if question and (terminal.ask_until_interrupt(f"{question} [y/N] ") or "").strip().lower() not in YES:
        return None
    code = terminal.show(_with_path(argv))
    sys.stdout.flush()
    if pauses or code:
        terminal.ask_until_interrupt(f"\n{argv[0]} ended with exit code {code}; Enter goes back ")
    return code


def _with_path(argv: Sequence[str]) -> list[str]:
    """Command line with the path of this gpuctl, which a PATH may lack."""
    return [gpuctl_program(), *argv[1:]] if argv[0] == "gpuctl" else list(argv)
