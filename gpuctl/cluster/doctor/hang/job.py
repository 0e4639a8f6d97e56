"""The ranks of a job: those that are missing, those that are stopped, and who waits for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.cluster.doctor.model import Facts, Inside
from gpuctl.core.text import named
from gpuctl.domain import ranks as hang
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn
from gpuctl.domain.ranks import Process

NO_JOB = "no rank of a job runs in any pod"
STOPPED = {"T": "is stopped", "t": "is stopped by a debugger"}
MEETING = ("MASTER_ADDR", "MASTER_PORT")
ONE_LEFT = "where a job of before still runs, end all, and begin anew"
GO_ON = "`kill -CONT` lets a stopped one go on; else end the job everywhere and begin it anew"
BLOCKED = "what it waits for is a driver or a network file system: `dmesg` of the node, and its mounts"


def ranks_of(inside: Inside) -> list[Mapping[str, Any]]:
    return list(inside.get("jobs", "ranks") or [])


def is_whole(facts: Facts) -> bool:
    """Return whether all ranks of the job exist: pods without one then take no part in it."""
    world = _world(facts)
    return world is not None and {each["rank"] for each in all_ranks(facts)} == set(range(world))


def _world(facts: Facts) -> int | None:
    """The job's number of ranks, as all its ranks state it; None if they disagree or do not."""
    worlds = {each["world"] for each in all_ranks(facts)}
    return worlds.pop() if len(worlds) == 1 else None


