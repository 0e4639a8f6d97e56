"""A job's ranks: missing ones, stopped ones, and which pods wait for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.cluster.doctor.model import Facts, PodFacts
from gpuctl.core.text import named
from gpuctl.domain import ranks as hang
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn
from gpuctl.domain.ranks import Process

NO_JOB = "no rank of a job runs in any pod"
STOPPED = {"T": "is stopped", "t": "is stopped by a debugger"}
MEETING = ("MASTER_ADDR", "MASTER_PORT")
LEFTOVER = "an earlier job may still run: end all jobs in all pods, and start again"
CONTINUE = "`kill -CONT` continues a stopped process; else end the job in all pods and restart it"
BLOCKED = "it waits for a driver or a network file system: check `dmesg` of the node, and its mounts"


def ranks_of(inside: PodFacts) -> list[Mapping[str, Any]]:
    return list(inside.get("jobs", "ranks") or [])


def is_whole(facts: Facts) -> bool:
    """Return whether all ranks of the job exist: pods without one then take no part in it."""
    world = _world(facts)
    return world is not None and {rank["rank"] for rank in all_ranks(facts)} == set(range(world))


def _world(facts: Facts) -> int | None:
    """Return the job's number of ranks as its ranks report it; None if they disagree or do not report it."""
    worlds = {rank["world"] for rank in all_ranks(facts)}
    return worlds.pop() if len(worlds) == 1 else None


