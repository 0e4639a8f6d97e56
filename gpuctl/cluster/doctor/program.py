"""The probe program that runs in a pod: its modules, request and answer format."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from gpuctl.cluster.doctor import answer_types
from gpuctl.engine import typed_json
from gpuctl.remote import packing
from gpuctl.remote.supervisor import frames

PROBE = "gpuctl.cluster.doctor.pod"
# In import order: a module imports only those before it.
MODULES = (
    *packing.host_modules("login", "limits", "peer_memory", "rdma", *packing.STORAGE_FACTS),
    *(f"{PROBE}.{name}" for name in ("variables", "gpus", "jobs", "nccl_logs", "network", "disk", "machine", "main")),
)


def encode(request: Mapping[str, Any]) -> bytes:
    """Return what is sent to a pod: the program, then the request with its length in front."""
    text = json.dumps(dict(request)).encode()
    return packing.packed(MODULES) + b"%10d" % len(text) + text


def decode(printed: bytes, token: str) -> dict[str, Any] | None:
    """Find the answer in a pod's output, as an answer_types.PodAnswer; None if it is missing or incomplete.

    `ValueError` if it is garbled, `typed_json.Misfit` if it is of another type.
    """
    _, marker, rest = printed.rpartition(b"\n" + token.encode())
    line, newline, _ = rest.partition(b"\n")
    if not (marker and newline):
        return None
    shape: object = answer_types.PodAnswer
    answer: dict[str, Any] = typed_json.read(typed_json.parse(frames.inflated(base64.b64decode(line))), shape)
    return answer


def left_out(request: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """First part of a request that the answer leaves out; empty if there is none."""
    network = answer["network"]
    required = {
        "network.names": (request["names"], network.get("names")),
        "network.ssh": ([peer["pod"] for peer in request["ssh"]], network.get("ssh")),
        "disk": (request["folders"], answer["disk"] if "unread" not in answer["disk"] else None),
    }
    missing = (
        f"{place}.{name}"
        for place, (names, values) in required.items()
        for name in (names if values is not None else ())
        if name not in values
    )
    return next(missing, "")
