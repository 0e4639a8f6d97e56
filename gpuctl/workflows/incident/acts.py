"""Acts of an incident: drain, repair, give back and resume, each with consent, a run record, and never twice.

All refusals are those of `gpuctl nodes`; nothing is forced.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.audit import knowledge
from gpuctl.core import run_history
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.redact import removed
from gpuctl.core.run_history import RunRecord
from gpuctl.domain.gpu_health import RESET
from gpuctl.edges import slurm, terminal
from gpuctl.edges.programs import installed
from gpuctl.hosts.model import Target
from gpuctl.incident import acts
from gpuctl.incident.cause import failures_of, is_of_hardware
from gpuctl.incident.model import Answer, Entry, Incident, State, Step
from gpuctl.incident.remedies import Kind, Remedy, remedy
from gpuctl.nodes.acts import services
from gpuctl.nodes.acts.model import Consent
from gpuctl.workflows import audit, audit_rules, host_reboot, nodes_drain, nodes_service
from gpuctl.workflows.nodes_drain import MOST, Drain, Nodes
from gpuctl.workflows.recorded_act import UNFINISHED, Begin, no_begin, recorded

LIMIT_S = 60.0  # for one node
REQUEUED_S, POLL_S = 30.0, 1.0
BY_HAND = "so that a requeue could not be read back: requeue it by hand"
# State of an act of `gpuctl nodes` -> state of the step; "unknown" and "unfinished" are UNKNOWN.
STATES: Mapping[str, State] = {
    "done": State.DONE,
    "failed": State.FAILED,
    **dict.fromkeys(("busy", "changed", "absent"), State.REFUSED),
}


@dataclass(frozen=True)
class Question:
    """Question for consent. `covers_yes`: False if --yes does not answer it."""

    text: str
    covers_yes: bool = True


Ask = Callable[[Question], str]  # returns why there is no consent, "" if there is


class Acts:
    """Acts on the hosts of an incident; `ask` is called before each, and `begin` right before it, with its run."""

    def __init__(self, hosts: Sequence[Target], ask: Ask, begin: Begin = no_begin) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._ask, self._begin = ask, begin

    def make(self, incident: Incident, entry: Entry) -> Answer:
        """Act, or find out what an interrupted act has done."""
        if entry.step is Step.RESUME:
            return self._resume(incident, entry)
        chosen = remedy(incident)
        host = self._hosts.get(chosen.node) if chosen else None
        if chosen is None or host is None or host.needs_ansible:
            why = "the node is not among the hosts any more" if host is None else "only Ansible can reach it"
            return Answer(State.REFUSED, why)
        if entry.step is Step.REPAIR:
            return self._repair(incident, entry, chosen, host)
        answer = self._drain(incident, entry, chosen, host)
        # One that was begun before an interruption may have changed the node, whatever is read now.
        return replace(answer, details={**answer.details, "begun": True}) if entry.begun else answer

    # ---- drain and give back -----------------------------------------------------------------------------------------

    def _drain(self, incident: Incident, entry: Entry, chosen: Remedy, host: Target) -> Answer:
        """Drain the suspect, or take this incident's drain back; drains of others stay as they are."""
        undo = entry.step is Step.GIVE_BACK
        mark = f"{acts.mark(incident)}:"  # its colon, as another incident's name may begin with this one's
        nodes = Nodes([host], incident.request.context, LIMIT_S, ours=mark, cause="Incident")
        reason = f"{mark} {removed(chosen.why)[0]}"[:MOST]
        before = _read(nodes, host, reason, undo=undo)
        if before.state != "due":
            return _drained(before, undo=undo)
        does = "let it take work again" if undo else "drain it, so that it takes no new work; what runs there continues"
        if why := self._ask(Question(f"{host.name} ({before.scheduler}): {does}")):
            return Answer(State.DECLINED, why)
        [after], run = nodes_drain.carry_out(nodes, [before], _words(entry), undo=undo, begin=self._begin)
        if after.state != "done":  # its answer may have been lost, or come before its effect
            now = _read(nodes, host, reason, undo=undo)
            after = now if now.state == "done" else after
        answer = _with_run(_drained(after, undo=undo), run)
        return replace(answer, details={**answer.details, "begun": True})

    # ---- repair ------------------------------------------------------------------------------------------------------

    def _repair(self, incident: Incident, entry: Entry, chosen: Remedy, host: Target) -> Answer:
        if earlier := _earlier(entry):
            return earlier
        reason = _reason(incident, entry)
        if why := _against_repair(incident, chosen, host):
            return Answer(State.REFUSED, why)
        if chosen.kind is Kind.RESET:
            deed = nodes_service.reset(host, chosen.gpu, LIMIT_S)
        else:
            deed = nodes_service.restart(host, "efa", "", Consent(), LIMIT_S)
        if deed.against:
            return Answer(State.REFUSED, "; ".join(deed.against))
        if why := self._ask(Question(f"{host.name}: {deed.what}; {deed.disturbs}; evidence: {removed(chosen.why)[0]}")):
            return Answer(State.DECLINED, why)
        done, run_name = nodes_service.carry_out(deed, _words(entry), Consent(reason=reason), self._begin)
        return _with_run(_repaired(deed.what, done.state, done.text), run_name)

    # ---- resume ------------------------------------------------------------------------------------------------------

    def _resume(self, incident: Incident, entry: Entry) -> Answer:
        if earlier := _earlier(entry):
            return earlier
        reason = _reason(incident, entry)
        request = incident.request
        if request.resume_with:
            return self._start(entry, reason, request.resume_with)
        return self._requeue(entry, reason, request.job)

    def _start(self, entry: Entry, reason: str, argv: Sequence[str]) -> Answer:
        """Run the user's command on the terminal, without a shell, until it ends; Ctrl-C reaches it alone."""
        if not installed(argv[0]):
            return Answer(State.REFUSED, f"{argv[0]} is no program of this machine")
        if why := self._ask(Question(f"run the command that resumes the job: {entry.command}")):
            return Answer(State.DECLINED, why)

        def run() -> tuple[str, str]:
            code = terminal.show(argv)
            return "failed" if code else "done", f"exit code {code}"

        return _recorded(entry, reason, "command", run, self._begin)

    def _requeue(self, entry: Entry, reason: str, number: str) -> Answer:
        """Requeue a job of the user's own in Slurm; one that waits is requeued already."""
        runs = slurm.runs_of(number)
        if why := _against_requeue(number, runs):
            return Answer(State.REFUSED, why)
        [job] = runs
        if job.state in slurm.WAITING:
            return Answer(State.DONE, f"the job {number} is {job.state}: it waits already")
        if job.restarts is None:
            return Answer(State.REFUSED, f"Slurm does not show how often the job {number} was restarted; {BY_HAND}")
        if why := self._ask(_about_requeue(job)):
            return Answer(State.DECLINED, why)
        return _recorded(entry, reason, number, lambda: _requeued(job), self._begin)


