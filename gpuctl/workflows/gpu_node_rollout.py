"""Bring a living fleet to its stack batch by batch: drain, change, reboot, verify, and take back our own drains.

What a host has been through is read from the host, from the reasons of drains in Slurm and Kubernetes, and from the
host's packages, never from an earlier run's memory: after an interruption the same command goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict, exit_code, worst_first
from gpuctl.gpu_node import desired, gds_check, rollout
from gpuctl.gpu_node.facts import host_gpu_facts
from gpuctl.gpu_node.model import HostGpuFacts, StackPlan
from gpuctl.gpu_node.rollout import Outcome, RolloutRequest
from gpuctl.hosts import judge
from gpuctl.hosts.flow import batches, too_many
from gpuctl.hosts.model import HostResult
from gpuctl.workflows import host_reboot, nodes_empty
from gpuctl.workflows.gpu_node_apply import ApplyRequest, Prepared, prepared, repair
from gpuctl.workflows.gpu_node_nccl import run_nccl
from gpuctl.workflows.gpu_node_plan import OnResult, Survey, survey_again
from gpuctl.workflows.gpu_node_verify import diagnose, verify_surveyed
from gpuctl.workflows.nodes_drain import Drain, Nodes
from gpuctl.workflows.recorded_act import Entry, recorded

DRAIN_ANSWER_S = 60.0
CONFLICTS = 5  # attempts to change a node that its kubelet may change at the same time
WITH_SCHEDULER = ("drain", "empty", "undrain")
SETTLED = ("done", "others")
SOMETIMES = ("reboot", "complete")  # most hosts need none
_DRAINS = {"due": "drained", "others": "others"}
SETTLE_S, POLL_S = 120.0, 5.0  # after a boot, fabric and services need a moment until they verify
Failures = dict[str, str]  # host -> why it failed
OnStep = Callable[[str], None]


class Rollout:
    """One roll-out. `on_step` receives a line about each step, for people."""

    def __init__(
        self, request: ApplyRequest, steps: RolloutRequest, today: date, on_result: OnResult, on_step: OnStep
    ) -> None:
        self.request, self.steps, self.today = request, steps, today
        self._on_result, self._on_step = on_result, on_step
        self.outcomes: dict[str, Outcome] = {}
        self.surveyed: Survey | None = None
        self._batch: Prepared | None = None
        self._entry: Entry | None = None
        self._changed: Survey | None = None  # facts of a batch after its change
        self._plans: dict[str, StackPlan] = {}
        self._nodes: Nodes | None = None
        self.run = ""

    # ---- before anything is changed ------------------------------------------------------------------------------

    def plan(self, fleet: Prepared) -> list[Sequence[str]]:
        """Batches of the hosts that take part; all others have their outcome afterwards."""
        self.surveyed, self._plans = fleet.surveyed, {made.host: made for made in fleet.fleet.plans}
        drains = self._drains(fleet.surveyed, list(self._plans))
        differing = self._compared(fleet)
        due = []
        for host, made in self._plans.items():
            drain = _DRAINS.get(drains[host].state, "") if host in drains else ""
            role, text = self._role(made, self._facts(fleet.surveyed, host), drains.get(host))
            role, text = differing.get(host, (role, text)) if role == "up to date" else (role, text)
            if role == "due" and (wrong := self._hindrance(made, fleet.surveyed)):
                role, text = "refused", wrong
            if role == "due":
                due.append(host)
                continue
            findings = made.findings if role == "refused" else ()
            self.outcomes[host] = Outcome(host, role, text=text, drain=drain, findings=findings)
        for host, why in fleet.fleet.unasked.items():
            self.outcomes[host] = Outcome(host, "not reached", text=why)
        drained = [host for host in due if host in drains and drains[host].state == "due"]
        return list(batches(rollout.in_order(due, drained), self.steps.size))

    def _hindrance(self, made: StackPlan, surveyed: Survey) -> str:
        is_local = any(host.local for host in surveyed.targets if host.name == made.host)
        return rollout.hindrance(made, self._facts(surveyed, made.host), self.steps, local=is_local)

    def _compared(self, fleet: Prepared) -> dict[str, tuple[str, str]]:
        """State and reason of hosts whose packages stay, but whose holds, files or services differ or are unknown."""
        same = {made.host for made in fleet.fleet.plans if not made.refused and made.changes is False}
        hosts = [host for host in fleet.run.hosts if host.name in same]
        if not hosts:
            return {}
        rows = {}
        for result in replace(fleet.run, hosts=hosts, job=replace(fleet.run.job, check=True)).run(_Silent()):
            if result.answer is None:
                rows[result.host] = ("not reached", result.wrong)
            elif judge.exit_code([result]):
                rows[result.host] = ("refused", _why(result))
            elif result.differs:
                rows[result.host] = ("due", "")
        return rows

    def _drains(self, surveyed: Survey, hosts: Sequence[str]) -> dict[str, Drain]:
        """Drains by roll-outs, also by earlier ones: Slurm and Kubernetes keep their reasons."""
        if self.steps.drain is None or not hosts:
            return {}
        context = self.steps.context  # without one, Slurm drains
        self._nodes = Nodes(surveyed.targets, context, DRAIN_ANSWER_S, ours=rollout.MARK, cause="StackRollout")
        drains = self._nodes.read(dict.fromkeys(hosts, rollout.MARK), undo=True)
        if self._nodes.cluster is not None:
            boots = host_reboot.boots([one for one in surveyed.targets if one.name in hosts], self.request.forks)
            drains = self._nodes.prove(drains, boots)
        return {one.node: one for one in drains}

    def _role(self, made: StackPlan, facts: HostGpuFacts, drain: Drain | None) -> tuple[str, str]:
        """State of a host before the batches, and why it is refused."""
        drained, reboots = drain is not None and drain.state == "due", self.steps.reboot
        role = rollout.participation(made, facts, drained=drained, drains=drain is not None, reboots=reboots)
        if role == "due" and drain is not None and drain.state in ("unknown", "failed"):
            return "refused", f"drain: {drain.text}"
        return role, desired.reason(made.findings) if role == "refused" else ""

    def _facts(self, surveyed: Survey, host: str) -> HostGpuFacts:
        return host_gpu_facts(surveyed.fleet.hosts[host].stack)

    # ---- batch by batch ------------------------------------------------------------------------------------------

    def carry_out(self, planned: Sequence[Sequence[str]], command: Sequence[str]) -> list[Outcome]:
        """Carry out the batches, with a record around them; outcomes in the order of the inventory."""
        hosts = [host for batch in planned for host in batch]
        for number, batch in enumerate(planned, 1):
            self.outcomes |= {host: Outcome(host, "not started", batch=number) for host in batch}
        if hosts:
            with recorded(command, {host: self.outcomes[host].as_dict() for host in hosts}) as entry:
                self._entry, self.run = entry, entry.name
                self._all(planned)
                entry.exit_code = self.exit_code
        return self.results

    @property
    def results(self) -> list[Outcome]:
        names = [host.name for host in self.surveyed.targets] if self.surveyed else []
        return [self.outcomes[name] for name in names]

    @property
    def exit_code(self) -> int:
        return max((outcome.exit_code for outcome in self.outcomes.values()), default=0)

    def _all(self, planned: Sequence[Sequence[str]]) -> None:
        stopped = ""
        for number, batch in enumerate(planned, 1):
            if stopped:
                for host in batch:
                    self._note(host, text=stopped)
                continue
            self._one(f"batch {number} of {len(planned)}", batch)
            failed = [host for host in batch if self.outcomes[host].state == "failed"]
            if too_many(len(failed), len(batch), self.steps.max_fail or "0%"):
                share = f"{len(failed)} of {len(batch)} hosts of batch {number} failed ({named(failed)})"
                stopped = f"{share}, more than {self.steps.max_fail or '0%'}"

    def _one(self, title: str, batch: Sequence[str]) -> None:
        for host in batch:
            self._note(host, state="unfinished")
        steps: Mapping[str, Callable[[Sequence[str]], Failures]] = {
            "drain": self._drain,
            "empty": self._empty,
            "plan": self._plan,
            "install": self._install,
            "reboot": self._reboot,
            "complete": self._complete,
            "verify": self._verify,
            "diagnose": self._diagnose,
            "nccl": self._nccl,
            "undrain": self._undrain,
        }
        active = list(batch)
        for step, act in steps.items():
            if not active:
                return
            if step in self._skipped:
                continue
            if step not in SOMETIMES:
                self._on_step(f"{title}: {step} {named(active)}")
            failures = self._acted(step, act, active)
            for host, why in failures.items():
                self._note(host, state="failed", step=step, text=why)
                self._on_step(f"{title}: {host} failed: {step}: {why}")
            active = [host for host in active if self.outcomes[host].state == "unfinished"]
        for host in active:
            self._note(host, state="done")

    @property
    def _skipped(self) -> set[str]:
        """Steps that nobody has asked for."""
        tests = {"diagnose": self.steps.deep is not None, "nccl": self.steps.nccl}
        return {step for step, is_set in tests.items() if not is_set} | (
            set(WITH_SCHEDULER) if self._nodes is None else set()
        )

    def _acted(self, step: str, act: Callable[[Sequence[str]], Failures], active: Sequence[str]) -> Failures:
        """Failures of a step; an error of the scheduler is one of the hosts of this batch, not the end of the run."""
        try:
            return act(active)
        except GpuctlError as error:
            if step not in WITH_SCHEDULER:
                raise
            return dict.fromkeys(active, f"{error.doing}: {error.wrong}")

    def _note(self, host: str, **values: object) -> None:
        """Keep what is known of a host, in memory and in the record of the run."""
        before = self.outcomes[host].as_dict()
        self.outcomes[host] = replace(self.outcomes[host], **values)  # type: ignore[arg-type]
        if self._entry is not None and self.outcomes[host].as_dict() != before:  # each update writes the whole record
            self._entry.update(host, **self.outcomes[host].as_dict())

    def _again(self, active: Sequence[str]) -> Survey:
        if self.surveyed is None:
            raise InvalidInput("change hosts", "they were not planned")
        return survey_again(self.surveyed, active, self.request.questions, self.today, self._on_result)

    def _drain(self, active: Sequence[str]) -> Failures:
        """Drain hosts, except those that somebody else has drained, and those whose pods would be lost."""
        reasons = {host: rollout.reason(self._plans[host]) for host in active}
        return self._moved(reasons, undo=False)

    def _moved(self, texts: Mapping[str, str], *, undo: bool) -> Failures:
        """Drain nodes or take them back; what a kubelet changed at the same time is read again."""
        nodes, lost, failures = self._nodes, Failures(), Failures()
        left, word = list(texts), "undrained" if undo else "drained"
        for _ in range(CONFLICTS):
            if nodes is None or not left:
                break
            read = nodes.read({host: texts[host] for host in left}, undo=undo)
            due = [one for one in read if one.state == "due"]
            lost |= {} if undo else nodes_empty.losses(nodes, due, self._patience)
            changed = nodes.change([one for one in due if one.node not in lost], self.run, undo=undo)
            ends = {one.node: one for one in (*read, *changed) if one.node not in lost}
            failures = {
                node: one.text or f"it is {one.state}" for node, one in ends.items() if one.state not in SETTLED
            }
            for node, one in ends.items():
                if node not in failures:
                    self._note(node, drain=word if one.state == "done" else "others")
            left = list(failures)
        return {**failures, **lost}

    def _empty(self, active: Sequence[str]) -> Failures:
        """Evict pods, or wait for jobs."""
        if self._nodes is None:
            return {}
        drains = self._nodes.read(dict.fromkeys(active, rollout.MARK), undo=False)
        ends = nodes_empty.empty(
            self._nodes, drains, self._patience, lambda node, text: self._on_step(f"{node} waits: {text}")
        )
        return {host: why for host, why in ends.items() if why}

    @property
    def _patience(self) -> nodes_empty.Patience:
        steps = self.steps
        return nodes_empty.Patience(steps.drain_limit, steps.bare_pods, steps.delete_emptydir_data)

    def _undrain(self, active: Sequence[str]) -> Failures:
        """Take back the drains of roll-outs; a drain of somebody else stays."""
        ours = [host for host in active if self.outcomes[host].drain == "drained"]
        return self._moved(dict.fromkeys(ours, rollout.MARK), undo=True)

    def _plan(self, active: Sequence[str]) -> Failures:
        """Plan hosts again as they are now, after an interrupted dpkg has completed its work.

        Programs of a drained host may need a moment to end.
        """
        end = time.monotonic() + (SETTLE_S if self._nodes is not None else 0)
        while (failures := self._planned(active)) and self._is_busy() and time.monotonic() < end:
            time.sleep(POLL_S)
        return failures

    def _is_busy(self) -> bool:
        plans = self._batch.fleet.plans if self._batch is not None else ()
        rows = [row for made in plans for row in made.findings]
        return any(row.check == "busy" and row.verdict is Verdict.FAIL for row in rows)

    def _planned(self, active: Sequence[str]) -> Failures:
        surveyed = self._again(active)
        if repaired := repair(surveyed, self.request, self._on_result):
            for host, packages in repaired.items():
                shown = named(packages) or "nothing"
                self._on_step(f"{host}: dpkg or rpm had been interrupted, and has completed {shown}")
            surveyed = self._again(active)
        self._batch = prepared(surveyed, self.request, self.today)
        refused = {made.host: desired.reason(made.findings) for made in self._batch.fleet.plans if made.refused}
        return {**self._batch.fleet.unasked, **refused}

    def _install(self, active: Sequence[str]) -> Failures:
        """Change the packages, holds, files and services that differ; a host without a difference is only compared."""
        if self._batch is None:
            return {}
        run = self._batch.run
        results = replace(run, hosts=[host for host in run.hosts if host.name in active]).run(_Silent())
        for result in results:
            self._note(result.host, changed=result.changed or self.outcomes[result.host].changed)
        return {result.host: _why(result) for result in results if judge.exit_code([result])}

    def _reboot(self, active: Sequence[str]) -> Failures:
        """Reboot hosts whose running module is not the installed one, and no others."""
        surveyed = self._changed = self._again(active)
        plans = {made.host: made for made in prepared(surveyed, self.request, self.today).fleet.plans}
        choices = {host: rollout.needs_reboot(made, self._facts(surveyed, host)) for host, made in plans.items()}
        failures = dict(surveyed.fleet.unasked)
        failures |= {host: f"unknown: {choice.why}" for host, choice in choices.items() if choice.value is None}
        due = {host: choice.why for host, choice in choices.items() if choice.value == "yes"}
        if not self.steps.reboot:
            for host, why in due.items():
                if self.outcomes[host].drain == "drained":
                    failures[host] = f"{why}, and --reboot is not set"
                else:
                    self._note(host, state="waits for a reboot", text=why)
            return failures
        failures |= self._not_to_reboot(plans, surveyed, list(due))
        hosts = [host for host in surveyed.targets if host.name in due and not host.local]
        hosts = [host for host in hosts if host.name not in failures]
        failures |= {host.name: rollout.LOCAL for host in surveyed.targets if host.name in due and host.local}
        if hosts:
            self._on_step(f"reboot {named([host.name for host in hosts])}")
        reason = f"{rollout.MARK} ({self.run})"
        ends = host_reboot.reboot(hosts, reason, forks=self.request.forks, limit_s=self.steps.reboot_limit)
        for host, why in ends.items():
            self._note(host, rebooted=not why)
        return {**failures, **{host: why for host, why in ends.items() if why}}

    def _not_to_reboot(self, plans: Mapping[str, StackPlan], surveyed: Survey, due: Sequence[str]) -> Failures:
        """Hosts that would come back without their module, and those that are in use again."""
        failures = {host: rollout.lacks_module(plans[host], self._facts(surveyed, host)) for host in due}
        if self._nodes is not None and due:
            try:
                occupied = nodes_empty.occupied(self._nodes, due)
            except GpuctlError as error:
                occupied = dict.fromkeys(due, f"{error.doing}: {error.wrong}")
            failures |= {host: f"not rebooted: {why}" for host, why in occupied.items() if why and not failures[host]}
        return {host: why for host, why in failures.items() if why}

    def _complete(self, active: Sequence[str]) -> Failures:
        """Install what waited for the driver, EFA or the reboot, such as tests that are built for the GPUs."""
        plans = self._batch.fleet.plans if self._batch is not None else ()
        hosts = [made.host for made in plans if made.host in active and rollout.waiting(made)]
        if not hosts:
            return {}
        # A component that still waits at the end of this is a FAIL of the verification.
        self._on_step(f"complete {named(hosts)}")
        end = time.monotonic() + SETTLE_S
        while ((failures := self._planned(hosts)) or self._is_waiting()) and time.monotonic() < end:
            time.sleep(POLL_S)
        self._changed = None  # verify reads the hosts again
        return {**failures, **self._install([host for host in hosts if host not in failures])}

    def _is_waiting(self) -> bool:
        return self._batch is not None and any(rollout.waiting(made) for made in self._batch.fleet.plans)

    def _verify(self, active: Sequence[str]) -> Failures:
        """Judge hosts by their own tools, and those that have just booted until their services are up."""
        end = time.monotonic() + SETTLE_S
        left, failures = list(active), Failures()
        surveyed = self._changed
        if surveyed is None or any(self.outcomes[host].rebooted for host in active):
            surveyed = self._again(active)
        while left:
            verified = verify_surveyed(surveyed, self.request.questions, self.today, self._on_result)
            for host in left:
                findings = list(verified.findings.get(host, ()))
                self._note(host, findings=tuple(findings))
                # Only a job's I/O proves it, and the host waits for jobs.
                failures[host] = _problems([row for row in findings if row.check != gds_check.PATH])
            late = time.monotonic() > end
            left = [] if late else [host for host in left if failures[host] and self.outcomes[host].rebooted]
            time.sleep(POLL_S if left else 0)
            surveyed = self._again(left) if left else surveyed
        return {host: why for host, why in failures.items() if why}

    def _diagnose(self, active: Sequence[str]) -> Failures:
        """Have DCGM diagnose hosts before they take jobs; one that waits for a reboot has none yet."""
        hosts = [host for host in self.surveyed.targets if host.name in active] if self.surveyed else []
        level = self.steps.deep or 1
        return self._tested(diagnose(hosts, level, self.request.questions, self._on_result, self._on_step))

    def _nccl(self, active: Sequence[str]) -> Failures:
        """Test NCCL on each host by itself before it takes jobs."""
        hosts = [host for host in self.surveyed.targets if host.name in active] if self.surveyed else []
        path = self.steps.search_path
        return self._tested(run_nccl(hosts, self.request.questions, path, self._on_result, self._on_step))

    def _tested(self, tested: Mapping[str, Sequence[Finding]]) -> Failures:
        for host, findings in tested.items():
            self._note(host, findings=(*self.outcomes[host].findings, *findings))
        return {host: why for host, findings in tested.items() if (why := _problems(findings))}


def _problems(findings: Sequence[Finding]) -> str:
    """What keeps a host from taking jobs; "" if it may."""
    if findings and not exit_code(findings):
        return ""
    rows = [row for row in worst_first(findings) if row.verdict in {Verdict.FAIL, Verdict.UNKNOWN}]
    return "; ".join(f"{row.check}: {row.message}" for row in rows) or "it was not verified"


def _why(result: HostResult) -> str:
    """Why a change of a host failed."""
    rows = [row.message for row in judge.findings(result) if row.verdict in {Verdict.FAIL, Verdict.UNKNOWN}]
    return result.wrong or "; ".join(rows) or "it failed without a reason"


class _Silent:
    """Progress of a batch's changes, whose outcome is reported as a whole."""

    def on_result(self, result: HostResult) -> None:
        """See `Listener`."""

    def on_change(self, hosts: object) -> None:
        """See `Listener`."""
