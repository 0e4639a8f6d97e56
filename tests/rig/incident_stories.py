"""Answers of the workflows, as recorded in incidents of known causes, and a stand-in that gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuctl.domain.findings import Finding, Verdict, fail, ok, unknown, warn
from gpuctl.domain.gpu_health import RESET
from gpuctl.incident.model import Answer, Entry, Incident, IncidentRequest, State, Step
from gpuctl.workflows.incident.acts import Ask, Question
from gpuctl.workflows.recorded_act import Begin

NODES = ["n1", "n2", "n3", "n4"]
REQUEST = IncidentRequest("GPU utilization dropped to 30 %", log="/jobs/12.log", inventory="/inv.yml")


def log(kind: str, node: str = "", rank: int | None = None) -> Answer:
    first = {"kind": kind, "line": 7, "text": f"a line about {kind}", "rank": rank, "node": node}
    return Answer(State.DONE, "FAIL", (fail("job-log", node, kind),), {"first": first, "lines": 9})


def done(*findings: Finding, **details: Any) -> Answer:
    return Answer(State.DONE, "", findings, details)


def isolated(*names: str, transport: str = "", efa: bool = True) -> Answer:
    """Isolation that accuses these nodes."""
    faults = [{"kind": "node", "names": [name], "lost": False, "evidence": []} for name in names]
    findings = [
        fail("isolate", name, "4 of 4 runs were slow, by 94 %", bad_runs=4, slower_percent=94.0) for name in names
    ]
    findings += (
        [fail("transport", transport, "socket fallback on n3 (6 of 6 ranks that reported)")] if transport else []
    )
    findings += [ok("isolate", "", "all others are healthy")]
    return done(*findings, faults=faults, unresolved=[], efa=efa, tested=NODES, fleet=NODES)


NO_BASELINE = done(warn("baseline", "n1, n2, n3, n4", "not judged, no baseline"), nodes=NODES)
WELL = done(ok("bandwidth", "", "well"), nodes=NODES)
LOG_OF_NCCL = log("NCCL warning", "n3")
READ = {
    Step.LOG: LOG_OF_NCCL,
    Step.NODES: done(nodes=NODES),
    Step.PREFLIGHT: done(ok("idle", "", "no process")),
    Step.TEST: NO_BASELINE,
    Step.ISOLATE: isolated(),
    Step.AUDIT: done(ok("gpu-memory", "", "fine"), nodes=NODES),
}
EFA = {**READ, Step.ISOLATE: isolated("n3", transport="n3")}
DEAD_GPU = {
    **READ,
    Step.LOG: log("uncorrectable memory error", "n2", 9),
    Step.AUDIT: done(
        Finding("gpu-memory", "n2", Verdict.FAIL, "GPU 3: a row remap is pending", hint=RESET), nodes=NODES
    ),
}
STRAGGLER = {
    **READ,
    Step.LOG: done(unknown("job-log", "", "no line of a known failure"), first=None),
    Step.TEST: WELL,
    Step.AUDIT: done(fail("clocks", "n4", "GPU 1 is slowed down by hw_thermal_slowdown")),
}
FULL = {
    **READ,
    Step.LOG: log("disk full", "n1"),
    Step.AUDIT: done(fail("disks", "n1", "/scratch has 0 % left", free_percent=0.0)),
}
BAD_CODE = {**READ, Step.LOG: log("exception", rank=3)}
NOTHING = {**STRAGGLER, Step.AUDIT: READ[Step.AUDIT]}

# The acts after EFA, and the tests that the node passes then.
DRAINED = Answer(State.DONE, "n3 takes no new work", details={"drained_by": "this incident", "run": "r1"})
RESTARTED = Answer(State.DONE, "restart efa (run r2)", details={"begun": True, "run": "r2"})
CURED = {
    **EFA,
    Step.DRAIN: DRAINED,
    Step.REPAIR: RESTARTED,
    Step.RETEST: isolated(),
    Step.GIVE_BACK: Answer(State.DONE, "n3 takes work again", details={"drained_by": ""}),
    Step.RESUME: Answer(State.DONE, "sbatch train.sh: exit code 0 (run r3)", details={"begun": True}),
}
NOT_CURED = {**CURED, Step.RETEST: EFA[Step.ISOLATE]}


class Killed(BaseException):
    """The process is killed."""


@dataclass
class StandinWorkflows:
    """Gives recorded answers, and counts the steps; an error in place of an answer is raised once."""

    answers: Mapping[Step, Answer]
    made: list[str] = field(default_factory=list)
    acted: list[Step] = field(default_factory=list)
    errors: dict[Step, Exception] = field(default_factory=dict)

    def read(self, _incident: Incident, entry: Entry) -> Answer:
        self.made.append(str(entry.step))
        if error := self.errors.pop(entry.step, None):
            raise error
        return self.answers[entry.step]

    def act(self, incident: Incident, entry: Entry, ask: Ask, _begin: Begin) -> Answer:
        """Acts only with consent; one that was begun is not repeated, as its run record shows."""
        if entry.step in self.acted:
            return self.answers[entry.step]
        if why := ask(Question(f"{entry.step}?")):
            return Answer(State.DECLINED, why)
        self.acted.append(entry.step)
        return self.read(incident, entry)


@dataclass
class StandinWatch:
    """Raises `Killed` after, or before, the write of this number (from 1). `consents`: answers yes to all questions."""

    consents: bool = False
    kill_after: int | None = None
    kill_before: int | None = None
    saved: list[Incident] = field(default_factory=list)

    def save(self, incident: Incident) -> None:
        if len(self.saved) + 1 == self.kill_before:
            raise Killed
        self.saved.append(incident)
        if len(self.saved) == self.kill_after:
            raise Killed

    def begin(self, entry: Entry) -> None:
        pass

    def end(self, entry: Entry) -> None:
        pass

    def ask(self, _: Question) -> str:
        return "" if self.consents else "not done: declined"
