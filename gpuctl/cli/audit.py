"""audit: judge the health of GPU nodes, asked now or recorded."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuctl.domain.findings import Finding
    from gpuctl.nccl.preflight.facts_file import Fleet

LOG = click.Path(path_type=Path, allow_dash=True)
File = click.Path(dir_okay=False, path_type=Path)
HOURS = {"m": 1 / 60, "h": 1.0, "d": 24.0}


class Hours(click.ParamType[float]):
    """A time such as 30m, 24h or 7d, in hours."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([mhd])", str(value))
        if match is None or not float(match[1]):
            self.fail(f"{value!r} is no time such as 30m, 24h or 7d", param, ctx)
        return float(match[1]) * HOURS[match[2]]


@dataclass(frozen=True)
class AuditRequest:
    """Nodes to ask, or files to judge (`logs`, `files`). `since` in hours, `window` and `timeout` in seconds."""

    inventory: str | None
    limit: str
    logs: tuple[Path, ...]
    files: tuple[Path, ...]
    save: Path | None
    since: float | None
    window: float
    forks: int
    timeout: float
    deep: int | None
    strict: bool


@click.command()
@options.as_request(
    AuditRequest,
    options.inventory,
    options.limit,
    click.option(
        "--from", "logs", type=LOG, metavar="PATH", multiple=True,
        help="Judge files and ask no node: a file or a folder with one for each node, of kernel logs, what nvidia-smi, "
        "dcgmi, ibstat, ethtool or lfs printed, and facts of --save; - is standard input. More may follow.",
    ),
    click.argument("files", nargs=-1, metavar="[FILE]...", type=LOG),
    click.option("--save", metavar="FILE", type=File, help="Save the facts to this file."),
    click.option("--since", type=Hours(), help="Only kernel messages of this time, such as 24h.  "
                 "[default: this boot and the one before]"),
    click.option("--window", type=options.Finite(0.1, 600), default=2, show_default=True,
                 help="Seconds between two readings of the adapters' counters."),
    options.visit("node"),
    click.option("--deep", type=click.IntRange(1, 3), metavar="1|2|3",
                 help="Run DCGM's diagnosis of this level, too, on nodes that nobody uses. It goes on there if the "
                 "connection is lost; the same command then reads its result."),
    click.option("--strict", is_flag=True, help="Exit with 1 also for WARN."),
)  # fmt: skip
@report_options
def audit(request: AuditRequest, form: Form, metrics: Path | None) -> None:
    """Check the health of GPU nodes within seconds, and name what is ill and what to do, the worst first.

    GPUs, their memory, clocks and links, the fabric, Xids and other kernel messages, network adapters and the machine
    around them; nodes are compared with those that have the same GPUs. With --from, recorded files are judged.
    Exit code 1 for FAIL and UNKNOWN, 2 for files that cannot be read, 3 if a node was not reached.
    """
    check_folder(metrics)
    if request.files and not request.logs:
        wrong, hint = f"unexpected argument: {request.files[0]}", f"--from {request.files[0]} judges a file"
        raise InvalidInput("audit nodes", wrong, hint)
    if request.logs:
        _audit_files(request, form, metrics)
    _audit_nodes(request, form, metrics)


def _audit_nodes(request: AuditRequest, form: Form, metrics: Path | None) -> None:
    from gpuctl.audit import knowledge
    from gpuctl.core.exit_codes import worst
    from gpuctl.domain.findings import exit_code, worst_first
    from gpuctl.domain.report import Report, summary
    from gpuctl.nccl.preflight import facts_file
    from gpuctl.workflows import audit as flow
    from gpuctl.workflows import audit_rules

    started = time.monotonic()
    fleet = _ask(request)
    more: list[Finding] = []
    if request.deep is not None:
        fleet, more = _diagnose(request, fleet)
    if request.save is not None:
        facts_file.save(request.save, flow.without_secrets(fleet))
    results = worst_first([*more, *audit_rules.judge(fleet, knowledge.catalogue())])
    code = worst([exit_code(results, request.strict), 3 if fleet.unasked else 0])
    nodes = [*fleet.nodes, *fleet.unasked]
    seconds = round(time.monotonic() - started, 3)
    report = Report("audit", {request.inventory or "localhost": results}, {"nodes": nodes}, seconds=seconds, code=code)

    def table() -> None:
        findings.show(results)
        click.echo(f"\n{output.plural(len(nodes), 'node')}: {summary(report)}")

    publish(report, form, metrics, table)
    sys.exit(code)


def _ask(request: AuditRequest) -> Fleet:
    from gpuctl.hosts import plan as host_plan
    from gpuctl.workflows import audit as flow

    hosts = host_plan.targets(host_plan.find_inventory(request.inventory), request.limit)
    started = time.monotonic()
    asked = flow.AuditOptions(request.forks, request.timeout, request.window, request.since)
    fleet = flow.ask(hosts, asked, output.unreached)
    click.echo(f"queried {output.plural(len(hosts), 'node')} in {time.monotonic() - started:.1f} s", err=True)
    return fleet


def _diagnose(request: AuditRequest, fleet: Fleet) -> tuple[Fleet, list[Finding]]:
    """The fleet with the results of DCGM's diagnosis; progress goes to standard error, once a minute."""
    from gpuctl.hosts import plan as host_plan
    from gpuctl.workflows import diagnosis

    shown = [-60.0]

    def show(progress: diagnosis.Progress) -> None:
        if progress.seconds - shown[0] >= 60:
            shown[0] = progress.seconds
            running = output.plural(len(progress.running), "node")
            click.echo(
                f"dcgmi diag -r {request.deep}: {len(progress.done)} done, running on {running} for "
                f"{progress.seconds:.0f} s",
                err=True,
            )

    hosts = host_plan.targets(host_plan.find_inventory(request.inventory), request.limit)
    asked = diagnosis.DeepOptions(request.deep or 1, request.forks, request.timeout)
    return diagnosis.diagnose(hosts, fleet, asked, show)


def _audit_files(request: AuditRequest, form: Form, metrics: Path | None) -> None:
    from gpuctl.audit import knowledge
    from gpuctl.domain.report import Report
    from gpuctl.workflows import audit as flow

    if request.inventory is not None or request.limit or request.save is not None or request.deep is not None:
        wrong = "--from cannot be combined with --inventory, --limit, --save or --deep"
        raise InvalidInput("judge files and ask nodes", wrong, "leave one out")
    catalogue = knowledge.catalogue()
    paths = dict.fromkeys([*request.logs, *request.files])
    targets = {str(path): flow.judge_path(path, catalogue) for path in paths}
    report = Report("audit", targets, strict=request.strict)
    publish(report, form, metrics, lambda: _show(targets))
    sys.exit(report.exit_code)


def _show(targets: Mapping[str, list[Finding]]) -> None:
    from gpuctl.domain.findings import overall
    from gpuctl.engine import printable

    for name, judged in targets.items():
        click.echo(printable(f"{overall(judged)}  {name}"))
        findings.show(judged, indent="  ", most=None)
