"""Drain a node of Slurm, or take our own drain back: by `scontrol`, with a reason that names gpuctl."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..host import Host
from .slurm_job import parse

LIMIT_S = 30.0
MARK = "gpuctl: "  # how reasons of ours begin
MOST = 200  # characters of a reason
STATES = ("DRAIN", "DOWN", "FAIL")  # of a node that takes no new job


def run(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{node, state, slurm_state, slurm_reason, reason}: see `answer_types.SlurmDrain`.

    Request: `text` (the reason), `undo`, `check`, `node` (its name in Slurm, else that of this host), `ours` (beginning
    of the texts that count as ours, else all of gpuctl), `yields` (beginning of those that a new text replaces). A node
    that somebody else has drained is left as it is, in both directions.
    """
    name = request.get("node") or (host.value("/proc/sys/kernel/hostname") or os.uname().nodename).partition(".")[0]
    now, why = read(host, name)
    if now is None:
        return _answer(name, "unknown", None, why)
    undo, text = bool(request.get("undo")), f"{MARK}{' '.join(request.get('text', '').split())}"[:MOST]
    ours = request.get("ours", "")
    yields = request.get("yields", "")
    before = decide(now, undo=undo, ours=ours, yields=yields)
    if request.get("check") or before != "due":
        return _answer(name, before, now, "")
    change = ("State=RESUME",) if undo else ("State=DRAIN", f"Reason={text}")
    result = host.run("scontrol", "update", f"NodeName={name}", *change, changes=True, limit=LIMIT_S)
    now, why = read(host, name)
    if now is None or not result.ok:
        return _answer(name, "failed", now, result.last_line if not result.ok else why)
    after = "DRAIN" not in now["State"] if undo else decide(now, undo=False, ours=ours, yields=yields) == "done"
    return _answer(name, "done" if after else "failed", now, "" if after else f"it is {now['State']} after that")


def decide(now: Mapping[str, str], *, undo: bool, ours: str = "", yields: str = "") -> str:
    """State of the drain: due (ours to change), done (nothing to change), others (somebody else's)."""
    is_drained = any(word in now["State"] for word in STATES)
    reason = now.get("Reason", "")
    is_ours = reason.startswith(f"{MARK}{ours}")
    if is_drained and not undo and yields and reason.startswith(f"{MARK}{yields}"):
        return "due"
    if undo:
        return "done" if not is_drained else "due" if is_ours else "others"
    return "due" if not is_drained else "done" if is_ours else "others"


def read(host: Host, name: str) -> tuple[dict[str, str] | None, str]:
    """State and Reason of a node; None with the reason if Slurm does not tell them."""
    result = host.run("scontrol", "--oneliner", "show", "node", name, limit=LIMIT_S)
    if not result.ok:
        return None, result.last_line
    fields = parse(result.out.strip())
    if fields.get("NodeName") != name or "State" not in fields:
        return None, f"scontrol printed no node {name}"
    return {key: fields[key] for key in ("NodeName", "State", "Reason") if key in fields}, ""


def _answer(name: str, state: str, now: Mapping[str, str] | None, why: str) -> dict[str, Any]:
    return {
        "node": name,
        "state": state,
        "slurm_state": now["State"] if now else None,
        "slurm_reason": now.get("Reason", "") if now else None,
        "reason": why,
    }
