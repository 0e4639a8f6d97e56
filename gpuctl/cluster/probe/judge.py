"""Judge the pods' answers: checks that `train` and `test` share. No I/O."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.probe.flow import PortCheck
from gpuctl.cluster.probe.model import HOSTFILE, Facts
from gpuctl.core.redact import removed
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.pod_status import is_ready

MOST_OF_A_COMMAND = 200  # characters
WHOLE, MIG = "nvidia.com/gpu", "nvidia.com/mig-"
SYNC = "`gpuctl cluster sync` copies it to all pods"
NO_SSH = "check that the image runs sshd; --launcher deepspeed-nossh and torchrun need no ssh"
SLOW_MAP = "the kubelet updates a changed hostfile within about a minute; otherwise run `gpuctl cluster deploy`"


def together(check: str, verdict: Verdict, messages: Mapping[str, str], hint: str = "") -> list[Finding]:
    """One finding for each pod with a message."""
    return [Finding(check, pod, verdict, message, hint=hint) for pod, message in messages.items()]


def read(facts: Iterable[Facts]) -> list[Facts]:
    """The pods that answered."""
    return [pod for pod in facts if not pod.unread]


def unread(facts: Iterable[Facts]) -> list[Finding]:
    """Pods that did not answer: nothing is known of them."""
    return [
        Finding("pod", pod.pod, Verdict.FAIL, f"cannot be probed: {pod.unread}", hint=pod.hint)
        for pod in facts
        if pod.unread
    ]


def pods(env: Environment, count: int, existing: Mapping[str, Object]) -> list[Finding]:
    """Every pod exists and is ready, as many as the StatefulSet requests. `existing`: pods by name."""
    names = [env.pod_name(rank) for rank in range(count)]
    missing = {name: "the pod does not exist" for name in names if name not in existing}
    ending = {
        name: "it is terminating" for name in names if "deletionTimestamp" in existing.get(name, {}).get("metadata", {})
    }
    others = [name for name in names if name in existing and name not in ending]
    unready = {name: "it is not ready" for name in others if not is_ready(existing[name])}
    hint = "`gpuctl cluster status` says why"
    return together("pods", Verdict.FAIL, {**missing, **ending, **unready}, hint)


def hostfile(env: Environment, count: int, facts: Sequence[Facts], needed: bool) -> list[Finding]:
    """The hostfile lists the existing pods with their GPUs, in rank order."""
    expected = {env.host(rank): env.cluster.gpus.per_node for rank in range(count)}
    problems = {pod.pod: problem for pod in read(facts) if (problem := _hostfile(expected, pod.hostfile))}
    return together("hostfile", Verdict.FAIL if needed else Verdict.WARN, problems, SLOW_MAP)


def _hostfile(expected: Mapping[str, int], listed: Mapping[str, int] | str) -> str:
    if isinstance(listed, str):
        return listed
    parts = [f"it does not name {host}" for host in expected if host not in listed]
    parts += [f"it names {host}, but no such pod exists" for host in listed if host not in expected]
    both = [host for host in expected if host in listed]
    parts += [
        f"it gives {host} {listed[host]} slots, not {expected[host]}" for host in both if listed[host] != expected[host]
    ]
    if not parts and list(listed) != list(expected):
        parts = ["its order differs from the rank order"]
    return (
        f"{HOSTFILE}: {'; '.join(parts[:3])}" + (f"; and {len(parts) - 3} more" if len(parts) > 3 else "")
        if parts
        else ""
    )


def names(facts: Sequence[Facts]) -> list[Finding]:
    """Every pod's name resolves in every pod."""
    problems = {}
    for pod in read(facts):
        if wrong := pod.names_wrong():
            why = next(iter(wrong.values()))
            problems[pod.pod] = f"no address for {named(wrong)}: {why}"
    hint = "check that the namespace's NetworkPolicies allow DNS; names appear shortly after their pods"
    return together("dns", Verdict.FAIL, problems, hint)


