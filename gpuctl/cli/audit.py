"""audit: judge the health of GPU nodes, asked now or recorded."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import completion, findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuctl.domain.findings import Finding
    from gpuctl.hosts.model import Target
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
    """Nodes to ask, or files to judge (`logs`, `files`). `since` in hours, `window` and `timeout` in seconds.

    `act`: "drain" nodes with a FAIL, in Kubernetes if a `context` is named; `yes`: without a question.
    """

    inventory: str | None
    limit: str
    logs: tuple[Path, ...]
    files: tuple[Path, ...]
    save: Path | None
    since: float | None
    window: float
    forks: int
    timeout: float
    strict: bool
    act: str | None
    context: str
    yes: bool


@click.command()
@options.as_request(
    AuditRequest,
    options.inventory,
    options.limit,
    click.option(
        "--from", "logs", type=LOG, metavar="FILE", multiple=True,
        help="Judge a file and ask no node: a kernel log, plain or gzipped, what nvidia-smi -q -x printed, or facts of "
        "--save; - is standard input. More files may follow.",
    ),
    click.argument("files", nargs=-1, metavar="[FILE]...", type=LOG),
    click.option("--save", metavar="FILE", type=File, help="Save the facts to this file."),
    click.option("--since", type=Hours(), help="Only kernel messages of this time, such as 24h.  "
                 "[default: this boot and the one before]"),
    click.option("--window", type=options.Finite(0.1, 600), default=2, show_default=True,
                 help="Seconds between two readings of the adapters' counters."),
    options.visit("node"),
    click.option("--strict", is_flag=True, help="Exit with 1 also for WARN."),
    click.option("--act", type=click.Choice(["drain"]), help="Drain the nodes with a FAIL, after a question."),
    click.option("--context", metavar="NAME", default="", callback=options.not_empty,
                 shell_complete=completion.contexts,
                 help="Kubernetes context in which --act drains.  [default: Slurm drains]"),
    click.option("--yes", "-y", is_flag=True, help="Do not ask before --act."),
)  # fmt: skip
@report_options
def audit(request: AuditRequest, form: Form, metrics: Path | None) -> None:
    """Check the health of GPU nodes within seconds, and name what is ill and what to do, the worst first.

    GPUs, their memory, clocks and links, the fabric, Xids and other kernel messages, network adapters and the machine
    around them; nodes are compared with those that have the same GPUs. With --from, recorded files are judged.
    Exit code 1 for FAIL and UNKNOWN, 2 for files that cannot be read, 3 if a node was not reached.
    """
    check_folder(metrics)
    if request.act is None and (request.context or request.yes):
        raise InvalidInput("audit nodes", "--context and --yes belong to --act drain", "add it, or leave them out")
    if request.act is not None and (request.logs or form != "table"):
        raise InvalidInput("drain nodes", "--act needs nodes that are queried now, and a table", "leave out --from")
    if request.files and not request.logs:
        wrong, hint = f"unexpected argument: {request.files[0]}", f"--from {request.files[0]} judges a file"
        raise InvalidInput("audit nodes", wrong, hint)
    if request.logs:
        _audit_files(request, form, metrics)
    _audit_nodes(request, form, metrics)


def _audit_nodes(request: AuditRequest, form: Form, metrics: Path | None) -> None:
    from gpuctl.audit import knowledge
    from gpuctl.core.exit_codes import worst
    from gpuctl.domain.findings import exit_code
    from gpuctl.domain.report import Report, summary
    from gpuctl.nccl.preflight import facts_file
    from gpuctl.workflows import audit_rules

    started = time.monotonic()
    hosts = _hosts(request)
    fleet = _ask(request, hosts)
    if request.save is not None:
        facts_file.save(request.save, fleet)
    results = audit_rules.judge(fleet, knowledge.catalogue())
    code = worst([exit_code(results, request.strict), 3 if fleet.unasked else 0])
    nodes = [*fleet.nodes, *fleet.unasked]
    seconds = round(time.monotonic() - started, 3)
    report = Report("audit", {request.inventory or "localhost": results}, {"nodes": nodes}, seconds=seconds, code=code)

    def table() -> None:
        findings.show(results)
        click.echo(f"\n{output.plural(len(nodes), 'node')}: {summary(report)}")

    publish(report, form, metrics, table)
    if request.act is not None:
        from gpuctl.cli.nodes import drain

        acted = drain.after_audit(results, hosts, request.context, request.timeout, yes=request.yes)
        code = worst([code, acted])
    sys.exit(code)


def _hosts(request: AuditRequest) -> list[Target]:
    from gpuctl.hosts import plan as host_plan

    return host_plan.targets(host_plan.find_inventory(request.inventory), request.limit)


def _ask(request: AuditRequest, hosts: Sequence[Target]) -> Fleet:
    from gpuctl.workflows import audit as flow

    started = time.monotonic()
    asked = flow.AuditOptions(request.forks, request.timeout, request.window, request.since)
    fleet = flow.ask(hosts, asked, output.unreached)
    click.echo(f"queried {output.plural(len(hosts), 'node')} in {time.monotonic() - started:.1f} s", err=True)
    return fleet


def _audit_files(request: AuditRequest, form: Form, metrics: Path | None) -> None:
    from gpuctl.audit import knowledge
    from gpuctl.domain.report import Report
    from gpuctl.workflows import audit as flow

    if request.inventory is not None or request.limit or request.save is not None:
        wrong = "--from cannot be combined with --inventory, --limit or --save"
        raise InvalidInput("judge files and ask nodes", wrong, "leave one out")
    catalogue = knowledge.catalogue()
    paths = dict.fromkeys([*request.logs, *request.files])
    targets = {str(path): flow.judge_file(path, catalogue) for path in paths}
    report = Report("audit", targets, strict=request.strict)
    publish(report, form, metrics, lambda: _show(targets))
    sys.exit(report.exit_code)


def _show(targets: Mapping[str, list[Finding]]) -> None:
    from gpuctl.domain.findings import overall
    from gpuctl.engine import printable

    for name, judged in targets.items():
        click.echo(printable(f"{overall(judged)}  {name}"))
        findings.show(judged, indent="  ", most=None)
