"""Messages of the start script in a pod's log: its progress, sshd, memory limit and GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from gpuctl.cluster.doctor.model import Facts, Log
from gpuctl.cluster.environment import CONTAINER, Object
from gpuctl.domain import memlock
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn
from gpuctl.domain.pod_status import is_ready, runs, statuses

AGAIN = re.compile(r"^gpuctl: (?P<what>\S+) ended with (?P<code>\d+), once more")
EMPTY = "gpuctl: the Secret is empty"
NO_SSHD = "gpuctl: no sshd in the image"
MEMLOCK = re.compile(r"^gpuctl: memlock (unlimited|\d+)$")
GPUS = re.compile(r"^gpuctl: gpus (?:(?P<there>\d+) of (?P<wanted>\d+)|unknown: (?P<why>.*))$")
OVER_S = 120.0
YOUNG_S = 30.0  # the start script takes a second or two; this project's own choice
OFTEN = 3  # restarts of a program that will not stay up


def ready(facts: Facts) -> list[Finding]:
    """Check that running containers become ready, which the start script decides at its end."""
    check, findings = "ready", []
    for name, pod in facts.pods.items():
        if not runs(pod, CONTAINER) or is_ready(pod) or "deletionTimestamp" in pod["metadata"]:
            continue
        log, age_s = facts.logs.get(name), _age(facts, pod)
        if age_s is not None and age_s < YOUNG_S:
            findings.append(
                unknown(
                    check, f"Pod {name}", f"it started {age_s:.0f} s ago, and is not ready yet", "run it again later"
                )
            )
        elif log is None or log.why:
            message = f"it runs and is not ready; its log cannot be read: {log.why if log else 'too many pods'}"
            findings.append(unknown(check, f"Pod {name}", message))
        else:
            findings.append(_unready(name, log.lines, _probe(facts, name)))
    return or_ok(check, facts.env.name, findings)


def _age(facts: Facts, pod: Object) -> float | None:
    """Return the seconds since the pod's container started; None if unknown."""
    began = [((status.get("state") or {}).get("running") or {}).get("startedAt") for status in statuses(pod)]
    if facts.now is None or not any(began):
        return None
    return max(0.0, facts.now - max(datetime.fromisoformat(status).timestamp() for status in began if status))


def _unready(name: str, lines: Sequence[str], probe: str) -> Finding:
    own_lines = [line for line in lines if line.startswith("gpuctl: ")]
    if any(line.startswith(EMPTY) for line in own_lines):
        hint = "`gpuctl cluster deploy` fills it"
        return fail("ready", f"Pod {name}", "the environment's Secret has no keys: the start script waits", hint)
    last = (own_lines or [line for line in lines if line.strip()] or ["nothing"])[-1]
    more = f"; its probe says: {probe}" if probe else ""
    hint = "its start script or image may have been changed; `kubectl logs` shows the whole log"
    return fail("ready", f"Pod {name}", f"it runs and is not ready; the last line of its log: {last[:200]}{more}", hint)


def _probe(facts: Facts, name: str) -> str:
    events = [event for event in facts.events_of(facts.pods[name]) if event.get("reason") == "Unhealthy"]
    return " ".join(str(events[-1].get("message") or "").split())[:200] if events else ""


def ssh(facts: Facts) -> list[Finding]:
    """Check that sshd stays up."""
    check, findings = "ssh", []
    for name, log in facts.readable().items():
        again = [number for number, line in enumerate(log.lines) if AGAIN.match(line)]
        sshd = [number for number in again if "sshd" in log.lines[number]]
        if len(sshd) >= OFTEN:
            why = log.lines[sshd[-1] - 1] if sshd[-1] else "it prints nothing"
            if _is_over(facts, log, sshd[-1]):
                message = f"sshd exited {len(sshd)} times, and has stayed up since: {why[:200]}"
                findings.append(warn(check, f"Pod {name}", message))
                continue
            message = f"sshd exits repeatedly: {why[:200]}"
            findings.append(fail(check, f"Pod {name}", message, "launchers that use ssh do not work until it stays up"))
        elif any(line.startswith(NO_SSHD) for line in log.lines):
            message = "no sshd in the image: launchers that use ssh do not work"
            findings.append(warn(check, f"Pod {name}", message, "install openssh-server in it, or use torchrun"))
    return or_ok(check, facts.env.name, findings) if facts.readable() else []


def _is_over(facts: Facts, log: Log, number: int) -> bool:
    """Return whether a line is old: the start script restarts sshd within seconds, and would have logged it again."""
    time = log.timed()[number][0]
    return time is not None and facts.now is not None and facts.now - time > OVER_S


def memlocked(facts: Facts) -> list[Finding]:
    """RDMA: judge the locked-memory limit in the start script's log; root with IPC_LOCK has no limit."""
    check, may = "memlock", facts.env.cluster.security
    if not facts.env.rdma or (may.ipc_lock and may.rdma_as_root):
        return or_ok(check, facts.env.name, [])
    findings = []
    for name, log in facts.logs.items():
        values = [match[1] for line in log.lines if (match := MEMLOCK.match(line))]
        if values:
            findings.append(memlock.judge(f"Pod {name}", values[-1]))
    return findings or [unknown(check, facts.env.name, "no pod reports how much memory it may lock")]


def gpus(facts: Facts) -> list[Finding]:
    """Check that each pod sees all its GPUs, by the start script's log."""
    check, findings = "gpus", []
    for name, log in facts.readable().items():
        matches = [match for line in log.lines if (match := GPUS.match(line))]
        if matches and matches[-1]["why"]:
            findings.append(unknown(check, f"Pod {name}", f"its GPUs are unknown: {matches[-1]['why']}"))
        elif matches and facts.whole_gpus and int(matches[-1]["there"]) < int(matches[-1]["wanted"]):
            message = f"it sees {matches[-1]['there']} of its {matches[-1]['wanted']} GPUs"
            hint = "a GPU may have fallen off the bus: `nvidia-smi`, and `dmesg | grep -i xid` on its node"
            findings.append(fail(check, f"Pod {name}", message, hint))
    return or_ok(check, facts.env.name, findings)
