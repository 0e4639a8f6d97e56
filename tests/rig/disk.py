"""What a machine that starts reads from its disk: the kernel's command line and the swap areas to use."""

from __future__ import annotations

import re
from pathlib import Path


def kernel_line(root: Path | None) -> str | None:
    """The arguments its boot loader would hand to the kernel; None where the disk has no boot loader."""
    if root is None:
        return None
    grub = root / "boot/grub/grub.cfg"
    if grub.exists():
        found = re.search(r"^\s*linux\s+(\S+)\s+(.*)$", grub.read_text(), re.MULTILINE)
        return f"BOOT_IMAGE={found[1]} {found[2]}" if found else None
    # The newest kernel is the one that is started.
    for entry in sorted(root.glob("boot/loader/entries/*.conf"), reverse=True):
        said = dict(line.split(maxsplit=1) for line in entry.read_text().splitlines() if " " in line)
        return f"BOOT_IMAGE=(hd0,gpt1){said['linux']} {said['options']}"
    return None


def swap_areas(root: Path | None) -> set[str] | None:
    """The areas that fstab and swap units switch on; None where the disk has no fstab."""
    fstab = root / "etc/fstab" if root else None
    if root is None or fstab is None or not fstab.exists():
        return None
    rows = [line.split() for line in fstab.read_text().splitlines() if not line.lstrip().startswith("#")]
    areas = {row[0] for row in rows if len(row) >= 4 and row[2] == "swap" and "noauto" not in row[3].split(",")}
    for unit in (root / "etc/systemd/system").glob("*.swap"):
        if unit.is_symlink() and unit.readlink() == Path("/dev/null"):
            areas.discard("/" + unit.stem.replace("-", "/"))
        elif found := re.search(r"^What=(\S+)", unit.read_text(), re.MULTILINE):
            areas.add(found[1])
    return areas
