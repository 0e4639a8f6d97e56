"""Reset one GPU that no process uses, by nvidia-smi, and read it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..facts import device_holders, gpu_xml
from ..host import Host

LIMIT_S = 180.0
QUERY_S = 60.0
NO_ACTION = ("None", "N/A")


def run(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{state, reason, recovery}: see `answer_types.GpuReset`. Request: `gpu` (index), `uuid` (as shown), `check`.

    The index and the UUID must still be one GPU: nvidia-smi numbers GPUs again after one is lost.
    """
    before, why = _gpu(host, request["gpu"], request["uuid"])
    if before is None:
        return _answer("changed" if why.startswith("GPU") else "unknown", why, None)
    if reason := in_use(host, before):
        return _answer("busy", reason, before["recovery"])
    if request.get("check"):
        return _answer("due", "", before["recovery"])
    result = host.run("nvidia-smi", "--gpu-reset", "-i", request["uuid"], changes=True, limit=LIMIT_S)
    if not result.ok or "successfully reset" not in f"{result.out}{result.err}":
        return _answer("failed", result.last_line, before["recovery"])
    after, why = _gpu(host, request["gpu"], request["uuid"])
    if after is None:
        return _answer("failed", f"after the reset: {why}", None)
    problems = [f"the driver still asks for: {after['recovery']}"] if _asks(after) else []
    problems += ["a row remap still waits for a reset"] if after["remap_pending"] else []
    return _answer("failed" if problems else "done", "; ".join(problems), after["recovery"])


def _asks(gpu: Mapping[str, Any]) -> bool:
    return gpu["recovery"] is not None and gpu["recovery"] not in NO_ACTION


def _gpu(host: Host, index: int, uuid: str) -> tuple[Mapping[str, Any] | None, str]:
    result = host.run("nvidia-smi", "-q", "-x", limit=QUERY_S)
    try:
        gpus = gpu_xml.parse(result.out)["gpus"]
    except ValueError as error:
        return None, result.last_line if not result.ok else str(error)
    if index >= len(gpus) or gpus[index]["uuid"] != uuid:
        return None, f"GPU {index} is not {uuid} any more"
    return gpus[index], ""


def in_use(host: Host, gpu: Mapping[str, Any]) -> str:
    """Reason why a GPU must not be reset; "" if nothing uses it.

    An ill GPU may list no processes; whatever uses it has its device open.
    """
    rows = [*(gpu["processes"] or ()), *(gpu["displays"] or ())]
    if rows:
        names = ", ".join(f"{row['name']} ({row['pid']})" for row in rows[:4])
        return f"it is used by {names}"
    unread: dict[str, str] = {}
    openers = device_holders.read(host, unread)
    if openers is None:
        return f"who holds it open is unknown: {unread.get('open_by', '')}"
    pids = [pid for pid, minors in openers.items() if gpu["minor"] in minors]
    return f"processes hold it open: {', '.join(pids[:8])}; `fuser -v /dev/nvidia*` lists them" if pids else ""


def _answer(state: str, why: str, recovery: str | None) -> dict[str, Any]:
    return {"state": state, "reason": why, "recovery": recovery}
