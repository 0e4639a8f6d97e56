"""The cause of an incident by the answers of its steps, and what stays unknown. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.incident.model import Answer, Cause, Certainty, Incident, State, Step

# Kinds of first failures (domain/job_log.py) that no test of the network can explain.
OF_THE_PROGRAM = frozenset(
    {"exception", "GPU memory full", "host memory full", "time limit", "cancelled", "first process that ended"}
)
OF_STORAGE = frozenset({"disk full", "stale file system"})
STORAGE_CHECKS = frozenset({"disks", "storage", "mounts"})
NOT_OF_THE_NODE = frozenset({"in-use", "reachable"})
NOT_FOUND = "not found: no step proves a cause"


def cause(incident: Incident) -> Cause:
    """The first cause that the answers support, in the order of `CAUSES`; "not found" is an honest end."""
    return next((one for rule in CAUSES if (one := rule(incident))), Cause(NOT_FOUND, Certainty.UNKNOWN))


def first_failure(incident: Incident) -> Mapping[str, Any]:
    """The first failure of the log that is no consequence: kind, line, text, rank, node; {} without one."""
    answer = incident.answer(Step.LOG)
    return (answer.details.get("first") or {}) if answer else {}


def faults(answer: Answer | None) -> list[Mapping[str, Any]]:
    """Faults that an isolation proves: kind, names and evidence of each."""
    return list(answer.details.get("faults") or ()) if answer else []


def bad_nodes(incident: Incident) -> list[str]:
    """Nodes that the isolation proves to be bad."""
    return [one["names"][0] for one in faults(incident.answer(Step.ISOLATE)) if one["kind"] == "node"]


def silent_nodes(incident: Incident) -> list[str]:
    """Nodes that did not answer the preflight."""
    answer = incident.answer(Step.PREFLIGHT)
    return [one.subject for one in answer.findings if one.check == "reachable" and one.subject] if answer else []


def unhealthy(incident: Incident) -> dict[str, list[Finding]]:
    """Node -> its FAILs in the audit, without those that only name its users."""
    answer = incident.answer(Step.AUDIT)
    nodes: dict[str, list[Finding]] = {}
    for one in answer.findings if answer else ():
        if one.verdict is Verdict.FAIL and one.subject and one.check not in NOT_OF_THE_NODE:
            nodes.setdefault(one.subject.partition(" ")[0], []).append(one)
    return nodes


def unknowns(incident: Incident) -> Iterator[str]:
    """Everything that could not be read or decided, in the order of the steps."""
    if not incident.request.log:
        yield "the job's log: none was named (--log FILE)"
    for entry in incident.entries:
        if entry.answer is None:
            yield f"{entry.step}: it has no result yet"
            continue
        if entry.answer.state is State.UNKNOWN:
            yield f"{entry.step}: {entry.answer.summary}"
        for one in entry.answer.findings:
            if one.verdict is Verdict.UNKNOWN:
                yield f"{entry.step}, {one.check}: {one.subject + ': ' if one.subject else ''}{one.message}"


# ---- causes, the most certain first ----------------------------------------------------------------------------------


def _of_program(incident: Incident) -> Cause | None:
    first = first_failure(incident)
    if first.get("kind") not in OF_THE_PROGRAM:
        return None
    return Cause(f"the program: {first['kind']}, line {first['line']}: {first['text']}", Certainty.LIKELY, (), ("log",))


def _of_storage(incident: Incident) -> Cause | None:
    first = first_failure(incident)
    if first.get("kind") not in OF_STORAGE:
        return None
    rows = {node: [one for one in findings if one.check in STORAGE_CHECKS] for node, findings in _audited(incident)}
    proof = [f"audit: {node}: {one.message}" for node, findings in rows.items() for one in findings]
    certainty = Certainty.PROVEN if proof else Certainty.LIKELY
    place = f" on {first['node']}" if first.get("node") else ""
    return Cause(f"storage{place}: {first['kind']}: {first['text']}", certainty, (), ("log", *proof))


def _audited(incident: Incident) -> list[tuple[str, list[Finding]]]:
    return list(unhealthy(incident).items())


def _of_isolation(incident: Incident) -> Cause | None:
    answer = incident.answer(Step.ISOLATE)
    bad = bad_nodes(incident)
    if answer is None or not faults(answer):
        return None
    proof = [
        f"isolate: {one.subject}: {one.message}"
        for one in answer.findings
        if one.verdict is Verdict.FAIL and one.check == "isolate"
    ]
    proof += [f"audit: {node}: {one.message}" for node in bad for one in unhealthy(incident).get(node, [])]
    names = [f"{one['kind']} {' and '.join(one['names'])}" for one in faults(answer)]
    nodes = tuple(bad) if len(bad) == len(names) else ()
    return Cause(f"the NCCL tests prove that {', '.join(names)} is bad", Certainty.PROVEN, nodes, tuple(proof))


def _of_audit(incident: Incident) -> Cause | None:
    nodes = unhealthy(incident)
    node = first_failure(incident).get("node") or ""
    if node in nodes:
        nodes = {node: nodes[node]}
    if not nodes:
        return None
    proof = tuple(f"audit: {name}: {one.check}: {one.message}" for name, rows in nodes.items() for one in rows)
    text = "; ".join(f"{name}: {rows[0].message}" for name, rows in nodes.items())
    return Cause(f"the audit fails: {text}", Certainty.LIKELY, tuple(nodes), proof)


def _of_silence(incident: Incident) -> Cause | None:
    nodes = silent_nodes(incident)
    if not nodes:
        return None
    answer = incident.answer(Step.PREFLIGHT)
    proof = tuple(f"preflight: {one.subject}: {one.message}" for one in answer.findings if one.check == "reachable") \
        if answer else ()  # fmt: skip
    return Cause(f"{', '.join(nodes)} does not answer", Certainty.LIKELY, tuple(nodes), proof)


CAUSES: tuple[Callable[[Incident], Cause | None], ...] = (
    _of_program, _of_storage, _of_isolation, _of_audit, _of_silence,
)  # fmt: skip
