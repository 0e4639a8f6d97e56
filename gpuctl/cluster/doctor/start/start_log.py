"""What the start script says in a pod's log: how far it came, its ssh, its memory limit and its GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from gpuctl.cluster.deploy import memlock
from gpuctl.cluster.doctor.model import Facts, Log
from gpuctl.cluster.environment import CONTAINER, Object
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn
from gpuctl.domain.pod_status import is_ready, runs, statuses

AGAIN = re.compile(r"^gpuctl: (?P<what>\S+) ended with (?P<code>\d+), once more")
EMPTY = "gpuctl: the Secret is empty"
NO_SSHD = "gpuctl: no sshd in the image"
MEMLOCK = re.compile(r"^gpuctl: memlock (unlimited|\d+)$")
GPUS = re.compile(r"^gpuctl: gpus (?:(?P<there>\d+) of (?P<wanted>\d+)|unknown: (?P<why>.*))$")
OVER_S = 120.0
YOUNG_S = 30.0  # the start script takes a second or two; this project's own choice
OFTEN = 3  # a program that was started again so often will not stay up


def ready(facts: Facts) -> list[Finding]:
    """A container that runs becomes ready, which the start script decides at its end."""
    check, found = "ready", []
    for name, pod in facts.pods.items():
        if not runs(pod, CONTAINER) or is_ready(pod) or "deletionTimestamp" in pod["metadata"]:
            continue
        log, age_s = facts.logs.get(name), _age(facts, pod)
        if age_s is not None and age_s < YOUNG_S:
            found.append(
                unknown(check, f"Pod {name}", f"it began {age_s:.0f} s ago, and is not ready yet", "look again")
            )
        elif log is None or log.why:
            words = f"it runs and is not ready; its log cannot be read: {log.why if log else 'it was not asked for'}"
            found.append(unknown(check, f"Pod {name}", words))
        else:
            found.append(_unready(name, log.lines, _probe(facts, name)))
    return or_ok(check, facts.env.name, found)


def _age(facts: Facts, pod: Object) -> float | None:
    """Seconds since its container began."""
    began = [((each.get("state") or {}).get("running") or {}).get("startedAt") for each in statuses(pod)]
    if facts.now is None or not any(began):
        return None
    return max(0.0, facts.now - max(datetime.fromisoformat(each).timestamp() for each in began if each))


def _unready(name: str, lines: Sequence[str], probe: str) -> Finding:
    own = [line for line in lines if line.startswith("gpuctl: ")]
    if any(line.startswith(EMPTY) for line in own):
        hint = "`gpuctl cluster deploy` fills it"
        return fail("ready", f"Pod {name}", "the environment's Secret has no keys: the start script waits", hint)
    last = (own or [line for line in lines if line.strip()] or ["nothing"])[-1]
    more = f"; its probe says: {probe}" if probe else ""
    hint = "did somebody change its start script or its image? `kubectl logs` has all it said"
    return fail("ready", f"Pod {name}", f"it runs and is not ready; its log last says: {last[:200]}{more}", hint)


def _probe(facts: Facts, name: str) -> str:
    said = [each for each in facts.of(facts.pods[name]) if each.get("reason") == "Unhealthy"]
    return " ".join(str(said[-1].get("message") or "").split())[:200] if said else ""


def ssh(facts: Facts) -> list[Finding]:
    """sshd runs and stays up."""
    check, found = "ssh", []
    for name, log in facts.readable().items():
        again = [number for number, line in enumerate(log.lines) if AGAIN.match(line)]
        sshd = [number for number in again if "sshd" in log.lines[number]]
        if len(sshd) >= OFTEN:
            why = log.lines[sshd[-1] - 1] if sshd[-1] else "it says nothing"
            if _is_over(facts, log, sshd[-1]):
                words = f"sshd ended {len(sshd)} times, and has stayed up since: {why[:200]}"
                found.append(warn(check, f"Pod {name}", words))
                continue
            words = f"sshd ends again and again: {why[:200]}"
            found.append(fail(check, f"Pod {name}", words, "launchers that use ssh do not work until it stays up"))
        elif any(line.startswith(NO_SSHD) for line in log.lines):
            words = "no sshd in the image: launchers that use ssh do not work"
            found.append(warn(check, f"Pod {name}", words, "install openssh-server in it, or use torchrun"))
    return or_ok(check, facts.env.name, found) if facts.readable() else []


def _is_over(facts: Facts, log: Log, number: int) -> bool:
    """Whether a line is old: the start script begins it anew within seconds, and then would have said more."""
    time = log.timed()[number][0]
    return time is not None and facts.now is not None and facts.now - time > OVER_S


def memlocked(facts: Facts) -> list[Finding]:
    """RDMA: how much memory may be locked, as the start script found it; root with IPC_LOCK is held by no limit."""
    check, may = "memlock", facts.env.cluster.security
    if not facts.env.rdma or (may.ipc_lock and may.rdma_as_root):
        return or_ok(check, facts.env.name, [])
    found = []
    for name, log in facts.logs.items():
        told = [each[1] for line in log.lines if (each := MEMLOCK.match(line))]
        if told:
            found.append(memlock.judge(f"Pod {name}", told[-1]))
    return found or [unknown(check, facts.env.name, "no pod has said how much memory it may lock")]


def gpus(facts: Facts) -> list[Finding]:
    """Each pod sees the GPUs that it was given."""
    check, found = "gpus", []
    for name, log in facts.readable().items():
        told = [each for line in log.lines if (each := GPUS.match(line))]
        if told and told[-1]["why"]:
            found.append(unknown(check, f"Pod {name}", f"its GPUs are not known: {told[-1]['why']}"))
        elif told and facts.whole_gpus and int(told[-1]["there"]) < int(told[-1]["wanted"]):
            words = f"it sees {told[-1]['there']} of its {told[-1]['wanted']} GPUs"
            hint = "a GPU may have fallen off the bus: `nvidia-smi`, and `dmesg | grep -i xid` on its node"
            found.append(fail(check, f"Pod {name}", words, hint))
    return or_ok(check, facts.env.name, found)
