"""Units that enable swap at boot without fstab: generated (zram, partitions by type) or made by an administrator."""

from __future__ import annotations

from collections.abc import Iterator

from ..host import Host
from ..resources.unit import FOLDERS

ADMIN = "/etc/systemd/system"
GENERATED = ("/run/systemd/generator", "/run/systemd/generator.late")
SERVICES = frozenset({"zramswap.service", "zram-config.service", "dphys-swapfile.service"})
FROM_FSTAB = "SourcePath=/etc/fstab"


def started(host: Host) -> set[str]:
    """Units that another unit starts at boot by a link."""
    return {name for folder in (*FOLDERS, *GENERATED) for name in _links(host, folder)}


def _links(host: Host, folder: str) -> Iterator[str]:
    for group in host.listdir(folder):
        if group.endswith((".wants", ".requires", ".upholds")):
            yield from host.listdir(f"{folder}/{group}")


def to_stop(host: Host, names: set[str]) -> dict[str, str]:
    """Unit -> the state that prevents its start. Units from fstab are left out: they go with its lines."""
    swaps = sorted(name for name in names if name.endswith(".swap") or name in SERVICES)
    states = dict(_keeper(host, name) for name in swaps if FROM_FSTAB not in _text(host, name))
    return {name: state for name, state in states.items() if not masked(host, name)}


def _keeper(host: Host, name: str) -> tuple[str, str]:
    # Named after the disk's sequence number, which changes with every boot.
    if "diskseq" in name:
        return "swap.target", "masked"
    # A mask is a link in this folder; a unit with its file there cannot be masked.
    return name, "disabled" if host.exists(f"{ADMIN}/{name}") else "masked"


def _text(host: Host, name: str) -> str:
    texts = (host.read_or_none(f"{folder}/{name}") for folder in (*FOLDERS, *GENERATED))
    return next((text for text in texts if text is not None), "")


def masked(host: Host, name: str) -> bool:
    """True for a link to /dev/null, or an empty file."""
    return host.read_or_none(f"{ADMIN}/{name}") == ""
