"""The cause of an incident by the answers of its steps, and what stays unknown. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.incident.model import Answer, Cause, Certainty, Incident, State, Step

# Kinds of first failures (domain/job_log.py) that no test of the network can explain.
OF_THE_PROGRAM = frozenset({"exception", "GPU memory full", "host memory full"})
OF_STORAGE = frozenset({"disk full", "stale file system"})
OF_THE_SCHEDULER = frozenset({"time limit", "cancelled"})
NODE_FAILURE = "DUE TO NODE FAILURE"  # Slurm's text; it does not name the node
STORAGE_CHECKS = frozenset({"disks", "storage"})
# Checks of the audit whose FAIL is a fault of hardware; others are about storage, services or configuration.
HARDWARE_CHECKS = frozenset(
    {
        *("gpu-count", "gpu-memory", "sram", "temperature", "clocks", "nvlink", "pcie", "memory", "xid", "sxid"),
        *("adapters", "counters"),
    }
)
ECC_PENDING = re.compile(r"(?:^|: )ECC is \w+, \w+ after a reset")  # a setting, under the check gpu-memory
NOT_OF_THE_NODE = frozenset({"in-use", "reachable"})
NO_ANSWER = "reachable"
NOT_FOUND = "not found: no step proves a cause"


def cause(incident: Incident) -> Cause:
    """The first cause that the answers support, in the order of `CAUSES`; "not found" is an honest end."""
    return next((one for rule in CAUSES if (one := rule(incident))), Cause(NOT_FOUND, Certainty.UNKNOWN))


def first_failure(incident: Incident) -> Mapping[str, Any]:
    """The first failure of the log that is no consequence: kind, line, text, rank, node; {} without one."""
    answer = incident.answer(Step.LOG)
    return (answer.details.get("first") or {}) if answer else {}


def faults(answer: Answer | None) -> list[Mapping[str, Any]]:
    """Faults that an isolation proves: kind, names and evidence of each.

    A fault counts only if a FAIL of the isolation has it as its subject, and its nodes were in runs that started. A
    node that stopped answering is no fault: why it did is unknown.
    """
    if answer is None or answer.state is not State.DONE:
        return []
    tested = set(answer.details.get("tested") or ())
    accused = [one.subject for one in answer.findings if one.verdict is Verdict.FAIL and one.check == "isolate"]
    return [
        one
        for one in answer.details.get("faults") or ()
        if tested and not one.get("lost") and _is_accused(one, tested, accused)
    ]


def _is_accused(fault: Mapping[str, Any], tested: set[str], accused: list[str]) -> bool:
    names = fault["names"]
    if fault["kind"] in ("node", "link") and not tested.issuperset(names):
        return False
    if fault["kind"] == "node":
        return names[0] in accused
    return any(all(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", one) for name in names) for one in accused)


def bad_nodes(incident: Incident) -> list[str]:
    """Nodes that the isolation proves to be bad."""
    return [one["names"][0] for one in faults(incident.answer(Step.ISOLATE)) if one["kind"] == "node"]


def silent_nodes(incident: Incident) -> list[str]:
    """Nodes that did not answer the preflight."""
    answer = incident.answer(Step.PREFLIGHT)
    return [one.subject for one in answer.findings if one.check == NO_ANSWER and one.subject] if answer else []


def failures(incident: Incident) -> dict[str, list[Finding]]:
    """Node -> its FAILs in the audit, without those that only name its users."""
    return failures_of(incident.answer(Step.AUDIT))


def failures_of(answer: Answer | None) -> dict[str, list[Finding]]:
    """Node -> its FAILs in the answer of an audit."""
    nodes: dict[str, list[Finding]] = {}
    for one in answer.findings if answer else ():
        node = only_node(one.subject)
        if one.verdict is Verdict.FAIL and node and one.check not in NOT_OF_THE_NODE:
            nodes.setdefault(node, []).append(one)
    return nodes


def only_node(subject: str) -> str:
    """Node of a finding about it, or about a part of it ("n1 GPU 0000:18:00.0"); "" for several nodes ("n1 and n2")."""
    match = re.fullmatch(r"([^\s,]+)(?: (?!and\b).*)?", subject)
    return match[1] if match else ""


def unhealthy(incident: Incident, node: str) -> list[Finding]:
    """FAILs of a node's hardware in the audit."""
    return [one for one in failures(incident).get(node, []) if is_of_hardware(one)]


