"""Runs: `gpuctl runs`, the newest first; each with its record, and the command that undoes it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import yaml

from gpuctl.cli.dash.model import Detail, Line, PanelKey, View, command_line, shell_text
from gpuctl.cli.dash.request import DashRequest
from gpuctl.cli.hosts import runs
from gpuctl.cli.shared import output
from gpuctl.core import run_history
from gpuctl.core.errors import InvalidInput
from gpuctl.core.run_history import RunRecord
from gpuctl.engine import printable

PAUSE_S = 30.0
MOST_HOSTS = 50  # whose results are shown; those of a thousand hosts are 30 MB
UNDONE_BY_ROLLBACK = ("tune-nodes", "bootstrap gpu-node", "gpu-node bootstrap")
NO_UNDO = "no command takes this run back"


class RunsPanel:
    """Records of what was changed from here."""

    name, title = "runs", "Runs"
    command = shell_text(["runs"])

    def __init__(self, _: DashRequest) -> None:
        self._runs: dict[str, RunRecord] = {}
        self._damaged: Sequence[InvalidInput] = ()
        self._read_at = ""
        self.keys: Sequence[PanelKey] = ()

    def read(self) -> float:
        """Read the records that are new, or had not ended; of hosts, only the names stay in memory."""
        names = run_history.names()
        ended = {name: run for name, run in self._runs.items() if run.exit_code is not None}
        loaded, self._damaged = runs.load_all([name for name in names if name not in ended])
        known = ended | {run.name: replace(run, hosts=dict.fromkeys(run.hosts)) for run in loaded}
        self._runs = {name: known[name] for name in reversed(names) if name in known}
        self._read_at = time.strftime("%H:%M:%S")
        return PAUSE_S

    def view(self) -> View:
        if not self._read_at:
            return View()
        head, *lines = output.columns(runs.HEAD, runs.rows(list(self._runs.values())))
        levels = ["" if run.exit_code == 0 else "WARN" for run in self._runs.values()]
        shown = [Line(text, run, level) for text, run, level in zip(lines, self._runs, levels, strict=True)]
        shown += [Line(printable(f"{error}; {error.hint}"), level="UNKNOWN") for error in self._damaged]
        return View(shown or [Line("no run has changed a host from here")], head, (), self._read_at)

    def detail(self, subject: str) -> Detail | None:
        """Return the record of a run, and below it the command that undoes it."""
        if subject not in self._runs:
            return None
        run = run_history.load(subject)
        lines = [Line("Undo (not run from here):"), *undo(run), Line("")]
        shown, rest = vars(run), ""
        if len(run.hosts) > MOST_HOSTS:
            shown = {**shown, "hosts": sorted(run.hosts)}
            rest = f"results of the hosts: {shell_text(['runs', 'show', run.name])}"
        text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=110)
        lines += [Line(printable(text)) for text in [*text.splitlines(), rest]]
        return Detail(run.name, lines, shell_text(["runs", "show", run.name]))


def undo(run: RunRecord) -> Iterator[Line]:
    """Commands that restore the hosts of a run, or the reason for their absence."""
    words = [word for word in run.command if word != "gpuctl"]
    if "--check" in words or not any(" ".join(words).startswith(command) for command in UNDONE_BY_ROLLBACK):
        yield Line(f"  {NO_UNDO}, or it changed nothing")
        return
    place = [*_inventory(words), "--limit", ",".join(run.hosts)]
    stack = ["--only", "gpu_stack"] if words[0] != "tune-nodes" else []
    yield command_line(shell_text(["rollback", *place, *stack, "--check", "--diff"]), "shows what it would restore")
    yield command_line(shell_text(["rollback", *place, *stack]), "also what other runs changed there")
    for host, result in run.hosts.items():
        if isinstance(result, dict) and result.get("record"):
            yield Line(printable(f"  # record of this run on {host}: {result['record']}"))


def _inventory(words: Sequence[str]) -> list[str]:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in ("-i", "--inventory"):
            return ["--inventory", following]
        if word.startswith("--inventory="):
            return ["--inventory", word.partition("=")[2]]
    return []
