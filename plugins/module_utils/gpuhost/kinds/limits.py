"""Limits of processes: limits.d for logins, systemd's defaults for services, to which PAM does not apply."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..host import Host
from ..model import (
    CONTESTED,
    OK,
    PENDING,
    UNSUPPORTED,
    Conflict,
    Knob,
    Reading,
    Refused,
    Step,
    Unreadable,
    Unsupported,
)
from ..resources.line import LIMITS, SYSTEM_LIMITS, USER_LIMITS
from ..resources.unit import ask_systemd
from ..snapshot import HostSnapshot
from . import _limited_services, _lines, _logins, _pam, _rights
from ._common import all_failed, guarded, settled
from ._limit_files import ITEMS, UNLIMITED, Item, for_logins, for_services, from_systemd, in_pam
from ._limited_services import Limits, limits_of
from ._types import UNITS, Type

DEFAULT = "system default"


class Limit(NamedTuple):
    """A number (sizes: bytes, KiB, MiB or GiB), or "unlimited" if the kernel supports that; the text is in bytes."""

    item: Item

    def check(self, value: object) -> str:
        sized, bounded = self.item.unit > 1, self.item.pam == "nofile"
        if value == UNLIMITED and not bounded:
            return UNLIMITED
        match = re.fullmatch(r"(\d+) ?(|KiB|MiB|GiB)", str(value))
        if match is None or isinstance(value, bool) or (match.group(2) and not sized):
            what = "a size such as 64GiB" if sized else "a whole number"
            raise ValueError(f"must be {what}{'' if bounded else ' or unlimited'}, not {value!r}")
        number = int(match.group(1)) * UNITS[match.group(2)]
        if number % self.item.unit:
            raise ValueError(f"must be whole KiB, not {number} bytes")
        return str(number)


class Place(NamedTuple):
    """One line for a limit: the owner of the format, our file, its key and text."""

    owner: str
    path: str
    key: str
    text: str


class Files(NamedTuple):
    """Lines of all files, systemd's defaults in force, and the limits of running services."""

    lines: Mapping[str, list[_lines.KeyedLine]]  # by our file among them
    defaults: Mapping[str, str]
    services: Mapping[str, Limits]


def type_of(key: str) -> Type | None:
    """Type of a key's value."""
    return Limit(ITEMS[key]) if key in ITEMS else None


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """systemd's defaults now, and the limits that files give to logins and services later."""
    host = snapshot.host
    try:
        defaults = _defaults(host, knobs)
        lines = {LIMITS: for_logins(host), SYSTEM_LIMITS: for_services(host, "system")}
        lines[USER_LIMITS] = for_services(host, "user")
        files = Files(lines, defaults, _limited_services.running(host))
    except (Unreadable, Unsupported, OSError) as reason:
        return all_failed(knobs, reason)
    return [guarded(knob, lambda knob=knob: _read(snapshot, knob, files)) for knob in knobs]  # type: ignore[misc]


def _defaults(host: Host, knobs: Sequence[Knob]) -> dict[str, str]:
    """systemd's defaults in force, as `systemctl show` prints them."""
    names = [ITEMS[knob.key].systemd for knob in knobs if ITEMS[knob.key].services]
    if not names:
        return {}
    output = ask_systemd(host, "show", "--property=" + ",".join(name + side for name in names for side in ("", "Soft")))
    return dict(text.partition("=")[::2] for text in output.splitlines() if "=" in text)


def _read(snapshot: HostSnapshot, knob: Knob, files: Files) -> Reading:
    item = ITEMS[knob.key]
    _refuse_if_harmful(snapshot, knob, item)
    now = _now(files.defaults, item) if item.services else None
    steps = _without_services(snapshot, item)
    rivals: list[Conflict] = []
    for place in _places(knob, item):
        lines = _lines.for_key(files.lines[place.path], place.key)
        due = () if _last(lines) == knob.value else snapshot.step(f"line:{place.path}:{place.key}", place.text)
        rivals += _lines.rivals(place.owner, lines, knob.value, place.path, bool(due))
        steps += due
    services = _last(_lines.for_key(files.lines[SYSTEM_LIMITS], item.systemd))
    notes = _limited_services.note(snapshot.host, files.services, item, knob.value) if item.services else ()
    reading = settled(
        knob,
        now=now,
        boot=_at_boot(files, knob, item),
        steps=steps,
        # The files are right, but systemd has not read them yet.
        refresh=("systemd",) if item.services and now != knob.value == services else (),
        conflicts=tuple(dict.fromkeys(rivals)),
        notes=(*notes, *_for_some(files, knob, item)),
    )
    return _of_ssh(snapshot.host, reading, files, item) if reading.state == OK else reading


def _without_services(snapshot: HostSnapshot, item: Item) -> tuple[Step, ...]:
    """Steps that undo the lines of an earlier version for services, of a limit for logins only."""
    lines = () if item.services else (f"line:{path}:{item.systemd}" for path in (SYSTEM_LIMITS, USER_LIMITS))
    owned = (snapshot.owned[line] for line in lines if line in snapshot.owned)
    return tuple(step for entry in owned for step in snapshot.step(entry.setting, entry.original))


