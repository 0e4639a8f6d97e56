"""Nodes of a Slurm cluster: which there are, who has their GPUs, and how each one can be asked itself."""

from __future__ import annotations

import getpass
import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import named, plural
from gpuctl.domain.slurm_records import JobRecord, NodeRecord
from gpuctl.edges import slurm
from gpuctl.edges.processes import Processes
from gpuctl.edges.ssh import Failure
from gpuctl.engine import script
from gpuctl.hosts import fan_out
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nodes import slurm_view
from gpuctl.nodes.model import Facts, Fleet, Node, nothing_read
from gpuctl.workflows import nodes as flow

DOING = "select Slurm nodes"
Notify = Callable[[str], None]


@dataclass(frozen=True)
class SlurmRequest:
    """Nodes to show: of a partition, "" for all, and of a host list, "" for all.

    `via`: "srun" asks nodes on which a job of one's own runs, "ssh" all of them, "scontrol" none. `hosts`: of an
    inventory, which ssh asks; None without one. `forks`: nodes at a time, `timeout_s` for one node.
    """

    partition: str = ""
    nodes: str = ""
    via: str = "srun"
    hosts: Sequence[Target] | None = None
    forks: int = 64
    timeout_s: float = 60.0


@dataclass(frozen=True)
class Selected:
    """Selected nodes and all jobs that hold some."""

    records: Sequence[NodeRecord]
    jobs: Sequence[JobRecord]


@dataclass(frozen=True)
class _Answers:
    """`facts`: node -> its answer. `lost`: node -> why it gave none. `inside`: nodes that a job's step answered for."""

    facts: dict[str, Facts] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    inside: frozenset[str] = frozenset()


def select(partition: str, nodes: str) -> Selected:
    """Nodes of Slurm, those with GPUs unless they are named; `InvalidInput` for unknown ones."""
    slurm.need()
    records, jobs = slurm.records()
    chosen = [record for record in records if not partition or partition in record.partitions]
    if not chosen:
        known = named(sorted({name for record in records for name in record.partitions}), 12)
        raise InvalidInput(DOING, f"no node is in the partition {partition}", f"there are: {known or 'none'}")
    if not nodes:
        return Selected([record for record in chosen if record.total], jobs)
    names = slurm.expand(nodes)
    by_name = {record.name: record for record in chosen}
    if unknown := [name for name in names if name not in by_name]:
        where = f"in the partition {partition}" if partition else "a node of this cluster"
        raise InvalidInput(DOING, f"{named(unknown)}: not {where}", "`sinfo -N` lists them")
    return Selected([by_name[name] for name in dict.fromkeys(names)], jobs)


def target_of(record: NodeRecord, hosts: Sequence[Target] | None) -> Target | None:
    """The host of an inventory by a name or address of the node; without an inventory ssh's own, by the address."""
    if hosts is None:
        return Target(record.name, record.addresses[-1] if record.addresses else record.name)
    for host in hosts:
        if {host.name, host.address} & set(record.addresses):
            return replace(host, name=record.name, address=host.address or host.name)
    return None


def read(request: SlurmRequest, notify: Notify) -> list[Node]:
    """Use of the nodes: as they answer themselves, completed by Slurm's records; else by these alone."""
    selected = select(request.partition, request.nodes)
    login = getpass.getuser()
    answers = _ask(request, selected, login)
    asked = {node.name: node for node in _asked(selected, answers, notify)}
    now = round(time.time())
    _tell(selected, answers, notify)
    return [
        asked[record.name]
        if record.name in asked
        else slurm_view.node(record, selected.jobs, now, flow.me(), answers.lost.get(record.name, ""))
        for record in selected.records
    ]


def _ask(request: SlurmRequest, selected: Selected, login: str) -> _Answers:
    if request.via == "scontrol":
        return _Answers()
    if request.via == "srun" and request.hosts is None:
        return _in_jobs(request, selected, login)
    targets = [target for record in selected.records if (target := target_of(record, request.hosts))]
    fleet = flow.ask(targets, request.forks, request.timeout_s, lambda _: None)
    return _Answers(dict(fleet.nodes), dict(fleet.unasked))


def _in_jobs(request: SlurmRequest, selected: Selected, login: str) -> _Answers:
    """Ask nodes through a step of one's own running job there; the others cannot be entered."""
    jobs = {
        node: job.number for job in selected.jobs if job.user == login and job.state == "RUNNING" for node in job.gpus
    }
    mine = [record.name for record in selected.records if record.name in jobs]
    token = f"gpuctl-{secrets.token_hex(8)} "
    processes = Processes()

    def visit(node: str) -> HostResult:
        started = time.monotonic()
        done = slurm.in_job(processes, jobs[node], node, lambda: program, request.timeout_s)
        output: bytes | Failure = done.out
        if done.code is None:
            output = Failure(f"srun gave no answer within {request.timeout_s:g} s")
        elif done.code:
            output = Failure(slurm.gist(done.err))
        return fan_out.result_of(node, output, token, flow.REQUEST, time.monotonic() - started)

    if not mine:
        return _Answers()
    program = script(json.dumps(flow.REQUEST), token)
    try:
        with ThreadPoolExecutor(min(request.forks, len(mine))) as pool:
            results = [flow.redacted(result) for result in pool.map(visit, mine)]
    except KeyboardInterrupt:
        processes.stop()
        raise
    facts = {result.host: result.answer["use"] for result in results if result.answer is not None}
    lost = {result.host: result.wrong for result in results if result.answer is None}
    return _Answers(facts, lost, frozenset(facts))


def _asked(selected: Selected, answers: _Answers, notify: Notify) -> Iterable[Node]:
    """Nodes that answered, completed by Slurm's records."""
    records = {record.name: record for record in selected.records}
    whole: Mapping[str, Facts] = {
        name: _completed(facts, records[name], selected.jobs, name in answers.inside)
        for name, facts in answers.facts.items()
    }
    fleet = Fleet(whole, taken=round(time.time()))
    for node in flow.use([fleet], recorded=False, notify=notify):
        yield slurm_view.with_names(node, records[node.name], selected.jobs)


def _completed(facts: Facts, record: NodeRecord, jobs: Sequence[JobRecord], inside: bool) -> Facts:
    if nothing_read(facts):
        return facts
    return slurm_view.with_jobs(slurm_view.as_outside(facts, record) if inside else facts, record, jobs)


def _tell(selected: Selected, answers: _Answers, notify: Notify) -> None:
    """Notes on nodes that were not asked, or of which a job sees only a part."""
    alone = len(selected.records) - len(answers.facts)
    inside = len(answers.inside)
    if inside:
        notify(f"{plural(inside, 'node')} asked within your own job there, which sees the job's GPUs alone")
    if alone:
        notify(f"{plural(alone, 'node')} by Slurm's records alone: --inventory NAME or --via ssh asks the nodes")
