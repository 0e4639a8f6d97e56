"""The next step of an incident by the answers so far; the same record always has the same next step. No I/O."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.incident.cause import (
    OF_STORAGE,
    OF_THE_PROGRAM,
    bad_nodes,
    cause,
    faults,
    first_failure,
    silent_nodes,
)
from gpuctl.incident.model import Answer, Incident, IncidentRequest, Planned, State, Step
from gpuctl.incident.remedies import Remedy, remedy


@dataclass(frozen=True)
class Reading:
    """A step that only reads or measures: `needed` by the answers so far; `why`, for people."""

    step: Step
    needed: Callable[[Incident], bool]
    why: str


def next_step(incident: Incident) -> Planned | None:
    """The next step; None at the end. The current step must have its answer."""
    for row in READINGS:
        if incident.answer(row.step) is None and row.needed(incident):
            options = {"nodes": _audited(incident)} if row.step is Step.AUDIT else {}
            return Planned(row.step, command(incident.request, row.step, options), options, row.why)
    return next((one for rule in ACTS if (one := rule(incident))), None)


def outline(request: IncidentRequest) -> list[Planned]:
    """Steps that may be made, in their order, each with its condition, before anything is known."""
    readings = [
        Planned(row.step, command(request, row.step, {}), {}, row.why)
        for row in READINGS
        if row.step is not Step.LOG or request.log
    ]
    acts = [Planned(step, "", {}, why) for step, why in ACT_CONDITIONS.items()]
    return [*readings, *acts]


# ---- readings --------------------------------------------------------------------------------------------------------


def _is_of_nodes(incident: Incident) -> bool:
    return first_failure(incident).get("kind") not in OF_THE_PROGRAM | OF_STORAGE


def _may_test(incident: Incident) -> bool:
    answer = incident.answer(Step.PREFLIGHT)
    if answer is None or answer.state is not State.DONE or silent_nodes(incident):
        return False
    return all(one.verdict is not Verdict.FAIL for one in answer.findings)


def _must_isolate(incident: Incident) -> bool:
    answer = incident.answer(Step.TEST)
    return answer is not None and not is_well(answer) and len(answer.details.get("nodes") or ()) > 1


def is_well(answer: Answer) -> bool:
    """True if a measurement ran, and nothing in it is FAIL, UNKNOWN, or not judged for want of a baseline."""
    bad = (Verdict.FAIL, Verdict.UNKNOWN)
    doubtful = [one for one in answer.findings if one.verdict in bad or _is_unjudged(one)]
    return answer.state is State.DONE and bool(answer.findings) and not doubtful


def _is_unjudged(finding: Finding) -> bool:
    """True for the WARN that no baseline exists: an all_reduce may be slow without one."""
    return finding.check == "baseline" and finding.verdict is not Verdict.OK


def _audited(incident: Incident) -> list[str]:
    """Nodes to audit: the suspects of the runs; [] for all, which are compared with each other."""
    return bad_nodes(incident)


READINGS: tuple[Reading, ...] = (
    Reading(Step.LOG, lambda one: bool(one.request.log), "the first failure, its rank and node"),
    Reading(Step.NODES, lambda _: True, "who uses the GPUs, and whether the job still runs"),
    Reading(Step.PREFLIGHT, _is_of_nodes, "a test must disturb nobody; not if the log shows a fault of the program"),
    Reading(Step.TEST, _may_test, "one all_reduce over all nodes; only if the preflight has no FAIL"),
    Reading(Step.ISOLATE, _must_isolate, "which node or path; only if the test is not proven well"),
    Reading(
        Step.AUDIT,
        lambda one: first_failure(one).get("kind") not in OF_THE_PROGRAM,
        "the health of the suspect, or of all nodes without one",
    ),
)


# ---- acts ------------------------------------------------------------------------------------------------------------


def _drain(incident: Incident) -> Planned | None:
    """Before a repair on hosts; without a repair, or after one that did not help, everywhere."""
    chosen = remedy(incident)
    if chosen is None or incident.answer(Step.DRAIN):
        return None
    first = not incident.request.slurm and not incident.answer(Step.REPAIR)  # srun would not reach a drained node
    last = not chosen.options or (incident.answer(Step.REPAIR) is not None and not _is_cured(incident, pending=True))
    if not (first or last):
        return None
    options = {"node": chosen.node, "reason": _reason(incident, chosen)}
    shown = command(incident.request, Step.DRAIN, options)
    return Planned(Step.DRAIN, shown, options, f"no new work for {chosen.node}: {chosen.why}")


def _repair(incident: Incident) -> Planned | None:
    chosen = remedy(incident)
    if chosen is None or not chosen.options or incident.answer(Step.REPAIR):
        return None
    options = {"node": chosen.node, "name": chosen.name, "reason": _reason(incident, chosen), **chosen.options}
    return Planned(Step.REPAIR, command(incident.request, Step.REPAIR, options), options, chosen.why)


def _retest(incident: Incident) -> Planned | None:
    """The measurement that failed, repeated with the same options; also if the end of the repair is unknown."""
    repaired = incident.answer(Step.REPAIR)
    if repaired is None or repaired.state not in (State.DONE, State.UNKNOWN) or incident.answer(Step.RETEST):
        return None
    step = Step.ISOLATE if faults(incident.answer(Step.ISOLATE)) else Step.AUDIT
    before = next(one for one in reversed(incident.entries) if one.step is step)
    options = {"of": str(step), **before.options}
    return Planned(Step.RETEST, before.command, options, f"the same {step} that failed before the repair")


def _undrain(incident: Incident) -> Planned | None:
    drained = incident.answer(Step.DRAIN)
    if drained is None or drained.state is not State.DONE or incident.answer(Step.UNDRAIN) or not _is_cured(incident):
        return None
    node = next(one.options["node"] for one in incident.entries if one.step is Step.DRAIN)
    options = {"node": node}
    return Planned(Step.UNDRAIN, command(incident.request, Step.UNDRAIN, options), options, "the retest passed")


def _resume(incident: Incident) -> Planned | None:
    """Resume the job once its node is cured, or takes no work."""
    request = incident.request
    has_means = bool(request.command) or (request.slurm and request.job.isdigit())
    drained = incident.answer(Step.DRAIN)
    away = drained is not None and drained.state is State.DONE and not incident.answer(Step.UNDRAIN)
    if not has_means or incident.answer(Step.RESUME) or not (_is_cured(incident) or away):
        return None
    options = {"command": list(request.command), "job": request.job}
    why = "the node is cured" if _is_cured(incident) else "the bad node takes no work"
    return Planned(Step.RESUME, command(request, Step.RESUME, options), options, why)


def _is_cured(incident: Incident, *, pending: bool = False) -> bool:
    """True if the retest passed; with `pending`, also if the repair was made and the retest is still to come."""
    retest, repaired = incident.answer(Step.RETEST), incident.answer(Step.REPAIR)
    if retest is None:
        return pending and repaired is not None and repaired.state in (State.DONE, State.UNKNOWN)
    node = next(one.options["node"] for one in incident.entries if one.step is Step.REPAIR)
    bad = (Verdict.FAIL, Verdict.UNKNOWN)
    clean = not faults(retest) and not retest.details.get("unresolved")
    judged = all(one.verdict not in bad for one in retest.findings if one.subject.partition(" ")[0] == node)
    return retest.state is State.DONE and bool(retest.findings) and clean and judged


def is_cured(incident: Incident) -> bool:
    """True if the measurement that failed passes after the repair."""
    return _is_cured(incident)


def _reason(incident: Incident, chosen: Remedy) -> str:
    return f"incident {incident.name}: {chosen.why}"[:100]


ACTS: tuple[Callable[[Incident], Planned | None], ...] = (_drain, _repair, _retest, _undrain, _resume)
ACT_CONDITIONS: Mapping[Step, str] = {
    Step.DRAIN: "only one suspect node, with consent; on hosts before the repair",
    Step.REPAIR: "restart EFA's driver or reset a GPU, only with its evidence, with consent, on an idle node",
    Step.RETEST: "the same measurement that failed",
    Step.UNDRAIN: "only if the retest passes, with consent",
    Step.RESUME: "only if the node is cured or drained, with consent",
}


# ---- commands --------------------------------------------------------------------------------------------------------


def command(request: IncidentRequest, step: Step, options: Mapping[str, Any]) -> str:
    """The command line that does the same as a step."""
    return shlex.join(_words(request, step, options))


def _words(request: IncidentRequest, step: Step, options: Mapping[str, Any]) -> list[str]:
    at = ["--inventory", request.inventory] if request.inventory else []
    limit = ["--limit", request.limit] if request.limit else []
    context = ["--context", request.context] if request.context else []
    nodes = ["--nodes", request.nodes] if request.nodes else []
    slurm = ["--slurm"] if request.slurm else []
    sizes = ["-b", _size(request.begin_bytes), "-e", _size(request.end_bytes)]
    node = str(options.get("node", ""))
    audited = ["--limit", ",".join(options["nodes"])] if options.get("nodes") else limit
    acts = (
        ["reset", node, "--gpu", str(options.get("gpu"))] if options.get("act") == "reset" else ["restart", node, "efa"]
    )
    resume = options.get("command") or ["scontrol", "requeue", str(options.get("job", ""))]
    table: Mapping[Step, list[str]] = {
        Step.LOG: ["gpuctl", "incident", "read", request.log],
        Step.NODES: ["gpuctl", "nodes", *at, *limit],
        Step.PREFLIGHT: ["gpuctl", "nccl", "preflight", *at, *limit, *nodes],
        Step.TEST: ["gpuctl", "nccl", "run", "--kind", "quick", *at, *limit, *nodes, *slurm, *sizes],
        Step.ISOLATE: ["gpuctl", "nccl", "isolate", *at, *limit, *nodes, *slurm, *sizes],
        Step.AUDIT: ["gpuctl", "audit", *at, *audited],
        Step.DRAIN: ["gpuctl", "audit", *at, "--limit", node, "--act", "drain", *context],
        Step.REPAIR: ["gpuctl", "nodes", *acts, *at],
        Step.UNDRAIN: ["gpuctl", "nodes", "undrain", node, *at, *context],
        Step.RESUME: list(resume),
    }
    return table.get(step, [])


def _size(count: int) -> str:
    """Size as nccl-tests writes it: 512M."""
    return next(
        (f"{count >> bits}{unit}" for bits, unit in ((30, "G"), (20, "M"), (10, "K")) if not count % (1 << bits)),
        str(count),
    )


def closing_text(incident: Incident) -> str:
    """One sentence on how the incident ends."""
    result = cause(incident)
    resumed = incident.answer(Step.RESUME)
    job = "the job was resumed" if resumed and resumed.state is State.DONE else "the job was not resumed"
    cured = "the retest passed" if _is_cured(incident) else "nothing was proven to be cured"
    return f"cause {result.certainty}: {result.text}; {cured}; {job}"
