"""Nodes that a command shows: the request, and the reading of its nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import output
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.hosts.model import HostResult, Target
    from gpuctl.nodes.model import Fleet, Node
    from gpuctl.nodes.summary import Group

Source = Callable[[], "tuple[list[Node], list[str]]"]
NO_SSH = ("srun", "scontrol")


@dataclass(frozen=True)
class NodesRequest:
    """Nodes to show. `context` of Kubernetes, or `sources` and `files` (recorded facts), instead of an inventory.

    `probe`: ask nodes of Kubernetes by pods of the image `probe_image` in `namespace`.
    `slurm`: nodes of the Slurm cluster, of one `partition` and host list `nodes`; `via`: see workflows/nodes_slurm.py.
    `save`: file for the facts. `idle`: seconds, None for all GPUs. `watch`: draw again every `every` seconds.
    """

    inventory: str | None
    limit: str
    context: str
    probe: bool
    probe_image: str
    namespace: str
    slurm: bool
    partition: str
    nodes: str
    via: str | None
    sources: tuple[Path, ...]
    files: tuple[Path, ...]
    save: Path | None
    type: str
    sort: str
    mine: bool
    idle: float | None
    watch: bool
    every: float
    forks: int
    timeout: float

    @property
    def recorded(self) -> list[Path]:
        return list(dict.fromkeys([*self.sources, *self.files]))


def check(request: NodesRequest, form: str) -> None:
    """Refuse options that exclude each other."""
    if request.files and not request.sources:
        raise InvalidInput(
            f"use {request.files[0]}",
            "positional files need --from",
            "use `gpuctl nodes --from FILE`",
        )
    of_hosts = {"--inventory": request.inventory is not None, "--limit": request.limit, "--save": request.save}
    of_facts = {"--mine": request.mine, "--idle": request.idle is not None, "--from": request.recorded}
    if request.recorded:
        _refuse("--from", {**of_hosts, "--watch": request.watch})
    if request.context:
        _refuse("--context", {**of_hosts, **({"--from": request.recorded} if request.probe else of_facts)})
    elif request.probe:
        raise InvalidInput("choose the nodes", "--probe is for nodes of Kubernetes", "add --context NAME")
    if request.slurm:
        _refuse("--slurm", {"--context": request.context, "--from": request.recorded, "--save": request.save})
        _refuse(f"--via {request.via}", {"--inventory": request.inventory} if request.via in NO_SSH else {})
    else:
        _refuse_without_slurm({"--partition": request.partition, "--nodes": request.nodes, "--via": request.via})
    if request.watch and (form != "table" or request.save):
        raise InvalidInput("watch nodes", "--watch draws a table and saves nothing", "leave out --output and --save")


def _refuse(option: str, others: Mapping[str, object]) -> None:
    """Refuse the options that are set."""
    wrong = [name for name, value in others.items() if value]
    if wrong:
        message = f"{option} cannot be combined with {', '.join(wrong)}"
        raise InvalidInput("choose the nodes", message, "leave one of them out")


def _refuse_without_slurm(others: Mapping[str, object]) -> None:
    if wrong := [name for name, value in others.items() if value]:
        raise InvalidInput("choose the nodes", f"{', '.join(wrong)} is for nodes of Slurm", "add --slurm")


def source(request: NodesRequest) -> Source:
    """Reading of the requested nodes: the nodes, and notes for the user."""
    if request.context:
        return _kube_source(request)
    from gpuctl.hosts import plan as host_plan
    from gpuctl.workflows import nodes as flow

    if request.slurm:
        return _slurm_source(request)
    notes: list[str] = []
    if request.recorded:
        return lambda: (flow.use(flow.load(request.recorded), recorded=True, notify=notes.append), notes)
    hosts = host_plan.targets(host_plan.find_inventory(request.inventory), request.limit)

    def read() -> tuple[list[Node], list[str]]:
        notes.clear()
        return flow.use([_ask(request, hosts)], recorded=False, notify=notes.append), notes

    return read


def _kube_source(request: NodesRequest) -> Source:
    from gpuctl.workflows import nodes_kube
    from gpuctl.workflows.nodes_kube_probe import ProbeRequest

    probe = ProbeRequest(request.probe_image, request.namespace, request.forks, request.timeout)
    notes: list[str] = []

    def read() -> tuple[list[Node], list[str]]:
        notes.clear()
        return nodes_kube.ask(request.context, probe if request.probe else None, notes.append), notes

    return read


def _slurm_source(request: NodesRequest) -> Source:
    from gpuctl.hosts import plan as host_plan
    from gpuctl.workflows import nodes_slurm

    named = request.inventory is not None
    hosts = host_plan.targets(host_plan.find_inventory(request.inventory), request.limit) if named else None
    via = request.via or ("ssh" if named else "srun")
    ask = nodes_slurm.SlurmRequest(request.partition, request.nodes, via, hosts, request.forks, request.timeout)
    notes: list[str] = []

    def read() -> tuple[list[Node], list[str]]:
        notes.clear()
        return nodes_slurm.read(ask, notes.append), notes

    return read


def _ask(request: NodesRequest, hosts: Sequence[Target]) -> Fleet:
    from gpuctl.nodes import facts_file
    from gpuctl.workflows import nodes as flow

    def on_result(result: HostResult) -> None:
        if not request.watch:
            output.unreached(result)

    started = time.monotonic()
    fleet = flow.ask(hosts, request.forks, request.timeout, on_result)
    if not request.watch:
        click.echo(f"queried {output.plural(len(hosts), 'node')} in {time.monotonic() - started:.1f} s", err=True)
    if request.save is not None:
        facts_file.save(request.save, fleet)
    return fleet


@dataclass(frozen=True)
class Content:
    """Result of a reading: the nodes of the requested type, those to show in their order, and what follows from all."""

    typed: Sequence[Node]
    shown: Sequence[Node]
    groups: Sequence[Group]
    findings: Sequence[Finding]
    notes: Sequence[str]


def content_of(request: NodesRequest, nodes: Sequence[Node]) -> Content:
    """Select, order, judge and summarise nodes. `InvalidInput` if none is of the requested type."""
    from gpuctl.domain.findings import unknown
    from gpuctl.nodes import selection, summary
    from gpuctl.nodes.judge import judge

    typed = selection.of_type(nodes, request.type)
    shown = selection.narrow(typed, selection.Selection(request.mine, request.idle, request.sort))
    results = [finding for node in typed for finding in judge(node)] or [unknown("use", "", "no node has GPUs")]
    return Content(typed, shown, summary.groups(typed), results, _young(request, typed))


def _young(request: NodesRequest, nodes: Sequence[Node]) -> list[str]:
    from gpuctl.nodes.selection import young_streaks

    count = 0 if request.idle is None else young_streaks(nodes, request.idle)
    more = "the first reading without work is more recent; run it again later"
    return [f"{output.plural(count, 'GPU')} did no work now, but for how long is not known: {more}"] if count else []
