"""Tune hosts, compare them, put them back: ask all of them first, then act only where something differs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from gpuctl.core.run_history import current_user
from gpuctl.core.signals import ctrl_c
from gpuctl.edges import ansible, inventory_cache, ssh
from gpuctl.engine import answers, needs_reboot
from gpuctl.hosts.direct import visit_all
from gpuctl.hosts.inventory import target
from gpuctl.hosts.judge import exit_code
from gpuctl.hosts.model import Target, Visit

Seen = Callable[[Visit], None]
# Acting may take longer than asking: packages, swap read back from disk, a new boot configuration.
ACTING = 10


@dataclass(frozen=True)
class Way:
    """How a run goes: by which carrier, how many hosts at a time, how long to wait for one (seconds)."""

    via: str = ""  # "ansible" or "ssh" forces one; empty: ask over ssh, act through Ansible
    forks: int = 64
    limit: float = 120.0
    batch: str = "100%"
    max_fail: int = 100


@dataclass(frozen=True)
class Job:
    """What to do on each host: the engine's request for the direct carrier, the playbook that does the same.

    `profiles` gives each host its compiled profile, where the job is about profiles; `reboot` allows it where a
    setting waits for one.
    """

    request: Mapping[str, Any]
    playbook: str
    variables: Mapping[str, Any]
    check: bool = False
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reboot: bool = False
    strict: bool = False

    def request_of(self, host: Target) -> dict[str, Any]:
        own = {"profile": self.profiles[host.name]} if self.profiles else {}
        return {**self.request, **own, "check": self.check}


def tune(
    profiles: Mapping[str, Mapping[str, Any]],
    *,
    check: bool,
    allow_busy: bool = False,
    strict: bool = False,
    reboot: bool = False,
) -> Job:
    """Bring each host to its compiled profile."""
    by = current_user()
    request = {"action": "tune", "scope": "profile", "allow_busy": allow_busy, "by": by}
    variables = {
        "host_profile_allow_busy": allow_busy,
        "host_profile_strict": strict,
        "host_profile_by": by,
        "host_profile_reboot": False,  # whatever the inventory says: one after the other is a job of its own
        "host_profile_hosts": "all",
    }
    return Job(request, "gpuctl.fleet.tune_nodes", variables, check, profiles, reboot, strict)


def rollback(
    *, check: bool, to: str = "", only: Sequence[str] = (), force: bool = False, allow_busy: bool = False
) -> Job:
    """Put hosts back to what they were."""
    asked = {"to": to, "only": list(only), "force": force, "allow_busy": allow_busy, "by": current_user()}
    variables = {f"host_rollback_{name}": value for name, value in asked.items()}
    return Job({"action": "undo", "scope": "", **asked}, "gpuctl.fleet.rollback", variables, check)


def capture(host: Target, date: str, timeout: float = 120) -> tuple[Visit, str]:
    """Ask one host for every setting that any shipped profile has; returns the visit and the profile file it makes."""
    from gpuctl.engine import profiles

    asked = tune({host.name: profiles.compiled(profiles.questions())}, check=True)
    request = {**asked.request_of(host), "scope": "capture"}
    (visit,) = visit_all([host], lambda _: request, forks=1, limit=timeout, seen=lambda _: None)
    return visit, profiles.captured(visit.knobs, host.name, date) if visit.answer else ""


def targets(source: Path, limit: str = "", group: str = "") -> list[Target]:
    """Every host that a pattern names, with how to reach it; without one, those of the group where it has any."""
    found = inventory_cache.read(source, limit)
    members = {name for name, variables in found.items() if group and group in variables["group_names"]}
    chosen = found if limit or not members else members
    return [target(name, variables) for name, variables in found.items() if name in chosen]


class Listener(Protocol):
    """Hears of a run while it goes on."""

    def seen(self, visit: Visit) -> None:
        """A visit has ended; of a host's visits the last one counts."""

    def begin(self, hosts: Iterable[str]) -> None:
        """These hosts are about to be changed."""


def run(source: Path, hosts: Sequence[Target], job: Job, way: Way, listener: Listener) -> list[Visit]:
    """Ask every host, then act where something differs."""
    seen = listener.seen
    direct = [h for h in hosts if way.via != "ansible" and not h.needs_ansible]
    beyond = [h for h in hosts if way.via == "ssh" and h.needs_ansible]
    found = {v.host: v for v in _ask(direct, job, way, seen)}
    for host in beyond:
        wrong = f"only Ansible can reach it: {host.needs_ansible}"
        found[host.name] = Visit(host.name, wrong=wrong, hint="leave out --via ssh", unreachable=True)
        seen(found[host.name])
    due = [h for h in hosts if (h not in direct and h not in beyond) or (found[h.name].differs and not job.check)]
    for visit in _act_in_batches(source, due, job, way, listener):
        found[visit.host] = visit
    waiting = [h for h in hosts if job.reboot and not job.check and needs_reboot(found[h.name].knobs)]
    for visit in _reboot_one_after_the_other(source, waiting, job, way, _on_top(found, seen)):
        found[visit.host] = found[visit.host].then(visit)
    return [found[h.name] for h in hosts]


