"""A systemd unit: "unit:irqbalance.service:boot" (enabled, disabled, masked) or "…:now" (active, inactive)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..host import Host
from ..model import Unreadable, Unsupported
from ..remembered import Remembered

PROPERTIES = ("Id", "LoadState", "ActiveState", "UnitFileState", "MainPID")
# Folders of unit files and their links, in order of precedence; without those of generators.
FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
# Stopping these ends no work; irqbalance leaves interrupts in place.
HARMLESS = (".timer", ".path", ".socket", ".automount", "irqbalance.service")
NOT_WRITABLE = ("static", "generated", "transient", "alias", "indirect", "linked", "bad")


def ask_systemd(host: Host, *argv: str) -> str:
    """The output of systemctl; `Unsupported` if systemd does not run, `Unreadable` if systemctl fails."""
    result = host.run("systemctl", *argv)
    if result.ok:
        return result.out
    # systemd's libraries test for the same folder (sd_booted).
    if not host.exists("/run/systemd/system"):
        raise Unsupported("systemd does not run here")
    raise Unreadable(f"systemctl {argv[0]}: {result.last_line}")


def show(host: Host, *units: str) -> dict[str, dict[str, str]]:
    """Properties of several units, by one query; keys are the names of the request."""
    known = host.units if isinstance(host, Remembered) else {}
    missing = [name for name in units if name not in known]
    if missing:
        output = ask_systemd(host, "show", "--property=" + ",".join(PROPERTIES), "--", *missing)
        blocks = [dict(line.partition("=")[::2] for line in b.splitlines()) for b in output.strip().split("\n\n")]
        if len(blocks) != len(missing):
            raise Unreadable(f"systemctl show answered for {len(blocks)} of {len(missing)} units")
        known.update(zip(missing, blocks))
    return {name: known[name] for name in units}


def runs(active_state: str) -> str:
    """Reduce an ActiveState to active or inactive; a failed unit is inactive, a starting one active."""
    return "inactive" if active_state in ("inactive", "failed", "deactivating") else "active"


class Unit:
    """One side of one unit: its state at boot, or now."""

    def __init__(self, place: str) -> None:
        self.name, _, self.side = place.rpartition(":")

    def read(self, host: Host) -> str | None:
        return _state(show(host, self.name)[self.name], self.side)

    def write(self, host: Host, text: str | None) -> None:
        if self.side == "boot":
            wrong = write_boot_states(host, {self.name: (self.read(host), text)}).get(self.name)
            if wrong:
                raise RuntimeError(wrong)
            return
        verb = "start" if text == "active" else "stop"
        done = host.run("systemctl", verb, "--", self.name, changes=True)
        if not done.ok:
            raise RuntimeError(f"systemctl {verb} {self.name}: {done.last_line}")


def read_all(host: Host, places: Iterable[str]) -> dict[str, str]:
    """The texts of several sides of units, by one query."""
    sides = {place: place.rpartition(":") for place in places}
    properties = show(host, *dict.fromkeys(name for name, _, _ in sides.values()))
    return {place: _state(properties[name], side) for place, (name, _, side) in sides.items()}


def _state(properties: Mapping[str, str], side: str) -> str:
    if properties["LoadState"] == "not-found":
        # A unit without a file neither runs nor starts, as a second undo expects.
        return "inactive" if side == "now" else "disabled"
    return runs(properties["ActiveState"]) if side == "now" else properties["UnitFileState"]


def write_boot_states(host: Host, changes: Mapping[str, tuple[str | None, str | None]]) -> dict[str, str]:
    """Enable, disable or mask units; systemd reads all unit files again, which is slow, once.

    `changes`: unit -> its states before and after. Returns errors by unit.
    """
    errors: dict[str, str] = {}
    changed = []
    for name, (before, after) in changes.items():
        for verb in _boot_verbs(before or "", after):
            done = host.run("systemctl", verb, "--no-reload", "--", name, changes=True)
            if not done.ok:
                errors[name] = f"systemctl {verb} {name}: {done.last_line}"
                break
            changed.append(name)
    if changed:
        done = host.run("systemctl", "daemon-reload", changes=True, limit=300)
        if not done.ok:
            errors.update(dict.fromkeys(changed, f"systemctl daemon-reload: {done.last_line}"))
    return errors


def _boot_verbs(current: str, text: str | None) -> list[str]:
    if text == "masked":
        return ["mask"]
    first = ["unmask"] if current.startswith("masked") else []
    if text == "enabled":
        return [*first, "enable"]
    return [*first, "disable"] if text == "disabled" else first
