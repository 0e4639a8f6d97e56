"""CHANGELOG.md of the versions: the history of each, newest version first."""

from __future__ import annotations

HEAD = "# Versions of the tmux configuration\n"


def noted(text: str, version: str, what: str, when: str) -> str:
    """Return the page with one more line under a version; the user's own text stays."""
    lines = (text or HEAD).rstrip("\n").split("\n")
    heading, entry = f"## {version}", f"- {when} {' '.join(what.split())}"
    if heading not in lines:
        first = next((n for n, line in enumerate(lines) if line.startswith("## ")), len(lines))
        before = [*lines[:first]] if first and not lines[first - 1] else [*lines[:first], ""]
        after = ["", *lines[first:]] if first < len(lines) else []
        return "\n".join([*before, heading, "", entry, *after]) + "\n"
    start = lines.index(heading) + 1
    end = next((n for n in range(start, len(lines)) if lines[n].startswith("## ")), len(lines))
    while end > start and not lines[end - 1].strip():
        end -= 1
    return "\n".join([*lines[:end], entry, *lines[end:]]) + "\n"
