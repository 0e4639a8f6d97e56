"""jemalloc or tcmalloc for a single service, verified by the memory map of its main process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..allocators import OTHER, preloaded
from ..host import Host
from ..model import OK, PENDING, REFUSED, Conflict, Knob, Reading, Refused, Step, Unreadable, Unsupported
from ..record import digest
from ..resources.file import described
from ..resources.services import GLIBC, STATIC, Service, environment_of, malloc_of, services
from ..snapshot import HostSnapshot
from ..topology import CPU, cpus_of
from ._allocator_library import library_of
from ._allocator_spec import AllocatorSpec, AllocatorType
from ._common import all_failed, guarded, settled
from ._preloads import by_its_unit, by_the_host
from ._types import Type

UNIT = r"[A-Za-z0-9:_.@-]+(?<!@)\.service"  # no template, as templates do not run
ENVIRONMENT = "/etc/gpuctl/allocator/{}.env"  # one per service, so that each can be removed alone
DROP_IN = "/etc/systemd/system/{}.d/50-gpuctl-allocator.conf"
# With "-" a service starts even if the file is missing; the process shows what is in force.
TEXT = """# Written by gpuctl; `gpuctl rollback` takes it back.
[Service]
EnvironmentFile=-{}
"""


def type_of(key: str) -> Type | None:
    """Type of a key's value; a key is a service's full name."""
    return AllocatorType() if re.fullmatch(UNIT, key, re.ASCII) else None


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Readings of all services, with one query to systemd."""
    try:
        services_found = services(snapshot.host, *(knob.key for knob in knobs))
    except (Unreadable, Unsupported) as reason:
        return all_failed(knobs, reason)
    readings = [guarded(k, lambda k=k, s=s: _read(snapshot, k, s)) for k, s in zip(knobs, services_found)]  # type: ignore[misc]
    return [reading.but(desired=AllocatorSpec.of(knob.value).allocator) for knob, reading in zip(knobs, readings)]


def _read(snapshot: HostSnapshot, knob: Knob, service: Service) -> Reading:
    if service.state != "loaded":
        raise Unsupported(f"{service.name} is {service.state.replace('-', ' ')} on this host")
    spec = AllocatorSpec.of(knob.value)
    rivals = (*by_its_unit(snapshot.host, service, *_files(service)), *by_the_host(snapshot.host, spec.allocator))
    if any(rival.wins for rival in rivals):
        return _refused(knob, rivals)
    library, install = library_of(snapshot, spec.allocator)
    environment = {"LD_PRELOAD": library, **spec.options}
    if spec.allocator == "jemalloc" and not spec.conf:
        environment["MALLOC_CONF"] += _one_arena_a_cpu(snapshot.host)
    now, outdated = _now(snapshot.host, service, spec, environment)
    files = _write(snapshot, service, environment)
    steps = install + files
    restart = _restart(snapshot, service, spec, now) if outdated and spec.restart else ()
    if restart and snapshot.reverted_restarts.get(restart[0].setting) == {s.setting: digest(s.after) for s in files}:
        wrong = f"{service.name} did not run with {spec.allocator} when gpuctl restarted it"
        hint = "change its options, or leave `restart` out and restart it yourself; the next boot allows another try"
        raise Refused(f"{wrong}: {hint}")
    reading = settled(
        knob,
        now=now,
        boot=_at_start(snapshot.host, service),
        steps=steps + restart,
        # The drop-in is right, but systemd has not read it yet.
        refresh=("systemd",) if not steps and _files(service)[1] not in service.files else (),
        conflicts=rivals,
        disruptive=f"restarts {service.name}" if restart else "",
    )
    if outdated and reading.state == OK:
        reason = f"{service.name} takes it when it is next restarted (`restart: true` allows gpuctl to do that)"
        return reading.but(state=PENDING, reason=reason)
    return reading


def _one_arena_a_cpu(host: Host) -> str:
    """Options by which threads share an arena with those of their processor, near its memory.

    jemalloc needs the number of all processors where a service may use only some (jemalloc#2054): without it,
    5.3 leaves the option out, and older versions crash.
    """
    possible = host.value(f"{CPU}/possible")
    return f",percpu_arena:percpu,narenas:{max(cpus_of(possible)) + 1}" if possible else ""


def _files(service: Service) -> tuple[str, str]:
    """Return (environment file, systemd drop-in that loads it) of a service."""
    return ENVIRONMENT.format(service.name), DROP_IN.format(service.name)


def _write(snapshot: HostSnapshot, service: Service, environment: Mapping[str, str]) -> tuple[Step, ...]:
    variables, drop_in = _files(service)
    text = "".join(f"{name}={value}\n" for name, value in environment.items())
    return snapshot.step(f"file:{variables}", described(text)) + snapshot.step(
        f"file:{drop_in}", described(TEXT.format(variables))
    )


def _at_start(host: Host, service: Service) -> str:
    """The malloc that our current files give the service at its next start."""
    variables, drop_in = (host.read_or_none(path) for path in _files(service))
    return " and ".join(_named(variables) if variables and drop_in else ()) or GLIBC


def _refused(knob: Knob, rivals: tuple[Conflict, ...]) -> Reading:
    first = next(rival for rival in rivals if rival.wins)
    reason = f"{first.where} preloads a library already: {first.value}"
    return Reading(knob.name, knob.value, state=REFUSED, reason=reason, conflicts=rivals)


def _now(host: Host, service: Service, spec: AllocatorSpec, environment: Mapping[str, str]) -> tuple[str, bool]:
    """(the malloc in use, True if a restart is needed for the desired one)."""
    malloc = malloc_of(host, service.pid)
    if malloc is None:
        return "not running", False
    if malloc == STATIC:
        raise Unsupported(f"the program of {service.name} is statically linked: no library can be put under it")
    variables = environment_of(host, service.pid)
    _leave_strangers_alone(service, spec, malloc, variables.get("LD_PRELOAD", ""))
    if malloc == spec.allocator:
        right = all(variables.get(name) == value for name, value in environment.items())
        return (malloc, False) if right else (f"{malloc}, other options", True)
    if environment["LD_PRELOAD"] == variables.get("LD_PRELOAD"):
        raise Unsupported(f"the program of {service.name} does not heed LD_PRELOAD, as one that gains privileges")
    return malloc, True


def _leave_strangers_alone(service: Service, spec: AllocatorSpec, malloc: str, preload: str) -> None:
    """Refuse if ours would replace another preloaded library, or meet an allocator of the program itself."""
    others = [entry for entry in re.split(r"[\s:]+", preload) if entry and not preloaded(entry)]
    if others:
        raise Refused(f"{service.name} runs with LD_PRELOAD={preload}, which no file of its unit sets")
    bundled = set(malloc.split(" and ")) - {GLIBC, spec.allocator, *_named(preload)}
    if bundled:
        raise Refused(f"{service.name} brings {', '.join(bundled)} itself, and two allocators in one process crash")


def _restart(snapshot: HostSnapshot, service: Service, spec: AllocatorSpec, now: str) -> tuple[Step, ...]:
    setting = f"restart:{service.name}"
    if setting in snapshot.refused:
        # The files stay: once the program uses them, a restart by hand is enough.
        raise Unsupported(f"{service.name} was restarted and still runs without {spec.allocator}")
    return (Step(setting, now.partition(",")[0], spec.allocator),)


def _named(text: str) -> list[str]:
    """Allocators in an environment file or an LD_PRELOAD value."""
    entries = preloaded(text.replace("LD_PRELOAD=", " "))
    return [match.group(1) for entry in entries if (match := OTHER.search(entry))]
