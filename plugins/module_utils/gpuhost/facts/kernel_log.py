"""Kernel messages of this boot and of the one before that a GPU node's audit needs, filtered on the host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..host import Host, Result

LINES = 50_000  # of the newest messages of a boot are read
MOST = 2_000  # of them that matter are passed on
LONGEST = 1_024  # characters of a message: the kernel cuts them there
LIMIT_S = 30.0
# Faults of GPUs, NVSwitches, network adapters, memory, disks and the kernel itself. Ordinary lines are only counted.
MATTERS = re.compile(
    r"NVRM|nvidia-nvswitch|NVLink|Linux version \d"
    r"|\befa\b|\binfiniband |\brdmap|mlx[45]_\w+.*(?:error|health|link down|timeout|fatal)|\bib\d+: "
    r"|segfault at "
    r"|EDAC |Hardware Error|Machine check|mce: |Memory failure|AER: |PCIe Bus Error"
    r"|blocked for more than \d+ seconds|lockup|LOCKUP|rcu: |kernel BUG|Kernel panic"
    r"|BUG: |Unable to handle kernel|Oops: |Internal error: |general protection fault|nvidia .*probe .*failed"
    r"|Out of memory|out of memory|oom-kill:"
    r"|I/O error|EXT4-fs error|XFS .*(?:rror|shut|orruption)|filesystem read-only|nvme\S*: "
    r"|LustreError|LNetError|nfs: server |thermal|temperature above",
    re.IGNORECASE,
)

# Every match of MATTERS has one of these, in lower case. The search alone takes eight times as long, which is 3 s of
# processor time for two boots with LINES each.
SUBSTRINGS = (
    "nvrm", "nvidia", "nvlink", "linux version", "efa", "infiniband", "rdmap", "mlx", "ib", "segfault", "edac ",
    "hardware error", "machine check", "mce: ", "memory failure", "aer: ", "pcie bus error", "blocked for", "lockup",
    "rcu: ", "kernel", "bug: ", "oops: ", "internal error", "general protection", "out of memory", "oom-kill",
    "i/o error", "ext4-fs", "xfs ", "read-only", "nvme", "lustreerror", "lneterror", "nfs: ", "thermal", "temperature",
)  # fmt: skip


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{boots, unread}: the newest boot first, each {boot, lines, kernel_lines, dropped}.

    `boot`: 0 for the running one, -1 for the one before. `lines` matter; `kernel_lines` were read, and `dropped` of
    those that matter did not fit. `since_h` in the request: messages of the last hours only; else all of both boots.
    """
    unread: dict[str, str] = {}
    since = request.get("since_h")
    boots = []
    for boot in (0, -1):
        try:
            boots.append({"boot": boot, **_filtered(_messages(host, boot, since))})
        except OSError as error:
            unread[f"boot {boot}"] = str(error)
    return {"boots": boots or None, "unread": unread}


def _messages(host: Host, boot: int, since_h: Any) -> str:
    """Messages of a boot, from the journal; else all of the kernel's buffer, which has only the running boot's."""
    messages = _journal(host, boot, f"--lines={LINES}", *([f"--since=-{float(since_h):g}h"] if since_h else []))
    # A user without rights to the journal gets nothing, and no error: silence counts only if there is something.
    if messages.ok and (messages.out.strip() or (since_h and _journal(host, boot, "--lines=1").out.strip())):
        return messages.out
    silent = messages.ok and not messages.err.strip()
    reason = "the journal shows no kernel messages" if silent else messages.last_line
    if boot:
        raise OSError(f"no messages of the boot before: {reason}")
    buffer = host.run("dmesg", "--time-format=iso", limit=LIMIT_S)
    if not buffer.ok:
        buffer = host.run("dmesg", limit=LIMIT_S)  # of busybox, and older ones
    if not buffer.ok or not buffer.out.strip():
        raise OSError(f"{reason}; dmesg: {buffer.last_line if not buffer.ok else 'no messages'}")
    return buffer.out


def _journal(host: Host, boot: int, *options: str) -> Result:
    form = ("-k", "-b", str(boot), "-o", "short-iso-precise", "--no-pager", "-q")
    return host.run("journalctl", *form, *options, limit=LIMIT_S)


def _filtered(text: str) -> dict[str, Any]:
    lines = text.splitlines()
    matters = [line[:LONGEST] for line in lines if _matters(line)]
    return {"lines": matters[-MOST:], "kernel_lines": len(lines), "dropped": max(0, len(matters) - MOST)}


def _matters(line: str) -> bool:
    """True for a match of MATTERS, which ignores case for more letters than ASCII has."""
    if line.isascii() and not any(map(line.lower().__contains__, SUBSTRINGS)):
        return False
    return MATTERS.search(line) is not None
