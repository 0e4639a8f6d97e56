"""audit: judge the health of GPU nodes, asked now or recorded."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuctl.domain.findings import Finding
    from gpuctl.domain.report import Report
    from gpuctl.hosts.model import HostResult, Target
    from gpuctl.nccl.preflight.facts_file import Fleet
    from gpuctl.workflows.audit import AuditOptions
    from gpuctl.workflows.audit_bundle import Outputs
    from gpuctl.workflows.audit_slurm import Selection

LOG = click.Path(path_type=Path, allow_dash=True)


class Hours(options.Duration):
    """A time such as 30m, 24h or 7d, in hours."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        return super().convert(value, param, ctx) / 3600


@dataclass(frozen=True)
class AuditRequest:
    """Nodes to ask, or files to judge (`logs`, `files`). `since` in hours, `window` and `timeout` in seconds.

    `slurm`: the nodes of a Slurm cluster, of one `partition` and host list `nodes`. `watch`: an audit every `every`
    seconds, with metrics at the address `serve`. `quiet`: without progress.
    `probe`: the GPU nodes of a Kubernetes `context`, by pods of the image `probe_image` in `namespace`.
    `act`: "drain" nodes with a FAIL, in Kubernetes if a `context` is named; `yes`: without a question.
    """

    inventory: str | None
    limit: str
    slurm: bool
    partition: str
    nodes: str
    logs: tuple[Path, ...]
    files: tuple[Path, ...]
    save: str | None
    since: float | None
    window: float
    forks: int
    timeout: float
    deep: int | None
    strict: bool
    act: str | None
    context: str
    probe: bool
    probe_image: str
    namespace: str
    yes: bool
    watch: bool
    every: float
    serve: str
    quiet: bool = False


@click.command()
@options.as_request(
    AuditRequest,
    options.inventory,
    options.limit,
    click.option("--slurm", is_flag=True, help="Audit the nodes of this machine's Slurm cluster, by ssh: "
                 "as the inventory has them, or by their addresses."),
    click.option("--partition", metavar="NAME", default="", callback=options.not_empty,
                 help="With --slurm: of this partition."),
    click.option("--nodes", metavar="NAME,...", default="", callback=options.not_empty,
                 help="With --slurm: only these, h[1-4], …"),
    click.option(
        "--from", "logs", type=LOG, metavar="PATH", multiple=True,
        help="Read recorded files instead of nodes: a file, or a folder with one for each node, of kernel logs, output "
        "of nvidia-smi, dcgmi, ibstat, ethtool or lfs, and facts of --save; - is standard input. Repeatable.",
    ),
    click.argument("files", nargs=-1, metavar="[FILE]...", type=LOG),
    click.option("--save", metavar="FILE|DIR/", help="Save the facts to this file. In a folder (with a final /, or an "
                 "empty one), also what the nodes' programs print, without secrets: a bundle for --from, or to send."),
    click.option("--since", type=Hours(), help="Only kernel messages of the last TIME, such as 24h.  "
                 "[default: this boot and the one before]"),
    click.option("--window", type=options.Finite(0.1, 600), default=2, show_default=True,
                 help="Seconds between two readings of the adapters' counters."),
    options.visit("node"),
    options.deep("Run DCGM's diagnosis of this level, too, on nodes that nobody uses. It goes on there if the "
                 "connection is lost; the same command then reads its result."),
    click.option("--watch", is_flag=True, help="Audit again and again until Ctrl-C."),
    click.option("--every", type=options.Finite(10, 86400), default=300, show_default=True,
                 help="With --watch: seconds from the start of an audit to the next; never two at a time."),
    click.option("--serve", metavar="[ADDRESS:]PORT", default="", callback=options.not_empty,
                 help="With --watch: serve Prometheus metrics at /metrics; with a port alone, to this machine only."),
    click.option("--strict", is_flag=True, help="Exit with 1 also for WARN."),
    click.option("--act", type=click.Choice(["drain"]), help="Drain the nodes with a FAIL, after confirmation."),
    options.other_context("Kubernetes context, in which --act drains, and whose nodes --probe audits.  "
                          "[default: Slurm drains]"),
    options.node_probe("With --context: audit its GPU nodes, each by a short-lived privileged pod, which is removed."),
    click.option("--yes", "-y", is_flag=True, help="With --act: do not ask for confirmation."),
)  # fmt: skip
@report_options
def audit(request: AuditRequest, form: Form, metrics: Path | None) -> None:
    """Check the health of GPU nodes within seconds, and report what is unhealthy and what to do, the worst first.

    GPUs, their memory, clocks and links, the fabric, Xids and other kernel messages, network adapters and the machine
    around them; nodes are compared with those that have the same GPUs. With --from, recorded files are judged.
    Exit code 1 for FAIL and UNKNOWN, 2 for files that cannot be read, 3 if a node was not reached.
    """
    check_folder(metrics)
    check(request, form)
    if request.logs:
        _audit_files(request, form, metrics)
    if request.watch:
        _watch(request, metrics)
    _audit_nodes(request, form, metrics)


