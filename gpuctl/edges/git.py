"""A git checkout: what its upstream has beyond it, and moving to it and back."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.processes import Processes

LIMIT_S, FETCH_S = 30.0, 300.0
# No question on the terminal: a missing password is an error.
QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": os.environ.get("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")}


@dataclass(frozen=True)
class Checkout:
    """A working tree."""

    folder: Path

    def ask(self, doing: str, *argv: str, limit_s: float = LIMIT_S) -> str:
        """Output of git; `GpuctlError` with its last line if it fails."""
        command = ["git", "-C", str(self.folder), *argv]
        try:
            done = Processes().run(command, b"", limit_s, {**os.environ, **QUIET})
        except OSError as error:
            raise InvalidInput(doing, f"git: {error.strerror}", "install git") from error
        if done.code is None:
            raise GpuctlError(doing, f"git {argv[0]} gave no answer within {limit_s:g} s", "is its remote reachable?")
        if done.code:
            lines = [line for line in done.err.splitlines() if line.strip()]
            raise GpuctlError(doing, lines[-1].strip() if lines else f"git {argv[0]} failed", f"in {self.folder}")
        return done.out.decode(errors="replace")

    def head(self) -> str:
        """Commit that is checked out."""
        return self.ask("read the checkout", "rev-parse", "HEAD").strip()

    def changed_files(self) -> list[str]:
        """Files of the checkout that differ from its commit; files that git does not know are left out."""
        lines = self.ask("look for own changes", "status", "--porcelain", "--untracked-files=no").splitlines()
        return [line[3:] for line in lines]

    def upstream(self) -> str:
        """Branch that the current one follows, "origin/main"; "" without one, or without a branch."""
        try:
            reference = "@{upstream}"
            return self.ask("find the upstream", "rev-parse", "--abbrev-ref", "--symbolic-full-name", reference).strip()
        except InvalidInput:
            raise
        except GpuctlError:
            return ""

    def fetch(self) -> None:
        """Get the commits of the remotes; the working tree stays as it is."""
        self.ask("fetch the latest code", "fetch", "--quiet", "--tags", limit_s=FETCH_S)

    def commits(self, since: str, until: str) -> list[str]:
        """Lines "abc1234 subject" of the commits of `until` that `since` has not, the newest first."""
        return self.ask("list commits", "log", "--format=%h %s", f"{since}..{until}").splitlines()

    def text(self, commit: str, path: str) -> str:
        """A file as it is in a commit; "" if it has none."""
        try:
            return self.ask("read a file", "show", f"{commit}:{path}")
        except GpuctlError:
            return ""

    def differs(self, one: str, other: str, *paths: str) -> bool:
        """True if one of these files differs between two commits."""
        return bool(self.ask("compare commits", "diff", "--name-only", one, other, "--", *paths).strip())

    def forward(self, commit: str) -> None:
        """Move the branch and the files to a descendant; nothing is changed if that would lose anything."""
        self.ask("update the checkout", "merge", "--ff-only", "--quiet", commit)

    def reset(self, commit: str) -> None:
        """Move the branch and the files to a commit; refuses to overwrite own changes."""
        self.ask("go back", "reset", "--keep", commit)
