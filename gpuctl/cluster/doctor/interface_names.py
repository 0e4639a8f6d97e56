"""Matching rules that NCCL_SOCKET_IFNAME and NCCL_IB_HCA share (NCCL's user guide)."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def takes(pattern: str, name: str, port: str = "") -> bool:
    """Return whether NCCL uses a device: "=" matches names exactly, else by prefix; "^" excludes; "" matches all.

    An entry may name a port: mlx5_0:1.
    """
    excludes, exactly = pattern.startswith("^"), pattern.lstrip("^").startswith("=")
    entries = [entry.partition(":") for entry in pattern.lstrip("^=").split(",") if entry]
    matches = any(
        (name == device if exactly else name.startswith(device)) and number in ("", port)
        for device, _, number in entries
    )
    return not entries or matches != excludes


def exact(pattern: str) -> list[str]:
    """Return the names that must exist: those after a "="."""
    return [entry for entry in pattern[1:].split(",") if entry] if pattern.startswith("=") else []


def absent(entries: Iterable[str], devices: Collection[str]) -> list[str]:
    """Return the entries whose device is missing, ignoring their port."""
    return [entry for entry in entries if entry.partition(":")[0] not in devices]