def _against_requeue(number: str, runs: Sequence[slurm.JobRun]) -> str:
    """Reason not to requeue a job; "" if nothing speaks against it."""
    if len(runs) != 1:
        wrong = "is an array" if runs else "is not known to Slurm any more"
        return f"the job {number} {wrong}: submit it again by hand"
    [job] = runs
    if not job.is_mine:
        return f"the job {number} is somebody else's"
    if job.state in slurm.HOLDS:
        return f"the job {number} is {job.state}: `scontrol release {number}` lets it start"
    return f"the job {number} is COMPLETED: nothing is left to resume" if job.state == "COMPLETED" else ""


def _about_requeue(job: slurm.JobRun) -> Question:
    """Question about a requeue. A person may have cancelled a job on purpose, and one that runs loses work."""
    is_over = job.state in slurm.OVER
    does = "requeue it" if is_over else "end it and queue it again: what it did since its last checkpoint is lost"
    return Question(f"job {job.number} is {job.state}: {does}", covers_yes=is_over and job.state != "CANCELLED")


def _requeued(job: slurm.JobRun) -> tuple[str, str]:
    """Requeue a job as it was shown, and read back until Slurm has queued it again: (state of the act, text)."""
    number = job.number
    if why := _changed(job):
        return "changed", why
    done = slurm.try_to("scontrol", "requeue", number)
    if done.code:
        return "failed", slurm.gist(done.err)
    accepted = "Slurm has accepted it" if done.code == 0 else "scontrol gave no answer"
    end = time.monotonic() + REQUEUED_S
    while True:
        last = ""
        try:
            runs = slurm.runs_of(number)
        except GpuctlError as error:  # the requeue may have been its cause, and Slurm answers later
            runs, last = [], f": {error.wrong}"
        if runs and runs[0].restarts is not None and runs[0].restarts != job.restarts:
            return "done", f"the job {number} is {runs[0].state}, restart {runs[0].restarts}"
        if time.monotonic() > end:
            return "unknown", f"{accepted}, and no restart of the job {number} shows after {REQUEUED_S:g} s{last}"
        time.sleep(POLL_S)


def _changed(job: slurm.JobRun) -> str:
    """Reason not to requeue a job, as it may not be any more what the user has consented to; "" if it is."""
    try:
        runs = slurm.runs_of(job.number)
    except GpuctlError as error:
        return f"whether it changed since it was shown is unknown, and nothing was done: {error.wrong}"
    if runs == [job]:
        return ""
    now = ", ".join(f"{run.state}, restarts: {run.restarts}" for run in runs) or "unknown to Slurm"
    return f"the job {job.number} has changed since it was shown: it is {now}"


def _against_repair(incident: Incident, chosen: Remedy, host: Target) -> str:
    """Reason not to repair the node now, beyond those of `gpuctl nodes`; "" without one."""
    if incident.request.slurm:  # elsewhere this incident's drain, which it needs, shows that nobody else's is on it
        mark = f"{acts.mark(incident)}:"
        now = _read(Nodes([host], "", LIMIT_S, ours=mark, cause="Incident"), host, mark, undo=False)
        if now.state == "others" and "DRAIN" in now.slurm_state:
            return f"somebody else has drained it: ask them: {now.text}"
    if chosen.kind is not Kind.RESET:
        return ""
    # A reset may reach all GPUs of the node, and its test disturbs whoever works on another one.
    why = _no_longer_fails(host, chosen.gpu)
    return why or "; ".join(services.against_any_use(nodes_service.read_node(host, LIMIT_S)))


