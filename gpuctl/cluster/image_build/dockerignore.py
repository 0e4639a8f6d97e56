"""What .dockerignore leaves out: by Docker's own rules, which are not those of .gitignore.

A pattern counts from the top of the folder, takes all that is below what it takes, and the last one that fits decides
(moby/patternmatcher; docs.docker.com, build context, .dockerignore).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gpuctl.core.errors import InvalidInput

# The first of them that is there counts (podman-build(1)).
FILES = (".containerignore", ".dockerignore")


class Ignored:
    """Says of a path whether it is left out, by itself or with a folder that it is in."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._rules = [rule for line in lines if (rule := _rule(line))]

    def __call__(self, path: str) -> bool:
        parts = path.split("/")
        ways = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        out = False
        for takes_back, pattern in self._rules:
            if takes_back == out and any(pattern.fullmatch(each) for each in ways):
                out = not takes_back
        return out


def of(folder: Path) -> Ignored:
    """Those of a folder; nothing is left out where it has no such file."""
    for path in (folder / name for name in FILES):
        try:
            return Ignored(path.read_text(encoding="utf-8-sig").splitlines())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise InvalidInput(f"read {path}", str(error), "it has one pattern a line, in UTF-8") from error
        except re.error as error:
            raise InvalidInput(f"read {path}", f"a pattern of it cannot be used: {error}") from error
    return Ignored(())


def _rule(line: str) -> tuple[bool, re.Pattern[str]] | None:
    """Whether it takes back what others left out, and what it takes; None of a comment."""
    words = line.strip()
    if not words or line.startswith("#"):
        return None
    takes_back, path = words.startswith("!"), words.removeprefix("!").strip()
    parts: list[str] = []
    for part in path.split("/"):  # as a path: a/../b is b
        if part == ".." and not parts and not path.startswith("/"):
            return None  # outside of the folder
        if part == "..":
            del parts[-1:]
        elif part not in (".", ""):
            parts.append(part)
    return (takes_back, re.compile(_expression("/".join(parts)), re.DOTALL)) if parts else None


def _expression(pattern: str) -> str:
    """** takes any number of folders, * and ? nothing with a /, [a-z] one letter, \\x the letter x."""
    found, at = "", 0
    while at < len(pattern):
        rest = pattern[at:]
        if rest.startswith("**"):
            at += 3 if rest[2:3] == "/" else 2
            found += ".*" if at >= len(pattern) and rest[2:3] != "/" else "(?:.*/)?"
        elif rest[0] in "*?":
            found, at = found + ("[^/]*" if rest[0] == "*" else "[^/]"), at + 1
        elif letters := re.match(r"\[\^?[^\]]+\]", rest):
            found, at = found + letters[0].replace("\\", "\\\\"), at + letters.end()
        elif rest[0] == "\\" and len(rest) > 1:
            found, at = found + re.escape(rest[1]), at + 2
        else:
            found, at = found + re.escape(rest[0]), at + 1
    return found
