"""Check a version: run its files on a private server, then compare windows, panes and keys."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.processes import Processes
from gpuctl.edges.tmux import Server, version
from gpuctl.tmux import build, session_file
from gpuctl.tmux.session import Session
from gpuctl.tmux.versions import state
from gpuctl.tmux.versions.config_check import Feeding, copied
from gpuctl.tmux.versions.config_parser import Mistake, Unit
from gpuctl.tmux.versions.key_check import bound, undocumented

NEEDED = ("tmux.conf", "keybindings.conf", "theme.conf", "cheatsheet.txt", "session.yml")
NAME, SIZE, PATIENCE = "gpuctl-check", (240, 60), 10.0
NO_PROGRAM = "/gpuctl-does-not-run-in-a-check"  # scripts find no gpuctl there, and do without


@dataclass(frozen=True)
class Report:
    """The mistakes in a version, and what it changes on a server; `defaults` is the server's state without it."""

    mistakes: tuple[Mistake, ...]
    changes: state.Changed
    defaults: state.State
    commands: int = 0
    windows: int = 0


def folder(path: Path) -> Report:
    """Check a version folder."""
    version()
    missing = [Mistake(name, 0, "is missing, or not a file") for name in NEEDED if not (path / name).is_file()]
    with _private() as (server, folder):
        report = _fed(server, path, copied(path, folder), "tmux.conf")
        mistakes = [*missing, *report.mistakes, *_scripts(path)]
        windows: Sequence[str] = ()
        if server.runs():
            mistakes += _keys(server, report)
            mistakes += _cheatsheet(server, path, report)
        desired, in_session = _session(path) if (path / "session.yml").is_file() else (None, [])
        mistakes += in_session
        if desired and not mistakes:
            windows = _expected(desired)
            mistakes += _windows(server, copied(path, folder / "again"), desired)
    number = len({pane.partition("\t")[0] for pane in windows})
    return Report(_sorted(mistakes), report.changes, report.defaults, len(report.fed), number)


def measure(path: Path) -> Report:
    """Return what a folder's files change on a server, errors or not; windows and keys are not checked."""
    with _private() as (server, folder):
        report = _fed(server, path, copied(path, folder), "tmux.conf")
    return Report(_sorted(report.mistakes), report.changes, report.defaults, len(report.fed))


def file(path: Path) -> Report:
    """Check one configuration file and the files it reads."""
    version()
    with _private() as (server, folder):
        copy = folder / "version"
        copy.mkdir()
        shutil.copy(path, copy)
        report = _fed(server, path.parent, copy, path.name)
        mistakes = [*report.mistakes, *(_keys(server, report) if server.runs() else ())]
    return Report(_sorted(mistakes), report.changes, report.defaults, len(report.fed))


def _sorted(mistakes: Sequence[Mistake]) -> tuple[Mistake, ...]:
    return tuple(sorted(mistakes, key=lambda mistake: (mistake.file, mistake.line)))


@dataclass(frozen=True)
class _Fed:
    mistakes: tuple[Mistake, ...]
    fed: tuple[tuple[str, Unit], ...]
    changes: state.Changed
    defaults: state.State


@contextmanager
def _private() -> Iterator[tuple[Server, Path]]:
    """Provide a private server and a temporary folder; both are removed afterwards."""
    # A script of the version may outlive the server and write there while the folder is removed.
    with tempfile.TemporaryDirectory(prefix="gpuctl-tmux-", ignore_cleanup_errors=True) as folder:
        server = Server("check", environment={"TMUX_TMPDIR": folder, "GPUCTL_PROGRAM": NO_PROGRAM}, limit=PATIENCE)
        server.do("new-session", "-d", "-s", f"{NAME}-empty", "-x", str(SIZE[0]), "-y", str(SIZE[1]), "sleep 3600")
        try:
            yield server, Path(folder)
        finally:
            server.try_to("kill-server")


def _fed(server: Server, origin: Path, copy: Path, start: str) -> _Fed:
    before = state.read(server)
    feeding = Feeding(server, origin, copy)
    if (origin / start).is_file():
        feeding.file(copy / start)
    changes = state.changed(before, state.read(server)) if server.runs() else state.Changed()
    return _Fed(tuple(feeding.mistakes), tuple(feeding.units), changes, before)


