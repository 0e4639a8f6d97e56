"""The feedback pane of a preview: a few commands; every other line is feedback."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.tmux.versions import check, feedback, flow, preview, reload, store
from gpuctl.tmux.versions.model import Version

SHOWN = ("tmux.conf", "keybindings.conf", "theme.conf", "session.yml", "cheatsheet.txt")
COMMANDS = {
    "approve": "approve",
    "lgtm": "approve",
    "rollback": "rollback",
    "show config": "show",
    "reload": "reload",
    "quit": "quit",
}
DECISIONS = ("approve", "rollback", "quit")
HELP = "Type feedback, one line at a time. approve (lgtm) | rollback | show config | reload | quit"


def meaning(line: str) -> str:
    """Return the command of a line (a value of `COMMANDS`), "" for an empty line, else "feedback"."""
    command = " ".join(line.split())
    return COMMANDS.get(command.lower(), "feedback") if command else ""


def decide(command: str, line: str, version: str) -> str:
    """Carry out one of `DECISIONS` on a previewed version, and log the line; returns what was done.

    The log gets the line as typed, or with the reason if it could not be carried out.
    """
    log, text = preview.log(), feedback.one_line(line)
    if command == "quit":
        feedback.add(log, version, text)  # first: closing the preview may end this process
        preview.close()
        return f"the preview of {version} is closed"
    try:
        done = flow.promote(version) if command == "approve" else flow.rollback()
    except GpuctlError as error:
        feedback.add(log, version, f"{text} (not carried out: {error.wrong})")
        raise
    feedback.add(log, version, text)
    return flow.describe(done, "promoted" if command == "approve" else "rolled back to")


def inside() -> Pane:
    """Return the pane that this process runs in; `InvalidInput` outside a preview."""
    name = os.environ.get(preview.VERSION, "")
    pane = os.environ.get("TMUX_PANE", "")
    if not (name and pane and preview.running() == name):
        raise InvalidInput("open the feedback pane", "this is not inside a preview", "`gpuctl tmux preview` starts one")
    return Pane(store.named(name, "open the feedback pane"), pane)


@dataclass
class Pane:
    """The pane's loop; `session` is the content of session.yml when the windows were built."""

    version: Version
    pane: str
    session: bytes = b""

    def run(self, read_line: Callable[[], str], write: Callable[[str], None]) -> None:
        """Read lines until `quit` or the end of input."""
        write(f"Preview of {self.version.name}. {HELP}")
        self.session = self._session()
        while True:
            try:
                line = read_line()
            except EOFError:
                return
            command = meaning(line)
            try:
                write(self._answer(command, line))
            except GpuctlError as error:
                write(f"{error}\n{error.hint}".rstrip())
            if command == "quit":
                return

    def _answer(self, command: str, line: str) -> str:
        if command in DECISIONS:
            done = decide(command, line, self.version.name)
            return f"{done}; quit closes this preview" if command == "approve" else done
        if command == "show":
            return self._show()
        if command == "reload":
            return self._reload()
        if command == "feedback":
            feedback.add(preview.log(), self.version.name, line)
            return "noted"
        return HELP

    def _show(self) -> str:
        preview_server = preview.server()
        clients = preview_server.do("list-clients", "-t", f"={preview.SESSION}", "-F", "#{client_name}").split()
        if not clients:
            raise GpuctlError(
                "show the configuration", "no terminal is attached to the preview", "attach a terminal first"
            )
        files = [name for name in SHOWN if (self.version.folder / name).is_file()]
        pager = "${PAGER:-less}"
        command = f"cd {shlex.quote(str(self.version.folder))} && head -n 1000 {shlex.join(files)} | {pager}"
        preview_server.do("display-popup", "-E", "-c", clients[0], "-t", self.pane, "-w", "90%", "-h", "80%", command)
        return "shown"

    def _reload(self) -> str:
        report = check.folder(self.version.folder)
        if report.mistakes:
            return "\n".join(["not reloaded, it has mistakes:", *(f"  {mistake}" for mistake in report.mistakes)])
        config = self.version.folder / "tmux.conf"
        reload.load(preview.server(), config, preview.loaded() - report.changes, report.defaults)
        preview.remember_changes(report.changes)
        if self._session() != self.session:
            preview.rebuild(self.version, self.pane)
            self.session = self._session()
            return "reloaded, with the windows of session.yml"
        return "reloaded"

    def _session(self) -> bytes:
        return Path(self.version.folder / "session.yml").read_bytes()
