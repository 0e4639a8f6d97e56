"""The probe program that runs in a pod: its modules, request and answer format."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

from gpuctl.remote import packing

PROBE = "gpuctl.cluster.doctor.pod"
HOST = "ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost"
FACTS = ("login", "limits", "peer_memory", "rdma")
# In import order: a module imports only those before it.
MODULES = (
    *(f"{HOST}.{name}" for name in ("host", "topology", *(f"facts.{fact}" for fact in FACTS))),
    *(f"{PROBE}.{name}" for name in ("variables", "gpus", "jobs", "nccl_logs", "network", "disk", "machine", "main")),
)


def encode(request: Mapping[str, Any]) -> bytes:
    """Return what is sent to a pod: the program, then the request with its length in front."""
    text = json.dumps(dict(request)).encode()
    return packing.packed(MODULES) + b"%10d" % len(text) + text


def decode(printed: bytes, token: str) -> dict[str, Any] | None:
    """Find the answer in a pod's output; None if it is missing or incomplete. `ValueError` if it is garbled."""
    _, marker, rest = printed.rpartition(b"\n" + token.encode())
    line, newline, _ = rest.partition(b"\n")
    if not (marker and newline):
        return None
    try:
        parsed: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(line)))
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return parsed
