"""jemalloc or tcmalloc under one service, never under the whole host; proved by what the running service maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..allocators import ALLOCATORS, Allocator, folders, library, preloaded
from ..facts.machine import Machine
from ..host import Host
from ..model import DIFFERS, PENDING, Conflict, Knob, Reading, Refused, Step, Unreadable, Unsupported
from ..settings.file import described
from ..settings.restart import DEFAULT, mapped
from ..settings.unit import show
from ..view import View
from ._common import all_alike, guarded, settled
from ._types import Type

RESTART = " restart"
DROP_IN = """# Written by gpuctl; `gpuctl rollback` takes it back.
[Service]
EnvironmentFile={environment}
"""
GLOBAL = ("/etc/ld.so.preload", "/etc/environment")


class Choice(NamedTuple):
    """An allocator's name, or a mapping of `allocator` and `restart` (whether the service may be started again)."""

    def check(self, value: object) -> str:
        given: dict[str, object] = dict(value) if isinstance(value, Mapping) else {"allocator": value}
        name, restart = given.pop("allocator", None), str(given.pop("restart", "false")).lower()
        if given or name not in ALLOCATORS:
            raise ValueError(f"must be {' or '.join(ALLOCATORS)}, or a mapping of allocator and restart, not {value!r}")
        if restart not in ("true", "false", "yes", "no", "on", "off"):
            raise ValueError(f"restart must be true or false, not {restart!r}")
        return str(name) + (RESTART if restart in ("true", "yes", "on") else "")


def type_of(key: str) -> Type | None:
    """What values a key takes; a key is a service's full name."""
    return Choice() if key.endswith(".service") and "/" not in key else None


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """All services in one question to systemd."""
    try:
        found = show(view.host, *(knob.key for knob in knobs))
    except (Unreadable, Unsupported) as reason:
        return all_alike(knobs, reason)
    return [guarded(knob, lambda knob=knob: _read(view, knob, found[knob.key])) for knob in knobs]  # type: ignore[misc]


def _read(view: View, knob: Knob, found: dict[str, str]) -> Reading:
    name, may_restart = knob.value.removesuffix(RESTART), knob.value.endswith(RESTART)
    if found["LoadState"] == "not-found":
        raise Unsupported(f"{knob.key} is not installed here")
    _refuse_two_allocators(view.host, knob.key, found.get("Environment", ""))
    environment, drop_in = (
        f"/etc/gpuctl/allocator/{knob.key}.env",
        f"/etc/systemd/system/{knob.key}.d/50-gpuctl-allocator.conf",
    )
    path, steps = _installed(view, name)
    steps += view.step(f"file:{environment}", described(_environment(ALLOCATORS[name], path)))
    steps += view.step(f"file:{drop_in}", described(DROP_IN.format(environment=environment)))
    boot = name if not steps else DEFAULT
    runs = mapped(view.host, found["MainPID"])
    waits = runs not in (None, name)
    if waits and may_restart:
        steps += (Step(f"restart:{knob.key}", runs, name),)
    restarts = f"restarts {knob.key}" if waits and may_restart else ""
    told = settled(knob, now=runs or "not running", boot=boot, steps=steps, disruptive=restarts).but(wanted=name)
    if waits and not may_restart and told.state != DIFFERS:
        return told.but(state=PENDING, reason=f"{knob.key} runs with {runs} until it is restarted")
    return told


def _environment(allocator: Allocator, path: str) -> str:
    lines = {"LD_PRELOAD": path, **allocator.environment}
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def _refuse_two_allocators(host: Host, unit: str, environment: str) -> None:
    said = {f"{unit} itself": environment.replace('"', " "), **{path: host.read_or_none(path) or "" for path in GLOBAL}}
    for where, text in said.items():
        held = preloaded(text.replace("LD_PRELOAD=", " "))
        if held:
            rival = Conflict("preload", where, held[0], wins=True)
            raise Refused(f"{rival.where} preloads {rival.value}: two allocators in one process crash; remove it first")


def _installed(view: View, name: str) -> tuple[str, tuple[Step, ...]]:
    """Where the library lies, or will lie, and the step that installs it."""
    path = library(view.host, name)
    if path is not None:
        return path, ()
    package = package_of(view.machine, name)
    folder = folders()[0] if view.machine.family == "debian" else "/usr/lib64"
    return f"{folder}/{ALLOCATORS[name].libraries[0]}", view.step(f"package:{package}", "installed")


def package_of(machine: Machine, name: str) -> str:
    """The distribution's package of an allocator; Unsupported where it is not known to have one."""
    if machine.distribution == "amzn" or machine.family not in ("debian", "rhel"):
        raise Unsupported(f"no package of {name} is known for {machine.distribution}: install its library yourself")
    if machine.family == "rhel":
        return {"jemalloc": "jemalloc", "tcmalloc": "gperftools-libs"}[name]
    if name == "jemalloc":
        return "libjemalloc2"
    # The 64-bit time_t transition renamed it: from Debian 13 and Ubuntu 24.04 on.
    renamed = {"debian": 13.0, "ubuntu": 24.04}.get(machine.distribution, 0.0)
    version = float(machine.version) if machine.version.replace(".", "", 1).isdigit() else 99.0
    return "libtcmalloc-minimal4t64" if version >= renamed else "libtcmalloc-minimal4"
