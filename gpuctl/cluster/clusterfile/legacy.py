"""Line by line from the older layout to today's: what becomes of each field, so that comments stay where they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

LEVELS = {"0": "LOC", "1": "PIX", "2": "PXB", "3": "PHB", "4": "SYS", "5": "SYS"}
TO_VARIABLES = {"ib_timeout": "NCCL_IB_TIMEOUT", "min_nchannels": "NCCL_MIN_NCHANNELS"}
HTTPS_PORT = "6443"  # where OpenShift's API listens


@dataclass(frozen=True)
class Old:
    """A field of the older file: its way from the top, its text, and whether RDMA is enabled there."""

    path: str
    value: str
    rdma: bool

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class New:
    """What becomes of it: `name: value`, or nothing where `value` is None; `said` is what a person should know."""

    value: str | None
    said: str = ""


def becomes(old: Old) -> New | None:
    """What becomes of a field; None where today's layout does not know it."""
    if old.path in KEPT:
        return New(old.value) if old.value else New(None)
    return CHANGED[old.path](old) if old.path in CHANGED else None


def _api(old: Old) -> New:
    host = re.sub(r"^https?://", "", old.value).rstrip("/")
    whole = host if ":" in host else f"{host}:{HTTPS_PORT}"
    note = "" if ":" in host else f"the port {HTTPS_PORT} is a guess: `oc whoami --show-server` tells"
    return New(f"https://{whole}", note)


def _listed(old: Old) -> New:
    names = [name.strip() for name in old.value.split(",") if name.strip()]
    return New(f"[{', '.join(names)}]" if names else None)


def _excluded(old: Old) -> New:
    if not old.value.startswith("^"):
        return New(None, f"it named interfaces to use ({old.value}), and today's layout those not to use")
    return _listed(Old(old.path, old.value.removeprefix("^"), old.rdma))


def _level(old: Old) -> New:
    named = LEVELS.get(old.value, old.value)
    note = f"{old.value} is the older number for {named}" if named != old.value else ""
    return New(named, note)


def _only_with_rdma(old: Old) -> New:
    if old.value.lower() == "true" and not old.rdma:
        return New(None, "it is for RDMA pods, and RDMA is not enabled")
    note = "today there are smaller rights than that: ipc_lock, sys_resource" if "privileged" in old.path else ""
    return New(old.value.lower(), note if old.value.lower() == "true" else "")


def _account(old: Old) -> New:
    if not old.value:
        return New(None)
    return New(old.value, "it has to be there: deploy makes none of that name; left out, it makes one of its own")


KEPT = frozenset(
    {
        *("cluster.name", "cluster.namespace", "cluster.description", "nccl.debug", "notes"),
        *(f"storage.{name}" for name in ("mode", "class_rwx", "class_rwo", "workspace_size", "datasets_size")),
        *("network.rdma.gid_index", "network.rdma.cross_nic", "network.tcp.p2p_level"),
        *("gpus.per_node", "gpus.type", "gpus.default_nodes"),
    }
)
CHANGED: Mapping[str, Callable[[Old], New]] = {
    "cluster.api": _api,
    "network.rdma.enabled": lambda old: New(old.value.lower()),
    "network.rdma.devices": _listed,
    "network.rdma.interfaces": _listed,
    "network.rdma.gdr_level": _level,
    "network.tcp.interface_exclude": _excluded,
    "security.service_account": _account,
    "security.requires_privileged_scc": _only_with_rdma,
    "security.ipc_lock": _only_with_rdma,
}
