"""nodes: who is using which GPUs of a fleet."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.errors import InvalidInput
from gpuctl.core.exit_codes import worst

if TYPE_CHECKING:
    from gpuctl.domain.report import Report
    from gpuctl.hosts.model import HostResult, Target
    from gpuctl.nodes.model import Fleet, Node
    from gpuctl.nodes.summary import Group

File = click.Path(dir_okay=False, path_type=Path)
SORTS = ("inventory", "name", "idle", "use", "memory", "util", "since", "who")
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


@click.command("show", hidden=True)
@options.as_request(
    NodesRequest,
    options.inventory,
    options.limit,
    options.other_context("Kubernetes context: show which pods have GPUs, from the API."),
    options.node_probe("With --context: also query each GPU node, by a short-lived privileged pod, which is removed."),
    click.option("--slurm", is_flag=True, help="Show the nodes of the Slurm cluster that this machine belongs to."),
    click.option(
        "--partition", metavar="NAME", default="", callback=options.not_empty, help="With --slurm: of this partition."
    ),
    click.option(
        "--nodes",
        metavar="NAME,...",
        default="",
        callback=options.not_empty,
        help="With --slurm: only these, or h[1-4].",
    ),
    click.option(
        "--via",
        type=click.Choice(["srun", "ssh", "scontrol"]),
        help="With --slurm: how to query the nodes: in your own jobs there, by ssh, or not at all.  "
        "[default: ssh with --inventory, else srun]",
    ),
    click.option(
        "--from",
        "sources",
        metavar="FILE",
        type=File,
        multiple=True,
        help="Use recorded facts, and query no node; repeatable.",
    ),
    click.argument("files", nargs=-1, metavar="[FILE]...", type=File),
    click.option("--save", metavar="FILE", type=File, help="Save the facts to this file, without secrets."),
    click.option(
        "--type",
        metavar="T",
        default="",
        callback=options.not_empty,
        help="Only nodes of this instance type or family (p5), or with GPUs of this model (H100).",
    ),
    click.option(
        "--sort",
        type=click.Choice(SORTS),
        default="inventory",
        show_default=True,
        help="Order of the nodes: most idle GPUs first, oldest process first, …",
    ),
    click.option("--mine", is_flag=True, help="Only your own processes: those of your login on the node, or here."),
    click.option(
        "--idle",
        type=options.Duration(),
        metavar="TIME",
        help="Only GPUs idle in every reading of the last TIME, such as 1h.",
    ),
    click.option("--watch", is_flag=True, help="Query and draw again until Ctrl-C."),
    click.option(
        "--every", type=options.Finite(1, 86400), default=5, show_default=True, help="Seconds between two readings."
    ),
    options.visit("node", 60),
    report_options,
)
def nodes(request: NodesRequest, form: Form, metrics: Path | None) -> None:
    """Show who is using which GPUs and since when, and which GPUs are free; all nodes are queried in parallel.

    Owners are persons, Slurm jobs, pods, containers and services. Facts that cannot be read are UNKNOWN, never idle.
    Exit code 1 for FAIL and UNKNOWN, 3 if a node was not reached.
    """
    _check(request, form)
    check_folder(metrics)
    read = _source(request)
    if request.watch:
        _watch(request, read, form, metrics)
    raise click.exceptions.Exit(_show(request, *read(), form, metrics))


def _check(request: NodesRequest, form: Form) -> None:
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


def _source(request: NodesRequest) -> Source:
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


def _watch(request: NodesRequest, read: Source, form: Form, metrics: Path | None) -> None:
    """Draw until Ctrl-C."""
    while True:
        started = time.monotonic()
        nodes, notes = read()
        click.clear()  # does nothing unless a terminal shows it
        click.echo(time.strftime("%H:%M:%S"))
        _show(request, nodes, notes, form, metrics)
        time.sleep(max(0.0, started + request.every - time.monotonic()))


def _show(request: NodesRequest, every: Sequence[Node], notes: Sequence[str], form: Form, metrics: Path | None) -> int:
    """Print the report, and return its exit code."""
    from gpuctl.domain.findings import Verdict, unknown
    from gpuctl.domain.report import Report
    from gpuctl.nodes import selection, serialize, summary
    from gpuctl.nodes.judge import judge

    typed = selection.of_type(every, request.type)
    shown = selection.narrow(typed, selection.Selection(request.mine, request.idle, request.sort))
    groups = summary.groups(typed)
    results = [finding for node in typed for finding in judge(node)] or [unknown("use", "", "no node has GPUs")]
    problems = any(one.verdict in (Verdict.FAIL, Verdict.UNKNOWN) for one in results)
    code = worst([int(problems), 0 if all(node.reached for node in typed) else 3])
    details = {
        "nodes": [serialize.as_dict(node) for node in shown] if form != "table" else [],
        "summary": [serialize.group_as_dict(group) for group in groups],
    }
    target = (
        str(request.recorded[0])
        if request.recorded
        else request.context or request.inventory or ("slurm" if request.slurm else "localhost")
    )
    report = Report("nodes", {target: results}, details, code=code)
    publish(report, form, metrics, lambda: _table(request, shown, groups, report))
    for note in [*notes, *_young(request, typed)]:
        click.echo(f"note: {note}", err=True)
    return code


def _young(request: NodesRequest, nodes: Sequence[Node]) -> list[str]:
    from gpuctl.nodes.selection import young_streaks

    count = 0 if request.idle is None else young_streaks(nodes, request.idle)
    more = "the first reading without work is more recent; run it again later"
    return [f"{output.plural(count, 'GPU')} did no work now, but for how long is not known: {more}"] if count else []


def _table(request: NodesRequest, nodes: Sequence[Node], groups: Sequence[Group], report: Report) -> None:
    from gpuctl.cli.nodes import draw
    from gpuctl.domain.findings import Verdict

    click.echo("\n".join(draw.lines(nodes, groups)))
    wrong = [finding for finding in report.findings if finding.verdict is not Verdict.OK]
    if wrong:
        click.echo()
        findings.show(wrong)
