"""What a host holds at one moment, to be compared with what it holds later."""

from __future__ import annotations

from pathlib import Path

from tests.rig import TestHost
from tests.rig.ground import sh

# Written by logins and by systemd itself, whoever is at work.
ALIVE = ("var/log", "var/lib/systemd", "var/cache", "run", "tmp", "var/tmp", "proc", "sys", "dev")
# What the kernel counts on by itself.
COUNTED = ("/proc/interrupts", "/proc/meminfo", "/usage", "/time", "/above", "/below", "/random/uuid")


def disk(host: TestHost) -> dict[str, str]:
    """Every file of the disk: what it is, whose, and when it or its content was last changed."""
    left_out = [word for folder in ALIVE for word in ("-path", f"./{folder}", "-prune", "-o")]
    form = ["-printf", "%P\t%y %m %U:%G %s %C@ %l\n"]
    listed = sh("sh", "-c", 'cd "$0" && find . -xdev "$@"', host.root, *left_out, "-type", "f,l", *form).stdout
    return dict(line.split("\t", 1) for line in listed.splitlines())


def etc(host: TestHost) -> dict[str, tuple[int, int, int, bytes]]:
    """Every file below /etc, byte for byte, with mode and owner."""
    paths = sorted((host.root / "etc").rglob("*"))
    return {str(p.relative_to(host.root)): _held(p) for p in paths if p.is_symlink() or not p.is_dir()}


def _held(path: Path) -> tuple[int, int, int, bytes]:
    told = path.lstat()
    content = bytes(path.readlink()) if path.is_symlink() else path.read_bytes()
    return told.st_mode, told.st_uid, told.st_gid, content


def kernel(host: TestHost) -> dict[str, str]:
    """Every value of its /proc and /sys that only changes when somebody writes it."""
    found = {}
    for path in sorted(host.tree.folder.rglob("*")):
        name = "/" + str(path.relative_to(host.tree.folder))
        if path.is_file() and not path.is_symlink() and not name.endswith(COUNTED) and path.name[0] != ".":
            found[name] = path.read_text(errors="replace")
    return found
