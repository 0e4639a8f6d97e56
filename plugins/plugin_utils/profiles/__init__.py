"""Profiles: find them, check them, and turn them into what the engine takes. Runs on the controller."""

from __future__ import annotations

from .capturing import captured, questions
from .compiling import compiled
from .finding import Found, names
from .loading import inline, load
from .model import Mistake, Overlay, Profile, ProfileError, Row, did_you_mean
from .showing import Difference, Explained, diff, explain

__all__ = [
    "Difference",
    "Explained",
    "Found",
    "Mistake",
    "Overlay",
    "Profile",
    "ProfileError",
    "Row",
    "captured",
    "compiled",
    "did_you_mean",
    "diff",
    "explain",
    "inline",
    "load",
    "names",
    "questions",
]
