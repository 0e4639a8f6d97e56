"""Runs: `gpuctl runs`, the newest first; each with its record, and the command that undoes it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import click
import yaml

from gpuctl.cli.dash import acts
from gpuctl.cli.dash.model import Detail, Line, PanelKey, Program, View, command_line, shell_text
from gpuctl.cli.dash.request import DashRequest
from gpuctl.cli.gpu_node import bootstrap as gpu_node
from gpuctl.cli.hosts import runs, tune
from gpuctl.cli.shared import output
from gpuctl.core import run_history, settings
from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import collection_dir, config_dir
from gpuctl.core.run_history import RunRecord
from gpuctl.core.text import named
from gpuctl.engine import printable
from gpuctl.hosts import plan as host_plan

PAUSE_S = 30.0
MOST_HOSTS = 50  # whose results are shown; those of a thousand hosts are 30 MB
TUNE = ("tune-nodes",)
UNDONE_BY_ROLLBACK: Mapping[tuple[str, ...], click.Command] = {
    TUNE: tune.tune_nodes,
    ("bootstrap", "gpu-node"): gpu_node.bootstrap,
}
UNDO = "undo the run"
UNDO_HELP = "restore its hosts as before gpuctl, after a question: other runs there are undone, too"
NO_UNDO = "no command takes this run back"


class RunsPanel:
    """Records of what was changed from here."""

    name, title = "runs", "Runs"
    command = shell_text(["runs"])

    def __init__(self, request: DashRequest) -> None:
        self._request = request
        self._runs: dict[str, RunRecord] = {}
        self._damaged: Sequence[InvalidInput] = ()
        self._read_at = ""
        self.keys: Sequence[PanelKey] = (PanelKey("u", UNDO_HELP, self._undo),)

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
        lines = [Line("Undo:"), *undo(run), Line("")]
        shown, rest = vars(run), ""
        if len(run.hosts) > MOST_HOSTS:
            shown = {**shown, "hosts": sorted(run.hosts)}
            rest = f"results of the hosts: {shell_text(['runs', 'show', run.name])}"
        text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=110)
        lines += [Line(printable(text)) for text in [*text.splitlines(), rest]]
        return Detail(run.name, lines, shell_text(["runs", "show", run.name]))

    def _undo(self, subject: str) -> Detail | Program | None:
        """Return the command that undoes a run, with other runs that it undoes; without a command, the reasons."""
        if subject not in self._runs:
            return None
        run = run_history.load(subject)
        lines = list(undo(run))
        commands = [line.command for line in lines if line.command]
        if not commands:
            return Detail(f"undo {subject}", lines, "")
        return acts.program(commands[-1], settings.load(), self._request, *self._caveats(run))

    def _caveats(self, run: RunRecord) -> Iterator[str]:
        """Sentences about a run that may not have ended, and about later runs on its hosts."""
        if run.exit_code is None:
            yield "The run has no exit code: it may still be changing these hosts."
        later = [
            one for name, one in self._runs.items() if name > run.name and not run.hosts.keys().isdisjoint(one.hosts)
        ]
        if later:
            known = [f"{one.name} ({' '.join(takewhile(_is_name, one.command))})" for one in later]
            yield printable(f"Later runs on these hosts: {named(known)}.")


def _is_name(word: str) -> bool:
    return not word.startswith("-")


def undo(run: RunRecord) -> Iterator[Line]:
    """Commands that restore the hosts of a run, or the reason for their absence."""
    words = list(run.command[1:] if run.command[:1] == ["gpuctl"] else run.command)
    name = next((name for name in UNDONE_BY_ROLLBACK if words[: len(name)] == list(name)), None)
    if name is None:
        yield Line(f"  {NO_UNDO}, or it changed nothing")
        return
    try:
        place = _place(_options(UNDONE_BY_ROLLBACK[name], words[len(name) :]), run)
    except InvalidInput as error:
        yield Line(printable(f"  {error.wrong}"))
        if error.hint:
            yield Line(printable(f"  {error.hint}"))
        return
    stack = ["--only", "gpu_stack"] if name != TUNE else []
    yield command_line(shell_text(["rollback", *place, *stack, "--check", "--diff"]), "shows what it would restore")
    yield command_line(shell_text(["rollback", *place, *stack]), "also what other runs changed there")
    for host, result in run.hosts.items():
        if isinstance(result, dict) and result.get("record"):
            yield Line(printable(f"  # record of this run on {host}: {result['record']}"))


def _options(command: click.Command, words: Sequence[str]) -> Mapping[str, Any]:
    """Options of a command as they were typed; `InvalidInput` if this version of the command does not have them."""
    context = click.Context(command)
    try:
        return command.make_parser(context).parse_args(list(words))[0]
    except click.UsageError as error:
        wrong = f"this version of gpuctl cannot read the command: {error.format_message()}"
        raise InvalidInput(UNDO, wrong, "the command is below") from error


def _place(options: Mapping[str, Any], run: RunRecord) -> list[str]:
    """Inventory and hosts of a run, as options; `InvalidInput` with the reason if they are unknown."""
    if options.get("check"):
        raise InvalidInput(UNDO, f"{NO_UNDO}: with --check it changed nothing")
    if not run.hosts:
        raise InvalidInput(UNDO, "the record names no host, so what to restore is unknown")
    hosts = ["--limit", ",".join(run.hosts)]
    inventory = options.get("inventory")
    if not isinstance(inventory, str):  # an option that was not typed
        return hosts
    if not _is_same_everywhere(inventory):
        wrong = f"the inventory {inventory!r} depends on the folder in which the run was started; it is not recorded"
        raise InvalidInput(UNDO, wrong, f"`gpuctl rollback` in that folder, on the hosts {hosts[1]}, restores them")
    return ["--inventory", inventory, *hosts]


def _is_same_everywhere(inventory: str) -> bool:
    """True for an absolute path, and for a name whose file does not lie in the working folder."""
    if inventory.startswith(("/", "~")):
        return True
    if "/" in inventory or inventory.startswith("."):
        return False
    try:
        path = host_plan.find_inventory(inventory).resolve()
    except InvalidInput:
        return False
    return any(path.is_relative_to(folder.resolve()) for folder in (config_dir(), collection_dir()))