def check(request: AuditRequest, form: Form) -> None:
    """Refuse options that exclude each other, before any node is asked."""
    if request.act is None and (request.yes or (request.context and not request.probe)):
        wrong = "--context and --yes belong to --act drain, or --context to --probe"
        raise InvalidInput("audit nodes", wrong, "add it, or leave them out")
    if request.probe:
        _check_probe(request)
    if request.act is not None and (request.logs or form != "table"):
        raise InvalidInput("drain nodes", "--act needs nodes that are queried now, and a table", "leave out --from")
    if request.files and not request.logs:
        wrong, hint = f"unexpected argument: {request.files[0]}", f"--from {request.files[0]} judges a file"
        raise InvalidInput("audit nodes", wrong, hint)
    if not request.slurm and (request.partition or request.nodes):
        raise InvalidInput("audit nodes", "--partition and --nodes are for nodes of Slurm", "add --slurm")
    _check_watch(request, form)
    if request.save is not None:
        _check_save(request.save)


def _check_save(path: str) -> None:
    """Refuse before nodes are asked what could not be written afterwards."""
    from gpuctl.workflows import audit_bundle

    if audit_bundle.is_folder(path):
        audit_bundle.check(Path(path))


def _check_probe(request: AuditRequest) -> None:
    if not request.context:
        raise InvalidInput("audit nodes", "--probe is for nodes of Kubernetes", "add --context NAME")
    asked = {
        "--inventory": request.inventory is not None,
        "--limit": bool(request.limit),
        "--slurm": request.slurm,
        "--from": bool(request.logs),
        "--deep": request.deep is not None,
    }
    if wrong := [name for name, is_set in asked.items() if is_set]:
        message = f"--probe cannot be combined with {named(wrong)}"
        raise InvalidInput("audit nodes", message, "leave one out, or reach the nodes by ssh with --inventory")


def _check_watch(request: AuditRequest, form: Form) -> None:
    if request.serve and not request.watch:
        raise InvalidInput("serve metrics", "a single audit has nothing to serve", "add --watch")
    if request.watch and (request.logs or request.save is not None or form != "table" or request.deep or request.act):
        wrong = "--watch cannot be combined with --from, --save, --deep, --act or --output"
        raise InvalidInput("audit again and again", wrong, "leave one out")


def _audit_nodes(request: AuditRequest, form: Form, metrics: Path | None) -> None:
    selection = select(request)
    report = report_of(request, selection)
    publish(report, form, metrics, lambda: _table(report))
    if request.act is None:
        sys.exit(report.exit_code)
    from gpuctl.cli.nodes import drain
    from gpuctl.core.exit_codes import worst

    drained = drain.after_audit(report.findings, selection.hosts, request.context, request.timeout, yes=request.yes)
    sys.exit(worst([report.exit_code, drained]))


def report_of(request: AuditRequest, selection: Selection) -> Report:
    """Ask all nodes and judge their answers."""
    from gpuctl.audit import knowledge
    from gpuctl.core.exit_codes import worst
    from gpuctl.domain.findings import exit_code, worst_first
    from gpuctl.domain.report import Report
    from gpuctl.workflows import audit as flow
    from gpuctl.workflows import audit_bundle, audit_rules

    started = time.monotonic()
    (fleet, outputs), more = audit_bundle.split(_ask(request, selection)), list(selection.findings)
    if request.deep is not None:
        fleet, diagnosed = _diagnose(request, selection.hosts, fleet)
        more += diagnosed
    if request.save is not None:
        _save(request.save, flow.without_secrets(fleet), outputs)
    results = worst_first([*more, *audit_rules.judge(fleet, knowledge.catalogue())])
    code = worst([exit_code(results, request.strict), 3 if fleet.unasked else 0])
    nodes = [*fleet.nodes, *fleet.unasked]
    seconds = round(time.monotonic() - started, 3)
    by_name = request.context if request.probe else request.inventory
    target = by_name or ("slurm" if request.slurm else "localhost")
    return Report("audit", {target: results}, {"nodes": nodes}, seconds=seconds, code=code)


def _save(path: str, fleet: Fleet, outputs: Outputs) -> None:
    from gpuctl.nccl.preflight import facts_file
    from gpuctl.workflows import audit_bundle

    if audit_bundle.is_folder(path):
        audit_bundle.save(Path(path), fleet, outputs)
        click.echo(f"saved in {path}: look through it before you send it to others", err=True)
    else:
        facts_file.save(Path(path), fleet)


def _table(report: Report) -> None:
    findings.show(report.findings)
    click.echo(f"\n{_summary(report)}")


def _summary(report: Report) -> str:
    from gpuctl.domain.report import summary

    return f"{output.plural(len(report.details['nodes']), 'node')}: {summary(report)}"