def _scripts(path: Path) -> Iterator[Mistake]:
    """Yield errors for scripts that are referenced but missing, or that have syntax errors."""
    for conf in sorted(path.glob("*.conf")):
        for number, line in enumerate(conf.read_text(errors="replace").splitlines(), 1):
            named = [] if line.lstrip().startswith("#") else re.findall(r"/(scripts/[\w.-]+)", line)
            yield from (Mistake(conf.name, number, f"{n} does not exist") for n in named if not (path / n).is_file())
    for script in sorted((path / "scripts").glob("*.sh")):
        done = Processes().run(["sh", "-n", str(script)], b"", PATIENCE)
        if done.code != 0:
            message = done.err.strip().replace(f"{script}: ", "") or "the shell cannot parse it"
            yield Mistake(f"scripts/{script.name}", 0, message)


def _keys(server: Server, report: _Fed) -> Iterator[Mistake]:
    """Yield errors for keys that a file binds but the server does not have at the end."""
    reported = {(mistake.file, mistake.line) for mistake in report.mistakes}
    for (table, key), (name, unit) in bound(report.fed).items():
        lines = range(unit.line, unit.line + unit.text.count("\n") + 1)
        if (
            not any((name, line) in reported for line in lines)
            and server.try_to("list-keys", "-T", table, key).returncode
        ):
            yield Mistake(name, unit.line, f"the key {key} (table {table}) is not bound at the end")


def _cheatsheet(server: Server, path: Path, report: _Fed) -> list[Mistake]:
    """List differences between the cheatsheet and the server's keys."""
    if not (path / "cheatsheet.txt").is_file():
        return []
    text = (path / "cheatsheet.txt").read_text(errors="replace")
    return undocumented(text, bound(report.fed), state.keys(server.do("list-keys")).keys())


def _session(path: Path) -> tuple[Session | None, list[Mistake]]:
    try:
        return session_file.read(path / "session.yml"), []
    except InvalidInput as error:
        lines = error.wrong.replace(f"{path}/", "").splitlines()
        matches = (re.fullmatch(r"\s*(?:session\.yml:(\d+):?\s*)?(.*)", line) for line in lines)
        return None, [Mistake("session.yml", int(f[1] or 0), f[2]) for f in matches if f]


def _windows(server: Server, copy: Path, desired: Session) -> list[Mistake]:
    """Build the session without its programs and compare."""
    try:
        build.build(server, copy, name=NAME, session=_quiet(desired, copy), size=SIZE)
    except GpuctlError as error:
        return [Mistake("session.yml", 0, f"the session cannot be built, a pane may have exited at once: {error}")]
    time.sleep(0.3)  # a pane whose script fails at once is gone by then
    form = "#{window_index}\t#{window_name}\t#{@gpuctl_title}"
    panes = server.do("list-panes", "-s", "-t", f"={NAME}", "-F", form).splitlines()
    missing = [pane for pane in _expected(desired) if pane not in panes]
    more = [pane for pane in panes if pane not in _expected(desired)]
    return [
        *(Mistake("session.yml", 0, f"{_pane(pane)} is missing from the built session") for pane in missing),
        *(Mistake("session.yml", 0, f"{_pane(pane)} is in the session but not in this file") for pane in more),
    ]


def _quiet(desired: Session, folder: Path) -> Session:
    """Return the same windows and panes in an existing folder, with nothing of the user's running."""
    windows = tuple(
        replace(
            window,
            panes=tuple(replace(p, run=("sleep", "3600"), repository="", directory="") for p in window.panes),
        )
        for window in desired.windows
    )
    return replace(desired, directory=str(folder), windows=windows)


def _expected(desired: Session) -> list[str]:
    return [
        f"{number if window.index is None else window.index}\t{window.name}\t{pane.title}"
        for number, window in enumerate(desired.windows)
        for pane in window.panes
    ]


def _pane(row: str) -> str:
    index, window, title = row.split("\t")
    return f"pane {title or '(no title)'} of window {index} {window}"
