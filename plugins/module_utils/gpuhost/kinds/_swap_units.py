"""Units that enable swap at boot without fstab: generated (zram, partitions by type) or made by an administrator."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..host import Host
from ..model import Conflict
from ..resources.unit import FOLDERS
from ..startup.lines import config_lines, in_order

ADMIN = "/etc/systemd/system"
GENERATED = ("/run/systemd/generator", "/run/systemd/generator.late")
SERVICES = frozenset({"zramswap.service", "zram-config.service", "dphys-swapfile.service"})
FROM_FSTAB = "SourcePath=/etc/fstab"
# zram-generator.conf(5): the first main file that exists, then the drop-ins.
ZRAM_GENERATORS = tuple(
    f"{folder}/system-generators/zram-generator"
    for folder in ("/etc/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd")
)
ZRAM_FOLDERS = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")
ZRAM_CONF, ZRAM_DEVICE = "zram-generator.conf", re.compile(r"zram\d+")


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


def ungenerated_zram(host: Host) -> list[Conflict]:
    """Areas that zram-generator makes at the next boot or reload of systemd, and whose units do not exist yet.

    A unit that it has made can be masked as any other.
    """
    if not any(host.exists(path) for path in ZRAM_GENERATORS):
        return []
    conflicts = []
    for device, (where, section) in _zram_sections(host).items():
        unit = f"dev-{device}.swap"
        is_swap = not section.keys() & {"fs-type", "mount-point"} and section.get("zram-size") != "0"
        is_stopped = masked(host, unit) or any(host.exists(f"{folder}/{unit}") for folder in GENERATED)
        if is_swap and not is_stopped:
            conflicts.append(Conflict("zram-generator", where, f"[{device}]", wins=True))
    return conflicts


def _zram_sections(host: Host) -> dict[str, tuple[str, dict[str, str]]]:
    """Device -> the place of its section and its options, of all files in their order."""
    main = next((path for folder in ZRAM_FOLDERS if host.exists(path := f"{folder}/{ZRAM_CONF}")), None)
    drop_ins = in_order(host, tuple(f"{folder}/{ZRAM_CONF}.d" for folder in ZRAM_FOLDERS), ".conf")
    sections: dict[str, tuple[str, dict[str, str]]] = {}
    for path in ([main] if main else []) + drop_ins:
        device = ""
        for line in config_lines(host, "zram-generator", path):
            if line.text.startswith("["):
                device = line.text.strip("[] \t")
                if ZRAM_DEVICE.fullmatch(device):
                    sections.setdefault(device, (line.where, {}))
            elif device in sections:
                key, _, value = line.text.partition("=")
                sections[device][1][key.strip()] = value.strip()
    return sections