def _of_ssh(host: Host, reading: Reading, files: Files, item: Item) -> Reading:
    """The reading, with the state of ssh logins where those get sshd's own limit instead of limits.d."""
    skipped = _pam.why_ssh_skips_limits(host)
    if not skipped:
        return reading
    if not item.services:
        return reading.but(state=UNSUPPORTED, reason=f"ssh logins do not get it: {skipped}; other logins do")
    service = next((name for name in ("ssh.service", "sshd.service") if files.services.get(name)), "")
    limit = files.services[service].get(item.proc, reading.desired) if service else reading.desired
    if limit == reading.desired:
        return reading
    why = f"ssh logins get {limit}, the limit of sshd itself: {skipped}"
    if _limited_services.sets_limit(host, service, item):
        return reading.but(state=CONTESTED, reason=f"{why}, and {service} sets {item.directive}")
    return reading.but(state=PENDING, reason=f"{why}; restart {service}")


def _places(knob: Knob, item: Item) -> list[Place]:
    """Places where a limit is written; root needs its own lines, because PAM's "*" excludes root."""
    pam, systemd = in_pam(knob.value, item), "infinity" if knob.value == UNLIMITED else knob.value
    keys = [f"{who} {kind} {item.pam}" for who in ("*", "root") for kind in ("soft", "hard")]
    managers = [Place("systemd", path, item.systemd, systemd) for path in (SYSTEM_LIMITS, USER_LIMITS)]
    return [*(Place("limits.d", LIMITS, key, pam) for key in keys), *(managers if item.services else ())]


def _last(lines: Sequence[_lines.KeyedLine]) -> str:
    return lines[-1].value if lines else DEFAULT


def _now(defaults: Mapping[str, str], item: Item) -> str:
    if item.systemd not in defaults:
        raise Unreadable(f"systemctl show has no {item.systemd}")
    hard = defaults[item.systemd]
    return from_systemd(f"{defaults.get(f'{item.systemd}Soft', hard)}:{hard}")


def _at_boot(files: Files, knob: Knob, item: Item) -> str:
    """The limit after a reboot; one text if logins and services get the same."""
    values: dict[str, dict[str, None]] = {"logins": {}, "services": {}}
    for place in _places(knob, item):
        who = "logins" if place.path == LIMITS else "services"
        values[who][_last(_lines.for_key(files.lines[place.path], place.key))] = None
    texts = {who: " or ".join(distinct) for who, distinct in values.items() if distinct}
    if len(set(texts.values())) == 1:
        return texts["logins"]
    return ", ".join(f"{text} for {who}" for who, text in texts.items())


def _for_some(files: Files, knob: Knob, item: Item) -> tuple[str, ...]:
    """A note on lines for single users and groups, which take precedence over those for everybody."""
    lines = [line for line in files.lines[LIMITS] if line.key.endswith(f" {item.pam}") and line.value != knob.value]
    some = dict.fromkeys(f"{s.path}:{s.number} ({s.text})" for s in lines if not s.key.startswith(("* ", "root ")))
    return (f"some users have their own {item.pam} limit: {', '.join(list(some)[:3])}",) if some else ()


def _refuse_if_harmful(snapshot: HostSnapshot, knob: Knob, item: Item) -> None:
    """Refuse a limit that the kernel would not grant: PAM would then refuse every login."""
    host = snapshot.host
    if knob.key == "nofile":
        _refuse_more_files_than_allowed(snapshot, int(knob.value))
    if _rights.may(host, _rights.SYS_RESOURCE):
        return
    for process in ("self", "1"):
        hard = limits_of(host, process).get(item.proc, "").rpartition(":")[2]
        if not hard:
            raise Unreadable(f"/proc/{process}/limits does not show how far the limit can be raised")
        if hard != UNLIMITED and (knob.value == UNLIMITED or int(knob.value) > int(hard)):
            raise Unsupported(f"this container may not raise it above {hard} (no CAP_SYS_RESOURCE)")


def _refuse_more_files_than_allowed(snapshot: HostSnapshot, desired: int) -> None:
    """Refuse a limit above fs.nr_open, now or at the next boot, as nobody could log in."""
    now = snapshot.host.value("/proc/sys/fs/nr_open")
    if now is None:
        raise Unreadable("cannot read /proc/sys/fs/nr_open, which bounds it")
    at_boot = snapshot.owners.sysctl_at_boot("fs.nr_open")
    for bound, when in ((now, "is"), (at_boot[0] if at_boot else now, "will at the next boot be")):
        if desired > int(bound):
            raise Refused(
                f"{desired} open files are more than the kernel allows: fs.nr_open {when} {bound}; "
                f"set sysctl.fs.nr_open first and run this again"
            )


def prove(host: Host) -> str:
    """Check that a new login and sudo still work, for root and for an ordinary user."""
    return _logins.why_broken(host)
