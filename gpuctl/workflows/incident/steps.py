"""The workflows behind the steps of an incident: each is called with its typed request, and its answer kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gpuctl.audit import knowledge
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.signals import ctrl_c
from gpuctl.core.text import plural
from gpuctl.core.text_files import open_text
from gpuctl.domain import job_log
from gpuctl.domain.findings import Finding, Verdict, overall, worst_first
from gpuctl.edges import slurm
from gpuctl.edges.processes import Processes
from gpuctl.hosts import plan as host_plan
from gpuctl.hosts.model import HostResult, Target
from gpuctl.incident import record
from gpuctl.incident.model import Answer, Entry, Incident, IncidentRequest, State, Step
from gpuctl.nccl import flow as nccl_flow
from gpuctl.nccl import plan as nccl_plan
from gpuctl.nccl import serialize
from gpuctl.nccl.baselines import load
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.isolate import flow as isolate_flow
from gpuctl.nccl.isolate import record as isolate_record
from gpuctl.nccl.isolate import serialize as isolate_serialize
from gpuctl.nccl.isolate.flow import Watch
from gpuctl.nccl.isolate.model import RING, Fleet, Policy
from gpuctl.nccl.model import Launch, LaunchResult, Sweep
from gpuctl.nccl.networks import suits
from gpuctl.nodes.acts.model import Consent
from gpuctl.workflows import audit, audit_rules, audit_slurm, nccl_isolate, nccl_targets, nodes, nodes_drain
from gpuctl.workflows import nodes_service as service
from gpuctl.workflows.incident import flow
from gpuctl.workflows.incident.flow import Act
from gpuctl.workflows.nccl_targets.model import HostOptions, NodeAccess, Notify, SlurmOptions, TargetRequest
from gpuctl.workflows.recorded_act import recorded

ACT_S = 60.0
COMMAND_S = 600.0  # for a command that resumes a job: it submits, and does not train
LOG_HINT = "give a file of the job's output"
JOB = "job"
TOGETHER = True  # the nodes run one test, and must reach each other


class Interrupted(Exception):
    """Ctrl-C during a measurement: the step has no answer and is made again."""


class Steps:
    """Existing workflows for an incident; `notify` prints progress."""

    def __init__(self, request: IncidentRequest, notify: Notify) -> None:
        self.request = request
        self.notify = notify

    # ---- readings ----------------------------------------------------------------------------------------------------

    def read(self, incident: Incident, entry: Entry) -> Answer:
        """Make a step that changes nothing."""
        step = Step(entry.options["of"]) if entry.step is Step.RETEST else entry.step
        readers: Mapping[Step, Callable[[Incident, Entry], Answer]] = {
            Step.LOG: self._log,
            Step.NODES: self._nodes,
            Step.PREFLIGHT: self._preflight,
            Step.TEST: self._test,
            Step.ISOLATE: self._isolate,
            Step.AUDIT: self._audit,
        }
        return readers[step](incident, entry)

    def _log(self, incident: Incident, _: Entry) -> Answer:
        with open_text(Path(incident.request.log), LOG_HINT) as stream:
            log = job_log.read(stream)
        first = log.first
        # A lost peer is a consequence: the rank that it lost printed nothing, so that no node is named.
        details = (
            {"kind": first.kind, "line": first.line, "text": first.text, "rank": first.rank, "node": first.node}
            if first and not first.is_consequence
            else None
        )
        return _judged(job_log.judge(log), {"first": details, "lines": log.lines})

    def _nodes(self, _incident: Incident, _: Entry) -> Answer:
        fleet = nodes.ask(self.hosts, 64, ACT_S, _ignore)
        rows = nodes.use([fleet], recorded=False, notify=self.notify)
        used = {row.name: [str(user.who) for user in row.users if not user.daemon] for row in rows}
        lost = [Finding("reachable", name, Verdict.UNKNOWN, reason) for name, reason in fleet.unasked.items()]
        busy = [name for name, users in used.items() if users]
        text = f"{plural(len(rows), 'node')}, {len(busy)} in use, {len(lost)} without an answer"
        return Answer(State.DONE, text, tuple(lost), {"nodes": [row.name for row in rows], "users": used})

    def _preflight(self, _incident: Incident, _: Entry) -> Answer:
        access = self.access
        if access.before is None:
            return Answer(State.DONE, "Slurm places the test on idle nodes", (), {})
        return _judged(access.before(not TOGETHER), {})

    def _test(self, incident: Incident, _: Entry) -> Answer:
        request, access = incident.request, self.access
        sweep = nccl_plan.with_env(self.sweep, access.env)
        rounds = nccl_flow.planned("quick", access.nodes, sweep)
        with ctrl_c() as broken_off:
            results = nccl_flow.run(access.runner, rounds, self._progress, broken_off)
            if broken_off():
                raise Interrupted
        about = RunContext(request.instance, network=request.network)
        findings = nccl_flow.findings("quick", results, about, load.book(), access.racks)
        launches = [serialize.launch_as_dict(end) for end in results]
        return _judged(findings, {"nodes": list(access.nodes), "launches": launches})

    def _isolate(self, incident: Incident, entry: Entry) -> Answer:
        """Isolation; its runs are in a file beside the record, so that an interrupted one goes on with them."""
        access = self.access
        path = record.folder() / f"{incident.name}.step-{entry.number}.runs"
        policy = Policy(sweep=replace(nccl_plan.with_env(self.sweep, access.env), env={**RING.env, **access.env}))
        if path.exists():
            before = isolate_record.read(path)
            fleet, history = before.fleet, before.history
        else:
            fleet, history = self._fleet(access, policy.sweep), ()
        with ctrl_c() as broken_off:
            watch = _Isolation(path, fleet, self._progress, broken_off)
            runs, end = isolate_flow.isolate(fleet, access.runner, policy, watch, history)
        if end is None:
            raise Interrupted
        details = isolate_serialize.conclusion_as_dict(fleet, runs, end)
        return _judged(end.findings, {**details, "efa": _uses_efa(runs), "runs": str(path)})

    def _fleet(self, access: NodeAccess, sweep: Sweep) -> Fleet:
        fleet, request = nccl_isolate.fleet(access, None, "none", self.notify), self.request
        if request.instance is None:
            return replace(fleet, network=request.network)
        book, gpus = load.book(), sweep.gpus_per_node
        two = RunContext(request.instance, 2, gpus, gpus, algorithm="Ring", collective=sweep.collective)
        system, row = book.systems.get(request.instance), book.row_for(two, sweep.end_bytes)
        network = request.network or (system.network if system else None)
        return replace(fleet, network=network, expected_gbs=row.expect if row else None)

    def _audit(self, _incident: Incident, entry: Entry) -> Answer:
        names = set(entry.options.get("nodes") or ())
        hosts = [host for host in self.hosts if not names or host.name in names]
        if missing := names - {host.name for host in hosts}:
            return Answer(State.UNKNOWN, f"{', '.join(sorted(missing))}: not among the hosts that can be audited")
        fleet = audit.ask(hosts, audit.AuditOptions(), _ignore)
        return _judged(audit_rules.judge(fleet, knowledge.catalogue()), {"nodes": [host.name for host in hosts]})

    # ---- acts --------------------------------------------------------------------------------------------------------

    def prepare(self, _incident: Incident, entry: Entry) -> Act:
        """Read what an act is about, and what is against it."""
        preparers: Mapping[Step, Callable[[Entry], Act]] = {
            Step.DRAIN: lambda one: self._drain(one, undo=False),
            Step.UNDRAIN: lambda one: self._drain(one, undo=True),
            Step.REPAIR: self._repair,
            Step.RESUME: self._resume,
        }
        return preparers[entry.step](entry)

    @staticmethod
    def outcome(mark: list[str]) -> Answer | None:
        """Outcome of an interrupted act by its record in the run history."""
        return flow.outcome(mark)

    def _drain(self, entry: Entry, *, undo: bool) -> Act:
        name = entry.options["node"]
        reason = "taken back" if undo else entry.options["reason"]
        scheduler = nodes_drain.Nodes([self.host(name)], self.request.context, ACT_S)
        drains = scheduler.read({name: reason}, undo=undo)
        text = f"{'let it take work again' if undo else 'drain it'}: {name}"
        wrong = tuple(f"{one.state}: {one.text}" for one in drains if one.state not in ("due", "done"))
        if all(one.state == "done" for one in drains):
            why = f"it was already so: {drains[0].text}".removesuffix(": ")
            return Act(text, (), lambda _: Answer(State.DONE, why))

        def carry_out(mark: list[str]) -> Answer:
            results, run = nodes_drain.carry_out(scheduler, drains, mark, undo=undo)
            states = {"done": State.DONE, "unknown": State.UNKNOWN}
            return Answer(states.get(results[0].state, State.FAILED), f"{name}: {results[0].text} (run {run})")

        return Act(text, wrong, carry_out)

    def _repair(self, entry: Entry) -> Act:
        options = entry.options
        consent, host = Consent(reason=options["reason"]), self.host(options["node"])
        deed = (
            service.reset(host, options["gpu"], ACT_S)
            if options["act"] == "reset"
            else service.restart(host, options["service"], self.request.context, consent, ACT_S)
        )

        def carry_out(mark: list[str]) -> Answer:
            done, run = service.carry_out(deed, mark, consent)
            states = {"done": State.DONE, "unknown": State.UNKNOWN, "failed": State.FAILED}
            return Answer(states.get(done.state, State.REFUSED), f"{done.state}: {done.text} (run {run})")

        return Act(f"{host.name}: {deed.what}; {deed.disturbs}", deed.against, carry_out)

    def _resume(self, entry: Entry) -> Act:
        argv = list(entry.options["command"]) or ["scontrol", "requeue", entry.options["job"]]

        def carry_out(mark: list[str]) -> Answer:
            with recorded(mark, {JOB: {"act": "resume job", "argv": [argv[0]]}}) as entry_:
                done = _run(argv)
                entry_.exit_code = 0 if done.state is State.DONE else 3
                entry_.update(JOB, status=str(done.state), text=done.summary)
            return done

        return Act(f"run {argv[0]} with {plural(len(argv) - 1, 'argument')} to resume the job", (), carry_out)

    # ---- nodes -------------------------------------------------------------------------------------------------------

    @cached_property
    def hosts(self) -> list[Target]:
        """Hosts of the inventory, or nodes of Slurm by their addresses."""
        request = self.request
        if request.slurm:
            return list(audit_slurm.select(request.partition, request.nodes, None).hosts)
        every = host_plan.targets(host_plan.find_inventory(request.inventory), request.limit)
        names = {name.strip() for name in request.nodes.split(",") if name.strip()}
        return [host for host in every if not names or host.name in names]

    def host(self, name: str) -> Target:
        """The host of a node; `InvalidInput` if none has its name, or only Ansible can reach it."""
        host = next((one for one in self.hosts if one.name == name), None)
        if host is None:
            raise InvalidInput(f"act on {name}", "no host of the incident has this name")
        if host.needs_ansible:
            raise InvalidInput(f"act on {name}", f"only Ansible can reach it: {host.needs_ansible}")
        return host

    @cached_property
    def access(self) -> NodeAccess:
        """Nodes of the NCCL tests."""
        request = self.request
        hosts = HostOptions(request.inventory, request.limit, ssh_args=request.ssh_args, as_root=request.as_root)
        target = TargetRequest(nodes=request.nodes, search_path=request.search_path)
        if request.slurm:
            target = replace(target, slurm=SlurmOptions(slurm=True, partition=request.partition))
        else:
            target = replace(target, hosts=hosts)
        return nccl_targets.node_access(target, request.gpus_per_node, self.notify)

    @property
    def sweep(self) -> Sweep:
        """Sizes and limits of every test of the incident."""
        request = self.request
        return Sweep(
            begin_bytes=request.begin_bytes,
            end_bytes=request.end_bytes,
            gpus_per_node=request.gpus_per_node,
            limit_s=request.timeout,
        )

    def _progress(self, launch: Launch, line: str) -> None:
        if line.startswith("started"):
            self.notify(f"  {', '.join(launch.nodes[:2])}{' …' if len(launch.nodes) > 2 else ''}: {line}")


class _Isolation(Watch):
    """Saves the runs after every round."""

    def __init__(
        self, path: Path, fleet: Fleet, progress: Callable[[Launch, str], None], broken_off: Callable[[], bool]
    ) -> None:
        self.path, self.fleet, self._progress, self._broken_off = path, fleet, progress, broken_off

    def progress(self, launch: Launch, line: str) -> None:
        self._progress(launch, line)

    def keep(self, history: Sequence[LaunchResult]) -> None:
        try:
            isolate_record.write(self.path, self.fleet, history)
        except OSError as error:
            raise GpuctlError(f"save the runs in {self.path}", error.strerror or str(error)) from error

    def broken_off(self) -> bool:
        return self._broken_off()


def check(request: IncidentRequest) -> IncidentRequest:
    """The request with its inventory and log as absolute paths, and the nodes of its Slurm job.

    `InvalidInput` before anything is recorded or done.
    """
    if request.log:
        path = Path(request.log).absolute()
        with open_text(path, LOG_HINT):
            pass
        request = replace(request, log=str(path))
    if request.slurm:
        return _with_job(request)
    if request.context and request.inventory is None:
        hint = "add --inventory NAME with the nodes of the cluster"
        raise InvalidInput("start an incident", "--context alone reaches no node for tests and audits", hint)
    source = host_plan.find_inventory(request.inventory)
    host_plan.targets(source, request.limit)
    return replace(request, inventory=None if request.inventory is None else str(Path(source).absolute()))


def _with_job(request: IncidentRequest) -> IncidentRequest:
    """Nodes of the Slurm job, if the request names neither nodes nor a partition."""
    slurm.need()
    if not request.job.isdigit() or request.nodes or request.partition:
        return request
    job = slurm.job(request.job)
    if job is None:
        raise InvalidInput(f"read the job {request.job}", "Slurm does not know it any more", "name its --nodes")
    return replace(request, nodes=",".join(slurm.expand(job.nodes)))


def _run(argv: Sequence[str]) -> Answer:
    """Run the command that resumes a job; what it prints is not kept, as it may contain secrets."""
    try:
        done = Processes(descendants=True).run(argv, b"", COMMAND_S, dict(os.environ))
    except OSError as error:
        return Answer(State.FAILED, f"{argv[0]}: {error.strerror or error}")
    if done.code is None:
        return Answer(State.UNKNOWN, f"{argv[0]} gave no answer within {COMMAND_S:g} s")
    return Answer(State.FAILED if done.code else State.DONE, f"{argv[0]}: exit code {done.code}")


def _judged(findings: Sequence[Finding], details: Mapping[str, Any]) -> Answer:
    worst = worst_first(findings)
    shown = [one for one in worst if one.verdict is Verdict.FAIL][:3]
    text = "; ".join(f"{one.subject + ': ' if one.subject else ''}{one.message}" for one in shown)
    return Answer(State.DONE, f"{overall(worst)}: {text}".removesuffix(": "), tuple(worst), details)


def _uses_efa(history: Sequence[LaunchResult]) -> bool:
    """True if a rank printed that its network is EFA."""
    return any(suits(used, "efa") for result in history for used in result.run.transports)


def _ignore(_: HostResult) -> None:
    """Nodes without an answer are in the findings of the step."""
