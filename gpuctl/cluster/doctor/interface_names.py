"""Which interfaces and adapters NCCL takes, by the rules that NCCL_SOCKET_IFNAME and NCCL_IB_HCA share."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def takes(wanted: str, name: str, port: str = "") -> bool:
    """ "=" names exactly, "^" all but these, else by their beginning (NCCL's user guide); all where nothing is named.

    A word may name a port: mlx5_0:1.
    """
    turned, exact = wanted.startswith("^"), wanted.lstrip("^").startswith("=")
    words = [word.partition(":") for word in wanted.lstrip("^=").split(",") if word]
    fits = any((name == word if exact else name.startswith(word)) and number in ("", port) for word, _, number in words)
    return not words or fits != turned


def exact(wanted: str) -> list[str]:
    """The names that have to be there: those after a "="."""
    return [word for word in wanted[1:].split(",") if word] if wanted.startswith("=") else []


def absent(words: Iterable[str], devices: Collection[str]) -> list[str]:
    """Words whose device is not among these, whatever port they name."""
    return [word for word in words if word.partition(":")[0] not in devices]
