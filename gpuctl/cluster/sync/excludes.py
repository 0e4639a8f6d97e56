"""What is left out of a sync, by patterns as in .gitignore; the last that fits decides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec

from gpuctl.core.errors import InvalidInput

OWN_FILE = ".gpuctlignore"
ALWAYS = (".gpuctl-sync*",)  # our own record in the pods
DEFAULTS = (
    *(".git/", ".hg/", ".svn/", ".venv/", "venv/", ".env", ".envrc"),
    *("__pycache__/", "*.py[co]", "*.egg-info/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".tox/"),
    *(".ipynb_checkpoints/", "node_modules/", ".DS_Store", ".idea/", ".vscode/"),
    *("*.sw[op]", "*~", ".#*", "4913"),  # what editors leave while they write
    *("/checkpoints/", "checkpoint-*/", "/wandb/", "/hostfile"),  # what trainings make in pods
)


class Excludes:
    """Says of a path whether it is left out; what is in a folder that is left out is, too."""

    def __init__(self, patterns: Sequence[str]) -> None:
        try:
            self._spec = GitIgnoreSpec.from_lines([*DEFAULTS, *patterns, *ALWAYS])
        except ValueError as error:
            raise InvalidInput(
                "use the patterns of what is left out", str(error), "write them as in .gitignore"
            ) from error
        self._known: dict[tuple[str, bool], bool] = {}

    def one(self, path: str, folder: bool) -> bool:
        """Whether a path is left out, where its folder is not."""
        if (path, folder) not in self._known:
            self._known[path, folder] = self._spec.match_file(f"{path}/" if folder else path)
        return self._known[path, folder]

    def any(self, path: str, folder: bool) -> bool:
        """Whether a path is left out, by itself or with a folder that it is in."""
        parts = path.split("/")
        return self.one(path, folder) or any(self.one("/".join(parts[:n]), True) for n in range(1, len(parts)))


def of(source: Path, more: Sequence[str]) -> Excludes:
    """The usual ones, those of the folder's own file, and more."""
    path = source / OWN_FILE
    try:
        own = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, ValueError) as error:
        raise InvalidInput(f"read {path}", str(error), "it has patterns as in .gitignore, in UTF-8") from error
    return Excludes([*own, *more])
