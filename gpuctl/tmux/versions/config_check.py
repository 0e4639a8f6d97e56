"""Run a configuration command by command on a private tmux server, to report every error with its line.

tmux itself stops at the first syntax error, reports invalid options without a line, and starts anyway.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gpuctl.edges.tmux import Server
from gpuctl.tmux.versions.config_parser import Mistake, Unit, split

DEEPEST = 20
NOTED = "@gpuctl_fed"


@dataclass
class Branch:
    """An open %if: whether its lines apply, and whether one of its branches did."""

    line: int
    counts: bool
    done: bool


@dataclass
class Feeding:
    """Runs the files of `copy`, a copy of the user's folder `origin`, one command per file."""

    server: Server
    origin: Path
    copy: Path
    mistakes: list[Mistake] = field(default_factory=list)
    units: list[tuple[str, Unit]] = field(default_factory=list)
    _branches: list[Branch] = field(default_factory=list)
    _ended: bool = False

    def file(self, path: Path, depth: int = 0) -> None:
        """Run a file of the copy, or one from elsewhere, and the files it reads."""
        name, text = self._read(path)
        units, unclosed = split(text)
        self.mistakes += [Mistake(name, line, what) for line, what in unclosed]
        outer, self._branches = self._branches, []
        inside = path if path.is_relative_to(self.copy) else self.copy / f"{path.name}.elsewhere"
        broken = {line for line, _ in unclosed}
        for unit in units:
            if not self._ended and broken.isdisjoint(range(unit.line, unit.line + unit.text.count("\n") + 1)):
                self._unit(name, inside, unit, depth)
        self.mistakes += [Mistake(name, branch.line, "this %if has no %endif") for branch in self._branches]
        self._branches = outer
        _write(inside, text)

    def _read(self, path: Path) -> tuple[str, str]:
        """Return the user's name for a file, and its text; invalid UTF-8 is preserved."""
        name = path.relative_to(self.copy) if path.is_relative_to(self.copy) else path
        origin = self.origin / name
        return str(name), origin.read_bytes().decode(errors="surrogateescape")

    def _unit(self, name: str, path: Path, unit: Unit, depth: int) -> None:
        if unit.condition:
            self._condition(name, path, unit)
        elif not all(branch.counts for branch in self._branches):
            # The other branch may be for another tmux version: only its syntax is checked.
            self._report(name, unit, self._feed(path, unit.line, unit.text, "%if 0\n", "%endif\n"))
        elif len("source") <= len(unit.tokens[0]) and "source-file".startswith(unit.tokens[0]):
            self._source(name, path, unit, depth)
        else:
            self.units.append((name, unit))
            self._report(name, unit, self._feed(path, unit.line, unit.text))

    def _condition(self, name: str, path: Path, unit: Unit) -> None:
        if unit.condition == "%if":
            counts = self._is_true(name, path, unit)
            self._branches.append(Branch(unit.line, counts, counts))
        elif not self._branches:
            self.mistakes.append(Mistake(name, unit.line, f"this {unit.condition} has no %if before it"))
        elif unit.condition == "%endif":
            self._branches.pop()
        else:
            branch = self._branches[-1]
            matches = unit.condition == "%else" or (not branch.done and self._is_true(name, path, unit))
            branch.counts = matches and not branch.done
            branch.done = branch.done or branch.counts

    def _is_true(self, name: str, path: Path, unit: Unit) -> bool:
        condition = "%if" + unit.text.removeprefix(unit.condition)
        yes, no = (f"set-option -g {NOTED} {word}\n" for word in ("yes", "no"))
        self._report(name, unit, self._feed(path, unit.line, condition, after=f"{yes}%else\n{no}%endif\n"))
        return self._noted() == "yes"

    def _noted(self) -> str:
        value = self.server.try_to("show-options", "-gqv", NOTED).stdout.rstrip("\n")
        self.server.try_to("set-option", "-gqu", NOTED)
        return value

    def _source(self, name: str, path: Path, unit: Unit, depth: int) -> None:
        flags = [word for word in unit.tokens[1:] if word.startswith("-")]
        formats = "F" if any("F" in flag for flag in flags) else ""
        for word in unit.tokens[1:]:
            if word.startswith("-") and word != "-":
                continue
            self._report(name, unit, self._feed(path, unit.line, f"set-option -g{formats} {NOTED} {word}"))
            pattern = self._noted()
            files = sorted(_files(pattern))
            if not pattern.startswith("/"):
                self._report(
                    name, unit, [f"{pattern or word}: tmux looks for it in its start directory, not beside this file"]
                )
            elif depth >= DEEPEST:
                self._report(name, unit, [f"{pattern}: files include each other endlessly"])
            elif not files and not any("q" in flag for flag in flags):
                self._report(name, unit, [f"{self._called(pattern)}: no such file"])
            else:
                for file in files:
                    self.file(file, depth + 1)

    def _called(self, path: str) -> str:
        return path.replace(f"{self.copy}/", "")

    def _feed(self, path: Path, line: int, text: str, before: str = "", after: str = "") -> list[str]:
        """Return tmux's messages about a command, which is placed at its line in a file with its name."""
        _write(path, "\n" * (line - 1 - before.count("\n")) + before + text + "\n" + after)
        done = self.server.try_to("source-file", str(path))
        if done.returncode == 0 and ("kill-s" not in text or self.server.runs()):
            return []
        output = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        if not self.server.runs():
            self._ended = True
            return ["it ended the server, so nothing after it could be checked"]
        return output or [f"exit status {done.returncode}"]

    def _report(self, name: str, unit: Unit, messages: list[str]) -> None:
        self.mistakes += [_placed(name, unit, self._called(what)) for what in messages]


def _placed(name: str, unit: Unit, message: str) -> Mistake:
    """Use the line from tmux inside a block, else the line of the command."""
    match = re.match(r"(?:\S*/)?[^/\s:]+:(\d+): (.*)", message)
    if match is None:
        return Mistake(name, unit.line, message)
    inside = "{" in unit.tokens and unit.line <= int(match[1]) <= unit.line + unit.text.count("\n")
    return Mistake(name, int(match[1]) if inside else unit.line, match[2])


def _files(pattern: str) -> Iterator[Path]:
    root = Path("/")
    if pattern.startswith("/"):
        yield from (path for path in root.glob(pattern.lstrip("/")) if path.is_file())


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode(errors="surrogateescape"))


def copied(origin: Path, folder: Path) -> Path:
    """Copy a version folder to a writable place; links become the files they point to."""
    copy = folder / "version"
    shutil.copytree(origin, copy, ignore_dangling_symlinks=True)
    for path in [copy, *copy.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o600)
    return copy
