"""Texts from elsewhere, made safe for a terminal."""

from __future__ import annotations

import re

# Control characters, whose escape sequences would reach the terminal; tab and line feed are harmless. Surrogates, of
# which no terminal or file takes any.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with control characters escaped, as in \\x1b, and lone surrogates, as in \\udcff."""
    return _CONTROL.sub(lambda match: ascii(match.group())[1:-1] if match.group() > "\xff" else _hex(match), text)


def _hex(match: re.Match[str]) -> str:
    return f"\\x{ord(match.group()):02x}"
