"""Reboot this host once nobody uses its GPUs; in check mode, which boot this is, and whether it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..facts import busy
from ..host import Host

BOOT_ID = "/proc/sys/kernel/random/boot_id"
UP = ("running", "degraded")  # states of systemd after a boot


def run(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{state, boot_id, up, reason}: see `answer_types.Reboot`.

    Request: `boot_id` (the boot that is to end), `check`. A host that has booted since is left as it is.
    """
    boot_id = host.value(BOOT_ID)
    is_up = host.run("systemctl", "is-system-running").out.strip() in UP
    if not boot_id:
        return _answer("unknown", "", is_up, f"{BOOT_ID} cannot be read")
    if request.get("check"):
        return _answer("due", boot_id, is_up, "")
    if boot_id != request["boot_id"]:
        return _answer("changed", boot_id, is_up, "it has booted since")
    if reasons := busy.busy(host):
        return _answer("busy", boot_id, is_up, "; ".join(reasons))
    result = host.run("systemctl", "reboot", changes=True)
    return _answer("done" if result.ok else "failed", boot_id, is_up, "" if result.ok else result.last_line)


def _answer(state: str, boot_id: str, is_up: bool, why: str) -> dict[str, Any]:
    return {"state": state, "boot_id": boot_id, "up": is_up, "reason": why}
