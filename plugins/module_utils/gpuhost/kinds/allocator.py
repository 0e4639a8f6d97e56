"""jemalloc or tcmalloc under one service, never under the whole host; proved by what its main process has mapped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..allocators import OTHER, preloaded
from ..host import Host
from ..model import OK, PENDING, REFUSED, Conflict, Knob, Reading, Refused, Step, Unreadable, Unsupported
from ..resources.file import described
from ..resources.services import GLIBC, STATIC, Service, environment_of, malloc_of, services
from ..snapshot import View
from ._allocator_library import library_of
from ._allocator_spec import Choice, Wish
from ._common import all_alike, guarded, settled
from ._preloads import by_its_unit, by_the_host
from ._types import Type

UNIT = r"[A-Za-z0-9:_.@-]+(?<!@)\.service"  # no template: that does not run
ENVIRONMENT = "/etc/gpuctl/allocator/{}.env"  # one for each service: none has to outlive another
DROP_IN = "/etc/systemd/system/{}.d/50-gpuctl-allocator.conf"
# A missing file keeps no service from starting; what it really runs with is read from its process.
TEXT = """# Written by gpuctl; `gpuctl rollback` takes it back.
[Service]
EnvironmentFile=-{}
"""


def type_of(key: str) -> Type | None:
    """What values a key takes; a key is a service's full name."""
    return Choice() if re.fullmatch(UNIT, key, re.ASCII) else None


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """All services in one question to systemd."""
    try:
        found = services(view.host, *(knob.key for knob in knobs))
    except (Unreadable, Unsupported) as reason:
        return all_alike(knobs, reason)
    told = [guarded(k, lambda k=k, s=s: _read(view, k, s)) for k, s in zip(knobs, found)]  # type: ignore[misc]
    return [reading.but(wanted=Wish.of(knob.value).allocator) for knob, reading in zip(knobs, told)]


def _read(view: View, knob: Knob, service: Service) -> Reading:
    if service.state != "loaded":
        raise Unsupported(f"{service.name} is {service.state.replace('-', ' ')} on this host")
    wish = Wish.of(knob.value)
    rivals = (*by_its_unit(view.host, service, *_files(service)), *by_the_host(view.host, wish.allocator))
    if any(rival.wins for rival in rivals):
        return _refused(knob, rivals)
    library, install = library_of(view, wish.allocator)
    environment = {"LD_PRELOAD": library, **wish.options}
    now, outdated = _now(view.host, service, wish, environment)
    steps = install + _write(view, service, environment)
    restart = _restart(view, service, wish, now) if outdated and wish.restart else ()
    found = settled(
        knob,
        now=now,
        boot=_at_start(view.host, service),
        steps=steps + restart,
        # The drop-in is right, but systemd has not read it.
        refresh=("systemd",) if not steps and _files(service)[1] not in service.files else (),
        conflicts=rivals,
        disruptive=f"restarts {service.name}" if restart else "",
    )
    if outdated and found.state == OK:
        reason = f"{service.name} takes it when it is next restarted (`restart: true` allows gpuctl to do that)"
        return found.but(state=PENDING, reason=reason)
    return found


def _files(service: Service) -> tuple[str, str]:
    """Our environment file of a service, and the drop-in that makes systemd read it."""
    return ENVIRONMENT.format(service.name), DROP_IN.format(service.name)


def _write(view: View, service: Service, environment: Mapping[str, str]) -> tuple[Step, ...]:
    variables, drop_in = _files(service)
    text = "".join(f"{name}={value}\n" for name, value in environment.items())
    return view.step(f"file:{variables}", described(text)) + view.step(
        f"file:{drop_in}", described(TEXT.format(variables))
    )


def _at_start(host: Host, service: Service) -> str:
    """What our files, as they are, give the service when it starts."""
    variables, drop_in = (host.read_or_none(path) for path in _files(service))
    return " and ".join(_named(variables) if variables and drop_in else ()) or GLIBC


def _refused(knob: Knob, rivals: tuple[Conflict, ...]) -> Reading:
    first = next(rival for rival in rivals if rival.wins)
    reason = f"{first.where} preloads a library already: {first.value}"
    return Reading(knob.name, knob.value, state=REFUSED, reason=reason, conflicts=rivals)


def _now(host: Host, service: Service, wish: Wish, environment: Mapping[str, str]) -> tuple[str, bool]:
    """(what the service runs with, whether it must be started anew to run as it should)."""
    malloc = malloc_of(host, service.pid)
    if malloc is None:
        return "not running", False
    if malloc == STATIC:
        raise Unsupported(f"the program of {service.name} is statically linked: no library can be put under it")
    given = environment_of(host, service.pid)
    _leave_strangers_alone(service, wish, malloc, given.get("LD_PRELOAD", ""))
    if malloc == wish.allocator:
        right = all(given.get(name) == value for name, value in environment.items())
        return (malloc, False) if right else (f"{malloc}, other options", True)
    if environment["LD_PRELOAD"] == given.get("LD_PRELOAD"):
        raise Unsupported(f"the program of {service.name} does not heed LD_PRELOAD, as one that gains privileges")
    return malloc, True


def _leave_strangers_alone(service: Service, wish: Wish, malloc: str, preload: str) -> None:
    """Ours would take the place of another library, or come together with an allocator of the program's own."""
    others = [entry for entry in re.split(r"[\s:]+", preload) if entry and not preloaded(entry)]
    if others:
        raise Refused(f"{service.name} runs with LD_PRELOAD={preload}, which no file of its unit says")
    own = set(malloc.split(" and ")) - {GLIBC, wish.allocator, *_named(preload)}
    if own:
        raise Refused(f"{service.name} brings {', '.join(own)} itself, and two allocators in one process crash")


def _restart(view: View, service: Service, wish: Wish, now: str) -> tuple[Step, ...]:
    setting = f"restart:{service.name}"
    if setting in view.refused:
        # Its files stay: once its program takes them, a restart by hand is all it needs.
        raise Unsupported(f"{service.name} was restarted and still runs without {wish.allocator}")
    return (Step(setting, now.partition(",")[0], wish.allocator),)


def _named(text: str) -> list[str]:
    """The allocators that an environment file or an LD_PRELOAD speaks of."""
    entries = preloaded(text.replace("LD_PRELOAD=", " "))
    return [found.group(1) for entry in entries if (found := OTHER.search(entry))]
