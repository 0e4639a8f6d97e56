"""Load profiles by name or path, with every mistake in them as one error."""

from __future__ import annotations

from gpuctl import engine
from gpuctl.core.errors import InvalidInput


def load(name: str) -> engine.profiles.Profile:
    """A profile by name or path; `InvalidInput` with every mistake in it."""
    try:
        return engine.profiles.load(name)
    except engine.profiles.ProfileError as error:
        wrong = "\n  ".join(map(str, error.mistakes))
        hint = "`gpuctl profile list` lists the profiles" if "no profile is called" in wrong else ""
        raise InvalidInput(f"use the profile {name!r}", wrong, hint) from error
