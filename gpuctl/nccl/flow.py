"""Run a test round by round, and stop cleanly on Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gpuctl.core.errors import InvalidInput
from gpuctl.core.exit_codes import worst
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl import plan
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Sweep
from gpuctl.nccl.plan_kinds import Kind
from gpuctl.nccl.runner import ProgressListener, Runner

MOST_NAMES = 4  # of a run over more nodes only how many there were
# What a launch that did not even begin a test came to: nothing was measured, so nothing was found either.
_NOT_BEGUN = (Outcome.EMPTY, Outcome.FAILED)


def planned(kind: Kind, nodes: Sequence[str], sweep: Sweep, split: bool = False) -> list[plan.Round]:
    """Rounds of a test, with the nodes in the given order.

    Raises `InvalidInput` if this number of nodes or these sizes cannot be tested.
    """
    doing = f"plan a test of the kind {kind}"
    if kind == "pairs" and len(nodes) < 2:
        raise InvalidInput(doing, "there is only one node", "`--kind single` tests a node alone")
    if split and kind not in ("pairs", "single"):
        raise InvalidInput(doing, "--split is for pairs and single nodes", "leave it out: it is one launch already")
    check_sizes(doing, sweep)
    return plan.rounds(kind, nodes, sweep, split)


def check_sizes(doing: str, sweep: Sweep) -> None:
    """Raise `InvalidInput` if the sweep has no sizes."""
    if sweep.begin_bytes > sweep.end_bytes:
        raise InvalidInput(
            doing, f"it begins at {sweep.begin_bytes} bytes and ends at {sweep.end_bytes}", "swap -b and -e"
        )


def run(
    runner: Runner,
    rounds: Sequence[plan.Round],
    listener: ProgressListener,
    broken_off: Callable[[], bool],
    results: list[LaunchResult] | None = None,
) -> list[LaunchResult]:
    """Run every round in turn; rounds not started when the user stopped are missing from the result.

    `results`: list to fill, so that finished launches survive an exception.
    """
    results = [] if results is None else results
    for round_ in rounds:
        if broken_off():
            break
        results += runner.run(round_, listener, broken_off)
    return results


def findings(
    kind: Kind,
    results: Sequence[LaunchResult],
    about: RunContext,
    book: Book | None = None,
    racks: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Judge every run by itself and pairs against each other; worst first.

    `racks`: node -> rack, as far as known: pairs within racks and across them may differ.
    """
    from gpuctl.nccl.isolate import pair_outliers, rack_speed_classes
    from gpuctl.nccl.judge import leftovers
    from gpuctl.nccl.judge import run as judge

    findings_: list[Finding] = []
    several = len({end.launch.nodes for end in results}) > 1, len({end.launch.sweep.collective for end in results}) > 1
    for end in results:
        findings_ += [
            _named(one, end.launch, *several) for one in judge.judge(end.run, _about(end.launch, about), book)
        ]
    findings_ += leftovers.findings(results)
    if kind == "pairs" and not any(plan.SPLIT in end.launch.sweep.env for end in results):
        groups = [] if racks else rack_speed_classes.groups(results)
        findings_ += [rack_speed_classes.finding(groups)] if groups else pair_outliers.similar(results, racks)
    return sorted(findings_, key=lambda one: -list(Verdict).index(one.verdict))


def _about(launch: Launch, about: RunContext) -> RunContext:
    """Context of a launch of our own, where node counts and algorithm are known."""
    return replace(
        about,
        nodes=plan.nodes_of_group(launch),
        gpus_per_node=launch.sweep.gpus_per_node,
        algorithm=launch.sweep.env.get("NCCL_ALGO", "default"),
    )


def _named(finding: Finding, launch: Launch, places: bool, collectives: bool) -> Finding:
    """Add the nodes to a finding about a whole run; if `places` or `collectives` differ between runs, to any."""
    subject = finding.subject
    nodes = ", ".join(launch.nodes) if len(launch.nodes) <= MOST_NAMES else f"all {len(launch.nodes)} nodes"
    if not subject:
        subject = nodes
    elif places and not any(node in subject for node in launch.nodes):
        subject = f"{nodes}: {subject}"
    return replace(finding, subject=f"{launch.sweep.collective}, {subject}" if collectives else subject)


def exit_code(results: Sequence[LaunchResult], findings_: Sequence[Finding] = (), strict: bool = False) -> int:
    """0 if all is well, 1 for problems or unknowns (if `strict`, also for WARN), 3 if a test could not start."""
    bad = [end for end in results if end.run.outcome is not Outcome.COMPLETE or end.lost or end.left]
    nothing = [end for end in results if end.run.outcome in _NOT_BEGUN and not end.run.rows and not end.run.ranks]
    problems = (Verdict.FAIL, Verdict.UNKNOWN, *((Verdict.WARN,) if strict else ()))
    open_ = [one for one in findings_ if one.verdict in problems]
    return worst([3 if nothing else 0, 1 if bad or open_ else 0])
