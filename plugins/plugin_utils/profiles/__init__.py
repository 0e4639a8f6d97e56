"""Profiles: find, check and compile them for the engine. Runs on the controller."""

from __future__ import annotations

from ..strict_yaml import Mistake, did_you_mean
from .capturing import captured, questions
from .compiling import compiled
from .loading import inline, load
from .lookup import ProfileFile, names
from .model import Overlay, Profile, ProfileError, Row
from .queries import Difference, Explained, diff, explain

__all__ = [
    "Difference",
    "Explained",
    "Mistake",
    "Overlay",
    "Profile",
    "ProfileError",
    "ProfileFile",
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
