"""Bring GPU hosts to their stack: repair, plan, and change those that differ, with the engine's records and undo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from gpuctl.core.run_history import current_user
from gpuctl.gpu_node import desired
from gpuctl.gpu_node.facts import host_gpu_facts
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.flow import CHANGE_FACTOR, Job
from gpuctl.hosts.model import RunOptions
from gpuctl.hosts.plan import Plan, check_run_history
from gpuctl.workflows.gpu_node_plan import FleetPlan, OnResult, PlanRequest, Survey, plans_of, survey

# A change installs packages and builds a module for each kernel: CHANGE_FACTOR times this.
ANSWER_S = 600.0


@dataclass(frozen=True)
class ApplyRequest:
    """Hosts to bring to their stack, or with `check` only to compare.

    `stack`: site file; None for the variables of the inventory. `forks`, `timeout`: see `RunOptions`.
    """

    inventory: str | None = None
    limit: str = ""
    stack: Path | None = None
    check: bool = False
    forks: int = 64
    timeout: float = ANSWER_S

    @property
    def questions(self) -> PlanRequest:
        """The request for the facts of these hosts."""
        return PlanRequest(self.inventory, self.limit, self.stack, forks=self.forks, timeout=self.timeout)


@dataclass(frozen=True)
class Prepared:
    """Plans of the fleet, and the run that carries them out. `repaired`: host -> packages whose installation dpkg has
    completed.
    """

    fleet: FleetPlan
    run: Plan
    surveyed: Survey
    repaired: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def due(self) -> list[str]:
        """Hosts whose plan can be carried out, and changes packages."""
        return [made.host for made in self.fleet.plans if not made.refused and made.changes]


def prepare(request: ApplyRequest, today: date, on_result: OnResult, *, repairs: bool = True) -> Prepared:
    """Plan every host; first complete what an interrupted dpkg left half done, unless only to compare.

    `repairs`: False if that is done later. `InvalidInput` for a gpu_stack, file or inventory that cannot be used,
    before any host is touched.
    """
    if not request.check:
        check_run_history()
    questions = request.questions
    surveyed = survey(questions, today, on_result)
    repaired: dict[str, Sequence[str]] = {}
    if repairs and not request.check:
        repaired = repair(surveyed, request, on_result)
        surveyed = survey(questions, today, on_result) if repaired else surveyed
    return replace(prepared(surveyed, request, today), repaired=repaired)


def prepared(surveyed: Survey, request: ApplyRequest, today: date) -> Prepared:
    """Plans of hosts whose facts have just been read."""
    fleet = FleetPlan(plans_of(surveyed.fleet, today), surveyed.fleet.unasked, surveyed.left_out)
    job = Job(
        {"action": "tune", "scope": desired.KIND, "allow_busy": False, "actor": current_user()},
        playbook="",
        variables={},
        check=request.check,
        profiles=profiles(surveyed, fleet),
    )
    options = RunOptions("ssh", request.forks, request.timeout)
    reasons = {knob["name"]: knob["why"] for knob in desired.refusal("")}
    return Prepared(fleet, Plan(surveyed.source, surveyed.targets, job, options, reasons), surveyed)


def profiles(surveyed: Survey, fleet: FleetPlan) -> dict[str, Mapping[str, Any]]:
    """Host -> its stack as the engine reads it; a host without facts is refused with the reason."""
    known = knowledge()
    rows = surveyed.fleet.hosts
    planned = {made.host: desired.knobs(made, host_gpu_facts(rows[made.host].stack), known) for made in fleet.plans}
    refused = {name: desired.refusal(f"facts: {why}") for name, why in fleet.unasked.items()}
    return {name: desired.profile(knobs) for name, knobs in {**planned, **refused}.items()}


def repair(surveyed: Survey, request: ApplyRequest, on_result: OnResult) -> dict[str, Sequence[str]]:
    """Let dpkg complete its work where it was interrupted; hosts where that fails keep their finding."""
    broken = [
        host
        for host in surveyed.targets
        if host.name in surveyed.fleet.hosts and surveyed.fleet.hosts[host.name].stack["interrupted"]
    ]
    if not broken:
        return {}
    question = {"action": "repair", "actor": current_user(), "check": False}
    timeout_s = request.timeout * CHANGE_FACTOR
    results = run_on_all(
        broken, lambda _: question, forks=request.forks, timeout_s=timeout_s, on_result=_problems_of(on_result)
    )
    return {result.host: list(result.answer["repaired"]) if result.answer else [] for result in results}


def _problems_of(on_result: OnResult) -> Callable[..., None]:
    return lambda result: on_result(result) if result.answer is None else None


def with_stack(planned: Plan, today: date, on_result: OnResult, *, forks: int, timeout_s: float) -> Plan:
    """A comparison of hosts, with the stack of those that have the variable gpu_stack; others stay as they are."""
    asked = PlanRequest(str(planned.source), forks=forks, timeout=timeout_s)
    surveyed = survey(asked, today, on_result, only=[host.name for host in planned.hosts])
    if not surveyed.targets:
        return planned
    fleet = FleetPlan(plans_of(surveyed.fleet, today), surveyed.fleet.unasked, surveyed.left_out)
    stacks = profiles(surveyed, fleet)
    both = {
        host: {**plain, "knobs": [*plain["knobs"], *stacks[host]["knobs"]]} if host in stacks else plain
        for host, plain in planned.job.profiles.items()
    }
    return replace(planned, job=replace(planned.job, profiles=both))
