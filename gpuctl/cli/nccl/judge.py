"""nccl judge: compare runs with the expected bandwidth, size by size."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.nccl import baselines, log_files
from gpuctl.cli.nccl.baselines import ContextRequest
from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.exit_codes import PROBLEMS

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.nccl.context import RunContext

    Judged = tuple[str, RunContext, list[Finding]]


count = click.IntRange(min=1)


@dataclass(frozen=True)
class JudgeRequest:
    """Logs to judge, and facts that they may lack. `strict`: WARN is a problem, too."""

    files: tuple[Path, ...]
    nodes: int | None
    gpus_per_node: int | None
    strict: bool
    context: ContextRequest


@click.command()
@options.as_request(
    JudgeRequest,
    log_files.argument,
    baselines.context_options,
    click.option("--nodes", type=count, metavar="N", help="Number of nodes.  [default: from the log]"),
    click.option("--gpus-per-node", type=count, metavar="N", help="GPUs per node.  [default: from the log]"),
    baselines.strict,
)
@report_options
def judge(request: JudgeRequest, form: Form, metrics: Path | None) -> None:
    """Judge logs of nccl-tests, size by size; - is standard input.

    Checks the end of the run, wrong values, the network of every rank, bandwidth against the baseline, sudden drops,
    and whether a run over two nodes proves anything. Options supply facts that a log does not contain; if they
    contradict the log, nothing is judged. Exit code 1 for FAIL and UNKNOWN (with --strict also for WARN), 2 for
    unusable options or files.
    """
    from gpuctl.domain.report import Report
    from gpuctl.nccl import context
    from gpuctl.nccl.baselines import load
    from gpuctl.nccl.judge.run import judge as judge_run

    check_folder(metrics)
    stated = request.context.context(request.nodes, request.gpus_per_node)
    book = load.book()
    baselines.known_instance(stated.system, "judge", book)
    runs = list(log_files.runs(request.files))
    baselines.agreed("judge", runs, stated, book)
    judged_runs = [(name, context.infer(run, stated), judge_run(run, stated, book)) for name, run in runs]
    targets = {name: findings for name, _, findings in judged_runs}
    code = _exit_code(judged_runs, request.strict)
    details = {"runs": [_plain(*one) for one in judged_runs]}
    report = Report("nccl judge", targets, details, request.strict, code=code)
    publish(report, form, metrics, lambda: _show(judged_runs))
    sys.exit(code)


def _exit_code(judged_runs: Iterable[Judged], strict: bool) -> int:
    from gpuctl.domain.findings import exit_code

    # Judged one by one, because a run without findings is unknown.
    return max((exit_code(findings, strict) if findings else PROBLEMS for _, _, findings in judged_runs), default=0)


def _plain(name: str, about: RunContext, findings: list[Finding]) -> dict[str, object]:
    from dataclasses import asdict

    from gpuctl.domain.findings import overall

    return {"run": name, "verdict": str(overall(findings)), "known": asdict(about)}


def _show(judged_runs: Iterable[Judged]) -> None:
    from gpuctl.domain.findings import overall

    for name, about, verdicts in judged_runs:
        click.echo(f"{overall(verdicts)}  {name}: {_known(about)}")
        findings.show([_with_peak(finding) for finding in verdicts], indent="  ", most=None)


def _with_peak(finding: Finding) -> Finding:
    """Add the measured bandwidth to a run that no baseline judges."""
    from dataclasses import replace

    from gpuctl.nccl.messages import size

    best, at = finding.numbers.get("peak_gbs"), finding.numbers.get("peak_bytes")
    if finding.check != "baseline" or not isinstance(best, float) or not isinstance(at, int):
        return finding
    return replace(finding, message=f"{finding.message}; best out-of-place {best:g} GB/s at {size(at)}")


def _known(about: RunContext) -> str:
    """The facts the run was judged with, so that a misread log is noticed at once."""
    nodes = output.plural(about.nodes, "node") if about.nodes else None
    gpus = f"{output.plural(about.gpus_per_node, 'GPU')} each" if about.gpus_per_node else None
    ranks = output.plural(about.ranks, "rank") if about.ranks else None
    facts = ", ".join(text for text in (nodes, gpus, ranks) if text)
    missing = [fact for fact, text in (("nodes", nodes), ("GPUs", gpus), ("ranks", ranks)) if text is None]
    where = (f" on {facts}" if facts else "") + (f" ({', '.join(missing)} unknown)" if missing else "")
    system = about.system or "no machine type given"
    return f"{about.collective or 'collective not named'}{where}; {_algorithm(about)}; {system}"


def _algorithm(about: RunContext) -> str:
    """Forced and chosen algorithms, which are two different things."""
    used = f" (used: {', '.join(about.chosen)})" if about.chosen else ""
    if about.algorithm is None:
        return f"NCCL_ALGO unknown{used}"
    return f"NCCL's choice of algorithm{used}" if about.algorithm == "default" else f"NCCL_ALGO={about.algorithm}"
