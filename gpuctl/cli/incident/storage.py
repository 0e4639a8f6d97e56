"""incident storage: causes of slow data loading and slow checkpoints, by measurement."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import named

if TYPE_CHECKING:
    from gpuctl.domain.report import Report
    from gpuctl.workflows.incident.storage import Answers, StorageOptions


@dataclass(frozen=True)
class StorageRequest:
    """Nodes of an inventory or of Slurm, or pods of a context; see `StorageOptions` for the measurement."""

    path: str
    inventory: str | None
    limit: str
    slurm: bool
    partition: str
    nodes: str
    context: str
    namespace: str
    pods: str
    selector: str
    container: str
    window: float
    read_seconds: float
    read_mib: int
    forks: int
    timeout: float


@click.command("storage")
@options.as_request(
    StorageRequest,
    click.option("--path", metavar="PATH", default="", callback=options.not_empty, help="Folder or file on the nodes: "
                 "the data that loads slowly, or the folder of checkpoints. Only files below it are read.  "
                 "[default: counters of all file systems, and nothing is read]"),
    options.inventory,
    options.limit,
    click.option("--slurm", is_flag=True, help="Nodes of this machine's Slurm cluster, by ssh."),
    click.option("--partition", metavar="NAME", default="", callback=options.not_empty,
                 help="With --slurm: of this partition."),
    click.option("--nodes", metavar="NAME,...", default="", callback=options.not_empty,
                 help="With --slurm: only these, h[1-4], …"),
    options.other_context("Kubernetes context, whose pods are measured.  [default: hosts]"),
    click.option("--namespace", "-n", metavar="NAME", default="", callback=options.not_empty,
                 help="With --context: namespace of the pods.  [default: the context's]"),
    click.option("--pods", metavar="NAME,...", default="", callback=options.not_empty,
                 help="With --context: these pods."),
    click.option("--selector", metavar="NAME=VALUE,...", default="", callback=options.not_empty,
                 help="With --context: pods with these labels."),
    click.option("--container", "-c", metavar="NAME", default="", callback=options.not_empty,
                 help="With --context: container of the pods.  [default: the default or first one]"),
    click.option("--window", type=options.Finite(0.5, 60), default=5, show_default=True,
                 help="Seconds in which the counters are compared, before anything is read."),
    click.option("--read-seconds", type=options.Finite(1, 60), default=8, show_default=True,
                 help="Limit of the trial on each node, in seconds."),
    click.option("--read-mib", type=click.IntRange(8, 65536), default=512, show_default=True,
                 help="Limit of the trial on each node, in MiB; all nodes together read at most 16 GiB."),
    options.visit("node", timeout_s=75),
)  # fmt: skip
@report_options
def storage(request: StorageRequest, form: Form, metrics: Path | None) -> None:
    """Find out why data loads slowly or checkpoints take long: measure the storage on nodes or in pods.

    Counters of NFS, Lustre, disks, limits and the network are compared over some seconds, then files below --path are
    read for a few seconds, past the page cache where the file system allows that. Nothing is written. All nodes measure
    at the same time, as a job reads. Exit code 1 for FAIL and UNKNOWN, 3 if a node was not reached.
    """
    check_folder(metrics)
    check(request)
    report = _report(request)
    publish(report, form, metrics, lambda: _table(report))
    sys.exit(report.exit_code)


def check(request: StorageRequest) -> None:
    """Refuse options that exclude each other, and a path that is none, before any node is asked."""
    doing = "measure the storage"
    if request.path and not request.path.startswith("/"):
        raise InvalidInput(doing, f"--path {request.path} is not absolute", "nodes have no current folder")
    in_pods = {"--namespace": request.namespace, "--pods": request.pods, "--selector": request.selector,
               "--container": request.container}  # fmt: skip
    on_hosts = {"--inventory": request.inventory is not None, "--limit": request.limit, "--slurm": request.slurm}
    if not request.context and any(in_pods.values()):
        wrong = f"{named(name for name, value in in_pods.items() if value)} is for pods"
        raise InvalidInput(doing, wrong, "add --context NAME")
    if request.context and any(on_hosts.values()):
        wrong = f"--context cannot be combined with {named(name for name, value in on_hosts.items() if value)}"
        raise InvalidInput(doing, wrong, "leave one out")
    if request.context and bool(request.pods) == bool(request.selector):
        raise InvalidInput(doing, "which pods is not clear", "name them with --pods, or by labels with --selector")
    if not request.slurm and (request.partition or request.nodes):
        raise InvalidInput(doing, "--partition and --nodes are for nodes of Slurm", "add --slurm")


def _report(request: StorageRequest) -> Report:
    from gpuctl.core.exit_codes import worst
    from gpuctl.domain.findings import exit_code, worst_first
    from gpuctl.domain.report import Report
    from gpuctl.incident import storage as rules
    from gpuctl.workflows.incident.storage import StorageOptions

    started = time.monotonic()
    measure = StorageOptions(
        request.path, request.window, request.read_seconds, request.read_mib, request.forks, request.timeout
    )
    answers = _ask(request, measure)
    judged = worst_first([*rules.unreached(answers.missing), *rules.judge(answers.fleet)])
    target = request.context or request.inventory or ("slurm" if request.slurm else "localhost")
    details = {"cause": asdict(rules.cause(judged)), "nodes": dict(answers.fleet)}
    code = worst([exit_code(judged), 3 if answers.missing else 0])
    return Report("incident storage", {target: judged}, details, seconds=time.monotonic() - started, code=code)


def _ask(request: StorageRequest, measure: StorageOptions) -> Answers:
    from gpuctl.workflows.incident import storage as flow

    if request.context:
        names = [name for name in request.pods.split(",") if name]
        choice = flow.PodChoice(request.context, request.namespace, names, request.selector, request.container)
        targets = flow.pods(choice)
        measure = measure.shared(len(targets))
        _announce(len(targets), "pod", measure)
        return flow.ask_pods(targets, measure)
    from gpuctl.hosts import plan as host_plan
    from gpuctl.workflows import audit_slurm

    by_inventory = request.inventory is not None or not request.slurm
    hosts = host_plan.targets(host_plan.find_inventory(request.inventory), request.limit) if by_inventory else None
    selection = (
        audit_slurm.select(request.partition, request.nodes, hosts)
        if request.slurm
        else audit_slurm.Selection(hosts or [])
    )
    measure = measure.shared(len(selection.hosts))
    _announce(len(selection.hosts), "node", measure)
    answers = flow.ask_hosts(selection.hosts, measure, output.unreached)
    return flow.Answers(answers.fleet, {**answers.missing, **selection.missing})


def _announce(count: int, kind: str, measure: StorageOptions) -> None:
    """Print what happens now: it takes some seconds, and reads data."""
    trial = (
        f", then reading from {measure.path}: at most {measure.read_s:g} s and {measure.read_mib} MiB on each, "
        f"{count * measure.read_mib} MiB in all"
        if measure.path
        else ""
    )
    click.echo(f"{output.plural(count, kind)}: counters of {measure.window_s:g} s{trial}", err=True)


def _table(report: Report) -> None:
    from gpuctl.domain.report import summary
    from gpuctl.engine import printable

    findings.show(report.findings)
    result = report.details["cause"]
    click.echo(printable(f"\ncause ({result['certainty']}): {result['text']}"))
    click.echo(f"{output.plural(len(report.details['nodes']), 'node')} measured: {summary(report)}")
