"""The program that looks at a pod from inside: what it is made of, how it is asked, and how its answer is read."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

from gpuctl.remote import packing

HERE = "gpuctl.cluster.doctor.pod"
HOST = "ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost"
FACTS = ("login", "limits", "peer_memory", "rdma")
# Each imports only those before it.
MODULES = (
    *(f"{HOST}.{name}" for name in ("host", "topology", *(f"facts.{fact}" for fact in FACTS))),
    *(f"{HERE}.{name}" for name in ("variables", "gpus", "jobs", "nccl_logs", "network", "disk", "machine", "main")),
)


def question(asked: Mapping[str, Any]) -> bytes:
    """The program, and what it is asked, with its length in front."""
    text = json.dumps(dict(asked)).encode()
    return packing.packed(MODULES) + b"%10d" % len(text) + text


def answer(printed: bytes, token: str) -> dict[str, Any] | None:
    """What it said, in whatever else was printed; None where it is not there, or not whole. `ValueError`: garbled."""
    _, found, rest = printed.rpartition(b"\n" + token.encode())
    line, ended, _ = rest.partition(b"\n")
    if not (found and ended):
        return None
    try:
        parsed: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(line)))
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return parsed
