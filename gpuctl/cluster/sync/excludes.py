"""Exclude patterns of a sync, as in .gitignore; the last matching pattern decides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpuctl.core.errors import InvalidInput
from gpuctl.edges import gitignore

IGNORE_FILE = ".gpuctlignore"
ALWAYS = (".gpuctl-sync*",)  # gpuctl's manifest in the pods
DEFAULTS = (
    *(".git/", ".hg/", ".svn/", ".venv/", "venv/", ".env", ".envrc"),
    *("__pycache__/", "*.py[co]", "*.egg-info/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".tox/"),
    *(".ipynb_checkpoints/", "node_modules/", ".DS_Store", ".idea/", ".vscode/"),
    *("*.sw[op]", "*~", ".#*", "4913"),  # temporary files of editors
    *("/checkpoints/", "checkpoint-*/", "/wandb/", "/hostfile"),  # files that trainings create in pods
)


class Excludes:
    """Decides which paths are excluded; the content of an excluded folder is excluded, too."""

    def __init__(self, patterns: Sequence[str]) -> None:
        try:
            self._matches = gitignore.matcher([*DEFAULTS, *patterns, *ALWAYS])
        except ValueError as error:
            raise InvalidInput("use the exclude patterns", str(error), "write them as in .gitignore") from error
        self._known: dict[tuple[str, bool], bool] = {}

    def excludes(self, path: str, *, folder: bool) -> bool:
        """Return whether a path is excluded, given that its folder is not."""
        if (path, folder) not in self._known:
            self._known[path, folder] = self._matches(f"{path}/" if folder else path)
        return self._known[path, folder]

    def excludes_below(self, path: str, *, folder: bool) -> bool:
        """Return whether a path is excluded, by itself or through a folder above it."""
        parts = path.split("/")
        return self.excludes(path, folder=folder) or any(
            self.excludes("/".join(parts[:n]), folder=True) for n in range(1, len(parts))
        )


def read_patterns(source: Path, more: Sequence[str]) -> Excludes:
    """Default patterns, those of the folder's own file, and more."""
    path = source / IGNORE_FILE
    try:
        patterns = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, ValueError) as error:
        raise InvalidInput(f"read {path}", str(error), "it contains patterns as in .gitignore, in UTF-8") from error
    return Excludes([*patterns, *more])
