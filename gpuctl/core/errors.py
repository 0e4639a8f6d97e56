"""Errors say what was being done, what went wrong, and what to try; `cli/errors.py` alone catches and prints them."""

from __future__ import annotations

from gpuctl.core import exit_codes


class GpuctlError(Exception):
    """Something gpuctl could not do. `doing` completes "cannot …"; `hint` says what to try."""

    exit_code = exit_codes.NOT_DONE

    def __init__(self, doing: str, wrong: str, hint: str = "") -> None:
        super().__init__(f"cannot {doing}: {wrong}")
        self.doing = doing
        self.wrong = wrong
        self.hint = hint


class InvalidInput(GpuctlError):
    """The input cannot be used; nothing was changed."""

    exit_code = exit_codes.INVALID_INPUT


class Unreachable(GpuctlError):
    """A host, cluster or cloud did not answer or did not let us in."""