def is_of_hardware(one: Finding) -> bool:
    """True for a finding about a fault of hardware; a setting that waits for a reset is none."""
    return one.check in HARDWARE_CHECKS and not ECC_PENDING.search(one.message)


def also(incident: Incident) -> list[str]:
    """FAILs of the audit that are no evidence of the cause, as "node: check: message"."""
    evidence = set(cause(incident).evidence)
    rows = [(node, one) for node, findings in failures(incident).items() for one in findings]
    return [_shown(node, one) for node, one in rows if f"audit: {_shown(node, one)}" not in evidence]


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
        if entry.step is Step.ISOLATE:
            yield from _unproven(entry.answer)


def _unproven(answer: Answer) -> Iterator[str]:
    untested = sorted(set(answer.details.get("fleet") or ()) - set(answer.details.get("tested") or ()))
    if untested:
        yield f"{Step.ISOLATE}: no run shows anything about {', '.join(untested)}"
    for one in answer.details.get("faults") or ():
        if one.get("lost"):
            yield f"{Step.ISOLATE}: {' and '.join(one['names'])} stopped answering, and why is not known"


# ---- causes, the most certain first ----------------------------------------------------------------------------------


def _of_program(incident: Incident) -> Cause | None:
    first = first_failure(incident)
    if first.get("kind") not in OF_THE_PROGRAM:
        return None
    return Cause(f"the program: {first['kind']}, line {first['line']}: {first['text']}", Certainty.LIKELY, (), ("log",))


def _of_storage(incident: Incident) -> Cause | None:
    """Proven only if the audit of the log's node fails a check of its file systems."""
    first = first_failure(incident)
    if first.get("kind") not in OF_STORAGE:
        return None
    node = first.get("node") or ""
    rows = [one for one in failures(incident).get(node, []) if one.check in STORAGE_CHECKS] if node else []
    proof = [f"audit: {_shown(node, one)}" for one in rows]
    certainty = Certainty.PROVEN if proof else Certainty.LIKELY
    place = f" on {node}" if node else ""
    return Cause(f"storage{place}: {first['kind']}: {first['text']}", certainty, (), ("log", *proof))


def _of_isolation(incident: Incident) -> Cause | None:
    answer = incident.answer(Step.ISOLATE)
    proven = faults(answer)
    if answer is None or not proven:
        return None
    bad = bad_nodes(incident)
    proof = [
        f"isolate: {one.subject}: {one.message}"
        for one in answer.findings
        if one.verdict is Verdict.FAIL and one.check == "isolate"
    ]
    proof += [f"audit: {_shown(node, one)}" for node in bad for one in unhealthy(incident, node)]
    names = [f"{one['kind']} {' and '.join(one['names'])}" for one in proven]
    nodes = tuple(bad) if len(bad) == len(names) else ()
    verb = "is" if len(names) == 1 else "are"
    return Cause(f"the NCCL tests prove that {', '.join(names)} {verb} bad", Certainty.PROVEN, nodes, tuple(proof))


def _of_audit(incident: Incident) -> Cause | None:
    """A fault of hardware on the node that the log names; on any other node it is no cause."""
    node = first_failure(incident).get("node") or ""
    rows = unhealthy(incident, node) if node else []
    if not rows:
        return None
    proof = ("log", *(f"audit: {_shown(node, one)}" for one in rows))
    return Cause(f"the log names {node}, and its audit fails: {rows[0].message}", Certainty.LIKELY, (node,), proof)


def _of_scheduler(incident: Incident) -> Cause | None:
    first = first_failure(incident)
    if first.get("kind") not in OF_THE_SCHEDULER or NODE_FAILURE in first.get("text", ""):
        return None
    text = f"the scheduler or a person ended the job: {first['kind']}, line {first['line']}: {first['text']}"
    return Cause(text, Certainty.LIKELY, (), ("log",))


def _shown(node: str, one: Finding) -> str:
    return f"{node}: {one.check}: {one.message}"


CAUSES: tuple[Callable[[Incident], Cause | None], ...] = (
    _of_program, _of_storage, _of_isolation, _of_audit, _of_scheduler,
)  # fmt: skip
