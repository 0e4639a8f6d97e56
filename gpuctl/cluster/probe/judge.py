"""Judges what pods answered: the checks that `train` and `test` share. No cluster is asked here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.probe.flow import Held
from gpuctl.cluster.probe.model import HOSTFILE, Facts
from gpuctl.core.redact import removed
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.pod_status import is_ready

MOST_OF_A_COMMAND = 200  # letters
WHOLE, MIG = "nvidia.com/gpu", "nvidia.com/mig-"
SYNC = "`gpuctl cluster sync` brings it to all pods"
NO_SSH = "is sshd in the image? launchers that do not use ssh: --launcher deepspeed-nossh, torchrun"
SLOW_MAP = "the kubelet brings a changed hostfile within about a minute; else `gpuctl cluster deploy`"


def together(check: str, verdict: Verdict, words: Mapping[str, str], hint: str = "") -> list[Finding]:
    """A finding for each pod of which something is said."""
    return [Finding(check, pod, verdict, said, hint=hint) for pod, said in words.items()]


def read(facts: Iterable[Facts]) -> list[Facts]:
    """Those that answered."""
    return [each for each in facts if not each.unread]


def unread(facts: Iterable[Facts]) -> list[Finding]:
    """Pods that could not be asked: nothing is known of them."""
    return [
        Finding("pod", each.pod, Verdict.FAIL, f"it cannot be asked: {each.unread}", hint=each.hint)
        for each in facts
        if each.unread
    ]


def pods(env: Environment, wanted: int, found: Mapping[str, Object]) -> list[Finding]:
    """Every pod ready, in the number that the StatefulSet wants. `found`: the pods that there are, by name."""
    names = [env.pod_name(rank) for rank in range(wanted)]
    missing = {name: "there is no such pod" for name in names if name not in found}
    ending = {name: "it is ending" for name in names if "deletionTimestamp" in found.get(name, {}).get("metadata", {})}
    others = [name for name in names if name in found and name not in ending]
    unready = {name: "it is not ready" for name in others if not is_ready(found[name])}
    hint = "`gpuctl cluster status` says why"
    return together("pods", Verdict.FAIL, {**missing, **ending, **unready}, hint)


def hostfile(env: Environment, count: int, facts: Sequence[Facts], needed: bool) -> list[Finding]:
    """Whether it names the pods that there are, with the GPUs they have, in their order."""
    wanted = {env.host(rank): env.cluster.gpus.per_node for rank in range(count)}
    words = {each.pod: said for each in read(facts) if (said := _hostfile(wanted, each.hostfile))}
    return together("hostfile", Verdict.FAIL if needed else Verdict.WARN, words, SLOW_MAP)


def _hostfile(wanted: Mapping[str, int], found: Mapping[str, int] | str) -> str:
    if isinstance(found, str):
        return found
    parts = [f"it does not name {host}" for host in wanted if host not in found]
    parts += [f"it names {host}, of which there is no pod" for host in found if host not in wanted]
    both = [host for host in wanted if host in found]
    parts += [
        f"it gives {host} {found[host]} slots, not {wanted[host]}" for host in both if found[host] != wanted[host]
    ]
    if not parts and list(found) != list(wanted):
        parts = ["its order is not that of the ranks"]
    return (
        f"{HOSTFILE}: {'; '.join(parts[:3])}" + (f"; and {len(parts) - 3} more" if len(parts) > 3 else "")
        if parts
        else ""
    )


def names(facts: Sequence[Facts]) -> list[Finding]:
    """Every pod's name has an address, in every pod."""
    words = {}
    for each in read(facts):
        if wrong := each.names_wrong():
            why = next(iter(wrong.values()))
            words[each.pod] = f"no address for {named(wrong)}: {why}"
    hint = "is DNS allowed by the namespace's NetworkPolicies? names appear a moment after their pods"
    return together("dns", Verdict.FAIL, words, hint)


