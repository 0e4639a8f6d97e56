"""A kernel module for one kernel: "module:6.8.0-60-generic", text its version; None if there is none.

The module is NVIDIA's, or the one that is named: "module:6.8.0-60-generic:gdrdrv".

Packages bring it: DKMS builds it while they are installed, without an error of the package manager if that fails.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..host import Host
from ..model import Unreadable
from . import dkms_log

# Debian calls its modules so, and modprobe by an alias that modinfo does not know.
NAMES = ("nvidia", "nvidia-current", "nvidia-current-open")
LIMIT_S = 3600.0


class Module:
    """The module for one kernel, by its release; the rest after a colon is another module's name."""

    def __init__(self, name: str) -> None:
        self.kernel, _, other = name.partition(":")
        self.names = (other,) if other else NAMES

    def read(self, host: Host) -> str | None:
        return module_info(host, self.kernel, "version", self.names) or None

    def write(self, host: Host, text: str | None) -> None:
        if text is None or self.read(host) == text:
            return  # removed with its package, or built with it
        began = time.time()
        done = host.run("dkms", "autoinstall", "-k", self.kernel, changes=True, limit=LIMIT_S)
        now = self.read(host)
        if now != text:
            other = "" if self.names == NAMES else f"{self.names[0]} "
            reason = f"DKMS: {done.last_line}" if not done.ok else f"there is {now or 'none'}"
            shown = dkms_log.reason(host, began) or f"; see {dkms_log.LOGS}"
            raise RuntimeError(f"no module {other}{text} for kernel {self.kernel}: {reason}{shown}")


def module_info(host: Host, kernel: str, field: str, names: Sequence[str] = NAMES) -> str:
    """A field of the installed module for a kernel; "" if there is none. `Unreadable` if modinfo fails."""
    for name in names:
        result = host.run("modinfo", "-k", kernel, "-F", field, name, limit=10)
        text = result.out.split("\n", 1)[0].strip()
        if result.ok and text:
            return text
        # "No such file": it is gone, and the index of modules still has it.
        if not result.ok and "not found" not in result.err and "No such file" not in result.err:
            line = result.last_line
            raise Unreadable(line if line.startswith("modinfo") else f"modinfo: {line}")
        if result.ok:
            raise Unreadable("modinfo: no output")
    return ""
