"""Which acts follow the audit of an incident, and what a repaired node must pass before it is cured. No I/O.

A repair that could be interrupted by a new job is made behind a drain; on Slurm the drain would keep the test off the
node, so that it comes only if the repair does not cure it.
"""

from __future__ import annotations

import shlex

from gpuctl.domain.findings import Verdict
from gpuctl.incident.cause import NO_ANSWER, NOT_OF_THE_NODE, bad_nodes, failures, only_node
from gpuctl.incident.model import ACTS, Answer, Incident, IncidentRequest, State, Step
from gpuctl.incident.remedies import Kind, Remedy, drain, remedy, undrain_command

OURS = "this incident"  # detail `drained_by` of a drain
OTHERS = "others"


def mark(incident: Incident) -> str:
    """Beginning of the reasons of drains by this incident."""
    return f"incident {incident.name}"


def repair(incident: Incident) -> Remedy | None:
    """The remedy, if it is a repair."""
    chosen = remedy(incident)
    return chosen if chosen and chosen.kind is not Kind.DRAIN else None


def must_drain_first(incident: Incident) -> bool:
    """True if the suspect is drained before anything else is done."""
    chosen = remedy(incident)
    return chosen is not None and (chosen.kind is Kind.DRAIN or not incident.request.slurm)


def may_repair(incident: Incident) -> bool:
    """True if the remedy is a repair, and no new job can meet it: this incident has drained the node.

    On Slurm, where its test needs the node in an allocation, a repair is made without a drain.
    """
    is_kept = incident.request.slurm or drained_by(incident) == OURS
    return repair(incident) is not None and is_kept


def must_drain_late(incident: Incident) -> bool:
    """True if a repair was begun, and the node is not proven to be cured."""
    return was_begun(incident.answer(Step.REPAIR)) and not is_cured(incident)


def must_retest(incident: Incident) -> bool:
    """True after a repair of a node that the isolation proves to be bad."""
    return _may_be_cured(incident) and _node(incident) in bad_nodes(incident)


def must_reaudit(incident: Incident) -> bool:
    """True after a repair of a node that fails the audit."""
    return _may_be_cured(incident) and _node(incident) in failures(incident)


def may_give_back(incident: Incident) -> bool:
    """True if this incident has drained the node, and it passes again what it failed."""
    return is_cured(incident) and drained_by(incident) == OURS


def may_resume(incident: Incident) -> bool:
    """True if a command or job is known, and the job cannot meet the suspect as it was."""
    request = incident.request
    is_safe = is_cured(incident) or bool(drained_by(incident))
    return bool(request.resume_with or (request.slurm and request.job)) and is_safe


def drained_by(incident: Incident) -> str:
    """OURS, OTHERS, or "" if the suspect is not known to be drained by a step of this incident."""
    answer = incident.answer(Step.DRAIN)
    return str(answer.details.get("drained_by") or "") if answer else ""


def was_begun(answer: Answer | None) -> bool:
    """True if an act may have changed something."""
    return answer is not None and (answer.state in (State.DONE, State.FAILED) or bool(answer.details.get("begun")))


def is_cured(incident: Incident) -> bool:
    """True if the node passes again every test that it failed; a test without a result proves nothing."""
    if not _may_be_cured(incident):
        return False
    node = _node(incident)
    passed = [passes_isolation(incident, node)] if node in bad_nodes(incident) else []
    passed += [_passes_audit(incident, node)] if node in failures(incident) else []
    return bool(passed) and all(passed)


def changes(incident: Incident) -> list[str]:
    """Sentences about the acts that were begun, and about those that were not made, with the reason."""
    rows = [(one.step, one.answer) for one in incident.entries if one.step in ACTS and one.answer]
    return [f"{step}: {answer.state}: {answer.summary}" for step, answer in rows]


def has_changed(incident: Incident) -> bool:
    """True if an act may have changed something."""
    answers = [one.answer for one in incident.entries if one.step in ACTS]
    return any(was_begun(answer) and not _was_done_before(answer) for answer in answers)


