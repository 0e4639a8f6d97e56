"""nccl preflight and nccl advise: check nodes before a run, and derive its environment."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.nccl import baselines, target_options
from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.output import Output
from gpuctl.cli.shared.report import Form, check_folder, data, publish, report_options
from gpuctl.core.errors import InvalidInput
from gpuctl.core.exit_codes import worst

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.hosts.model import Target
    from gpuctl.nccl.advise.model import Advice
    from gpuctl.nccl.preflight.facts_file import Fleet
    from gpuctl.nccl.topology.ring_order import Order

File = click.Path(dir_okay=False, path_type=Path)


def _only_hosts(ctx: click.Context, param: click.Parameter, value: str) -> None:
    """Refuse --cluster, because these checks are for hosts; those for pods run before a test."""
    if options.not_empty(ctx, param, value):
        hint = f"`gpuctl nccl run --cluster {value}` checks the pods before it starts"
        raise InvalidInput(f"check the pods of {value}", f"`nccl {ctx.info_name}` is for hosts", hint)


@dataclass(frozen=True)
class FleetRequest:
    """Nodes to collect facts from, or a file of facts (`source`). `save`: file for the facts.

    `timeout` in seconds for one node; `forks`: how many nodes at a time. See `TargetRequest` for the others.
    """

    inventory: str | None
    limit: str
    nodes: str
    source: Path | None
    save: Path | None
    search_path: tuple[str, ...]
    use_inventory_names: bool
    ssh_args: str
    rack_var: str
    forks: int
    timeout: float

    @property
    def target(self) -> str:
        """The file or inventory that a report names."""
        return str(self.source or self.inventory or "localhost")


@dataclass(frozen=True)
class PreflightRequest:
    """Fleet to check. `strict`: WARN is a problem, too."""

    strict: bool
    fleet: FleetRequest


@dataclass(frozen=True)
class AdviseRequest:
    """Fleet to advise on. `topology`: file with the racks of its nodes."""

    topology: Path | None
    fleet: FleetRequest


fleet_options = options.together(
    click.option("--cluster", hidden=True, default="", expose_value=False, callback=_only_hosts),
    options.inventory,
    options.limit,
    click.option(
        "--nodes",
        metavar="NAME,...",
        default="",
        callback=options.not_empty,
        help="Only these nodes, in this order; mpirun is started on the first one.",
    ),
    click.option("--from", "source", metavar="FILE", type=File, help="Use the facts of a file, and query no node."),
    click.option("--save", metavar="FILE", type=File, help="Save the facts to this file."),
    target_options.search_path,
    target_options.use_inventory_names,
    target_options.ssh_args,
    target_options.rack_var,
    options.visit("node"),
)


@click.command()
@options.as_request(PreflightRequest, baselines.strict, fleet_options)
@report_options
def preflight(request: PreflightRequest, form: Form, metrics: Path | None) -> None:
    """Check every node before a run, within seconds, and name the nodes that would make it fail.

    Nodes are compared with each other. The first node tries to log in to every other, and each to the next in a ring.
    """
    from gpuctl.domain.report import Report, summary
    from gpuctl.nccl import preflight as rules

    check_folder(metrics)
    fleet = _fleet(request.fleet)
    results = rules.judge(fleet.nodes, fleet.unasked)
    nodes = [*fleet.nodes, *fleet.unasked]
    code = _exit_code(results, fleet, request.strict)

    def table() -> None:
        findings.show(results)
        click.echo(f"\n{output.plural(len(nodes), 'node')}: {summary(report)}")

    report = Report("nccl preflight", {request.fleet.target: results}, {"nodes": nodes}, request.strict, code=code)
    publish(report, form, metrics, table)
    raise click.exceptions.Exit(code)


@click.command()
@options.as_request(
    AdviseRequest,
    fleet_options,
    click.option(
        "--topology", metavar="FILE", type=File, help="Slurm's topology.conf, or EC2's instance topology (JSON)."
    ),
)
@options.output
def advise(request: AdviseRequest, form: Output) -> None:
    """Derive NCCL's environment and an order of nodes from the facts of the nodes.

    Every variable comes with its reason and source. In the order, a ring crosses as few racks as possible.
    """
    from gpuctl.domain.report import Report
    from gpuctl.nccl import advise as advise_rules
    from gpuctl.nccl.topology import racks as placement
    from gpuctl.nccl.topology import ring_order

    if request.topology is not None:
        placement.read(request.topology)  # an unusable file is reported before nodes are queried
    fleet = _fleet(request.fleet, with_racks=True)
    places, racks = _places(fleet, request.topology)
    advice = advise_rules.advise(fleet.nodes)
    order = ring_order.order([*fleet.nodes, *fleet.unasked], places)
    code = _exit_code(advice.findings, fleet)
    if form != "table":
        details = _as_dict(advice, order, racks, fleet)
        data(Report("nccl advise", {request.fleet.target: advice.findings}, details, code=code), form)
    else:
        _show_advice(advice, order, racks, fleet)
    raise click.exceptions.Exit(code)


def _fleet(request: FleetRequest, with_racks: bool = False) -> Fleet:
    """Load facts from a file, or collect them from hosts now."""
    from gpuctl.nccl.preflight import facts_file
    from gpuctl.workflows.nccl_targets import hosts as nccl_hosts

    if request.source is not None and (request.inventory is not None or request.limit):
        wrong = "--from cannot be combined with --inventory or --limit"
        raise InvalidInput("use facts of a file and of an inventory", wrong, "leave one out")
    if request.source is not None:
        fleet = facts_file.read(request.source)
    else:
        hosts = nccl_hosts.hosts_of(request.inventory, request.limit, request.nodes, request.rack_var)
        fleet = _collect(hosts.targets, request)
        if with_racks or request.save:
            fleet = _with_racks(fleet, hosts.racks)
    fleet = _only(fleet, request.nodes)
    if request.save is not None:
        facts_file.save(request.save, fleet)
    return fleet


def _only(fleet: Fleet, nodes: str) -> Fleet:
    from gpuctl.nccl.preflight.facts_file import Fleet
    from gpuctl.workflows.nccl_targets import hosts as nccl_hosts

    names = nccl_hosts.named(nodes, [*fleet.nodes, *fleet.unasked])
    kept = {name: fleet.nodes[name] for name in names if name in fleet.nodes}
    return Fleet(kept, {name: fleet.unasked[name] for name in names if name in fleet.unasked})


def _collect(hosts: Sequence[Target], request: FleetRequest) -> Fleet:
    from gpuctl.workflows import preflight_facts

    facts_options = preflight_facts.FactsOptions(
        request.search_path,
        request.use_inventory_names,
        preflight_facts.split_ssh_args(request.ssh_args),
        request.forks,
        request.timeout,
    )
    started = time.monotonic()
    fleet = preflight_facts.ask(hosts, facts_options, output.unreached)
    click.echo(f"queried {output.plural(len(hosts), 'node')} in {time.monotonic() - started:.1f} s", err=True)
    return fleet


def _with_racks(fleet: Fleet, racks: Mapping[str, str]) -> Fleet:
    from gpuctl.nccl.preflight.facts_file import Fleet

    nodes = {n: {**facts, "rack": racks[n]} if n in racks else facts for n, facts in fleet.nodes.items()}
    return Fleet(nodes, fleet.unasked)


def _places(fleet: Fleet, topology: Path | None) -> tuple[Mapping[str, tuple[str, ...]], str]:
    """Node locations from a topology file, else the inventory, else the nodes; and what a location is."""
    from gpuctl.nccl.topology import racks as placement

    if topology is not None:
        instances = {n: str(i) for n, facts in fleet.nodes.items() if (i := facts["names"].get("instance"))}
        return placement.read(topology, instances), f"as in {topology}"
    racks = {node: (facts["rack"],) for node, facts in fleet.nodes.items() if facts.get("rack")}
    return (racks, "as in the inventory") if racks else placement.of_facts(fleet.nodes)


def _exit_code(findings: Iterable[Finding], fleet: Fleet, strict: bool = False) -> int:
    """Return 1 if something is wrong or unknown (if `strict`, also for WARN), 3 if a node was not reached."""
    from gpuctl.domain.findings import exit_code

    return worst([exit_code(findings, strict), 3 if fleet.unasked else 0])


def _as_dict(advice: Advice, order: Order, racks: str, fleet: Fleet) -> dict[str, Any]:
    settings = [
        {"name": s.name, "value": s.value, "nodes": list(s.nodes) or None, "why": s.why, "source": s.source}
        for s in advice.settings
    ]
    ring = {
        "nodes": list(order.after),
        "crossings_before": order.crossings_before if order.racks else None,
        "crossings_after": order.crossings_after if order.racks else None,
        "racks_are": racks or None,
        "racks": [{"place": list(place), "nodes": list(nodes)} for place, nodes in order.racks.items()],
        "unplaced": list(order.unplaced),
    }
    return {
        "environment": advice.environment,
        "settings": settings,
        "left_out": {node: list(ports) for node, ports in advice.left_out.items()},
        "order": ring,
        "unasked": dict(fleet.unasked),
    }


def _show_advice(advice: Advice, order: Order, racks: str, fleet: Fleet) -> None:
    for s in advice.settings:
        where = f"   # on {output.names(s.nodes)}" if s.nodes else ""
        line = f"# {s.name}: unset" if s.value is None else f"export {s.name}={_quoted(s.value)}"
        click.echo(f"{line}{where}")
        click.echo(f"    {s.why}  [{s.source}]")
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, ports in advice.left_out.items():
        groups.setdefault(ports, []).append(node)
    for ports, nodes in groups.items():
        click.echo(f"\nports left out on {output.names(nodes)}:")
        for port in ports:
            click.echo(f"    {port}")
    if advice.findings:
        click.echo()
        findings.show(advice.findings)
    click.echo()
    _show_order(order, racks)
    for node, reason in fleet.unasked.items():
        click.echo(f"no facts: {node}: {reason}")


def _quoted(value: str) -> str:
    """Quote for any shell: zsh expands a leading = to a program's path."""
    return f"'{value}'" if value.startswith("=") else shlex.quote(value)


def _show_order(order: Order, racks: str) -> None:
    if not order.racks:
        click.echo(
            "order of nodes: unchanged; no rack is known: use --topology FILE, or a variable `rack` in the inventory"
        )
        return
    click.echo(
        f"order of nodes: a ring crosses racks {order.crossings_after} times, now {order.crossings_before} times"
    )
    click.echo(f"racks are {racks}:")
    for place, nodes in order.racks.items():
        click.echo(f"    {'/'.join(place)}: {', '.join(nodes)}")
    if order.unplaced:
        click.echo(f"    of unknown rack: {', '.join(order.unplaced)}")
    click.echo(f"    --nodes {','.join(order.after)}")
