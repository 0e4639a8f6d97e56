"""Restart a service of the GPUs, or load a driver again, once nothing on this host is disturbed, and read it back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from ..facts import busy
from ..host import Host

LIMIT_S = 120.0
SETTLES_S = 10.0  # a service that dies at its start has done so by then, or is started again
PAUSE_S = 0.5
INFINIBAND = "/sys/class/infiniband"
PROPERTIES = ("LoadState", "ActiveState", "SubState", "ExecMainStartTimestampMonotonic", "NRestarts")


def run(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{state, unit, before, after, reason}: see `answer_types.Restarted`.

    Request: `units` (names of the service, the first that this host has counts) or `module` (kernel module), `force`
    (also while GPUs are in use), `check`.
    """
    if request.get("module"):
        return _module(host, request["module"], request)
    states = {unit: read(host, unit) for unit in request["units"]}
    unit = next((name for name, state in states.items() if state.get("LoadState") == "loaded"), "")
    if not unit:
        return _answer("absent", "", {}, {}, f"this host has no unit {' or '.join(request['units'])}")
    before = states[unit]
    reasons = [] if request.get("force") else busy.busy(host)
    if reasons:
        return _answer("busy", unit, before, before, "; ".join(reasons))
    if request.get("check"):
        return _answer("due", unit, before, before, "")
    result = host.run("systemctl", "restart", unit, changes=True, limit=LIMIT_S)
    after, why = _settled(host, unit, before)
    if not result.ok or why:
        return _answer("failed", unit, before, after, result.last_line if not result.ok else why)
    return _answer("done", unit, before, after, "")


def read(host: Host, unit: str) -> dict[str, str]:
    """Properties of a unit; empty if systemd does not answer."""
    result = host.run("systemctl", "show", unit, *(f"--property={name}" for name in PROPERTIES))
    rows = (line.partition("=") for line in result.out.splitlines())
    return {name: value for name, equals, value in rows if equals and name in PROPERTIES}


def _settled(host: Host, unit: str, before: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """State of the unit once it stays as it is, and what is wrong with it."""
    end, earlier = time.monotonic() + SETTLES_S, read(host, unit)
    while True:
        time.sleep(PAUSE_S)
        now = read(host, unit)
        is_steady = now == earlier and now.get("ActiveState") in ("active", "failed", "inactive")
        if is_steady or time.monotonic() > end:
            break
        earlier = now
    start = "ExecMainStartTimestampMonotonic"
    if now.get("ActiveState") != "active":
        return now, f"it is {now.get('ActiveState', 'unknown')} ({now.get('SubState', '?')}) after the restart"
    return now, "" if now.get(start) != before.get(start) else "its process is the one from before"


def _module(host: Host, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Load a kernel module again; one in use is never removed."""
    before = _devices(host, name)
    if before["refcnt"] == "absent":
        return _answer("absent", name, before, before, f"the kernel has not loaded {name}")
    reasons = [] if request.get("force") else busy.busy(host)
    if before["refcnt"] != "0":
        reasons.append(f"{name} is in use ({before['refcnt']}): programs or other modules hold its devices")
    if reasons:
        return _answer("busy", name, before, before, "; ".join(reasons))
    if request.get("check"):
        return _answer("due", name, before, before, "")
    removed = host.run("modprobe", "-r", name, changes=True, limit=LIMIT_S)
    loaded = host.run("modprobe", name, changes=True, limit=LIMIT_S)
    end = time.monotonic() + SETTLES_S
    while _devices(host, name)["devices"] != before["devices"] and time.monotonic() < end:
        time.sleep(PAUSE_S)
    after = _devices(host, name)
    wrong = next((one.last_line for one in (removed, loaded) if not one.ok), "")
    if not wrong and after["devices"] != before["devices"]:
        wrong = f"it had the devices {before['devices'] or 'none'}, and has {after['devices'] or 'none'} now"
    return _answer("failed" if wrong else "done", name, before, after, wrong)


def _devices(host: Host, module: str) -> dict[str, str]:
    """Use count of a module, and the RDMA devices that it drives."""
    drivers = {
        device: f"/sys/class/infiniband/{device}/device/driver" for device in host.listdir("/sys/class/infiniband")
    }
    driven = []
    for device, link in drivers.items():
        with contextlib.suppress(OSError):
            if host.readlink(link).rpartition("/")[2] == module:
                driven.append(device)
    return {"refcnt": host.value(f"/sys/module/{module}/refcnt") or "absent", "devices": " ".join(driven)}


def _answer(state: str, unit: str, before: Mapping[str, str], after: Mapping[str, str], why: str) -> dict[str, Any]:
    return {"state": state, "unit": unit, "before": dict(before), "after": dict(after), "reason": why}