def is_left(incident: Incident) -> bool:
    """True if the remedy was not begun, so that it is left to be done by hand."""
    if repair(incident) is not None:
        return not was_begun(incident.answer(Step.REPAIR))
    return remedy(incident) is not None and not drained_by(incident)


def is_finished_well(incident: Incident) -> bool:
    """True unless an act failed or has an unknown end, or a repair did not cure its node."""
    ends = [one.answer.state for one in incident.entries if one.step in ACTS and one.answer and was_begun(one.answer)]
    is_well = all(state is State.DONE for state in ends)
    return is_well and (is_cured(incident) or not was_begun(incident.answer(Step.REPAIR)))


def result(incident: Incident) -> str:
    """Sentence about the node after a repair; "" without one."""
    if not was_begun(incident.answer(Step.REPAIR)):
        return ""
    node, end = _node(incident), drained_by(incident)
    if is_cured(incident):
        return f"{node} passes again what it failed"
    return f"{node} is not proven to be cured" + (": it stays drained" if end else ": keep it from work")


def command(incident: Incident, step: Step) -> str:
    """Command line that does the same as an act; "" if there is none."""
    chosen, request = remedy(incident), incident.request
    if step is Step.RESUME:
        return resume_command(request)
    if chosen is None:
        return ""
    if step is Step.DRAIN:
        return drain(incident, chosen.node).command
    return chosen.command if step is Step.REPAIR else undrain_command(request, chosen.node)


def resume_command(request: IncidentRequest) -> str:
    """Command that resumes the job; "" if none is known."""
    requeue = ("scontrol", "requeue", request.job) if request.slurm and request.job else ()
    return shlex.join(request.resume_with or requeue)


def _was_done_before(answer: Answer | None) -> bool:
    return answer is not None and answer.details.get("drained_by") == OTHERS


def _may_be_cured(incident: Incident) -> bool:
    """True after a repair that was done, or whose end is unknown: only a test shows what became of it."""
    answer = incident.answer(Step.REPAIR)
    return answer is not None and was_begun(answer) and answer.state is not State.FAILED


def _node(incident: Incident) -> str:
    chosen = remedy(incident)
    return chosen.node if chosen else ""


def passes_isolation(incident: Incident, node: str) -> bool:
    """True if the node was in the runs of the repeated isolation, and nothing in it may accuse the node."""
    answer = incident.answer(Step.RETEST)
    if answer is None or answer.state is not State.DONE or node not in (answer.details.get("tested") or ()):
        return False
    accused = any(node in one["names"] for one in answer.details.get("faults") or ())
    bad = (Verdict.FAIL, Verdict.UNKNOWN)
    # An isolation without a clear end has findings without a subject, or of groups.
    return not accused and not any(one.verdict in bad and _may_mean(one.subject, node) for one in answer.findings)


def _may_mean(subject: str, node: str) -> bool:
    names = subject.replace(",", " ").split()
    return not names or node in names or len(names) > 1


def _passes_audit(incident: Incident, node: str) -> bool:
    """True if the node was audited, without a FAIL of it, and without an UNKNOWN of a check that failed before."""
    answer = incident.answer(Step.REAUDIT)
    if answer is None or answer.state is not State.DONE or node not in (answer.details.get("nodes") or ()):
        return False
    doubtful = {NO_ANSWER, *(one.check for one in failures(incident)[node])}
    rows = [one for one in answer.findings if _may_be_of(one.subject, node)]
    failed = [one for one in rows if one.verdict is Verdict.FAIL and one.check not in NOT_OF_THE_NODE]
    unclear = [one for one in rows if one.verdict is Verdict.UNKNOWN and one.check in doubtful]
    return bool(rows) and not failed and not unclear


def _may_be_of(subject: str, node: str) -> bool:
    """True for a finding of an audit about the node, about several with it, or without a name."""
    one, names = only_node(subject), subject.replace(",", " ").split()
    return one == node if one else not names or node in names or "more" in names