def ssh(facts: Sequence[Facts], hosts: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Those that are to reach others by ssh do."""
    found = []
    for each in read(facts):
        wrong: dict[str, list[str]] = {}
        for host in hosts.get(each.pod, ()):
            if host not in each.names_wrong() and (said := each.ssh(host)):
                wrong.setdefault(said, []).append(host)
        words = [f"cannot reach {named(theirs)}: {said}" for said, theirs in wrong.items()]
        found += [Finding("ssh", each.pod, Verdict.FAIL, said, hint=NO_SSH) for said in words]
    return found


def gpus(env: Environment, facts: Sequence[Facts], wanted: int, exactly: bool) -> list[Finding]:
    """As many GPUs, or parts of them, as are asked for; `exactly`: and no more."""
    wrong, unknown = {}, {}
    for each in read(facts):
        count, what, why = _counted(each, env.cluster.gpus.resource)
        if each.gpus_wrong:
            wrong[each.pod] = f"nvidia-smi: {each.gpus_wrong}"
        elif count is None:
            unknown[each.pod] = why
        elif count < wanted or (exactly and count != wanted):
            wrong[each.pod] = f"{count} {what} are visible, not {wanted}"
    hint = "`gpuctl cluster test` shows more; on the node: nvidia-smi, dmesg | grep -i xid"
    return [*together("gpus", Verdict.FAIL, wrong, hint), *together("gpus", Verdict.UNKNOWN, unknown)]


def _counted(found: Facts, resource: str) -> tuple[int | None, str, str]:
    """How many a pod sees of what it asks for, what these are, and why nobody can say where nobody can."""
    if resource == WHOLE:
        return found.gpus, "GPUs", "the image has no nvidia-smi, and the container no /dev/nvidia*"
    if resource.startswith(MIG):
        return found.migs, "parts of GPUs", "the image has no nvidia-smi, which alone tells of parts of GPUs (MIG)"
    return None, "", f"how many GPUs a container sees by {resource} is not known here"


def trainings(facts: Sequence[Facts]) -> list[Finding]:
    """Nobody trains in the pods yet."""
    found = {each.pod: each.told["trainings"] for each in read(facts) if each.told["trainings"]}
    ours = {pod: _training(listed) for pod, listed in found.items() if any(map(_is_ours, listed))}
    others = {pod: _training(listed) for pod, listed in found.items() if pod not in ours}
    hint = "wait until it has ended, or look at it with --attach, or end it with --stop"
    by_hand = "wait until it has ended, or end it in the pod: `gpuctl cluster train` did not begin it"
    return [*together("busy", Verdict.FAIL, ours, hint), *together("busy", Verdict.FAIL, others, by_hand)]


def _is_ours(training: Mapping[str, object]) -> bool:
    return bool(training.get("run") or training.get("token"))


def _training(found: Sequence[Mapping[str, object]]) -> str:
    run = next((each for each in found if "run" in each), None)
    if run:
        began = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(float(str(run["began"]))))
        return f"{run['about']} of {run['by']} trains there since {began}"
    first = found[0]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    command = removed(str(first["command"]))[0][:MOST_OF_A_COMMAND]
    return f"{command} (process {first['pid']}) trains there{more}"


def port(env: Environment, facts: Sequence[Facts], held: Held | None) -> list[Finding]:
    """The port where ranks meet is free on the first pod, and the others reach it."""
    number, first = env.cluster.ports.master, env.pod_name(0)
    if held is None:
        return []
    if held.wrong == "busy":
        hint = "end what listens there, or choose another ports.master in the cluster file"
        return [Finding("port", first, Verdict.FAIL, f"another program listens on port {number}", hint=hint)]
    if held.wrong:
        return [Finding("port", first, Verdict.UNKNOWN, f"nobody knows whether {number} is free: {held.wrong}")]
    wrong = {}
    for each in read(facts):
        said = each.told["reached"]
        if said not in (None, "ok") and env.host(0) not in each.names_wrong():
            wrong[each.pod] = f"cannot reach {env.host(0)}:{number}: {'no answer' if said == 'late' else said}"
    return together("port", Verdict.FAIL, wrong, "does a NetworkPolicy of others keep pods apart?")
