"""Map each field of the older layout to today's, line by line, so that comments stay in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

LEVELS = {"0": "LOC", "1": "PIX", "2": "PXB", "3": "PHB", "4": "SYS", "5": "SYS"}
TO_VARIABLES = {"ib_timeout": "NCCL_IB_TIMEOUT", "min_nchannels": "NCCL_MIN_NCHANNELS"}
HTTPS_PORT = "6443"  # the port of OpenShift's API


@dataclass(frozen=True)
class Old:
    """A field of the older file: its path, its text, and whether the file enables RDMA."""

    path: str
    value: str
    rdma: bool

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class New:
    """The replacement: `name: value`, or nothing if `value` is None; `note` is a remark for the user."""

    value: str | None
    note: str = ""


def becomes(old: Old) -> New | None:
    """Return the replacement of a field, or None if today's layout does not know it."""
    if old.path in KEPT:
        return New(old.value) if old.value else New(None)
    return CHANGED[old.path](old) if old.path in CHANGED else None


def _api(old: Old) -> New:
    host = re.sub(r"^https?://", "", old.value).rstrip("/")
    whole = host if ":" in host else f"{host}:{HTTPS_PORT}"
    note = "" if ":" in host else f"the port {HTTPS_PORT} is a guess: `oc whoami --show-server` shows it"
    return New(f"https://{whole}", note)


def _listed(old: Old) -> New:
    names = [name.strip() for name in old.value.split(",") if name.strip()]
    return New(f"[{', '.join(names)}]" if names else None)


def _excluded(old: Old) -> New:
    if not old.value.startswith("^"):
        return New(None, f"it named interfaces to use ({old.value}); today's layout names those to exclude")
    return _listed(Old(old.path, old.value.removeprefix("^"), old.rdma))


def _level(old: Old) -> New:
    named = LEVELS.get(old.value, old.value)
    note = f"{old.value} is the older number for {named}" if named != old.value else ""
    return New(named, note)


def _only_with_rdma(old: Old) -> New:
    if old.value.lower() == "true" and not old.rdma:
        return New(None, "it applies to RDMA pods, and RDMA is not enabled")
    note = "less privileged alternatives exist today: ipc_lock, sys_resource" if "privileged" in old.path else ""
    return New(old.value.lower(), note if old.value.lower() == "true" else "")


def _account(old: Old) -> New:
    if not old.value:
        return New(None)
    return New(old.value, "it has to exist: deploy does not create it; if omitted, deploy creates its own")


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
