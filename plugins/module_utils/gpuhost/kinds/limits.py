"""Limits of processes: limits.d for logins, systemd's defaults for services, because PAM does not reach services."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..host import Host
from ..model import Conflict, Knob, Reading, Refused, Step, Unreadable, Unsupported
from ..owners import in_order
from ..settings.line import LIMITS, SYSTEM_LIMITS, USER_LIMITS
from ..settings.unit import ask_systemd
from ..view import View
from ._common import all_alike, guarded, settled
from ._types import UNITS, Type

CAP_SYS_RESOURCE = 24
UNLIMITED = "unlimited"


class Item(NamedTuple):
    """One limit: what PAM, systemd and /proc/PID/limits call it, and how many bytes PAM's unit has."""

    pam: str
    systemd: str
    proc: str
    unit: int


ITEMS = {
    "memlock": Item("memlock", "DefaultLimitMEMLOCK", "Max locked memory", 1024),
    "stack": Item("stack", "DefaultLimitSTACK", "Max stack size", 1024),
    "nofile": Item("nofile", "DefaultLimitNOFILE", "Max open files", 1),
    "nproc": Item("nproc", "DefaultLimitNPROC", "Max processes", 1),
    "core": Item("core", "DefaultLimitCORE", "Max core file size", 1024),
}


class Limit(NamedTuple):
    """A number (bytes, KiB, MiB or GiB for sizes) or "unlimited"; in bytes."""

    sized: bool

    def check(self, value: object) -> str:
        if value == UNLIMITED:
            return UNLIMITED
        found = re.fullmatch(r"(\d+) ?(|KiB|MiB|GiB)", str(value))
        if found is None or isinstance(value, bool) or (found.group(2) and not self.sized):
            what = "a size such as 64GiB" if self.sized else "a whole number"
            raise ValueError(f"must be {what} or unlimited, not {value!r}")
        return str(int(found.group(1)) * UNITS[found.group(2)])


def type_of(key: str) -> Type | None:
    """What values a key takes."""
    return Limit(ITEMS[key].unit > 1) if key in ITEMS else None


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """What the system's manager gives to services now, and what files give to logins and services later."""
    try:
        held = _held(view.host, knobs)
    except (Unreadable, Unsupported) as reason:
        return all_alike(knobs, reason)
    return [guarded(knob, lambda knob=knob: _read(view, knob, held)) for knob in knobs]  # type: ignore[misc]


def _held(host: Host, knobs: Sequence[Knob]) -> dict[str, str]:
    """systemd's own defaults, in its words."""
    names = ",".join(ITEMS[knob.key].systemd for knob in knobs)
    said = ask_systemd(host, "show", f"--property={names}")
    return dict(text.partition("=")[::2] for text in said.splitlines() if "=" in text)


def _read(view: View, knob: Knob, held: dict[str, str]) -> Reading:
    item = ITEMS[knob.key]
    _refuse_if_harmful(view.host, knob, item)
    now = UNLIMITED if held.get(item.systemd) == "infinity" else held.get(item.systemd, "?")
    logins, rivals = _for_logins(view, knob, item)
    services, also = _for_services(view, knob, item)
    steps: tuple[Step, ...] = ()
    in_pam = _in_pam_units(knob.value, item)
    for who in ("*", "root"):
        for kind in ("soft", "hard"):
            if logins.get((who, kind)) != in_pam:
                steps += view.step(f"line:{LIMITS}:{who} {kind} {item.pam}", in_pam)
    wanted = "infinity" if knob.value == UNLIMITED else knob.value
    for path, value in services.items():
        if value != wanted:
            steps += view.step(f"line:{path}:{item.systemd}", wanted)
    return settled(
        knob,
        now=now,
        boot=_at_boot(knob, item, logins, services),
        steps=steps,
        # The files are right, but the manager has not read them.
        refresh=("systemd",) if now != knob.value and not steps else (),
        conflicts=tuple(rivals + also),
        notes=_old_services(view.host, knob, item),
    )


def _at_boot(knob: Knob, item: Item, logins: dict[tuple[str, str], str], services: dict[str, str]) -> str:
    """One word where logins and services get the same, else both."""
    pam = logins.get(("*", "hard"), "system default")
    for_logins = pam if not pam.isdigit() else str(int(pam) * item.unit)
    for_services = services[SYSTEM_LIMITS].replace("infinity", UNLIMITED) or "system default"
    if for_logins == for_services:
        return for_logins
    return f"{for_logins} for logins, {for_services} for services"


