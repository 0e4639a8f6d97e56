"""Match paths with patterns as in .gitignore; the only file that uses pathspec."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pathspec import GitIgnoreSpec


def matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a test for paths (a folder's path ends with a slash); the last matching pattern decides.

    ValueError if a pattern is invalid.
    """
    return GitIgnoreSpec.from_lines(patterns).match_file
