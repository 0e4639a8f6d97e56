"""The verdict in words and numbers: who is bad by which runs, what else it could be, and what the runs cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.isolate import advice, fabric, launch_failures, rails
from gpuctl.nccl.isolate.attribution import Attribution, looks_bad
from gpuctl.nccl.isolate.confirmation import Confirmation, rest
from gpuctl.nccl.isolate.model import Conclusion, Fault, Kind, Policy, Unresolved
from gpuctl.nccl.isolate.observations import REACHES, Evidence, Observation
from gpuctl.nccl.judge import leftovers

RULE = "isolate"
MOST_WRONG = 8  # pairs with wrong values that are named one by one
MOST_PAIRS = 4  # that are named of those that are faster than the others
Numbers = dict[str, float | int | str | None]


def conclusion(
    evidence: Evidence, explained: Attribution, unresolved: Sequence[Unresolved], policy: Policy
) -> Conclusion:
    """Everything that was found, as values and as findings."""
    names = rails.nodes_of(explained.faults)
    faults = tuple(rails.judged(evidence, fault, names, policy) for fault in explained.faults)
    left = rest(evidence, faults, unresolved, policy)
    by_adapter = sum(bool(seen.rail) for seen in evidence.runs)
    used, budget = len(evidence.runs) - by_adapter, spend(evidence, explained, policy)
    findings = (
        *(_fault_finding(fault, evidence, policy) for fault in faults),
        *_wrong(evidence, faults),
        *(
            _unresolved_finding(open_case, evidence)
            for open_case in unresolved
            if not _is_of_wrong(open_case, evidence)
        ),
        *_once(evidence, explained.chance),
        *launch_failures.findings(evidence, shared=any(not open_case.may_be for open_case in unresolved)),
        *evidence.transport,
        *_all(evidence, faults, unresolved),
        *_between(evidence, faults),
        *_rest(left, evidence),
        *leftovers.in_cluster(evidence.history),
        _cost(explained, used, budget, by_adapter, policy),
    )
    return Conclusion(
        faults, tuple(unresolved), tuple(s.number for s in explained.chance), findings, used, budget, by_adapter
    )


def spend(evidence: Evidence, explained: Attribution, policy: Policy) -> int:
    """The budget: a pair for every two nodes, two runs for every pair of these that looked bad, one confirmation."""
    suspects, met = 0, dict.fromkeys(evidence.fleet.nodes, 0)
    for seen in evidence.pairs:
        first = any(met[node] < policy.pairs_per_node for node in seen.nodes)
        suspects += first and looks_bad(seen, explained.noise, policy)
        for node in seen.nodes:
            met[node] += 1
    return policy.pairs_per_node * math.ceil(len(evidence.fleet.nodes) / 2) + 2 * suspects + 1


def _fault_finding(fault: Fault, evidence: Evidence, policy: Policy) -> Finding:
    subject = str(fault.cause)
    if fault.lost:
        return Finding(RULE, subject, Verdict.FAIL, "it did not answer any more after a run", {}, advice.LOST)
    how = _how(fault, evidence)
    says = f"{len(fault.bad)} of {len(fault.runs)} runs that it could spoil {how}"
    says += f"; {fault.rail_says}" if fault.rail_says else ""
    says += "; it comes and goes" if fault.flaky else ""
    says += f"; {_odds(fault.odds)} times likelier than by chance"
    numbers: Numbers = {
        "bad_runs": len(fault.bad),
        "runs": len(fault.runs),
        "slower_percent": None if fault.slower is None else round(100 * fault.slower, 1),
        "odds_against_chance": _odds(fault.odds),
        "false_alarm_percent": 100 * policy.false_alarm,
    }
    numbers |= {"adapter": fault.rail} if fault.rail else {}
    next_ = advice.on(fault, _ends(fault, evidence))
    if fault.cause.kind is Kind.NODE and evidence.fleet.rails is None and fabric.of_efa(evidence.history):
        next_ += f"; {advice.EFA}"
    return Finding(RULE, subject, Verdict.FAIL, says, numbers, next_)


def _how(fault: Fault, evidence: Evidence) -> str:
    if not fault.failing:
        return f"were slow, by {100 * (fault.slower or 0):.0f} %"
    return f"ended badly ({', '.join(sorted(_ends(fault, evidence)))})"


def _ends(fault: Fault, evidence: Evidence) -> set[str]:
    """In which ways its bad runs ended, of those that did not come to their end."""
    return {seen.failed for seen in evidence.runs if fault.failing and seen.number in fault.bad and seen.failed}


def _odds(logarithm: float) -> str:
    return f"{math.exp(logarithm):.0f}" if logarithm < math.log(1e4) else f"1e{int(logarithm / math.log(10))}"


def _unresolved_finding(open_case: Unresolved, evidence: Evidence) -> Finding:
    if not open_case.may_be:
        says = f"nobody is accused of it: {open_case.why}"
        return Finding(RULE, "", Verdict.UNKNOWN, says, _speeds(evidence), _on_shared(open_case, evidence))
    nodes = next(seen.nodes for seen in evidence.runs if seen.number in open_case.runs)
    suspects = ", or ".join(str(cause) for cause in open_case.may_be)
    says = f"cannot tell what it is: {suspects}; {open_case.why}"
    return Finding(RULE, " and ".join(nodes), Verdict.UNKNOWN, says, {"bad_runs": len(open_case.runs)}, advice.DOUBT)


def _is_of_wrong(open_case: Unresolved, evidence: Evidence) -> bool:
    """Whether a doubt is about one pair that printed wrong values, which is a finding of its own."""
    return bool(open_case.may_be) and any(seen.wrong for seen in evidence.pairs if seen.number in open_case.runs)


def _wrong(evidence: Evidence, faults: Sequence[Fault]) -> Iterator[Finding]:
    """FAIL for every pair that printed wrong values and of which no run named one of the two."""
    explained = {number for fault in faults for number in fault.bad}
    pairs: dict[frozenset[str], list[Observation]] = {}
    for seen in evidence.pairs:
        if seen.wrong and seen.number not in explained:
            pairs.setdefault(frozenset(seen.nodes), []).append(seen)
    for nodes, runs in list(pairs.items())[:MOST_WRONG]:
        same = sum(set(run.nodes) == nodes for run in evidence.pairs)
        others = [run for run in evidence.pairs if len(nodes & set(run.nodes)) == 1]
        says = f"{len(runs)} of their {same} runs together printed wrong values"
        says += f"; {len(others)} runs of the two with other nodes did not tell which of them it is"
        numbers: Numbers = {"wrong_runs": len(runs), "runs": same, "runs_with_others": len(others)}
        yield Finding(RULE, " and ".join(runs[0].nodes), Verdict.FAIL, says, numbers, advice.WRONG)
    if len(pairs) > MOST_WRONG:
        says = f"{len(pairs) - MOST_WRONG} more pairs printed wrong values"
        yield Finding(RULE, "other pairs", Verdict.FAIL, says, {"pairs": len(pairs)}, advice.WRONG)


def _once(evidence: Evidence, chance: Sequence[Observation]) -> Iterator[Finding]:
    """WARN for every pair whose run failed and did not fail again."""
    for seen in chance:
        if seen.failed:
            plan_follow_up = [
                run for run in evidence.pairs if run.number > seen.number and set(run.nodes) & set(seen.nodes)
            ]
            says = (
                f"their run {seen.number + 1} ended badly ({seen.failed}) and {len(plan_follow_up)} later ones did not"
            )
            numbers: Numbers = {"run": seen.number + 1, "later_runs": len(plan_follow_up)}
            yield Finding(RULE, " and ".join(seen.nodes), Verdict.WARN, says, numbers, advice.ONCE)


def _on_shared(open_case: Unresolved, evidence: Evidence) -> str:
    if evidence.contact_lost:
        return advice.CUT_OFF
    return (
        advice.UNTESTED
        if {seen.number for seen in evidence.failed_starts}.issuperset(open_case.runs)
        else advice.SHARED
    )


def _speeds(evidence: Evidence) -> Numbers:
    """The usual speed of pairs in each place."""
    called = {"within": "within_racks_gbs", "across": "across_racks_gbs", "": "pairs_gbs"}
    found: Numbers = {called[place]: round(ref.gbs, 1) for place, ref in sorted(evidence.references.items())}
    found |= {"spread_percent": round(100 * evidence.scale, 2)} if evidence.references else {}
    return found


def _all(evidence: Evidence, faults: Sequence[Fault], unresolved: Sequence[Unresolved]) -> Iterator[Finding]:
    """Whether all may be slow together, which no comparison among them can show."""
    usual, expected = evidence.usual_gbs, evidence.fleet.expected_gbs
    if usual is None:
        if not faults and not unresolved and not evidence.untested:
            says = "no pair of nodes ran to its end: nothing can be compared"
            yield Finding(RULE, "every node", Verdict.UNKNOWN, says, {}, advice.SHARED)
        return
    numbers = {**_speeds(evidence), "expected_gbs": expected}
    if evidence.faster_pairs:
        yield _two_speeds(evidence, numbers)
    elif expected is not None and usual < REACHES * expected:
        says = f"the usual pair reaches {usual:.0f} GB/s of {expected:.0f} expected: all are slow, nobody is accused"
        yield Finding(RULE, "every node", Verdict.FAIL, says, numbers, advice.ALL_SLOW)
    elif not faults and not unresolved:
        known = expected is not None
        says = "no node stands out" + ("" if known else "; without a baseline it cannot be said whether all are slow")
        verdict = Verdict.OK if len(evidence.pairs) > 1 or known else Verdict.UNKNOWN
        whom = f"the {len(evidence.runs_by_node)} nodes tested" if evidence.untested else "every node"
        yield Finding(RULE, whom, verdict, says, numbers, "" if known else advice.BASELINE)


def _between(evidence: Evidence, faults: Sequence[Fault]) -> Iterator[Finding]:
    """Two racks have one way between them, which nothing can be compared with."""
    within, across = evidence.references.get("within"), evidence.references.get("across")
    two = len({evidence.fleet.racks.get(node) for node in evidence.runs_by_node}) == 2
    if faults or not two or not within or not across or across.gbs >= REACHES * within.gbs:
        return
    says = f"pairs across the two racks reach {across.gbs:.0f} GB/s, those within them {within.gbs:.0f}"
    yield Finding(RULE, "between the racks", Verdict.UNKNOWN, says, _speeds(evidence), advice.TWO_RACKS)


def _two_speeds(evidence: Evidence, numbers: Numbers) -> Finding:
    """Some pairs are faster than the usual one: it may be that most are slow."""
    pairs = sorted(set(evidence.faster_pairs))
    best = median(seen.gbs for seen in evidence.pairs if seen.gbs is not None and tuple(sorted(seen.nodes)) in pairs)
    shown = ", ".join(" and ".join(pair) for pair in pairs[:MOST_PAIRS])
    more = f" and {len(pairs) - MOST_PAIRS} more" if len(pairs) > MOST_PAIRS else ""
    says = f"pairs have two speeds: {best:.0f} GB/s ({shown}{more}) and mostly {evidence.usual_gbs:.0f}"
    says += ": it may be that most nodes are bad, or that these share a switch; no majority tells, nobody is accused"
    numbers = {**numbers, "faster_gbs": round(best, 1), "faster_pairs": len(pairs)}
    return Finding(RULE, "every node", Verdict.UNKNOWN, says, numbers, advice.TWO_SPEEDS)


def _rest(left: Confirmation, evidence: Evidence) -> Iterator[Finding]:
    if len(left.nodes) < 2 or not left.runs:
        return
    subject = f"the {'other ' if len(left.nodes) < len(evidence.fleet.nodes) else ''}{len(left.nodes)} nodes together"
    if wrong := [run for run in left.runs if run.wrong]:
        says = f"{len(wrong)} of their {len(left.runs)} runs printed wrong values, and no pair shows where from"
        yield Finding(RULE, subject, Verdict.FAIL, says, {"nodes": len(left.nodes)}, advice.WRONG)
        return
    last = next((run for run in left.runs if not left.bad(run)), left.runs[-1])
    wanted = None if left.wanted is None else round(left.wanted, 1)
    numbers: Numbers = {"gbs": last.gbs and round(last.gbs, 1), "wanted_gbs": wanted, "nodes": len(left.nodes)}
    before = next((run for run in left.runs if left.bad(run)), None)
    if not left.bad(last) and before is not None:
        first = before.start_failure or before.failed or f"{before.gbs:.0f} GB/s"
        says = f"they reach {last.gbs:.0f} GB/s, but not at first ({first})"
        yield Finding(RULE, subject, Verdict.WARN, says, numbers, advice.TOGETHER)
    elif last.start_failure:
        says = f"they could not be tested together: {last.start_failure}"
        yield Finding(RULE, subject, Verdict.UNKNOWN, says, {"nodes": len(left.nodes)}, advice.UNTESTED)
    elif not left.bad(last):
        yield Finding(RULE, subject, Verdict.OK, f"they reach {last.gbs:.0f} GB/s", numbers)
    elif last.failed:
        says = (
            f"their run ended badly ({last.failed}), {len(left.runs)} times: something is left that pairs do not show"
        )
        yield Finding(RULE, subject, Verdict.FAIL, says, numbers, advice.TOGETHER)
    else:
        says = f"they reach {last.gbs:.0f} GB/s, below the {left.wanted:.0f} that their pairs lead to expect"
        yield Finding(RULE, subject, Verdict.UNKNOWN, says, numbers, advice.TOGETHER)


def _cost(explained: Attribution, used: int, budget: int, by_adapter: int, policy: Policy) -> Finding:
    says = f"{used} run{'' if used == 1 else 's'} used; {budget} are the budget for one hard fault"
    says += f"; {by_adapter} more over single adapters" if by_adapter else ""
    chance = len(explained.chance)
    says += f"; {chance} bad run{'s' if chance > 1 else ''} did not come back and count as chance" if chance else ""
    numbers: Mapping[str, float | int] = {
        "runs": used,
        "budget": budget,
        "adapter_runs": by_adapter,
        "by_chance": chance,
        "chance_slow_percent": round(100 * explained.noise.slow, 2),
        "false_alarm_percent": 100 * policy.false_alarm,
    }
    return Finding(RULE, "", Verdict.OK, says, numbers)


def supporting_runs(fault: Fault, evidence: Evidence) -> list[Observation]:
    """The runs that a guilty one rests on, and those over single adapters."""
    names = set(fault.cause.names)
    return [
        seen
        for seen in evidence.runs
        if seen.number in fault.runs or (seen.rail and fault.rail_says and names & set(seen.nodes))
    ]
