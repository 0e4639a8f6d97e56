"""The next step of an incident by the answers so far; the same record always has the same next step. No I/O."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpuctl.core.redact import removed
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.incident import acts
from gpuctl.incident.cause import OF_STORAGE, OF_THE_PROGRAM, also, cause, first_failure, silent_nodes
from gpuctl.incident.model import ACTS, Answer, Certainty, Incident, IncidentRequest, Planned, State, Step
from gpuctl.incident.remedies import Remedy, remedy

IDLE = "idle"
BAD = (Verdict.FAIL, Verdict.UNKNOWN)
MOST_ALSO = 3  # further FAILs of the audit in the closing text; the post-mortem has all


@dataclass(frozen=True)
class Reading:
    """A step that reads, measures or acts: `needed` by the answers so far; `why`, for people."""

    step: Step
    needed: Callable[[Incident], bool]
    why: str


def next_step(incident: Incident) -> Planned | None:
    """The next step; None at the end. The current step must have its answer."""
    for row in (*READINGS, *REMEDIES):
        if incident.answer(row.step) is None and row.needed(incident):
            text = acts.command(incident, row.step) if row.step in ACTS else command(incident.request, row.step)
            return Planned(row.step, text, row.why)
    return None


def outline(request: IncidentRequest) -> list[Planned]:
    """Steps that may be made, in their order, each with its condition, before anything is known."""
    readings = [
        Planned(row.step, command(request, row.step), row.why)
        for row in READINGS
        if row.step is not Step.LOG or request.log
    ]
    remedies = [row for row in REMEDIES if row.step is not Step.RESUME or acts.resume_command(request)]
    return readings + [Planned(row.step, _command_of_act(request, row.step), row.why) for row in remedies]


def _command_of_act(request: IncidentRequest, step: Step) -> str:
    """Command of a step after the audit while the suspect is unknown."""
    if step is Step.RESUME:
        return acts.resume_command(request)
    return "" if step in ACTS else command(request, step)


def _is_of_nodes(incident: Incident) -> bool:
    return first_failure(incident).get("kind") not in OF_THE_PROGRAM | OF_STORAGE | {"time limit"}


def _may_test(incident: Incident) -> bool:
    answer = incident.answer(Step.PREFLIGHT)
    if answer is None or answer.state is not State.DONE or silent_nodes(incident):
        return False
    return is_idle(answer.findings) and all(one.verdict is not Verdict.FAIL for one in answer.findings)


def is_idle(findings: tuple[Finding, ...]) -> bool:
    """True if the preflight judged the use of the nodes, and nothing in it is FAIL or UNKNOWN."""
    judged = [one for one in findings if one.check == IDLE]
    return bool(judged) and all(one.verdict not in BAD for one in judged)


def _must_isolate(incident: Incident) -> bool:
    answer = incident.answer(Step.TEST)
    return answer is not None and not is_well(answer) and len(answer.details.get("nodes") or ()) > 1


def is_well(answer: Answer) -> bool:
    """True if a measurement ran, and nothing in it is FAIL, UNKNOWN, or not judged for want of a baseline."""
    doubtful = [one for one in answer.findings if one.verdict in BAD or _is_unjudged(one)]
    return answer.state is State.DONE and bool(answer.findings) and not doubtful


def _is_unjudged(finding: Finding) -> bool:
    """True for the WARN that no baseline exists: an all_reduce may be slow without one."""
    return finding.check == "baseline" and finding.verdict is not Verdict.OK


READINGS: tuple[Reading, ...] = (
    Reading(Step.LOG, lambda one: bool(one.request.log), "the first failure, its rank and node"),
    Reading(Step.NODES, lambda _: True, "who uses the GPUs, and whether the job still runs"),
    Reading(Step.PREFLIGHT, _is_of_nodes, "a test must disturb nobody; not if the log shows a fault of the program"),
    Reading(Step.TEST, _may_test, "one all_reduce over all nodes; only if every node answers and is idle"),
    Reading(Step.ISOLATE, _must_isolate, "which node or path; only if the test is not proven well"),
    Reading(Step.AUDIT, lambda _: True, "the health of all nodes, which are compared with each other"),
)

REMEDIES: tuple[Reading, ...] = (
    Reading(Step.DRAIN, acts.must_drain_first, "with consent: no new job may meet the suspect"),
    Reading(Step.REPAIR, acts.may_repair, "with consent, behind a drain, and only if nobody is disturbed"),
    Reading(Step.RETEST, acts.must_retest, "the test that the node failed, after a repair"),
    Reading(Step.REAUDIT, acts.must_reaudit, "the audit that the node failed, after a repair"),
    Reading(Step.DRAIN, acts.must_drain_late, "with consent: the repair is not proven to have cured the node"),
    Reading(Step.GIVE_BACK, acts.may_give_back, "with consent: the node passes again what it failed"),
    Reading(Step.RESUME, acts.may_resume, "with consent: the suspect is cured, or drained"),
)


# ---- commands --------------------------------------------------------------------------------------------------------


def command(request: IncidentRequest, step: Step) -> str:
    """The command line that does the same as a step; "" if there is none."""
    return shlex.join(_words(request, step))


def _words(request: IncidentRequest, step: Step) -> list[str]:
    nodes = ["--nodes", request.nodes] if request.nodes else []
    if request.slurm:
        at = ["--slurm", *(["--partition", request.partition] if request.partition else []), *nodes]
        of_hosts = tests = at
    else:
        at = ["--inventory", request.inventory] if request.inventory else []
        limit = ["--limit", request.limit] if request.limit else []
        of_hosts = [*at, *(["--limit", request.nodes] if request.nodes else limit)]
        tests = [*at, *limit, *nodes]
    table: Mapping[Step, list[str]] = {
        Step.LOG: ["gpuctl", "incident", "read", request.log],
        Step.NODES: ["gpuctl", "nodes", *of_hosts],
        Step.PREFLIGHT: [] if request.slurm else ["gpuctl", "nccl", "preflight", *tests],
        Step.TEST: ["gpuctl", "nccl", "run", "--kind", "quick", *tests, *_of_runs(request)],
        Step.ISOLATE: ["gpuctl", "nccl", "isolate", "--rails", "none", *tests, *_of_runs(request)],
        Step.AUDIT: ["gpuctl", "audit", *of_hosts],
    }
    return table[{Step.RETEST: Step.ISOLATE, Step.REAUDIT: Step.AUDIT}.get(step, step)]


def _of_runs(request: IncidentRequest) -> list[str]:
    """Options of the NCCL tests."""
    words = ["-b", _size(request.begin_bytes), "-e", _size(request.end_bytes)]
    words += ["--gpus-per-node", str(request.gpus_per_node), "--timeout", f"{request.timeout:g}"]
    words += ["--as-root"] if request.as_root else []
    words += ["--instance", request.instance] if request.instance else []
    return [*words, *(["--network", request.network] if request.network else [])]


def _size(count: int) -> str:
    """Size as nccl-tests writes it: 512M."""
    return next(
        (f"{count >> bits}{unit}" for bits, unit in ((30, "G"), (20, "M"), (10, "K")) if not count % (1 << bits)),
        str(count),
    )


# ---- the end ---------------------------------------------------------------------------------------------------------


def is_explained(incident: Incident) -> bool:
    """True if the answers support a cause."""
    return cause(incident).certainty is not Certainty.UNKNOWN


def closing_text(incident: Incident) -> str:
    """Sentences for the end of an incident: the cause, what the audit also shows, and the proposal."""
    result, chosen, more = cause(incident), remedy(incident), also(incident)
    lines = [f"cause {result.certainty}: {result.text}" if result.nodes or is_explained(incident) else result.text]
    lines += [f"the audit also shows {one}" for one in more[:MOST_ALSO]]
    lines += [f"the audit also shows {len(more) - MOST_ALSO} more"] if len(more) > MOST_ALSO else []
    lines += [removed(one)[0] for one in acts.changes(incident)]
    lines += [acts.result(incident)] if acts.result(incident) else []
    lines += ["no remedy is proposed"] if chosen is None else [proposal(chosen)] if acts.is_left(incident) else []
    return "\n".join(lines if acts.has_changed(incident) else [*lines, "nothing was changed"])


def proposal(chosen: Remedy) -> str:
    """A remedy as a sentence."""
    text = f"proposed, to be run by hand: {chosen.name} ({chosen.node}: {chosen.why})"
    return f"{text}: {chosen.command}" if chosen.command else f"{text}: gpuctl has no command for it; use its scheduler"
