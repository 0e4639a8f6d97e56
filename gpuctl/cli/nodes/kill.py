"""nodes kill: end somebody's work on a node."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gpuctl.cli.nodes import act_options
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.output import Output

if TYPE_CHECKING:
    from gpuctl.nodes.acts.model import End, Outcome
    from gpuctl.workflows.nodes_kill import Kill


@dataclass(frozen=True)
class KillRequest:
    """Work to end: `what` is a GPU, pid, pod or job of `node`. `grace` and `timeout` in seconds."""

    node: str
    what: str
    inventory: str | None
    context: str
    force: bool
    reason: str
    without_controller: bool
    grace: float
    timeout: float
    check: bool
    yes: bool


@click.command()
@options.as_request(
    KillRequest,
    act_options.node,
    click.argument("what", metavar="GPU|PID|POD|JOB"),
    options.inventory,
    options.other_context(
        "Kubernetes context, through which pods are deleted; without --inventory, the node itself is not queried."
    ),
    act_options.consent,
    click.option("--without-controller", is_flag=True, help="Also delete a pod that no controller starts again."),
    click.option(
        "--grace", type=options.Finite(0, 3600), default=10, show_default=True, help="Seconds between TERM and KILL."
    ),
    act_options.timeout,
    act_options.ask,
    options.output,
)
def kill(request: KillRequest, form: Output) -> None:
    """End the work on a GPU, or a process, pod or job, through its owner, after a question.

    A pod is deleted, a Slurm job cancelled; other processes get TERM, and KILL after the grace time. Only what is shown
    is ever hit: what has changed since then is refused. Services of the node are never ended, others' work only with
    --force and --reason. A number that may be several things is written gpu:3, pid:4711 or job:9.
    Exit code 0 if it has ended, 1 if something is left, 2 for a refusal, 3 if it was not done or its end is unknown.
    """
    from gpuctl.nodes.acts import target
    from gpuctl.nodes.acts.model import Consent
    from gpuctl.workflows import nodes_kill

    act_options.need_reason(request.force, request.reason)
    on_node = not request.context or request.inventory is not None
    target.check(request.what, request.node, on_node=on_node, in_cluster=bool(request.context))
    consent = Consent(request.force, request.reason, request.without_controller)
    if not on_node:
        plan = nodes_kill.read_api(request.context, request.node, request.what, consent, request.timeout)
    else:
        host = act_options.one_host(request.inventory, request.node)
        plan = nodes_kill.read(host, request.what, request.context, consent, request.timeout)
    click.echo("\n".join(_lines(plan)), err=form != "table")
    act_options.refuse(f"end this work on {request.node}", plan.plan.refusals)
    if request.check:
        return
    options.confirm("End it?", request.yes)
    outcomes, run = nodes_kill.carry_out(plan, sys.argv[1:], consent, request.grace)
    _show(outcomes, run, form)
    raise click.exceptions.Exit(nodes_kill.exit_code(outcomes))


def _lines(kill: Kill) -> Iterator[str]:
    """What would end, and how."""
    from gpuctl.engine import printable

    yield printable(f"{kill.plan.node}: this would end")
    for end in kill.plan.ends:
        yield printable(f"  {end.label} ({end.means}){_job(kill, end)}")
        for process in end.processes:
            yield printable(_process(process.pid, process.gpus, process.since, process.command))
        yield from (printable(f"    note: {note}") for note in end.notes)


def _job(kill: Kill, end: End) -> str:
    job = kill.jobs.get(end.job)
    if job is None:
        return ""
    fields = [f"name {job.get('JobName', '?')}", f"of {job.get('UserId', '?')}", f"on {job.get('NodeList', '?')}"]
    fields += [text for name in ("AllocTRES", "TRES") if (text := job.get(name, ""))][:1]
    return f": {', '.join(fields)}, since {job.get('StartTime', '?')}"


def _process(pid: int, gpus: Sequence[int], since: int | None, command: str) -> str:
    from datetime import datetime

    from gpuctl.cli.nodes import draw

    start = "?" if since is None else f"{datetime.fromtimestamp(since).astimezone():%m-%d %H:%M}"
    return f"    GPU {draw.ranges(gpus)}  pid {pid}  since {start}  {command[: draw.MOST_COMMAND]}"


def _show(outcomes: Sequence[Outcome], run: str, form: Output) -> None:
    from gpuctl.engine import printable

    if form != "table":
        output.data({"run": run, "outcomes": [vars(one) for one in outcomes]}, form)
        return
    for one in outcomes:
        click.echo(printable(f"{one.state}: {one.label}" + (f": {one.reason}" if one.reason else "")))
    click.echo(f"run {run}; `gpuctl runs show {run}` has the details")