def _on_top(found: Mapping[str, Visit], seen: Seen) -> Seen:
    """Tells of a visit after a reboot together with what was changed before it."""
    return lambda visit: seen(found[visit.host].then(visit))


def _ask(direct: Sequence[Target], job: Job, way: Way, seen: Seen) -> list[Visit]:
    only_asking = replace(job, check=True)
    return visit_all(direct, only_asking.request_of, forks=way.forks, limit=way.limit, seen=seen) if direct else []


def _act_in_batches(source: Path, due: Sequence[Target], job: Job, way: Way, listener: Listener) -> Iterator[Visit]:
    """Batch after batch, until too many of one have failed: then the rest is left alone, and told so."""
    stopped = ""
    for batch in batches(due, way.batch):
        if stopped:
            yield from (
                Visit(h.name, wrong=stopped, hint="look at the failed hosts, then run this again") for h in batch
            )
            continue
        listener.begin([] if job.check else [h.name for h in batch])
        acted = (
            _over_ssh(batch, job, way, listener.seen)
            if way.via == "ssh"
            else _through_ansible(source, batch, job, way, listener.seen)
        )
        yield from (_of_unknown_end(visit) for visit in acted)
        failed = sum(exit_code([visit], job.strict) != 0 for visit in acted)
        if failed * 100 > way.max_fail * len(batch):
            stopped = f"not begun: {failed} of the {len(batch)} hosts before it failed, more than {way.max_fail}%"


def _of_unknown_end(visit: Visit) -> Visit:
    """A host that went silent while it was being changed goes on by itself."""
    if not visit.wrong.startswith(("it gave no answer within", "it printed more than")):
        return visit
    return replace(visit, hint="the change goes on there, if it had begun: `gpuctl drift` tells how it stands")


def _reboot_one_after_the_other(
    source: Path, waiting: Sequence[Target], job: Job, way: Way, seen: Seen
) -> Iterator[Visit]:
    """Reboot host by host, until one does not come back: what ails it may ail all of them."""
    lost = ""
    with_reboot = replace(job, variables={**job.variables, "host_profile_reboot": True})
    for host in waiting:
        if lost:
            yield Visit(host.name, wrong=f"not rebooted, because {lost} was not reached again", hint=f"look at {lost}")
            continue
        (visit,) = _through_ansible(source, [host], with_reboot, way, seen)
        yield visit
        lost = host.name if visit.unreachable else ""


def _over_ssh(batch: Sequence[Target], job: Job, way: Way, seen: Seen) -> list[Visit]:
    return visit_all(batch, job.request_of, forks=way.forks, limit=way.limit * ACTING, seen=seen)


def _through_ansible(source: Path, batch: Sequence[Target], job: Job, way: Way, seen: Seen) -> list[Visit]:
    found: dict[str, Visit] = {}

    def told(end: ansible.HostResult) -> None:
        found[end.host] = _visit(end, job.request["action"])
        seen(found[end.host])

    names = [h.name for h in batch]
    texts = {name: json.dumps(job.profiles[name]) for name in names} if job.profiles else {}
    # As files: Ansible would take braces in a variable's text for a template.
    file_of = {text: f"{number}.compiled.json" for number, text in enumerate(dict.fromkeys(texts.values()))}
    files, by_host = {file: text for text, file in file_of.items()}, {name: file_of[t] for name, t in texts.items()}
    limit = int(way.limit * ACTING)
    play = ansible.Play(job.playbook, source, names, job.variables, files, by_host, way.forks, limit, job.check)
    with ctrl_c() as broken_off:
        last_words = ansible.run(play, told, broken_off)
    if broken_off():
        raise KeyboardInterrupt
    missing = last_words or "Ansible ended before it was this host's turn"
    return [found.get(name, Visit(name, wrong=missing)) for name in names]


def _visit(end: ansible.HostResult, action: str) -> Visit:
    if end.result is not None:
        try:
            return Visit(end.host, answers.checked(dict(end.result), action))
        except answers.BadAnswer as error:
            return Visit(end.host, wrong=str(error), hint=ssh.LOOK)
    if not end.unreachable:
        return Visit(end.host, None, answers.printable(end.wrong), end.hint)
    gist = end.wrong.rpartition("\n")[2].rpartition("over ssh: ")[2].strip()
    known = ssh.known_failure(end.wrong, gist, end.host) or ssh.Failure(gist, ssh.LOOK)
    return Visit(end.host, None, answers.printable(known.wrong), known.hint, unreachable=True)


def batches(hosts: Sequence[Target], size: str) -> Iterator[Sequence[Target]]:
    """Hosts in groups of "N" or "P%", at least one each."""
    count = max(1, len(hosts) * int(size[:-1]) // 100 if size.endswith("%") else int(size))
    return (hosts[i : i + count] for i in range(0, len(hosts), count))
