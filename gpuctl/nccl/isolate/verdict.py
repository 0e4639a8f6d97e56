"""The verdict as findings: the bad parts with their runs, other explanations, and the cost in runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gpuctl.core import text
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.isolate import advice, fabric, rails, start_findings
from gpuctl.nccl.isolate.attribution import CLEARLY, Attribution, looks_bad
from gpuctl.nccl.isolate.confirmation import REPEATS, Confirmation, confirmation
from gpuctl.nccl.isolate.model import Conclusion, Fault, Kind, Policy, Unresolved
from gpuctl.nccl.isolate.observations import REACHES, Evidence, Observation
from gpuctl.nccl.judge import leftovers
from gpuctl.nccl.model import Outcome

RULE = "isolate"
MOST_WRONG = 8  # pairs with wrong values that are named one by one
MOST_PAIRS = 4  # faster pairs that are named in a message
Numbers = dict[str, float | int | str | None]


def conclusion(
    evidence: Evidence, attribution: Attribution, unresolved: Sequence[Unresolved], policy: Policy
) -> Conclusion:
    """The result of an isolation, as values and as findings."""
    names = rails.nodes_of(attribution.faults)
    faults = tuple(rails.with_adapter(evidence, fault, names, policy) for fault in attribution.faults)
    left = confirmation(evidence, faults, unresolved, policy)
    by_adapter = sum(bool(run.rail) for run in evidence.runs)
    controls = len(evidence.drift.controls)
    used, budget = len(evidence.runs) - by_adapter - controls, spend(evidence, attribution, policy)
    findings = (
        *(_fault_finding(fault, evidence, policy) for fault in faults),
        *_wrong(evidence, faults),
        *(
            _unresolved_finding(open_case, evidence)
            for open_case in unresolved
            if not _is_of_wrong(open_case, evidence)
        ),
        *_once(evidence, attribution.chance),
        *start_findings.findings(evidence, shared=any(not open_case.may_be for open_case in unresolved)),
        *evidence.transport,
        *_all(evidence, faults, unresolved),
        *_between(evidence, faults),
        *_confirmation(left, evidence),
        *leftovers.in_cluster(evidence.history),
        _cost(attribution, _Cost(used, budget, by_adapter, controls), policy),
    )
    return Conclusion(
        faults,
        tuple(unresolved),
        tuple(s.number for s in attribution.chance),
        findings,
        used,
        budget,
        by_adapter,
        controls,
    )


def spend(evidence: Evidence, attribution: Attribution, policy: Policy) -> int:
    """The budget in runs: a pair for every two nodes, two for each of these that was bad, the confirmations."""
    suspects, met = 0, dict.fromkeys(evidence.fleet.nodes, 0)
    for run in evidence.pairs:
        first = any(met[node] < policy.pairs_per_node for node in run.nodes)
        suspects += first and looks_bad(run, attribution.noise, policy)
        for node in run.nodes:
            met[node] += 1
    return policy.pairs_per_node * math.ceil(len(evidence.fleet.nodes) / 2) + 2 * suspects + REPEATS


def _fault_finding(fault: Fault, evidence: Evidence, policy: Policy) -> Finding:
    subject = str(fault.cause)
    if fault.lost:
        return Finding(RULE, subject, Verdict.FAIL, "it stopped answering after a run", {}, advice.LOST)
    message = f"{len(fault.bad)} of {len(fault.runs)} runs that it affects {_symptom(fault, evidence)}"
    message += f"; {fault.rail_summary}" if fault.rail_summary else ""
    message += "; the fault is intermittent" if fault.intermittent else ""
    message += "; it is the node, or its switch port or cable" if _is_behind_an_unknown_switch(fault, evidence) else ""
    message += f"; {_odds(fault.odds)} times likelier than chance"
    numbers: Numbers = {
        "bad_runs": len(fault.bad),
        "runs": len(fault.runs),
        "slower_percent": None if fault.slower is None else round(100 * fault.slower, 1),
        "odds_against_chance": _odds(fault.odds),
        "false_alarm_percent": 100 * policy.false_alarm,
    }
    numbers |= {"adapter": fault.rail} if fault.rail else {}
    hint = advice.for_fault(fault, _outcomes(fault, evidence))
    if fault.cause.kind is Kind.NODE and evidence.fleet.rails is None and fabric.of_efa(evidence.history):
        hint += f"; {advice.EFA}"
    return Finding(RULE, subject, Verdict.FAIL, message, numbers, hint)


def _is_behind_an_unknown_switch(fault: Fault, evidence: Evidence) -> bool:
    """True for a node of unknown rack, or alone in it: no other node shows that their leaf switch is fine.

    False for wrong values, which no cable causes, and once the adapter is known.
    """
    if fault.cause.kind is not Kind.NODE or fault.rail or Outcome.CORRUPT in _outcomes(fault, evidence):
        return False
    return evidence.rack_sizes[evidence.fleet.racks.get(fault.cause.names[0], "")] < 2


def _symptom(fault: Fault, evidence: Evidence) -> str:
    if not fault.failing:
        return f"were slow, by {100 * (fault.slower or 0):.0f} %"
    return f"failed ({', '.join(sorted(_outcomes(fault, evidence)))})"


def _outcomes(fault: Fault, evidence: Evidence) -> set[str]:
    """The outcomes of its failed runs; empty for a slow cause."""
    return {run.failed for run in evidence.runs if fault.failing and run.number in fault.bad and run.failed}


def _odds(logarithm: float) -> str:
    return f"{math.exp(logarithm):.0f}" if logarithm < math.log(1e4) else f"1e{int(logarithm / math.log(10))}"


def _unresolved_finding(open_case: Unresolved, evidence: Evidence) -> Finding:
    if not open_case.may_be:
        message = f"no node is accused: {open_case.why}"
        return Finding(RULE, "", Verdict.UNKNOWN, message, _speeds(evidence), _shared_hint(open_case, evidence))
    nodes = next(run.nodes for run in evidence.runs if run.number in open_case.runs)
    suspects = ", or ".join(str(cause) for cause in open_case.may_be)
    message = f"bad, but the cause is not certain: {suspects}; {open_case.why}"
    return Finding(RULE, " and ".join(nodes), Verdict.UNKNOWN, message, {"bad_runs": len(open_case.runs)}, advice.OPEN)


def _is_of_wrong(open_case: Unresolved, evidence: Evidence) -> bool:
    """True if it is about a pair that printed wrong values, which has its own finding."""
    return bool(open_case.may_be) and any(run.wrong for run in evidence.pairs if run.number in open_case.runs)


def _wrong(evidence: Evidence, faults: Sequence[Fault]) -> Iterator[Finding]:
    """FAIL for every pair that printed wrong values, unless the runs show which of the two nodes is bad."""
    explained = {number for fault in faults for number in fault.bad}
    pairs: dict[frozenset[str], list[Observation]] = {}
    for run in evidence.pairs:
        if run.wrong and run.number not in explained:
            pairs.setdefault(frozenset(run.nodes), []).append(run)
    for nodes, runs in list(pairs.items())[:MOST_WRONG]:
        same = sum(set(run.nodes) == nodes for run in evidence.pairs)
        others = [run for run in evidence.pairs if len(nodes & set(run.nodes)) == 1]
        message = f"{len(runs)} of their {same} runs together printed wrong values"
        message += f"; {len(others)} runs of the two with other nodes did not show which of them it is"
        numbers: Numbers = {"wrong_runs": len(runs), "runs": same, "runs_with_others": len(others)}
        yield Finding(RULE, " and ".join(runs[0].nodes), Verdict.FAIL, message, numbers, advice.WRONG)
    if len(pairs) > MOST_WRONG:
        message = f"{len(pairs) - MOST_WRONG} more pairs printed wrong values"
        yield Finding(RULE, "other pairs", Verdict.FAIL, message, {"pairs": len(pairs)}, advice.WRONG)


def _once(evidence: Evidence, chance: Sequence[Observation]) -> Iterator[Finding]:
    """WARN for every pair whose run failed, or was slow beyond the usual scatter, and that later runs cleared."""
    for run in chance:
        if run.failed or (run.shortfall or 0.0) >= CLEARLY * evidence.scale:
            later = sum(
                other.number > run.number and not set(run.nodes).isdisjoint(other.nodes) for other in evidence.pairs
            )
            what = f"failed ({run.failed})" if run.failed else f"was slower by {100 * run.slower_by:.0f} %"
            message = f"their run {run.number + 1} {what}; {later} later runs of them do not confirm it"
            numbers: Numbers = {"run": run.number + 1, "later_runs": later}
            yield Finding(RULE, " and ".join(run.nodes), Verdict.WARN, message, numbers, advice.ONCE)


def _shared_hint(open_case: Unresolved, evidence: Evidence) -> str:
    if evidence.contact_lost:
        return advice.CUT_OFF
    return (
        advice.UNTESTED if {run.number for run in evidence.failed_starts}.issuperset(open_case.runs) else advice.SHARED
    )


def _speeds(evidence: Evidence) -> Numbers:
    """The usual speed of pairs by place, and their spread."""
    keys = {"within": "within_racks_gbs", "across": "across_racks_gbs", "": "pairs_gbs"}
    numbers: Numbers = {keys[place]: round(ref.gbs, 1) for place, ref in sorted(evidence.references.items())}
    numbers |= {"spread_percent": round(100 * evidence.scale, 2)} if evidence.references else {}
    return numbers


def _all(evidence: Evidence, faults: Sequence[Fault], unresolved: Sequence[Unresolved]) -> Iterator[Finding]:
    """The finding about all nodes together: no comparison among them shows whether all are slow."""
    usual, expected = evidence.usual_gbs, evidence.fleet.expected_gbs
    if usual is None:
        if not faults and not unresolved and not evidence.untested:
            message = "no pair of nodes completed its run: nothing can be compared"
            yield Finding(RULE, "every node", Verdict.UNKNOWN, message, {}, advice.SHARED)
        return
    numbers = {**_speeds(evidence), "expected_gbs": expected}
    if evidence.faster_pairs:
        yield _two_speeds(evidence, numbers)
    elif expected is not None and usual < REACHES * expected:
        message = (
            f"the usual pair reaches {usual:.0f} of {expected:.0f} GB/s expected: all are slow, no node is accused"
        )
        yield Finding(RULE, "every node", Verdict.FAIL, message, numbers, advice.ALL_SLOW)
    elif not faults and not unresolved:
        known = expected is not None
        message = "no node stands out" + ("" if known else "; without a baseline, all of them may be slow")
        verdict = Verdict.OK if len(evidence.pairs) > 1 or known else Verdict.UNKNOWN
        subject = f"the {len(evidence.runs_by_node)} nodes tested" if evidence.untested else "every node"
        yield Finding(RULE, subject, verdict, message, numbers, "" if known else advice.BASELINE)


def _between(evidence: Evidence, faults: Sequence[Fault]) -> Iterator[Finding]:
    """UNKNOWN if pairs across exactly two racks are slow: the only path between these has nothing to compare with."""
    within, across = evidence.references.get("within"), evidence.references.get("across")
    two = len({evidence.fleet.racks.get(node) for node in evidence.runs_by_node}) == 2
    if faults or not two or not within or not across or across.gbs >= REACHES * within.gbs:
        return
    message = f"pairs across the two racks reach {across.gbs:.0f} GB/s, those within them {within.gbs:.0f}"
    yield Finding(RULE, "between the racks", Verdict.UNKNOWN, message, _speeds(evidence), advice.TWO_RACKS)


def _two_speeds(evidence: Evidence, numbers: Numbers) -> Finding:
    """The finding if some pairs are faster than the usual one, in which case most may be slow."""
    pairs = sorted(set(evidence.faster_pairs))
    best = median(run.gbs for run in evidence.pairs if run.gbs is not None and tuple(sorted(run.nodes)) in pairs)
    shown = ", ".join(" and ".join(pair) for pair in pairs[:MOST_PAIRS])
    more = f" and {len(pairs) - MOST_PAIRS} more" if len(pairs) > MOST_PAIRS else ""
    message = f"pairs have two speeds: {best:.0f} GB/s ({shown}{more}) and mostly {evidence.usual_gbs:.0f}"
    message += (
        "; either most nodes are bad, or the faster ones share a switch: there is no majority, so no node is accused"
    )
    numbers = {**numbers, "faster_gbs": round(best, 1), "faster_pairs": len(pairs)}
    return Finding(RULE, "every node", Verdict.UNKNOWN, message, numbers, advice.TWO_SPEEDS)


def _confirmation(left: Confirmation, evidence: Evidence) -> Iterator[Finding]:
    if len(left.nodes) < 2 or not left.runs:
        return
    subject = f"the {'other ' if len(left.nodes) < len(evidence.fleet.nodes) else ''}{len(left.nodes)} nodes together"
    if wrong := [run for run in left.runs if run.wrong]:
        message = f"{len(wrong)} of their {len(left.runs)} runs printed wrong values, and no pair shows the cause"
        yield Finding(RULE, subject, Verdict.FAIL, message, {"nodes": len(left.nodes)}, advice.WRONG)
        return
    last = next((run for run in left.runs if not left.bad(run)), left.runs[-1])
    expected = None if left.expected_gbs is None else round(left.expected_gbs, 1)
    numbers: Numbers = {"gbs": last.gbs and round(last.gbs, 1), "expected_gbs": expected, "nodes": len(left.nodes)}
    before = next((run for run in left.runs if left.bad(run)), None)
    if not left.bad(last) and before is not None:
        first = before.start_failure or before.failed or f"{before.gbs:.0f} GB/s"
        gone = [node for node, state in evidence.waiting.get(before.number, {}).items() if state == "gone"]
        first += f", without ranks of {text.named(gone, MOST_PAIRS)}" if gone else ""
        message = f"they reach {last.gbs:.0f} GB/s, but not at first ({first})"
        yield Finding(RULE, subject, Verdict.WARN, message, numbers, advice.TOGETHER)
    elif last.start_failure:
        message = f"they could not be tested together: {last.start_failure}"
        yield Finding(RULE, subject, Verdict.UNKNOWN, message, {"nodes": len(left.nodes)}, advice.UNTESTED)
    elif not left.bad(last) and left.unsteady:
        speeds = [run.gbs for run in left.runs if run.gbs is not None]
        message = f"{len(speeds)} runs of them reach {min(speeds):.0f} to {max(speeds):.0f} GB/s, and no pair shows why"
        yield Finding(RULE, subject, Verdict.WARN, message, numbers, advice.UNSTEADY)
    elif not left.bad(last):
        yield Finding(RULE, subject, Verdict.OK, f"they reach {last.gbs:.0f} GB/s", numbers)
    elif last.failed:
        message = f"their run failed {len(left.runs)} times ({last.failed}): a fault is left that pairs do not show"
        yield Finding(RULE, subject, Verdict.FAIL, message, numbers, advice.TOGETHER)
    else:
        message = f"they reach {last.gbs:.0f} GB/s, less than the {left.expected_gbs:.0f} expected from their pairs"
        yield Finding(RULE, subject, Verdict.UNKNOWN, message, numbers, advice.TOGETHER)


@dataclass(frozen=True)
class _Cost:
    """Numbers of runs, see Conclusion."""

    used: int
    budget: int
    by_adapter: int
    controls: int


def _cost(attribution: Attribution, cost: _Cost, policy: Policy) -> Finding:
    message = f"{cost.used} run{'' if cost.used == 1 else 's'} used; the budget for one hard fault is {cost.budget}"
    message += f"; {cost.controls} more of good pairs beside them, as controls" if cost.controls else ""
    message += f"; {cost.by_adapter} more over single adapters" if cost.by_adapter else ""
    chance = len(attribution.chance)
    if chance:
        message += f"; {chance} bad run{'s' if chance > 1 else ''} did not recur and count{'' if chance > 1 else 's'}"
        message += " as chance"
    numbers: Mapping[str, float | int] = {
        "runs": cost.used,
        "budget": cost.budget,
        "control_runs": cost.controls,
        "adapter_runs": cost.by_adapter,
        "by_chance": chance,
        "chance_slow_percent": round(100 * attribution.noise.slow, 2),
        "false_alarm_percent": 100 * policy.false_alarm,
    }
    return Finding(RULE, "", Verdict.OK, message, numbers)


def supporting_runs(fault: Fault, evidence: Evidence) -> list[Observation]:
    """The runs that a fault rests on, and those of its node over single adapters."""
    names = set(fault.cause.names)
    return [
        run
        for run in evidence.runs
        if run.number in fault.runs or (run.rail and fault.rail_summary and names & set(run.nodes))
    ]