def ssh(facts: Sequence[Facts], hosts: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Pods that must reach others by ssh can do so."""
    findings = []
    for pod in read(facts):
        wrong: dict[str, list[str]] = {}
        for host in hosts.get(pod.pod, ()):
            if host not in pod.names_wrong() and (error := pod.ssh(host)):
                wrong.setdefault(error, []).append(host)
        messages = [f"cannot reach {named(theirs)}: {error}" for error, theirs in wrong.items()]
        findings += [Finding("ssh", pod.pod, Verdict.FAIL, message, hint=NO_SSH) for message in messages]
    return findings


def gpus(env: Environment, facts: Sequence[Facts], expected: int, exactly: bool) -> list[Finding]:
    """The expected number of GPUs or MIG devices is visible; `exactly`: and no more."""
    wrong, unknown = {}, {}
    for pod in read(facts):
        count, what, why = _counted(pod, env.cluster.gpus.resource)
        if pod.gpus_wrong:
            wrong[pod.pod] = f"nvidia-smi: {pod.gpus_wrong}"
        elif count is None:
            unknown[pod.pod] = why
        elif count < expected or (exactly and count != expected):
            wrong[pod.pod] = f"{count} {what} are visible, not {expected}"
    hint = "`gpuctl cluster test` shows more; on the node: nvidia-smi, dmesg | grep -i xid"
    return [*together("gpus", Verdict.FAIL, wrong, hint), *together("gpus", Verdict.UNKNOWN, unknown)]


def _counted(pod: Facts, resource: str) -> tuple[int | None, str, str]:
    """Count what a pod sees of its resource; return the count, its name, and why the count is unknown."""
    if resource == WHOLE:
        return pod.gpus, "GPUs", "the image has no nvidia-smi, and the container no /dev/nvidia*"
    if resource.startswith(MIG):
        return pod.migs, "MIG devices", "the image has no nvidia-smi, without which MIG devices cannot be counted"
    return None, "", f"gpuctl does not know how many GPUs one {resource} makes visible"


def trainings(facts: Sequence[Facts]) -> list[Finding]:
    """No pod is training yet."""
    active = {pod.pod: pod.answer["trainings"] for pod in read(facts) if pod.answer["trainings"]}
    ours = {pod: _training(listed) for pod, listed in active.items() if any(map(_is_ours, listed))}
    others = {pod: _training(listed) for pod, listed in active.items() if pod not in ours}
    hint = "wait until it ends, follow it with --attach, or end it with --stop"
    by_hand = "wait until it ends, or end it in the pod: it was not started by `gpuctl cluster train`"
    return [*together("busy", Verdict.FAIL, ours, hint), *together("busy", Verdict.FAIL, others, by_hand)]


def _is_ours(training: Mapping[str, object]) -> bool:
    return bool(training.get("run") or training.get("token"))


def _training(processes: Sequence[Mapping[str, object]]) -> str:
    run = next((process for process in processes if "run" in process), None)
    if run:
        began = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(float(str(run["began"]))))
        return f"{run['about']} of {run['actor']} has been training there since {began}"
    first = processes[0]
    more = f" and {len(processes) - 1} more" if len(processes) > 1 else ""
    command = removed(str(first["command"]))[0][:MOST_OF_A_COMMAND]
    return f"{command} (process {first['pid']}) is training there{more}"


def port(env: Environment, facts: Sequence[Facts], port_check: PortCheck | None) -> list[Finding]:
    """The rendezvous port is free on the first pod, and the others reach it."""
    number, first = env.cluster.ports.master, env.pod_name(0)
    if port_check is None:
        return []
    if port_check.wrong == "busy":
        hint = "end the program that listens there, or choose another ports.master in the cluster file"
        return [Finding("port", first, Verdict.FAIL, f"another program listens on port {number}", hint=hint)]
    if port_check.wrong:
        return [
            Finding(
                "port", first, Verdict.UNKNOWN, f"cannot determine whether port {number} is free: {port_check.wrong}"
            )
        ]
    wrong = {}
    for pod in read(facts):
        result = pod.answer["reached"]
        if result not in (None, "ok") and env.host(0) not in pod.names_wrong():
            wrong[pod.pod] = f"cannot reach {env.host(0)}:{number}: {'no answer' if result == 'late' else result}"
    return together("port", Verdict.FAIL, wrong, "check whether a NetworkPolicy blocks traffic between the pods")
