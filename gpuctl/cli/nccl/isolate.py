"""nccl isolate: find the bad node, path, uplink or adapter with few runs, and print the proof."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.errors import INTERRUPTED
from gpuctl.cli.nccl import baselines, proof, record_history, sweep_options
from gpuctl.cli.nccl.proof import Destination
from gpuctl.cli.nccl.targets import pods, select
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.option_sections import Sectioned
from gpuctl.cli.shared.report import Form, check_folder, report_options
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.signals import ctrl_c

if TYPE_CHECKING:
    from gpuctl.cli.nccl.targets.select import NodeAccess
    from gpuctl.nccl.isolate.flow import Watch
    from gpuctl.nccl.isolate.model import Conclusion, Fleet, Policy
    from gpuctl.nccl.model import Launch, LaunchResult, Sweep
    from gpuctl.workflows.nccl_preflight import Layout

File = click.Path(dir_okay=False, path_type=Path)
IN_HISTORY = "kept: {} shows every run and the map of pairs"


@click.command("isolate", cls=Sectioned)
@click.option(
    "--rails",
    metavar="A,B,…",
    default="",
    help="Adapters to run one at a time; `none` leaves that out.  [default: those that NCCL opens on all nodes]",
)
@click.option("--instance", metavar="NAME", help="The machine type, for its network and baseline: p5.48xlarge.")
@click.option(
    "--network",
    metavar="NAME",
    type=sweep_options.Network(),
    help="What NCCL should use: efa, ib, roce, socket.  [by machine type]",
)
@click.option(
    "--expect",
    type=options.Finite(0, min_open=True),
    metavar="GB/S",
    help="What a pair should reach.  [by machine type, where its baseline knows]",
)
@click.option(
    "--pairs-per-node",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    help="Pairs in which every node is tested at first; more find faults that come and go.",
)
@click.option(
    "--false-alarm",
    type=options.Finite(1e-6, 0.2),
    default=0.01,
    show_default=True,
    help="Highest chance that anything healthy is accused.",
)
@click.option("--record", metavar="FILE", type=File, help="Keep all runs there, and go on with those it has.")
@click.option("--replay", metavar="FILE", type=File, help="Run nothing: judge the runs of such a file.")
@sweep_options.sizes("512M", "4G")
@sweep_options.ranks(180)
@select.way_options
@report_options
def command(replay: Path | None, form: Form, metrics: Path | None, **given: Any) -> None:
    """Find what is bad in a fleet: a node, its adapter, the path between two nodes, a rack or its uplink.

    \b
    1  every node in a pair, all pairs at the same time, with the Ring algorithm
    2  the two of a bad pair, each with a node known to be good; again where chance is not yet ruled out
    3  all others together, to confirm that they are well
    4  bad nodes over one adapter at a time

    Of up to 16 nodes every pair is run where fewer do not tell which are bad, of up to 8 also where all are alike.

    Nobody is accused without runs that carry it; what they do not settle is said to be UNKNOWN. So is a node that no
    test ever began on, or begins on any more: why is told, and says nothing of its hardware.
    """
    from dataclasses import replace

    from gpuctl.nccl.isolate import record
    from gpuctl.nccl.isolate.decide import decide
    from gpuctl.nccl.plan import with_env

    check_folder(metrics)
    given = select.complete(given)
    policy = _policy(**given)
    if replay is not None:
        _nothing_else(**given)
        found = record.read(replay)
        fleet = _with_wanted(found.fleet, policy.sweep, **given)
        proof.show_and_exit(
            fleet, found.history, decide(fleet, found.history, policy), Destination(str(replay), form, metrics)
        )
    _can_keep(given["record"])
    way = select.node_access(**given)
    kept, policy = given["record"], replace(policy, sweep=with_env(policy.sweep, way.env))
    fleet = _with_wanted(_fleet(way, kept, given["rails"]), policy.sweep, **given)
    before = record.resume(kept, fleet, policy) if kept else ()  # refused, if so, before any node is asked
    select.preflight(way, **given)
    history, end = run(fleet, way, policy, kept, before)
    record_history.keep("isolate", way.where, history, end.findings, IN_HISTORY)
    proof.show_and_exit(fleet, history, end, Destination(way.where, form, metrics))


def _nothing_else(**given: Any) -> None:
    """A replay asks nobody and keeps nothing."""
    to_run = ("record", "rails", "inventory", "limit", "nodes", "cluster", "image", "slurm")
    if others := pods.given_options(to_run, given):
        raise InvalidInput("replay runs", f"{others} is for runs that are to be made", "leave one of them out")


def _can_keep(kept: Path | None) -> None:
    """Told before any node is asked. A new file takes the place of the old one, so it is the folder that is written."""
    if kept is not None and not os.access(kept.absolute().parent, os.W_OK | os.X_OK):
        raise InvalidInput(f"keep the runs in {kept}", "it cannot be written there", "name a file in another folder")


def run(
    fleet: Fleet, way: NodeAccess, policy: Policy, kept: Path | None, before: Sequence[LaunchResult]
) -> tuple[list[LaunchResult], Conclusion]:
    """Isolate to the end; the runs of an isolation that is broken off stay in the record.

    Where a round raises, those before are in the history, too.
    """
    from gpuctl.nccl.isolate.flow import isolate

    so_far: list[LaunchResult] = []
    hint = f"go on with --record {kept}" if kept else "--record FILE lets it go on where it was broken off"

    def kept_so_far() -> None:
        record_history.keep("isolate", way.where, so_far, (), IN_HISTORY)
        click.echo(f"it ended after {output.plural(len(so_far), 'run')}; {hint}", err=True)

    with ctrl_c() as broken_off, record_history.save_partial_results(so_far, kept_so_far):
        history, end = isolate(fleet, way.runner, policy, _watch(fleet, kept, broken_off, so_far), before)
    if end is None:
        click.echo(f"broken off after {output.plural(len(history), 'run')}; {hint}", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    return history, end


def _policy(pairs_per_node: int, false_alarm: float, **given: Any) -> Policy:
    from dataclasses import replace

    from gpuctl.nccl.flow import check_sizes
    from gpuctl.nccl.isolate.model import RING, Policy

    asked = sweep_options.sweep_of(**given)
    check_sizes("isolate", asked)
    sweep = replace(asked, env={**RING.env, **asked.env})
    return Policy(sweep=sweep, pairs_per_node=pairs_per_node, false_alarm=false_alarm)


def _fleet(way: NodeAccess, kept: Path | None, rails: str) -> Fleet:
    """The nodes, rack by rack where the racks are known: of the inventory or the cluster, else as the record has them,
    else what the hosts know themselves."""
    from gpuctl.nccl.isolate import rail_selection, record
    from gpuctl.nccl.isolate.model import Fleet

    if len(way.nodes) < 2:
        raise InvalidInput("isolate", "there is only one node, which cannot be compared with any", "name more nodes")
    wanted = tuple(name.strip() for name in rails.split(",") if name.strip())
    chosen = () if wanted == ("none",) else wanted
    recorded = kept is not None and kept.exists()
    racks = record.read(kept).fleet.racks if kept and recorded and not way.racks else way.racks
    layout = _layout(way) if chosen or not (racks or recorded) else None
    for words in rail_selection.check(chosen, layout.devices if layout else {}):
        click.echo(f"--rails: {words}", err=True)
    if layout and layout.racks and not racks:
        click.echo(f"racks are {layout.racks_are}", err=True)
        racks = layout.racks
    nodes = sorted(way.nodes, key=lambda name: racks.get(name, ""))
    return Fleet(tuple(nodes), racks, chosen if wanted else None)


def _layout(way: NodeAccess) -> Layout:
    """What the nodes know of the fabric themselves; those that cannot be asked are silent."""
    from gpuctl.workflows import nccl_preflight

    found = way.layout() if way.layout else nccl_preflight.layout([])
    return found._replace(devices=dict.fromkeys(way.nodes) | found.devices)


def _with_wanted(
    fleet: Fleet, sweep: Sweep, expect: float | None, network: str | None, instance: str | None, **_: Any
) -> Fleet:
    """With what it should use and reach: as given, else by its machine type; a replayed one keeps what is not given."""
    from dataclasses import replace

    from gpuctl.nccl.baselines import load
    from gpuctl.nccl.context import RunContext

    if instance is not None:
        book = load.book()
        baselines.known_instance(instance, "isolate", book)
        gpus = sweep.gpus_per_node  # a process for each
        two = RunContext(instance, 2, gpus, gpus, algorithm="Ring", collective=sweep.collective)
        system, row = book.systems.get(instance), book.of(two, sweep.end_bytes)
        network = network or (system.network if system else None)
        expect = expect or (row.expect if row else None)
    return replace(fleet, expected_gbs=expect or fleet.expected_gbs, network=network or fleet.network)


def _watch(fleet: Fleet, kept: Path | None, broken_off: Callable[[], bool], so_far: list[LaunchResult]) -> Watch:
    from gpuctl.nccl.isolate import record
    from gpuctl.nccl.isolate.flow import Watch
    from gpuctl.nccl.isolate.model import Round

    class Progress(Watch):
        """Prints every round on standard error, and saves the runs."""

        def begin(self, number: int, step: Round) -> None:
            click.echo(f"round {number}: {output.plural(len(step.launches), 'run')}: {step.why}", err=True)

        def progress(self, launch: Launch, line: str) -> None:
            if not line.endswith(" done") and not line.startswith(("started", "complete")):  # hundreds at a time
                click.echo(f"{output.names(launch.nodes, 2)}: {line}", err=True)

        def keep(self, history: Sequence[LaunchResult]) -> None:
            so_far[:] = history
            if kept is None:
                return
            try:
                record.write(kept, fleet, history)
            except OSError as error:
                raise GpuctlError(f"keep the runs in {kept}", error.strerror or str(error)) from error

        def broken_off(self) -> bool:
            return broken_off()

    return Progress()
