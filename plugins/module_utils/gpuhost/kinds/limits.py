"""Limits of processes: limits.d for logins, systemd's defaults for services, because PAM does not reach services."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..host import Host
from ..model import Conflict, Knob, Reading, Refused, Step, Unreadable, Unsupported
from ..resources.line import LIMITS, SYSTEM_LIMITS, USER_LIMITS
from ..resources.unit import ask_systemd
from ..snapshot import View
from . import _limited_services, _lines, _logins, _rights
from ._common import all_alike, guarded, settled
from ._limit_files import ITEMS, UNLIMITED, Item, for_logins, for_services, from_systemd, in_pam
from ._limited_services import Limits, limits_of
from ._types import UNITS, Type

DEFAULT = "system default"


class Limit(NamedTuple):
    """A number (bytes, KiB, MiB or GiB for sizes) or, where the kernel knows that, "unlimited"; in bytes."""

    item: Item

    def check(self, value: object) -> str:
        sized, bounded = self.item.unit > 1, self.item.pam == "nofile"
        if value == UNLIMITED and not bounded:
            return UNLIMITED
        found = re.fullmatch(r"(\d+) ?(|KiB|MiB|GiB)", str(value))
        if found is None or isinstance(value, bool) or (found.group(2) and not sized):
            what = "a size such as 64GiB" if sized else "a whole number"
            raise ValueError(f"must be {what}{'' if bounded else ' or unlimited'}, not {value!r}")
        number = int(found.group(1)) * UNITS[found.group(2)]
        if number % self.item.unit:
            raise ValueError(f"must be whole KiB, not {number} bytes")
        return str(number)


class Place(NamedTuple):
    """One line that a limit needs: in which file of ours, under which key, as which text."""

    owner: str
    path: str
    key: str
    text: str


class Files(NamedTuple):
    """What all files say, and what the manager and the running services hold."""

    lines: Mapping[str, list[_lines.Said]]  # by the file of ours that stands among them
    held: Mapping[str, str]
    services: Mapping[str, Limits]


def type_of(key: str) -> Type | None:
    """What values a key takes."""
    return Limit(ITEMS[key]) if key in ITEMS else None


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """What the system's manager gives to services now, and what files give to logins and services later."""
    host = view.host
    try:
        held = _held(host, knobs)
        lines = {LIMITS: for_logins(host), SYSTEM_LIMITS: for_services(host, "system")}
        lines[USER_LIMITS] = for_services(host, "user")
        files = Files(lines, held, _limited_services.running(host))
    except (Unreadable, Unsupported, OSError) as reason:
        return all_alike(knobs, reason)
    return [guarded(knob, lambda knob=knob: _read(view, knob, files)) for knob in knobs]  # type: ignore[misc]


def _held(host: Host, knobs: Sequence[Knob]) -> dict[str, str]:
    """systemd's own defaults, in its words."""
    names = [ITEMS[knob.key].systemd for knob in knobs]
    said = ask_systemd(host, "show", "--property=" + ",".join(name + side for name in names for side in ("", "Soft")))
    return dict(text.partition("=")[::2] for text in said.splitlines() if "=" in text)


def _read(view: View, knob: Knob, files: Files) -> Reading:
    item = ITEMS[knob.key]
    _refuse_if_harmful(view, knob, item)
    now = _now(files.held, item)
    steps: tuple[Step, ...] = ()
    rivals: list[Conflict] = []
    for place in _places(knob, item):
        lines = _lines.of(files.lines[place.path], place.key)
        due = () if _last(lines) == knob.value else view.step(f"line:{place.path}:{place.key}", place.text)
        rivals += _lines.rivals(place.owner, lines, knob.value, place.path, bool(due))
        steps += due
    services = _last(_lines.of(files.lines[SYSTEM_LIMITS], item.systemd))
    return settled(
        knob,
        now=now,
        boot=_at_boot(files, knob, item),
        steps=steps,
        # The files are right, but the manager has not read them.
        refresh=("systemd",) if now != knob.value == services else (),
        conflicts=tuple(dict.fromkeys(rivals)),
        notes=(*_limited_services.note(view.host, files.services, item, knob.value), *_for_some(files, knob, item)),
    )


