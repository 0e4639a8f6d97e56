"""Plan the stack of GPU hosts: read their facts in one trip, decide, and let those that change resolve the packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.edges import inventory_cache
from gpuctl.gpu_node import facts_file, nccl_tests, offers, resolution, site
from gpuctl.gpu_node.facts import host_gpu_facts
from gpuctl.gpu_node.facts_file import Fleet, HostRecord
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.model import HostGpuFacts, StackPlan, StackRequest
from gpuctl.gpu_node.plan import plan
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.inventory import target
from gpuctl.hosts.model import HostResult, Target
from gpuctl.hosts.plan import find_inventory

GROUP = "gpu_node"  # the group whose hosts are planned, if the inventory has it
VARIABLE = "gpu_stack"
NO_STACK = "its variables have no gpu_stack"
OnResult = Callable[[HostResult], None]


@dataclass(frozen=True)
class PlanRequest:
    """Hosts to plan, and the stack they shall have.

    `stack`: site file; None for the variables of the inventory. `source`: file of facts to use instead of hosts.
    `save`: file for the facts. `forks`: hosts at the same time. `timeout`: seconds for one host and trip.
    """

    inventory: str | None = None
    limit: str = ""
    stack: Path | None = None
    source: Path | None = None
    save: Path | None = None
    forks: int = 64
    timeout: float = 120.0


@dataclass(frozen=True)
class FleetPlan:
    """Plans in the order of the hosts.

    `unasked`: host -> why it has no facts. `left_out`: hosts without a gpu_stack.
    """

    plans: Sequence[StackPlan]
    unasked: Mapping[str, str]
    left_out: Sequence[str] = ()


@dataclass(frozen=True)
class SiteStack:
    """The desired stack of a host. `plain`: the gpu_stack as it was written, for the file of facts."""

    request: StackRequest
    plain: Mapping[str, Any]


@dataclass(frozen=True)
class Survey:
    """Facts of the hosts of an inventory. `targets`: all that are planned, whether they were reached or not.

    `stacks`: host -> its desired stack.
    """

    source: Path
    targets: Sequence[Target]
    fleet: Fleet
    left_out: Sequence[str]
    stacks: Mapping[str, SiteStack] = field(default_factory=dict)


def plan_hosts(request: PlanRequest, today: date, on_result: OnResult) -> FleetPlan:
    """Plan every host, and change nothing; `InvalidInput` for a gpu_stack, file or inventory that cannot be used."""
    left_out: Sequence[str]
    if request.source is not None:
        fleet, left_out = _recorded(request.source, request), ()
    else:
        surveyed = survey(request, today, on_result)
        fleet, left_out = surveyed.fleet, surveyed.left_out
    if request.save is not None:
        facts_file.save(request.save, fleet)
    return FleetPlan(plans_of(fleet, today, recorded=request.source is not None), fleet.unasked, left_out)


def plans_of(fleet: Fleet, today: date, *, recorded: bool = False) -> list[StackPlan]:
    """The plan of each host with facts. `recorded`: the facts are of a file."""
    return [_planned(name, row, recorded, today) for name, row in fleet.hosts.items()]


def _recorded(source: Path, request: PlanRequest) -> Fleet:
    """The fleet of a file, with the stack of --stack if there is one."""
    if request.inventory is not None or request.limit:
        wrong = "--from cannot be combined with --inventory or --limit"
        raise InvalidInput("use facts of a file and of an inventory", wrong, "leave one out")
    fleet = facts_file.read(source)
    if request.stack is None:
        return fleet
    plain = _of_file(request.stack).plain
    return Fleet({name: replace(row, gpu_stack=plain) for name, row in fleet.hosts.items()}, fleet.unasked)


def _of_file(path: Path) -> SiteStack:
    request = site.read_file(path)
    return SiteStack(request, site.plain(request))


def survey(request: PlanRequest, today: date, on_result: OnResult, only: Sequence[str] | None = None) -> Survey:
    """Ask the hosts for their facts, and let those that change resolve their packages; nothing is changed.

    `only`: hosts among which those with a gpu_stack are asked, which may be none; None for those of the request.
    """
    source, hosts, stacks, left_out = _hosts(request, only)
    return Survey(source, hosts, _facts(hosts, stacks, request, today, on_result), left_out, stacks)


def survey_again(
    surveyed: Survey, names: Sequence[str], request: PlanRequest, today: date, on_result: OnResult
) -> Survey:
    """Facts of some of these hosts as they are now; the inventory is not read again."""
    hosts = [host for host in surveyed.targets if host.name in names]
    return replace(surveyed, targets=hosts, fleet=_facts(hosts, surveyed.stacks, request, today, on_result))


def _facts(
    hosts: Sequence[Target], stacks: Mapping[str, SiteStack], request: PlanRequest, today: date, on_result: OnResult
) -> Fleet:
    known = knowledge()
    direct = [host for host in hosts if not host.needs_ansible]
    looks = {
        name: {
            "look_up": list(offers.names_to_look_up(row.request, known)),
            "sources": offers.sources(row.request, known),
            "nccl_tests": nccl_tests.question(row.request),
        }
        for name, row in stacks.items()
    }
    results = _ask(direct, lambda host: _question("stack", looks[host.name]), request, on_result)
    records: dict[str, HostRecord] = {}
    unasked = {host.name: f"only Ansible can reach it: {host.needs_ansible}" for host in hosts if host.needs_ansible}
    for result in results:
        if result.answer is None:
            unasked[result.host] = result.wrong
        else:
            records[result.host] = HostRecord(result.answer["facts"]["stack"], stacks[result.host].plain)
    records = _resolve(direct, records, request, today, on_result)
    names = [host.name for host in hosts]
    ordered = {name: records[name] for name in names if name in records}
    return Fleet(ordered, {name: unasked[name] for name in names if name in unasked})


def _hosts(
    request: PlanRequest, only: Sequence[str] | None
) -> tuple[Path, list[Target], dict[str, SiteStack], list[str]]:
    """The inventory, hosts to ask, the stack of each, and hosts without one."""
    source = find_inventory(request.inventory)
    variables = inventory_cache.read(source, request.limit)
    members = {name for name, row in variables.items() if GROUP in row["group_names"]}
    chosen = {name: row for name, row in variables.items() if request.limit or not members or name in members}
    if only is not None:
        chosen = {name: variables[name] for name in only if variables.get(name, {}).get(VARIABLE) is not None}
        if not chosen:
            return source, [], {}, []
    if request.stack is not None:
        wanted = dict.fromkeys(chosen, _of_file(request.stack))
    else:
        wanted = stacks_of_variables(chosen, source)
    targets = [target(name, row) for name, row in chosen.items() if name in wanted]
    return source, targets, wanted, [name for name in chosen if name not in wanted]


def stacks_of_variables(chosen: Mapping[str, Mapping[str, Any]], source: Path) -> dict[str, SiteStack]:
    """The gpu_stack of every host that has one; `InvalidInput` with the mistakes, or if no host has one."""
    wanted: dict[str, SiteStack] = {}
    read: dict[str, SiteStack] = {}
    for name, row in chosen.items():
        if row.get(VARIABLE) is None:
            continue
        text = repr(row[VARIABLE])
        if "{{" in text or "{%" in text:
            hint = "write the values out, or pass a file with --stack"
            raise InvalidInput(f"use gpu_stack of {name}", "it is a Jinja template; gpuctl cannot evaluate it", hint)
        if text not in read:
            request = site.read_variables(row, name)
            read[text] = SiteStack(request, site.plain(request))
        wanted[name] = read[text]
    if not wanted:
        wrong = f"no host of {source} has the variable {VARIABLE}"
        raise InvalidInput("plan the GPU stack", wrong, f"set it for a group, {site.EXAMPLE}, or give --stack FILE")
    return wanted


def _resolve(
    hosts: Sequence[Target],
    records: Mapping[str, HostRecord],
    request: PlanRequest,
    today: date,
    on_result: OnResult,
) -> dict[str, HostRecord]:
    """Second trip, only to hosts whose plan installs something and is not refused already."""
    questions: dict[str, dict[str, Any]] = {}
    for name, row in records.items():
        question = resolution.question(_decided(name, row, today)[0])
        if question is not None:
            questions[name] = question
    due = [host for host in hosts if host.name in questions]
    results = _ask(due, lambda host: _question("transaction", questions[host.name]), request, on_result)
    answers = {result.host: _answer(result) for result in results}
    return {
        name: replace(row, question=questions[name], answer=answers[name]) if name in questions else row
        for name, row in records.items()
    }


def _answer(result: HostResult) -> Mapping[str, Any]:
    """The resolved transaction; without an answer, the reason is that of its output."""
    if result.answer is None:
        return {"manager": None, "output": None, "unread": {"output": result.wrong}}
    transaction: Mapping[str, Any] = result.answer["facts"]["transaction"]
    return transaction


def _question(subjects: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return {"action": "facts", "subjects": subjects, **more}


def _ask(
    hosts: Sequence[Target],
    question: Callable[[Target], Mapping[str, Any]],
    request: PlanRequest,
    on_result: OnResult,
) -> list[HostResult]:
    if not hosts:
        return []
    return run_on_all(hosts, question, forks=request.forks, timeout_s=request.timeout, on_result=on_result)


def _planned(name: str, row: HostRecord, recorded: bool, today: date) -> StackPlan:
    """The plan of a host, with its transaction if one was to be resolved."""
    made, facts = _decided(name, row, today)
    question = resolution.question(made)
    if question is None:
        return made
    if row.answer is None or row.question != question:
        return resolution.unresolved(made, "these facts are of a plan with other packages" if recorded else "not asked")
    return resolution.resolved(made, row.answer, facts, knowledge())


def _decided(name: str, row: HostRecord, today: date) -> tuple[StackPlan, HostGpuFacts]:
    facts = host_gpu_facts(row.stack)
    request = site.read_variables({VARIABLE: row.gpu_stack}, name)
    return plan(name, facts, request, knowledge(), today), facts