def without_part(facts: Facts) -> set[str]:
    """Pods that the job does without, where that is sure: no rank that is missing was there."""
    world = _world(facts)
    held = {name: found for name, inside in facts.asked().items() if (found := ranks_of(inside))}
    if world is None:
        return set()
    most = _slots(facts, max(map(len, held.values())))
    if is_whole(facts) or sum(_told_slots(found) or most for found in held.values()) >= world:
        return set(facts.inside) - set(held)
    return _behind(facts, held, -(-world // most), most)


def _behind(facts: Facts, held: Mapping[str, Sequence[Mapping[str, Any]]], count: int, most: int) -> set[str]:
    """Some pods have lost all their ranks. Launchers number pods in their order: where those that are left keep to it,
    and are of one size, none of the lost ones stands behind the first `count`."""
    at = {name: number for number, name in enumerate(facts.wanted)}
    moved = any(at.get(name) != each["rank"] // most for name, found in held.items() for each in found)
    if moved or any(_told_slots(found) not in (0, most) for found in held.values()):
        return set()
    return {name for name in facts.telling("jobs") if name not in held and at.get(name, count) >= count}


def is_sized(facts: Facts) -> bool:
    """Return whether the job states its number of ranks: otherwise a pod without one may take no part."""
    return any(each["world"] is not None for each in all_ranks(facts))


def all_ranks(facts: Facts) -> list[Mapping[str, Any]]:
    return [each for inside in facts.asked().values() for each in ranks_of(inside)]


def stopped(facts: Facts) -> list[Finding]:
    """Ranks that do nothing because somebody stopped them, or the kernel does not let them go on."""
    check, found = "stopped", []
    for name, inside in facts.telling("jobs").items():
        for each in ranks_of(inside):
            who = f"rank {each['rank']} ({each['name']}, process {each['pid']})"
            if each["state"] in STOPPED:
                found.append(fail(check, f"Pod {name}", f"{who} {STOPPED[each['state']]}", GO_ON))
            elif each["state"] == "D" and each["still"]:
                at = f", in {each['wait']}" if each["wait"] else ""
                found.append(fail(check, f"Pod {name}", f"{who} is blocked in the kernel{at}", BLOCKED))
    return or_ok(check, facts.env.name, found) if facts.telling("jobs") else []


def ranks(facts: Facts) -> list[Finding]:
    """As many ranks in each pod as in the others, and all that the job says it has."""
    check, counts = "ranks", {name: len(ranks_of(each)) for name, each in facts.telling("jobs").items()}
    if not counts:
        return []
    if not any(counts.values()):
        hidden = sum(each.get("jobs", "hidden") or 0 for each in facts.asked().values())
        more = f"; {hidden} processes of other users could not be looked at" if hidden else ""
        return [unknown(check, facts.env.name, f"{NO_JOB}{more}", "look again while the job hangs")]
    most, found, whole, out = _slots(facts, max(counts.values())), [], is_whole(facts), without_part(facts)
    for name, count in counts.items():
        if name in out:
            continue
        if not count and not is_sized(facts):
            words = "it has no rank, and the job does not say how many it has: it may have no part in it"
            found.append(unknown(check, f"Pod {name}", words))
        elif count < most and not whole:  # of a job that has all its ranks some pods may have fewer
            here = sorted(each["rank"] for each in ranks_of(facts.inside[name]))
            which = f" (rank {named(map(str, here))})" if here else ""
            words = f"{count or 'none'} of its {most} ranks {'runs' if count == 1 else 'run'}{which}"
            found.append(fail(check, f"Pod {name}", words, "its ranks ended, or never began: look at the job's output"))
    found += _numbers(facts)
    return or_ok(check, facts.env.name, found)


def _slots(facts: Facts, most: int) -> int:
    """Ranks per pod, as the job states it, else as most of its pods have."""
    return max([most, *(_told_slots(ranks_of(inside)) for inside in facts.asked().values())])


def _told_slots(found: Sequence[Mapping[str, Any]]) -> int:
    """How many ranks a pod has, as these that are there say; 0 where none says."""
    told = [str(each["variables"].get("LOCAL_WORLD_SIZE", "")) for each in found]
    return max((int(each) for each in told if each.isdigit()), default=0)


def _numbers(facts: Facts) -> list[Finding]:
    """Ranks of the job that no process has."""
    every = all_ranks(facts)
    worlds = {each["world"] for each in every if each["world"] is not None}
    if len(worlds) > 1:
        words = f"ranks do not agree how many they are: {', '.join(map(str, sorted(worlds)))}"
        meet = {tuple(each["variables"].get(name) for name in MEETING) for each in every}
        say, hint = (fail, ONE_LEFT) if len(meet) == 1 else (warn, f"two jobs at the same time? {ONE_LEFT}")
        return [say("ranks", facts.env.name, words, hint)]
    missing = sorted(set(range(worlds.pop() if worlds else 0)) - {each["rank"] for each in every})
    if not missing:
        return []
    known = {*facts.telling("jobs"), *without_part(facts)}
    silent = [name for name in facts.inside if name not in known]
    if silent:
        return [unknown("ranks", f"Pods {named(silent)}", f"ranks {named(map(str, missing))} may run there")]
    words = f"of the job's ranks nobody is {named(map(str, missing))}"
    return [fail("ranks", facts.env.name, words, "end the job everywhere and begin it anew")]


def waits(facts: Facts) -> list[Finding]:
    """A rank that waits for others in NCCL polls; one that does nothing meanwhile is who they wait for."""
    out, whole = without_part(facts), is_whole(facts)
    looks = {name: _processes(each) for name, each in facts.inside.items() if name not in out}
    if not is_sized(facts):
        looks = {name: found for name, found in looks.items() if found}
    if not any(looks.values()):
        return []
    # Of a whole job none is missing, however many a pod has.
    most = 1 if whole else _slots(facts, max(len(found or ()) for found in looks.values()))
    told, words = hang.waiting(looks, most), "; ".join(hang.who_waits(looks, most))
    culprits = [name for name, how in told.items() if how == hang.GONE]
    if culprits:
        hint = "look again: where it is the same one, `py-spy dump --pid` there tells what it does instead"
        return [fail("waits", f"Pod {named(culprits)}", words, hint)]
    if hang.UNKNOWN in told.values():
        return [
            unknown("waits", facts.env.name, words, "look again; `py-spy dump --pid` in each pod tells where it is")
        ]
    return or_ok("waits", facts.env.name, [], words)


def _processes(inside: Inside) -> Sequence[Process] | None:
    if inside.unread("jobs"):
        return None
    return [Process(e["pid"], e["name"], e["state"], e["rank"], bool(e["still"])) for e in ranks_of(inside)]
