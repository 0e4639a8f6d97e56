"""Match .dockerignore patterns by Docker's rules, which differ from .gitignore's.

Patterns are relative to the folder's root, a match includes everything below it, and the last matching pattern wins
(moby/patternmatcher; docs.docker.com, build context, .dockerignore).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gpuctl.core.errors import InvalidInput

# The first existing file is used (podman-build(1)).
FILES = (".containerignore", ".dockerignore")


class Ignored:
    """Decides if a path is excluded, by itself or with one of its folders."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._rules = [rule for line in lines if (rule := _rule(line))]

    def __call__(self, path: str) -> bool:
        parts = path.split("/")
        prefixes = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        out = False
        for negated, pattern in self._rules:
            if negated == out and any(pattern.fullmatch(prefix) for prefix in prefixes):
                out = not negated
        return out


def read_patterns(folder: Path) -> Ignored:
    """Read a folder's patterns; without an ignore file nothing is excluded."""
    for path in (folder / name for name in FILES):
        try:
            return Ignored(path.read_text(encoding="utf-8-sig").splitlines())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise InvalidInput(f"read {path}", str(error), "it has one pattern per line, in UTF-8") from error
        except re.error as error:
            raise InvalidInput(f"read {path}", f"a pattern is invalid: {error}") from error
    return Ignored(())


def _rule(line: str) -> tuple[bool, re.Pattern[str]] | None:
    """Parse a line: whether it negates, and its pattern; None for a comment."""
    text = line.strip()
    if not text or line.startswith("#"):
        return None
    negated, path = text.startswith("!"), text.removeprefix("!").strip()
    parts: list[str] = []
    for part in path.split("/"):  # as a path: a/../b is b
        if part == ".." and not parts and not path.startswith("/"):
            return None  # outside of the folder
        if part == "..":
            del parts[-1:]
        elif part not in (".", ""):
            parts.append(part)
    return (negated, re.compile(_expression("/".join(parts)), re.DOTALL)) if parts else None


def _expression(pattern: str) -> str:
    """Translate a pattern: ** matches any number of folders, * and ? no /, [a-z] one letter, \\x the letter x."""
    expression, position = "", 0
    while position < len(pattern):
        rest = pattern[position:]
        if rest.startswith("**"):
            position += 3 if rest[2:3] == "/" else 2
            expression += ".*" if position >= len(pattern) and rest[2:3] != "/" else "(?:.*/)?"
        elif rest[0] in "*?":
            expression, position = expression + ("[^/]*" if rest[0] == "*" else "[^/]"), position + 1
        elif letters := re.match(r"\[\^?[^\]]+\]", rest):
            expression, position = expression + letters[0].replace("\\", "\\\\"), position + letters.end()
        elif rest[0] == "\\" and len(rest) > 1:
            expression, position = expression + re.escape(rest[1]), position + 2
        else:
            expression, position = expression + re.escape(rest[0]), position + 1
    return expression
