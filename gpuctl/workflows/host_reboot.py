"""Reboot hosts at the same time over ssh, and wait for them; a host that somebody uses is not rebooted."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.core.run_history import current_user
from gpuctl.edges import ssh
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import HostResult, Target

ANSWER_S = 60.0
POLL_S = 5.0
STARTS_S = 300.0  # after its first answer; a unit that never starts must not keep a host for ever


def reboot(hosts: Sequence[Target], why: str, *, forks: int, limit_s: float) -> dict[str, str]:
    """Reboot hosts; return host -> why it is not back, "" for those that are. `limit_s`: for each to come back."""
    before = _boots(hosts, forks)
    reasons = {name: answer.wrong for name, answer in before.items() if answer.answer is None}
    boots = {name: answer.answer["act"]["boot_id"] for name, answer in before.items() if answer.answer is not None}
    due = [host for host in hosts if boots.get(host.name)]
    reasons |= {host.name: "its boot_id cannot be read" for host in hosts if host.name not in {*reasons, *_names(due)}}
    for name, result in _ask(due, {name: {"boot_id": boot} for name, boot in boots.items()}, why, forks).items():
        if result.answer is None:
            # sshd may have ended before the answer: the next boot shows it.
            if not (result.unreachable or result.wrong.startswith((ssh.LOST, ssh.NO_ANSWER))):
                reasons[name] = result.wrong
        elif result.answer["act"]["state"] not in ("done", "changed"):
            reasons[name] = f"not rebooted: {result.answer['act']['reason']}"
    waiting = [host for host in due if host.name not in reasons]
    return {**reasons, **_wait(waiting, boots, forks, limit_s)}


def _wait(hosts: Sequence[Target], boots: Mapping[str, str], forks: int, limit_s: float) -> dict[str, str]:
    """Wait until systemd has started what it starts at boot."""
    began = time.monotonic()
    reasons: dict[str, str] = {}
    back: dict[str, float] = {}
    left = list(hosts)
    while left:
        time.sleep(POLL_S)
        now = time.monotonic()
        for name, result in _boots(left, forks).items():
            answer = result.answer["act"] if result.answer is not None else None
            is_new = answer is not None and answer["boot_id"] not in ("", boots[name])
            if is_new:
                back.setdefault(name, now)
            is_late = name in back and now - back[name] > STARTS_S
            if answer is not None and is_new and (answer["up"] or is_late):
                reasons[name] = ""
            elif is_late:
                reasons[name] = f"it came back and was lost again: {result.wrong or 'its boot_id cannot be read'}"
            if name not in back and now - began > limit_s:
                last = result.wrong or "it has not gone down"
                reasons[name] = f"it did not come back within {limit_s:g} s: {last}"
        left = [host for host in left if host.name not in reasons]
    return reasons


def boots(hosts: Sequence[Target], forks: int) -> dict[str, str]:
    """Host -> its boot_id, for those that tell it."""
    answers = {name: result.answer for name, result in _boots(hosts, forks).items()}
    return {name: answer["act"]["boot_id"] for name, answer in answers.items() if answer and answer["act"]["boot_id"]}


def _names(hosts: Sequence[Target]) -> list[str]:
    return [host.name for host in hosts]


def _boots(hosts: Sequence[Target], forks: int) -> dict[str, HostResult]:
    return _ask(hosts, {}, "", forks)


def _ask(
    hosts: Sequence[Target], values: Mapping[str, Mapping[str, Any]], why: str, forks: int
) -> dict[str, HostResult]:
    """Send the act to hosts; those without values are only read."""
    actor = current_user()

    def request(host: Target) -> dict[str, Any]:
        about = {"about": host.name, "actor": actor, "reason": why}
        check = host.name not in values
        return {"action": "act", "act": "reboot", "check": check, **values.get(host.name, {}), **about}

    results = run_on_all(hosts, request, forks=forks, timeout_s=ANSWER_S, on_result=lambda _: None) if hosts else []
    return {result.host: result for result in results}
