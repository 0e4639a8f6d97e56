"""The rule "similar across node pairs": pairs, and so nodes, that are slower than the scatter of the others allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.isolate.model import Fleet
from gpuctl.nccl.isolate.noise import Reference
from gpuctl.nccl.isolate.observations import Evidence, Observation, observe
from gpuctl.nccl.isolate.small_fleets import describe_speeds
from gpuctl.nccl.model import LaunchResult

RULE = "pairs"
FEWEST = 3  # fewest pairs among which one can be an outlier
LEAST_GAP = 0.03  # a smaller shortfall is never an outlier, however small the spread
FALSE_ALARM = 0.05  # chance that any healthy pair counts as an outlier
T3_TAIL = 2 * math.sqrt(3) / math.pi  # far out, P(t > x) of Student's t (3) is about this over x**3
MOSTLY = 2 / 3  # share of a node's pairs that are slow from which the node is named
MOST_PAIRS = 4  # faster pairs that are named in a message
GIVE_BASELINE = (
    "set a baseline, which shows the right speed; or test them together with nodes that are known to be good"
)
ISOLATE = "`gpuctl nccl isolate` shows with a few more runs whether a node, the path between two, or an uplink is bad"


def similar(results: Sequence[LaunchResult], racks: Mapping[str, str] | None = None) -> list[Finding]:
    """Outliers among pair runs; a node instead of its pairs if most of these are slow.

    If every pair was run, the nodes are named that are slow with every other while the rest, at least half of all, are
    fast among each other. Pairs of two speeds that this does not explain are UNKNOWN.

    If racks (node -> rack) are known, pairs within racks are compared with each other, and so are pairs across racks.
    The limit for an outlier follows from the spread of all pairs, with tails that fall with the third power only, and
    from their number; it is never less than 3 %. Failed runs have no speed and are judged by other rules.
    """
    nodes = tuple(dict.fromkeys(node for end in results if len(end.launch.nodes) == 2 for node in end.launch.nodes))
    evidence = observe(Fleet(nodes, racks or {}), results)
    measured = [run for run in evidence.pairs if run.shortfall is not None]
    if len(measured) < FEWEST:
        return [Finding(RULE, "", Verdict.UNKNOWN, f"{len(measured)} pairs: too few to compare", {}, "test more pairs")]
    slow = [
        run
        for run in measured
        if _is_outlier(run, evidence.references[run.place]) or not evidence.clusters.slow_nodes.isdisjoint(run.nodes)
    ]
    findings = list(_findings(slow, measured, evidence))
    if evidence.clusters.sides or evidence.faster_pairs or _mostly_slow(slow, measured, evidence):
        findings = [one for one in findings if one.subject in evidence.clusters.slow_nodes]
        findings.append(_two_speeds(evidence, slow))
    alike = Finding(RULE, "", Verdict.OK, f"{len(measured)} pairs are alike", _numbers(evidence.references))
    return findings or [alike]


def bound(reference: Reference) -> float:
    """The shortfall (natural logarithm) from which a pair is an outlier, given the number and spread of all pairs."""
    scales: float = (T3_TAIL * reference.count / FALSE_ALARM) ** (1 / 3)
    return max(-math.log(1 - LEAST_GAP), scales * reference.scale)


def _is_outlier(run: Observation, reference: Reference) -> bool:
    return run.shortfall is not None and run.shortfall > bound(reference)


def _findings(slow: Sequence[Observation], measured: Sequence[Observation], evidence: Evidence) -> Iterator[Finding]:
    count = {node: sum(node in run.nodes for run in measured) for run in slow for node in run.nodes}
    bad = {node: sum(node in run.nodes for run in slow) for node in count}
    always = {node for node in evidence.clusters.slow_nodes if bad.get(node) == count.get(node)}
    nodes = [n for n in count if n in always or (bad[n] >= FEWEST and bad[n] >= MOSTLY * count[n])]
    for node in nodes:
        message = f"{bad[node]} of its {count[node]} pairs are slower than the scatter of the others allows"
        numbers = {"slow_pairs": bad[node], "pairs": count[node], **_numbers(evidence.references)}
        yield Finding(RULE, node, Verdict.FAIL, message, numbers, ISOLATE)
    for run in slow:
        if not set(nodes) & set(run.nodes):
            yield _pair(run, evidence.references[run.place])


def _mostly_slow(slow: Sequence[Observation], measured: Sequence[Observation], evidence: Evidence) -> bool:
    """True if most pairs that no slow node explains are slow: then a node with mostly slow pairs may be a good one."""
    left = [sum(evidence.clusters.slow_nodes.isdisjoint(run.nodes) for run in runs) for runs in (slow, measured)]
    return 2 * left[0] > left[1]


def _two_speeds(evidence: Evidence, slow: Sequence[Observation]) -> Finding:
    """UNKNOWN: two speeds that no set of bad nodes explains, or only a set of more than half of the nodes."""
    gbs = {run.nodes: run.gbs for run in evidence.pairs if run.gbs is not None}
    if evidence.clusters.sides:
        return Finding(
            RULE,
            "",
            Verdict.UNKNOWN,
            describe_speeds(evidence.clusters, gbs),
            _numbers(evidence.references),
            GIVE_BASELINE,
        )
    fast = [pair for pair in gbs if tuple(sorted(pair)) in evidence.faster_pairs] or sorted(
        set(gbs) - {r.nodes for r in slow}
    )
    below = sorted(set(gbs) - set(fast)) if evidence.faster_pairs else [run.nodes for run in slow]
    shown = ", ".join(" and ".join(pair) for pair in fast[:MOST_PAIRS])
    more = f" and {len(fast) - MOST_PAIRS} more" if len(fast) > MOST_PAIRS else ""
    both = [median(gbs[pair] for pair in side) for side in (fast, below)]
    message = f"pairs have two speeds: {both[0]:.0f} GB/s ({shown}{more}) and mostly {both[1]:.0f}; no majority shows"
    numbers = {"faster_gbs": round(both[0], 1), "faster_pairs": len(fast), **_numbers(evidence.references)}
    return Finding(
        RULE, "", Verdict.UNKNOWN, f"{message} which is right, so no node is accused", numbers, GIVE_BASELINE
    )


def _pair(run: Observation, reference: Reference) -> Finding:
    slower = 100 * (1 - math.exp(-(run.shortfall or 0.0)))
    message = f"{run.gbs:.0f} GB/s, {slower:.0f} % below the usual pair's {reference.gbs:.0f}"
    numbers = {
        "gbs": run.gbs,
        "usual_gbs": round(reference.gbs, 2),
        "slower_percent": round(slower, 1),
        "bound_percent": round(100 * (1 - math.exp(-bound(reference))), 1),
    }
    return Finding(RULE, " and ".join(run.nodes), Verdict.FAIL, message, numbers, ISOLATE)


def _numbers(references: Mapping[str, Reference]) -> dict[str, float | int | str | None]:
    keys = {"within": "within_racks_gbs", "across": "across_racks_gbs", "": "usual_gbs"}
    numbers: dict[str, float | int | str | None] = {keys[p]: round(r.gbs, 1) for p, r in sorted(references.items())}
    return numbers | {"spread_percent": round(100 * max(ref.scale for ref in references.values()), 2)}
