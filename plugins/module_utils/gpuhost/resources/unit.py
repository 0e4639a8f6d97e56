"""A systemd unit: "unit:irqbalance.service:boot" (enabled, disabled, masked) or "…:now" (active, inactive)."""

from __future__ import annotations

from ..host import Host
from ..model import Unreadable, Unsupported

PROPERTIES = ("Id", "LoadState", "ActiveState", "UnitFileState", "MainPID")
# Where unit files and their links lie, the first one counts; and beside these, what generators make.
FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
# Stopping these ends nothing that runs. irqbalance leaves interrupts where they are.
HARMLESS = (".timer", ".path", ".socket", ".automount", "irqbalance.service")
NOT_WRITABLE = ("static", "generated", "transient", "alias", "indirect", "linked", "bad")


def ask_systemd(host: Host, *argv: str) -> str:
    """What systemctl prints; `Unsupported` on a host that was not started by systemd."""
    said = host.run("systemctl", *argv)
    if said.ok:
        return said.out
    # The folder is how systemd's own libraries tell whether it runs (sd_booted).
    if not host.exists("/run/systemd/system"):
        raise Unsupported("systemd does not run here")
    raise Unreadable(f"systemctl {argv[0]}: {said.said}")


def show(host: Host, *units: str) -> dict[str, dict[str, str]]:
    """The properties of several units in one call, by the name asked for."""
    said = ask_systemd(host, "show", "--property=" + ",".join(PROPERTIES), "--", *units)
    blocks = [dict(line.partition("=")[::2] for line in b.splitlines()) for b in said.strip().split("\n\n")]
    if len(blocks) != len(units):
        raise Unreadable(f"systemctl show answered for {len(blocks)} of {len(units)} units")
    return dict(zip(units, blocks))


def runs(active_state: str) -> str:
    """Active or inactive: a unit that failed runs no more than one that was stopped, and one that starts runs."""
    return "inactive" if active_state in ("inactive", "failed", "deactivating") else "active"


class Unit:
    """One side of one unit: whether it starts at boot, or whether it runs now."""

    def __init__(self, place: str) -> None:
        self.name, _, self.side = place.rpartition(":")

    def read(self, host: Host) -> str | None:
        found = show(host, self.name)[self.name]
        if found["LoadState"] == "not-found":
            # A unit whose file is gone neither runs nor starts: what undo wants to see when it is run a second time.
            return "inactive" if self.side == "now" else "disabled"
        return runs(found["ActiveState"]) if self.side == "now" else found["UnitFileState"]

    def write(self, host: Host, text: str | None) -> None:
        for verb in self._verbs(host, text):
            done = host.run("systemctl", verb, "--", self.name, changes=True)
            if not done.ok:
                raise RuntimeError(f"systemctl {verb} {self.name}: {done.said}")

    def _verbs(self, host: Host, text: str | None) -> list[str]:
        if self.side == "now":
            return ["start" if text == "active" else "stop"]
        if text == "masked":
            return ["mask"]
        first = ["unmask"] if (self.read(host) or "").startswith("masked") else []
        if text == "enabled":
            return [*first, "enable"]
        return [*first, "disable"] if text == "disabled" else first
