"""nccl isolate: find the bad node, path, uplink or adapter with few runs, and print the proof."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.nccl import baselines, proof, record_history, sweep_options, target_options
from gpuctl.cli.nccl.proof import Destination
from gpuctl.cli.nccl.sweep_options import SweepRequest
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.option_sections import Sectioned
from gpuctl.cli.shared.report import Form, check_folder, report_options
from gpuctl.core.errors import InvalidInput
from gpuctl.core.exit_codes import INTERRUPTED
from gpuctl.core.signals import ctrl_c
from gpuctl.workflows.nccl_targets.model import TargetRequest, flags

if TYPE_CHECKING:
    from gpuctl.nccl.isolate.flow import Watch
    from gpuctl.nccl.isolate.model import Conclusion, Fleet, Policy
    from gpuctl.nccl.model import Launch, LaunchResult, Sweep
    from gpuctl.workflows.nccl_targets.model import NodeAccess

File = click.Path(dir_okay=False, path_type=Path)
IN_HISTORY = "saved: {} shows every run and the map of pairs"


@dataclass(frozen=True)
class IsolateRequest:
    """Isolation to perform. `rails`: adapters separated by commas, "none" for none, "" for NCCL's choice.

    `expect`: GB/s of a healthy pair, None to take it from the baseline of `instance`. `record`: file that keeps the
    runs; `replay`: such a file to be judged without any run. `strict`: WARN is a problem, too.
    """

    rails: str
    instance: str | None
    network: str | None
    expect: float | None
    pairs_per_node: int
    false_alarm: float
    record: Path | None
    replay: Path | None
    strict: bool
    sweep: SweepRequest
    target: TargetRequest


@click.command("isolate", cls=Sectioned)
@options.as_request(
    IsolateRequest,
    click.option(
        "--rails",
        metavar="NAME,...",
        default="",
        help="Adapters to test one at a time; `none` skips that.  [default: those that NCCL opens on all nodes]",
    ),
    click.option("--instance", metavar="NAME", help="Machine type, for its network and baseline: p5.48xlarge."),
    click.option(
        "--network",
        metavar="NAME",
        type=sweep_options.Network(),
        help="Network that NCCL should use: efa, ib, roce, socket.  [default: by machine type]",
    ),
    click.option(
        "--expect",
        type=options.Finite(0, min_open=True),
        metavar="GB/S",
        help="Expected bandwidth of a pair.  [default: from the machine type's baseline]",
    ),
    click.option(
        "--pairs-per-node",
        type=click.IntRange(1, 16),
        default=1,
        show_default=True,
        help="Pairs in which every node is tested at first; more of them find intermittent faults.",
    ),
    click.option(
        "--false-alarm",
        type=options.Finite(1e-6, 0.2),
        default=0.01,
        show_default=True,
        help="Highest probability that a healthy component is reported as bad.",
    ),
    click.option("--record", metavar="FILE", type=File, help="Save all runs in FILE, and continue from those it has."),
    click.option("--replay", metavar="FILE", type=File, help="Run nothing: judge the runs of a recorded file."),
    baselines.strict,
    sweep_options.sizes("512M", "4G"),
    sweep_options.ranks(180),
    target_options.target_options,
)
@report_options
def command(request: IsolateRequest, form: Form, metrics: Path | None) -> None:
    """Find the bad component of a fleet: a node, an adapter, a path between two nodes, a rack or its uplink.

    \b
    1  test every node in a pair, all pairs at the same time, with the Ring algorithm
    2  retest both nodes of a bad pair with known good nodes, until chance is ruled out
    3  run all other nodes together several times, to confirm that they are healthy and steady
    4  run bad nodes over one adapter at a time

    With up to 16 nodes, all pairs are tested if fewer runs are inconclusive; with up to 8, also if all pairs perform
    alike.

    A component is reported as bad only if the runs prove it; anything undecided is UNKNOWN. So is a node on which tests
    cannot start: the reason is shown, and it is no evidence of a hardware fault.
    """
    from gpuctl.nccl.isolate import record
    from gpuctl.nccl.plan import with_env
    from gpuctl.workflows import nccl_isolate, nccl_targets

    check_folder(metrics)
    policy = _policy(request, nccl_targets.gpus_per_node(request.target))
    if request.replay is not None:
        _replay(request, request.replay, policy, form, metrics)
    _check_writable(request.record)
    access = nccl_targets.node_access(request.target, policy.sweep.gpus_per_node, target_options.notify)
    policy = replace(policy, sweep=with_env(policy.sweep, access.env))
    nodes = nccl_isolate.fleet(access, request.record, request.rails, target_options.notify)
    fleet = _with_expectation(nodes, policy.sweep, request)
    before = record.resume(request.record, fleet, policy) if request.record else ()  # refused before nodes are queried
    target_options.preflight(access, request.target)
    history, end = run(fleet, access, policy, request.record, before)
    record_history.record_results("isolate", access.where, history, end.findings, IN_HISTORY)
    proof.show_and_exit(fleet, history, end, Destination(access.where, form, metrics, request.strict))


def _replay(request: IsolateRequest, path: Path, policy: Policy, form: Form, metrics: Path | None) -> None:
    from gpuctl.nccl.isolate import record
    from gpuctl.nccl.isolate.next_round import decide

    _refuse_run_options(request)
    recorded = record.read(path)
    fleet = _with_expectation(recorded.fleet, policy.sweep, request)
    end = decide(fleet, recorded.history, policy)
    proof.show_and_exit(fleet, recorded.history, end, Destination(str(path), form, metrics, request.strict))


def _refuse_run_options(request: IsolateRequest) -> None:
    """Raise `InvalidInput` for options that select nodes or save runs: a replay does neither."""
    target = request.target
    values = {
        "record": request.record,
        "rails": request.rails,
        "inventory": target.hosts.inventory,
        "limit": target.hosts.limit,
        "nodes": target.nodes,
        "cluster": target.environment.cluster,
        "image": target.pods.image,
        "slurm": target.slurm.slurm,
    }
    if others := flags([name for name, value in values.items() if value]):
        raise InvalidInput("replay runs", f"{others} cannot be combined with --replay", "leave one of them out")


def _check_writable(path: Path | None) -> None:
    """Raise `InvalidInput` before any node is queried. A new file replaces the old one, so its folder is checked."""
    if path is not None and not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise InvalidInput(f"save the runs in {path}", "its folder is not writable", "choose a file in another folder")


def run(
    fleet: Fleet, access: NodeAccess, policy: Policy, path: Path | None, before: Sequence[LaunchResult]
) -> tuple[list[LaunchResult], Conclusion]:
    """Isolate to the end; the runs of an interrupted isolation stay in the record.

    If a round raises, the runs before it are saved in the history, too.
    """
    from gpuctl.nccl.isolate.flow import isolate

    so_far: list[LaunchResult] = []
    hint = f"continue with --record {path}" if path else "with --record FILE it could continue from here"

    def keep_so_far() -> None:
        record_history.record_results("isolate", access.where, so_far, (), IN_HISTORY)
        click.echo(f"it ended after {output.plural(len(so_far), 'run')}; {hint}", err=True)

    with ctrl_c() as broken_off, record_history.save_partial_results(so_far, keep_so_far):
        history, end = isolate(fleet, access.runner, policy, _watch(fleet, path, broken_off, so_far), before)
    if end is None:
        click.echo(f"interrupted after {output.plural(len(history), 'run')}; {hint}", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    return history, end


def _policy(request: IsolateRequest, gpus: int) -> Policy:
    from gpuctl.nccl.flow import check_sizes
    from gpuctl.nccl.isolate.model import RING, Policy

    requested = request.sweep.sweep(gpus)
    check_sizes("isolate", requested)
    sweep = replace(requested, env={**RING.env, **requested.env})
    return Policy(sweep=sweep, pairs_per_node=request.pairs_per_node, false_alarm=request.false_alarm)


def _with_expectation(fleet: Fleet, sweep: Sweep, request: IsolateRequest) -> Fleet:
    """Add the network and bandwidth to expect; refuse a machine type without a baseline."""
    from gpuctl.nccl.baselines import load
    from gpuctl.workflows import nccl_isolate

    if request.instance is not None:
        baselines.known_instance(request.instance, "isolate", load.book())
    return nccl_isolate.with_expectation(fleet, sweep, request.instance, request.network, request.expect)


def _watch(fleet: Fleet, path: Path | None, broken_off: Callable[[], bool], so_far: list[LaunchResult]) -> Watch:
    from gpuctl.nccl.isolate.flow import Watch
    from gpuctl.nccl.isolate.model import Round
    from gpuctl.workflows import nccl_isolate

    class Progress(Watch):
        """Reports every round on standard error, and saves the runs."""

        def begin(self, number: int, step: Round) -> None:
            click.echo(f"round {number}: {output.plural(len(step.launches), 'run')}: {step.why}", err=True)

        def progress(self, launch: Launch, line: str) -> None:
            if not line.endswith(" done") and not line.startswith(("started", "complete")):  # hundreds at a time
                click.echo(f"{output.names(launch.nodes, 2)}: {line}", err=True)

        def keep(self, history: Sequence[LaunchResult]) -> None:
            so_far[:] = history
            if path is not None:
                nccl_isolate.save(path, fleet, history)

        def broken_off(self) -> bool:
            return broken_off()

    return Progress()