def _in_pam_units(value: str, item: Item) -> str:
    return value if value == UNLIMITED else str(int(value) // item.unit)


def _refuse_if_harmful(host: Host, knob: Knob, item: Item) -> None:
    """A limit that the kernel will not give makes PAM refuse every login: root's own limit and rights decide."""
    if knob.key == "nofile":
        most = host.value("/proc/sys/fs/nr_open")
        if most is None:
            raise Unreadable("cannot read /proc/sys/fs/nr_open, which bounds it")
        if knob.value == UNLIMITED or int(knob.value) > int(most):
            raise Refused(f"{knob.value} open files are more than the kernel allows (fs.nr_open is {most})")
    status = host.read_or_none("/proc/self/status") or ""
    rights = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    if rights is None or int(rights.group(1), 16) >> CAP_SYS_RESOURCE & 1:
        return
    hard = _limits_of(host, "self").get(item.proc, ("", ""))[1]
    if hard != UNLIMITED and (knob.value == UNLIMITED or not hard.isdigit() or int(knob.value) > int(hard)):
        raise Unsupported(f"this container may not raise it above {hard} (no CAP_SYS_RESOURCE)")


def _limits_of(host: Host, process: str) -> dict[str, tuple[str, str]]:
    """What /proc/PID/limits says: name -> (soft, hard)."""
    text = host.read_or_none(f"/proc/{process}/limits") or ""
    rows = (re.match(r"(Max .+?)\s{2,}(\S+)\s+(\S+)", line) for line in text.splitlines())
    return {row.group(1): (row.group(2), row.group(3)) for row in rows if row}


def _for_logins(view: View, knob: Knob, item: Item) -> tuple[dict[tuple[str, str], str], list[Conflict]]:
    """(who, soft or hard) -> the value PAM gives, the last line for it counts; and who else says otherwise."""
    found: dict[tuple[str, str], str] = {}
    rivals = []
    for path in ["/etc/security/limits.conf", *in_order(view.host, ("/etc/security/limits.d",), ".conf")]:
        for number, text in enumerate((view.host.read_or_none(path) or "").splitlines(), 1):
            words = text.partition("#")[0].split()
            if len(words) != 4 or words[2] != item.pam or words[0] not in ("*", "root"):
                continue
            for kind in ("soft", "hard") if words[1] == "-" else (words[1],):
                found[words[0], kind] = UNLIMITED if words[3] in ("infinity", "-1") else words[3]
            if path != LIMITS and words[3] != _in_pam_units(knob.value, item):
                rivals.append(Conflict("limits.d", f"{path}:{number}", text.strip(), wins=path > LIMITS))
    return found, rivals


def _for_services(view: View, knob: Knob, item: Item) -> tuple[dict[str, str], list[Conflict]]:
    """Our file of each manager -> the value in force; and who else says otherwise."""
    found, rivals = {}, []
    wanted = "infinity" if knob.value == UNLIMITED else knob.value
    for ours, name in ((SYSTEM_LIMITS, "system"), (USER_LIMITS, "user")):
        value = ""
        folders = tuple(f"{base}/systemd/{name}.conf.d" for base in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))
        for path in [f"/etc/systemd/{name}.conf", *in_order(view.host, folders, ".conf")]:
            for number, text in enumerate((view.host.read_or_none(path) or "").splitlines(), 1):
                key, equals, said = text.strip().partition("=")
                if equals and key.strip() == item.systemd:
                    value = said.strip()
                    if path != ours and value != wanted:
                        late = path.rpartition("/")[2] > ours.rpartition("/")[2] and path.count(".conf") > 1
                        rivals.append(Conflict("systemd", f"{path}:{number}", value, wins=late))
        found[ours] = value
    return found, rivals


def _old_services(host: Host, knob: Knob, item: Item) -> tuple[str, ...]:
    """Which running services still have another limit: they keep it until they are started again."""
    old = []
    for folder in ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice"):
        for path in host.glob(f"{folder}/*.service/cgroup.procs"):
            first = (host.read_or_none(path) or "").split()
            limits = _limits_of(host, first[0]).get(item.proc) if first else None
            if limits and limits[0] != knob.value:
                old.append(path.split("/")[-2])
    if not old:
        return ()
    more = f" and {len(old) - 5} more" if len(old) > 5 else ""
    return (
        f"{len(old)} services run with another {knob.key} limit until they are restarted: {', '.join(old[:5])}{more}",
    )


def prove(host: Host) -> str:
    """A fresh login and sudo still work, for root and for an ordinary user."""
    people = [row.split(":") for row in (host.read_or_none("/etc/passwd") or "").splitlines()]
    ordinary = [p[0] for p in people if len(p) > 6 and 1000 <= int(p[2]) < 60000 and p[6].endswith("sh")]
    logins = ["root", *ordinary[:1]]
    tries: list[tuple[str, ...]] = [("su", "-l", name, "-s", "/bin/sh", "-c", "true") for name in logins]
    if host.which("sudo"):
        tries.append(("sudo", "-n", "true"))
    for argv in tries:
        done = host.run(*argv, limit=30)
        if not done.ok:
            return f"`{' '.join(argv)}` fails with it: {done.said}"
    return ""