def _places(knob: Knob, item: Item) -> list[Place]:
    """PAM's "*" leaves out root."""
    pam, systemd = in_pam(knob.value, item), "infinity" if knob.value == UNLIMITED else knob.value
    keys = [f"{who} {kind} {item.pam}" for who in ("*", "root") for kind in ("soft", "hard")]
    managers = [Place("systemd", path, item.systemd, systemd) for path in (SYSTEM_LIMITS, USER_LIMITS)]
    return [*(Place("limits.d", LIMITS, key, pam) for key in keys), *managers]


def _last(lines: Sequence[_lines.Said]) -> str:
    return lines[-1].value if lines else DEFAULT


def _now(held: Mapping[str, str], item: Item) -> str:
    if item.systemd not in held:
        raise Unreadable(f"systemctl show does not tell {item.systemd}")
    hard = held[item.systemd]
    return from_systemd(f"{held.get(f'{item.systemd}Soft', hard)}:{hard}")


def _at_boot(files: Files, knob: Knob, item: Item) -> str:
    """One word where everybody gets the same, else what logins and what services get."""
    found: dict[str, dict[str, None]] = {"logins": {}, "services": {}}
    for place in _places(knob, item):
        who = "logins" if place.path == LIMITS else "services"
        found[who][_last(_lines.of(files.lines[place.path], place.key))] = None
    texts = {who: " or ".join(values) for who, values in found.items()}
    if len(set(texts.values())) == 1:
        return texts["logins"]
    return ", ".join(f"{text} for {who}" for who, text in texts.items())


def _for_some(files: Files, knob: Knob, item: Item) -> tuple[str, ...]:
    """Lines for single people and groups go before those for everybody, wherever they stand."""
    lines = [line for line in files.lines[LIMITS] if line.key.endswith(f" {item.pam}") and line.value != knob.value]
    some = dict.fromkeys(f"{s.path}:{s.number} ({s.text})" for s in lines if not s.key.startswith(("* ", "root ")))
    return (f"some people have a {item.pam} limit of their own: {', '.join(list(some)[:3])}",) if some else ()


def _refuse_if_harmful(view: View, knob: Knob, item: Item) -> None:
    """A limit that the kernel will not give makes PAM refuse every login, and systemd give services another one."""
    host = view.host
    if knob.key == "nofile":
        _refuse_more_files_than_allowed(view, int(knob.value))
    if _rights.may(host, _rights.SYS_RESOURCE):
        return
    for process in ("self", "1"):
        hard = limits_of(host, process).get(item.proc, "").rpartition(":")[2]
        if not hard:
            raise Unreadable(f"/proc/{process}/limits does not tell how far the limit can be raised")
        if hard != UNLIMITED and (knob.value == UNLIMITED or int(knob.value) > int(hard)):
            raise Unsupported(f"this container may not raise it above {hard} (no CAP_SYS_RESOURCE)")


def _refuse_more_files_than_allowed(view: View, wanted: int) -> None:
    """Now, or at the next boot: the kernel's own bound must be there first, or nobody can log in meanwhile."""
    now = view.host.value("/proc/sys/fs/nr_open")
    if now is None:
        raise Unreadable("cannot read /proc/sys/fs/nr_open, which bounds it")
    at_boot = view.owners.sysctl_at_boot("fs.nr_open")
    for bound, when in ((now, "is"), (at_boot[0] if at_boot else now, "will at the next boot be")):
        if wanted > int(bound):
            raise Refused(
                f"{wanted} open files are more than the kernel allows: fs.nr_open {when} {bound}; "
                f"set sysctl.fs.nr_open first and run this again"
            )


def prove(host: Host) -> str:
    """A fresh login and sudo still work, for root and for an ordinary user."""
    return _logins.why_broken(host)
