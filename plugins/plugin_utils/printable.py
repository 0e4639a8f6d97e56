"""Texts from elsewhere, made safe for a terminal."""

from __future__ import annotations

import re

# Control characters, whose escape sequences would reach the terminal; tab and line feed are harmless.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text with control characters escaped, as in \\x1b."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)