def _watch(request: AuditRequest, metrics: Path | None) -> None:
    """Audit until Ctrl-C. With --serve or --metrics a line for each audit, else the findings."""
    from gpuctl.core.errors import GpuctlError
    from gpuctl.workflows import audit_watch

    select(request)  # a wrong inventory is an error at once, not an audit that fails for ever
    limit = min(request.timeout, request.every)  # a node that hangs must not hold the next audit
    once = replace(request, timeout=limit, quiet=True)
    watch = audit_watch.Watch(lambda: report_of(once, select(once)), request.every, limit + request.window, metrics)
    if request.serve and audit_watch.is_public(request.serve):
        click.echo(f"note: everybody who can reach {request.serve} can read the findings", err=True)
    with audit_watch.serving(watch, request.serve) as url:
        if url:
            click.echo(f"metrics are at {url}", err=True)
        while True:
            started, shown = watch.clock(), time.strftime("%H:%M:%S")
            result = watch.once()
            if isinstance(result, GpuctlError):
                click.echo(f"{shown} the audit was not possible: {result}; {result.hint}".rstrip("; "), err=True)
            elif url or metrics:
                click.echo(f"{shown} {_summary(result)} ({watch.latest.seconds:.1f} s)")
            else:
                click.clear()  # does nothing unless a terminal shows it
                click.echo(shown)
                _table(result)
            time.sleep(watch.pause_s(started))


def select(request: AuditRequest) -> Selection:
    if request.probe:
        from gpuctl.workflows import audit_kube  # the client of Kubernetes is slow to load

        return audit_kube.select(request.context, request.namespace)
    from gpuctl.hosts import plan as host_plan
    from gpuctl.workflows import audit_slurm

    by_inventory = request.inventory is not None or not request.slurm
    hosts = host_plan.targets(host_plan.find_inventory(request.inventory), request.limit) if by_inventory else None
    if request.slurm:
        return audit_slurm.select(request.partition, request.nodes, hosts)
    return audit_slurm.Selection(hosts or [])


def _ask(request: AuditRequest, selection: Selection) -> Fleet:
    """Facts of the selected nodes."""
    from gpuctl.nccl.preflight.facts_file import Fleet
    from gpuctl.workflows import audit as flow
    from gpuctl.workflows import audit_bundle

    started = time.monotonic()
    on_result = _ignored if request.quiet else output.unreached
    with_outputs = request.save is not None and audit_bundle.is_folder(request.save)
    asked = flow.AuditOptions(request.forks, request.timeout, request.window, request.since, with_outputs)
    if request.probe:
        fleet, left = _ask_by_pods(request, selection, asked, on_result)
    else:
        fleet, left = flow.ask(selection.hosts, asked, on_result), ""
    if left:
        click.echo(f"note: {left}", err=True)
    if not request.quiet:
        count = output.plural(len(selection.hosts), "node")
        click.echo(f"queried {count} in {time.monotonic() - started:.1f} s", err=True)
    return Fleet(fleet.nodes, {**fleet.unasked, **selection.missing})


def _ask_by_pods(
    request: AuditRequest, selection: Selection, asked: AuditOptions, on_result: Callable[[HostResult], None]
) -> tuple[Fleet, str]:
    from gpuctl.workflows import audit_kube
    from gpuctl.workflows.nodes_kube_probe import ProbeRequest

    probe = ProbeRequest(request.probe_image, request.namespace)
    return audit_kube.ask(selection, request.context, probe, asked, on_result)


def _ignored(_: HostResult) -> None:
    """Between two audits the findings alone tell which nodes were not reached."""


def _diagnose(request: AuditRequest, hosts: Sequence[Target], fleet: Fleet) -> tuple[Fleet, list[Finding]]:
    """The fleet with the results of DCGM's diagnosis; progress goes to standard error, once a minute."""
    from gpuctl.workflows import diagnosis

    level = request.deep or 1
    asked = diagnosis.DeepOptions(level, request.forks, request.timeout)
    return diagnosis.diagnose(
        hosts, fleet, asked, diagnosis.once_a_minute(level, lambda line: click.echo(line, err=True))
    )


def _audit_files(request: AuditRequest, form: Form, metrics: Path | None) -> None:
    from gpuctl.domain.report import Report

    targets = judge_files(request)
    report = Report("audit", targets, strict=request.strict)
    publish(report, form, metrics, lambda: _show(targets))
    sys.exit(report.exit_code)


def judge_files(request: AuditRequest) -> dict[str, list[Finding]]:
    """Findings of each recorded file or folder."""
    from gpuctl.audit import knowledge
    from gpuctl.workflows import audit as flow

    asked = {
        "--inventory": request.inventory is not None,
        "--limit": bool(request.limit),
        "--slurm": request.slurm,
        "--save": request.save is not None,
        "--deep": request.deep is not None,
    }
    if any(asked.values()):
        wrong = f"--from cannot be combined with {named(name for name, is_set in asked.items() if is_set)}"
        raise InvalidInput("judge files and ask nodes", wrong, "leave one out")
    catalogue = knowledge.catalogue()
    paths = dict.fromkeys([*request.logs, *request.files])
    return {str(path): flow.judge_path(path, catalogue) for path in paths}


def _show(targets: Mapping[str, list[Finding]]) -> None:
    from gpuctl.domain.findings import overall
    from gpuctl.engine import printable

    for name, judged in targets.items():
        click.echo(printable(f"{overall(judged)}  {name}"))
        findings.show(judged, indent="  ", most=None)