def without_part(facts: Facts) -> set[str]:
    """Return the pods that certainly take no part in the job: no missing rank ran there."""
    world = _world(facts)
    ranks_by_pod = {name: ranks for name, inside in facts.answered().items() if (ranks := ranks_of(inside))}
    if world is None:
        return set()
    most = _slots(facts, max(map(len, ranks_by_pod.values())))
    if is_whole(facts) or sum(_stated_slots(ranks) or most for ranks in ranks_by_pod.values()) >= world:
        return set(facts.inside) - set(ranks_by_pod)
    return _behind(facts, ranks_by_pod, -(-world // most), most)


def _behind(facts: Facts, ranks_by_pod: Mapping[str, Sequence[Mapping[str, Any]]], count: int, most: int) -> set[str]:
    """Return the pods without ranks beyond the first `count`, if the remaining ranks are numbered in pod order.

    Launchers number pods in order; a pod beyond the first `count` then never had a rank.
    """
    at = {name: number for number, name in enumerate(facts.expected_pods)}
    moved = any(at.get(name) != rank["rank"] // most for name, ranks in ranks_by_pod.items() for rank in ranks)
    if moved or any(_stated_slots(ranks) not in (0, most) for ranks in ranks_by_pod.values()):
        return set()
    return {name for name in facts.answering("jobs") if name not in ranks_by_pod and at.get(name, count) >= count}


def is_sized(facts: Facts) -> bool:
    """Return whether the job states its number of ranks: otherwise a pod without one may take no part."""
    return any(rank["world"] is not None for rank in all_ranks(facts))


def all_ranks(facts: Facts) -> list[Mapping[str, Any]]:
    return [rank for inside in facts.answered().values() for rank in ranks_of(inside)]


def stopped(facts: Facts) -> list[Finding]:
    """Find ranks that are stopped by a signal or debugger, or blocked in the kernel."""
    check, findings = "stopped", []
    for name, inside in facts.answering("jobs").items():
        for rank in ranks_of(inside):
            process = f"rank {rank['rank']} ({rank['name']}, process {rank['pid']})"
            if rank["state"] in STOPPED:
                findings.append(fail(check, f"Pod {name}", f"{process} {STOPPED[rank['state']]}", CONTINUE))
            elif rank["state"] == "D" and rank["still"]:
                at = f", in {rank['wait']}" if rank["wait"] else ""
                findings.append(fail(check, f"Pod {name}", f"{process} is blocked in the kernel{at}", BLOCKED))
    return or_ok(check, facts.env.name, findings) if facts.answering("jobs") else []


def ranks(facts: Facts) -> list[Finding]:
    """Compare the pods' numbers of ranks with each other, and all ranks with the number that the job reports."""
    check, counts = "ranks", {name: len(ranks_of(inside)) for name, inside in facts.answering("jobs").items()}
    if not counts:
        return []
    if not any(counts.values()):
        hidden = sum(inside.get("jobs", "hidden") or 0 for inside in facts.answered().values())
        more = f"; {hidden} processes of other users cannot be read" if hidden else ""
        return [unknown(check, facts.env.name, f"{NO_JOB}{more}", "run it again while the job hangs")]
    most, findings, whole, out = _slots(facts, max(counts.values())), [], is_whole(facts), without_part(facts)
    for name, count in counts.items():
        if name in out:
            continue
        if not count and not is_sized(facts):
            message = "it has no rank; the job does not report how many it has, so the pod may take no part in it"
            findings.append(unknown(check, f"Pod {name}", message))
        elif count < most and not whole:  # if all ranks of the job exist, pods may have different numbers of them
            present = sorted(rank["rank"] for rank in ranks_of(facts.inside[name]))
            which = f" (rank {named(map(str, present))})" if present else ""
            message = f"{count or 'none'} of its {most} ranks {'runs' if count == 1 else 'run'}{which}"
            hint = "its ranks ended, or never started: read the job's output"
            findings.append(fail(check, f"Pod {name}", message, hint))
    findings += _missing_ranks(facts)
    return or_ok(check, facts.env.name, findings)


def _slots(facts: Facts, most: int) -> int:
    """Return the ranks per pod: as the job reports it, but at least `most`."""
    return max([most, *(_stated_slots(ranks_of(inside)) for inside in facts.answered().values())])


def _stated_slots(ranks: Sequence[Mapping[str, Any]]) -> int:
    """Return the ranks of a pod as LOCAL_WORLD_SIZE of its ranks states it; 0 if none has it."""
    sizes = [str(rank["variables"].get("LOCAL_WORLD_SIZE", "")) for rank in ranks]
    return max((int(size) for size in sizes if size.isdigit()), default=0)


def _missing_ranks(facts: Facts) -> list[Finding]:
    """Find ranks of the job that no process has."""
    every = all_ranks(facts)
    worlds = {rank["world"] for rank in every if rank["world"] is not None}
    if len(worlds) > 1:
        message = f"ranks disagree about their number: {', '.join(map(str, sorted(worlds)))}"
        meetings = {tuple(rank["variables"].get(name) for name in MEETING) for rank in every}
        report, hint = (fail, LEFTOVER) if len(meetings) == 1 else (warn, f"two jobs at the same time? {LEFTOVER}")
        return [report("ranks", facts.env.name, message, hint)]
    missing = sorted(set(range(worlds.pop() if worlds else 0)) - {rank["rank"] for rank in every})
    if not missing:
        return []
    known = {*facts.answering("jobs"), *without_part(facts)}
    silent = [name for name in facts.inside if name not in known]
    if silent:
        return [unknown("ranks", f"Pods {named(silent)}", f"ranks {named(map(str, missing))} may run there")]
    message = f"no process is rank {named(map(str, missing))} of the job"
    return [fail("ranks", facts.env.name, message, "end the job in all pods and restart it")]


def waits(facts: Facts) -> list[Finding]:
    """Find the ranks that the others wait for: a waiting rank polls, the one they wait for uses no CPU time."""
    out, whole = without_part(facts), is_whole(facts)
    looks = {name: _processes(inside) for name, inside in facts.inside.items() if name not in out}
    if not is_sized(facts):
        looks = {name: processes for name, processes in looks.items() if processes}
    if not any(looks.values()):
        return []
    # A complete job has no missing rank, however its ranks are distributed.
    most = 1 if whole else _slots(facts, max(len(processes or ()) for processes in looks.values()))
    states, message = hang.waiting(looks, most), "; ".join(hang.who_waits(looks, most))
    culprits = [name for name, state in states.items() if state == hang.GONE]
    if culprits:
        hint = "run it again: if it is the same pod, `py-spy dump --pid` there shows what it does"
        return [fail("waits", f"Pod {named(culprits)}", message, hint)]
    if hang.UNKNOWN in states.values():
        hint = "run it again; `py-spy dump --pid` in each pod shows where its ranks are"
        return [unknown("waits", facts.env.name, message, hint)]
    return or_ok("waits", facts.env.name, [], message)


def _processes(inside: PodFacts) -> Sequence[Process] | None:
    if inside.unread("jobs"):
        return None
    return [Process(e["pid"], e["name"], e["state"], e["rank"], bool(e["still"])) for e in ranks_of(inside)]