def _no_longer_fails(host: Target, gpu: int) -> str:
    """Why the audit of this moment asks for no reset of the GPU; "" if it does.

    GPUs are numbered again once one is lost, and somebody may have reset it since the audit.
    """
    fleet = audit.ask([host], audit.AuditOptions(), lambda _: None)
    if host.name in fleet.unasked:
        return f"the node does not answer: {fleet.unasked[host.name]}"
    findings = tuple(audit_rules.judge(fleet, knowledge.catalogue()))
    rows = failures_of(Answer(State.DONE, "", findings)).get(host.name, [])
    others = [one for one in rows if one.hint != RESET or not one.message.startswith(f"GPU {gpu}: ")]
    if not any(is_of_hardware(one) for one in rows):
        return "the audit of now has no FAIL of it: it was repaired meanwhile, or the numbers have changed"
    return f"the audit of now also shows: {others[0].message}" if others else ""


# ---- records ---------------------------------------------------------------------------------------------------------


def _read(nodes: Nodes, host: Target, reason: str, *, undo: bool) -> Drain:
    """Drain of a node as it is now; one of Kubernetes must show the boot of its host, as clusters repeat names."""
    drains = nodes.read({host.name: reason}, undo=undo)
    [now] = drains if nodes.cluster is None else nodes.prove(drains, host_reboot.boots([host], 1))
    return now


def _reason(incident: Incident, entry: Entry) -> str:
    """Reason in run records: the incident and its step."""
    return f"{acts.mark(incident)}, step {entry.number}"


def _words(entry: Entry) -> list[str]:
    """Arguments of gpuctl that do the same, for the run record."""
    words = shlex.split(removed(entry.command)[0])
    return words[1:] if words[:1] == ["gpuctl"] else ["incident", "start"]


def _earlier(entry: Entry) -> Answer | None:
    """Answer of this act from before an interruption, as it is not repeated; None if it was never begun."""
    if not entry.begun:
        return None
    try:
        return _as_recorded(run_history.load(entry.begun))
    except InvalidInput as error:  # removed or damaged
        text = f"it was begun and is not repeated, and how it ended is unknown: {error.wrong}"
        return _with_run(Answer(State.UNKNOWN, text, details={"begun": True}), entry.begun)


def _as_recorded(run: RunRecord) -> Answer:
    """Answer of an act that was begun before an interruption: it is not repeated."""
    row: Mapping[str, Any] = next(iter(run.hosts.values()), {})
    status = str(row.get("status", UNFINISHED))
    text = str(row.get("text", "")) or "it was interrupted, and is not repeated"
    return _with_run(_repaired(str(row.get("act", "")), status, text), run.name)


def _recorded(entry: Entry, reason: str, subject: str, run: Callable[[], tuple[str, str]], begin: Begin) -> Answer:
    """Make an act on a job within a run record; `run` returns its state and a text."""
    what = removed(entry.command)[0]
    with recorded(["incident", "start"], {subject: {"act": what, "reason": reason}}) as record:
        begin(record.name)
        state, text = run()
        text = removed(text)[0]
        record.update(subject, status=state, text=text)
        record.exit_code = {"done": 0, "failed": 1}.get(state, 3)
    return _with_run(_repaired(what, state, text), record.name)


# ---- answers ---------------------------------------------------------------------------------------------------------


def _repaired(what: str, state: str, text: str) -> Answer:
    shown = f"{what}: {text}" if text else what
    return Answer(STATES.get(state, State.UNKNOWN), shown, details={"begun": STATES.get(state) is not State.REFUSED})


def _drained(drain: Drain, *, undo: bool) -> Answer:
    """Answer of a drain as it is now. `drained_by`: OURS, OTHERS, or "" if it is not drained, or that is unknown."""
    is_kept = drain.state in ("done", "others") and not undo
    if is_kept and drain.scheduler == "Slurm" and "DRAIN" not in drain.slurm_state:
        text = f"Slurm has it {drain.slurm_state}, which is no drain: it takes work again as soon as that ends"
        return Answer(State.REFUSED, text, details={"drained_by": ""})
    if drain.state == "others":
        return Answer(
            State.REFUSED if undo else State.DONE,
            f"somebody else has drained it, so that it is not repaired: ask them: {drain.text}",
            details={"drained_by": acts.OTHERS},
        )
    state = STATES.get(drain.state, State.UNKNOWN)
    ours = acts.OURS if state is State.DONE and not undo else ""
    done = f"{drain.node} takes work again" if undo else f"{drain.node} takes no new work ({drain.scheduler})"
    text = f"{done}: {drain.text}" if drain.text else done
    return Answer(state, text if state is State.DONE else drain.text, details={"drained_by": ours})


def _with_run(answer: Answer, run: str) -> Answer:
    return Answer(answer.state, f"{answer.summary} (run {run})", answer.findings, {**answer.details, "run": run})
