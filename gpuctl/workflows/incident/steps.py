"""The workflows behind the steps of an incident: each is called with its typed request, and its answer kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gpuctl.audit import knowledge
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.redact import removed
from gpuctl.core.signals import ctrl_c
from gpuctl.core.text import plural
from gpuctl.core.text_files import bounded_lines, open_text
from gpuctl.domain import job_log
from gpuctl.domain.findings import Finding, Verdict, overall, worst_first
from gpuctl.edges import slurm
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.programs import installed
from gpuctl.hosts import plan as host_plan
from gpuctl.hosts.model import HostResult, Target
from gpuctl.incident import decide, record
from gpuctl.incident.cause import NO_ANSWER
from gpuctl.incident.model import Answer, Entry, Incident, IncidentRequest, State, Step
from gpuctl.nccl import flow as nccl_flow
from gpuctl.nccl import plan as nccl_plan
from gpuctl.nccl.baselines import load
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.isolate import flow as isolate_flow
from gpuctl.nccl.isolate import record as isolate_record
from gpuctl.nccl.isolate import serialize as isolate_serialize
from gpuctl.nccl.isolate.flow import Watch
from gpuctl.nccl.isolate.model import RING, Fleet, Policy
from gpuctl.nccl.isolate.observations import observe
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Sweep
from gpuctl.nccl.networks import suits
from gpuctl.nccl.runners.slurm.runner import SlurmRunner
from gpuctl.workflows import audit, audit_rules, audit_slurm, nccl_isolate, nccl_preflight, nccl_targets, nodes
from gpuctl.workflows.incident.acts import Acts, Ask
from gpuctl.workflows.incident.flow import NoAnswer
from gpuctl.workflows.nccl_targets.hosts import named
from gpuctl.workflows.nccl_targets.model import HostOptions, NodeAccess, Notify, SlurmOptions, TargetRequest
from gpuctl.workflows.recorded_act import Begin, no_begin

LIMIT_S = 60.0  # for one node
DOING = "start an incident"
LOG_HINT = "give a file of the job's output"
TOGETHER = True  # the nodes run one test, and must reach each other


class Interrupted(Exception):
    """Ctrl-C during a measurement: the step has no answer and is made again."""


class Steps:
    """Existing workflows for an incident; `notify` prints progress."""

    def __init__(self, request: IncidentRequest, notify: Notify) -> None:
        self.request = request
        self.notify = notify

    def read(self, incident: Incident, entry: Entry) -> Answer:
        """Make a step; `NoAnswer` if not a single node answers, so that it is made again later."""
        readers: Mapping[Step, Callable[[Incident, Entry], Answer]] = {
            Step.LOG: self._log,
            Step.NODES: self._nodes,
            Step.PREFLIGHT: self._preflight,
            Step.TEST: self._test,
            Step.ISOLATE: self._isolate,
            Step.AUDIT: self._audit,
            Step.RETEST: self._isolate,
            Step.REAUDIT: self._audit,
        }
        return readers[entry.step](incident, entry)

    def act(self, incident: Incident, entry: Entry, ask: Ask, begin: Begin = no_begin) -> Answer:
        """Act with consent; `NoAnswer` if nothing was done because not a single node answers."""
        answer = Acts(self.hosts, ask, begin).make(incident, entry)
        is_of_node = entry.step is not Step.RESUME and answer.state in (State.UNKNOWN, State.REFUSED)
        if is_of_node and not answer.details.get("begun"):
            fleet = nodes.ask(self.hosts, 64, LIMIT_S, _ignore)
            _need_an_answer([host.name for host in self.hosts], fleet.unasked)
        return answer

    def _log(self, incident: Incident, _: Entry) -> Answer:
        with open_text(_checked_log(Path(incident.request.log)), LOG_HINT) as stream:
            log = job_log.read(bounded_lines(stream))
        first = log.first
        # A lost peer is a consequence: the rank that it lost printed nothing, so that no node is named.
        details = (
            {
                "kind": first.kind,
                "line": first.line,
                "text": removed(first.text)[0],
                "rank": first.rank,
                "node": first.node,
            }
            if first and not first.is_consequence
            else None
        )
        return _judged(job_log.judge(log), {"first": details, "lines": log.lines})

    def _nodes(self, _incident: Incident, _: Entry) -> Answer:
        fleet = nodes.ask(self.hosts, 64, LIMIT_S, _ignore)
        _need_an_answer([host.name for host in self.hosts], fleet.unasked)
        rows = nodes.use([fleet], recorded=False, notify=self.notify)
        used = {row.name: [str(user.who) for user in row.users if not user.daemon] for row in rows}
        lost = [Finding("reachable", name, Verdict.UNKNOWN, reason) for name, reason in fleet.unasked.items()]
        busy = [name for name, users in used.items() if users]
        text = f"{plural(len(rows), 'node')}, {len(busy)} in use, {len(lost)} without an answer"
        return Answer(State.DONE, text, tuple(lost), {"nodes": [row.name for row in rows], "users": used})

    def _preflight(self, _incident: Incident, _: Entry) -> Answer:
        return _judged(self._before(), {})

    def _before(self) -> list[Finding]:
        """Findings of the checks before a test; on Slurm those of the use, as srun needs neither ssh nor mpirun."""
        access = self.access
        if access.before is not None:
            findings = access.before(not TOGETHER)
        else:
            hosts = [host for host in self.hosts if host.name in access.nodes]
            checks = (decide.IDLE, NO_ANSWER)
            findings = [one for one in nccl_preflight.before(hosts, alone=True) if one.check in checks]
        _need_an_answer(access.nodes, {one.subject: one.message for one in findings if one.check == NO_ANSWER})
        return findings

    def _not_idle(self) -> Answer | None:
        """The answer of a test that must not start, by a check that is made now; None if all nodes are idle."""
        findings = self._before()
        doubtful = [one for one in findings if one.check in (decide.IDLE, NO_ANSWER) and one.verdict in decide.BAD]
        if not doubtful and decide.is_idle(tuple(findings)):
            return None
        first = f"{doubtful[0].subject}: {doubtful[0].message}" if doubtful else "the use of the nodes was not judged"
        return Answer(State.UNKNOWN, f"not started, as the nodes are not known to be idle: {first}", tuple(doubtful))

    def _test(self, incident: Incident, _: Entry) -> Answer:
        if (refused := self._not_idle()) is not None:
            return refused
        request, access = incident.request, self.access
        sweep = nccl_plan.with_env(self.sweep, access.env)
        rounds = nccl_flow.planned("quick", access.nodes, sweep)
        with ctrl_c() as broken_off, self._released():
            results = nccl_flow.run(access.runner, rounds, self._progress, broken_off)
            if broken_off():
                raise Interrupted
        about = RunContext(request.instance, network=request.network)
        findings = nccl_flow.findings("quick", results, about, load.book(), access.racks)
        answer = _judged(findings, {"nodes": list(access.nodes)})
        if any(end.run.outcome is Outcome.COMPLETE and end.run.rows for end in results):
            return answer
        self._before()  # raises if the network is lost
        return replace(
            answer, state=State.UNKNOWN, summary=f"no run was complete, which proves nothing; {answer.summary}"
        )

    def _isolate(self, incident: Incident, entry: Entry) -> Answer:
        """Isolation; its runs are in a file beside the record, so that an interrupted one goes on with them."""
        if (refused := self._not_idle()) is not None:
            return refused
        access = self.access
        path = record.folder() / f"{incident.name}.step-{entry.number}.runs"
        policy = Policy(sweep=replace(nccl_plan.with_env(self.sweep, access.env), env={**RING.env, **access.env}))
        before = isolate_record.read(path) if path.exists() else None
        if before and set(before.fleet.nodes) == set(access.nodes):  # others were not checked to be idle
            fleet, history = before.fleet, before.history
        else:
            fleet, history = self._fleet(access, policy.sweep), ()
        with ctrl_c() as broken_off, self._released():
            watch = _Isolation(path, fleet, self._progress, broken_off)
            runs, end = isolate_flow.isolate(fleet, access.runner, policy, watch, history)
        if end is None:
            raise Interrupted
        tested = sorted({node for run in observe(fleet, runs).runs if not run.start_failure for node in run.nodes})
        if end.faults or not tested:
            self._need_network(path)
        details = isolate_serialize.conclusion_as_dict(fleet, runs, end)
        about = {"tested": tested, "fleet": list(fleet.nodes), "efa": _uses_efa(runs), "runs": str(path)}
        answer = _judged(end.findings, {**details, **about})
        if tested:
            return answer
        return replace(answer, state=State.UNKNOWN, summary=f"no run started, which proves nothing; {answer.summary}")

    def _need_network(self, path: Path) -> None:
        """Raise if no node answers any more: the runs of a lost network are no evidence, and are removed."""
        try:
            self._before()
        except NoAnswer:
            path.unlink(missing_ok=True)
            raise

    @contextmanager
    def _released(self) -> Iterator[None]:
        """Give the nodes of a test back to Slurm after it; `NoAnswer` in place of an error of a lost network."""
        try:
            yield
        except GpuctlError:
            self._before()
            raise
        finally:
            if isinstance(self.access.runner, SlurmRunner):
                self.access.runner.close()

    def _fleet(self, access: NodeAccess, sweep: Sweep) -> Fleet:
        fleet = nccl_isolate.fleet(access, None, "none", self.notify)
        return nccl_isolate.with_expectation(fleet, sweep, self.request.instance, self.request.network)

    def _audit(self, _incident: Incident, _: Entry) -> Answer:
        fleet = audit.ask(self.hosts, audit.AuditOptions(), _ignore)
        _need_an_answer([host.name for host in self.hosts], fleet.unasked)
        return _judged(audit_rules.judge(fleet, knowledge.catalogue()), {"nodes": [host.name for host in self.hosts]})

    # ---- nodes -------------------------------------------------------------------------------------------------------

    @cached_property
    def hosts(self) -> list[Target]:
        """Hosts of the inventory, or nodes of Slurm by their addresses."""
        request = self.request
        if request.slurm:
            return list(audit_slurm.select(request.partition, request.nodes, None).hosts)
        every = host_plan.targets(host_plan.find_inventory(request.inventory), request.limit)
        by_name = {host.name: host for host in every}
        return [by_name[name] for name in named(request.nodes, by_name)]

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
        nccl_isolate.save(self.path, self.fleet, history)

    def broken_off(self) -> bool:
        return self._broken_off()


def check(request: IncidentRequest) -> IncidentRequest:
    """The request with its inventory and log as absolute paths, and the nodes of its Slurm job.

    `InvalidInput` before anything is recorded or done.
    """
    if request.resume_with and not installed(request.resume_with[0]):
        wrong = f"{request.resume_with[0]} is no program of this machine"
        raise InvalidInput("read --resume-with", wrong, "name a program of the PATH, or its whole path")
    if request.context and request.slurm:
        raise InvalidInput(DOING, "--context does not go with --slurm", "nodes are drained in one of the two")
    if request.context:
        kube.connect(request.context)
    if request.log:
        request = replace(request, log=str(_checked_log(Path(request.log).absolute())))
    if request.slurm:
        if request.inventory is not None or request.limit:
            raise InvalidInput(DOING, "--slurm takes no --inventory and no --limit", "use --nodes or --partition")
        request = _with_job(request)
        audit_slurm.select(request.partition, request.nodes, None)
        return request
    if request.partition:
        raise InvalidInput(DOING, "--partition needs --slurm", "add --slurm, or leave it out")
    source = host_plan.find_inventory(request.inventory)
    named(request.nodes, [host.name for host in host_plan.targets(source, request.limit)])
    return replace(request, inventory=None if request.inventory is None else str(Path(source).absolute()))


def _checked_log(path: Path) -> Path:
    """The path; `InvalidInput` if it is no regular text file: a pipe or device may never end, or be read only once."""
    if path.exists() and not path.is_file():
        raise InvalidInput(f"read {path}", "it is no regular file", LOG_HINT)
    with open_text(path, LOG_HINT):
        return path


def _with_job(request: IncidentRequest) -> IncidentRequest:
    """Nodes of the Slurm job, if the request names neither nodes nor a partition."""
    slurm.need()
    if not request.job.isdigit() or request.nodes or request.partition:
        return request
    job = slurm.job(request.job)
    if job is None:
        raise InvalidInput(f"read the job {request.job}", "Slurm does not know it any more", "name its --nodes")
    return replace(request, nodes=",".join(slurm.expand(job.nodes)))


def _need_an_answer(names: Sequence[str], unasked: Mapping[str, str]) -> None:
    """Raise `NoAnswer` if no node of these answered."""
    if names and set(names) <= set(unasked):
        wrong = f"no node answered: {names[0]}: {unasked[names[0]]}"
        raise NoAnswer("make the step", wrong, "check the network of this machine")


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
