"""Parts of a GPU host's stack as the controller has planned them: packages, repositories, files and services.

Knobs: gpu_stack.driver, .fabric, .toolkit, .dcgm, .efa, .rdma and .nccl_tests. A value is a mapping, see `Part`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..facts.package_lists import manager
from ..host import Host
from ..model import FAILED, OK, Knob, Reading, Refused, Step, Unreadable
from ..record import PACKAGES
from ..refresh import LOAD
from ..resources import deb, rpm_packages
from ..resources.file import described
from ..resources.module import Module
from ..resources.unit import runs, show
from ..snapshot import HostSnapshot
from . import _container_runtimes, _efa, _nccl_tests, _stack_rpms
from ._common import read_all, settled
from ._types import Type

PARTS = ("driver", "fabric", "toolkit", "dcgm", "efa", "rdma", "nccl_tests")
RUNNING = "/sys/module/nvidia/version"
DEVICES = {"gdrdrv": "/dev/gdrdrv"}  # that a module makes, with udev
FOREIGN = ("nouveau", "nova_core", "nova_drm")
NO_MANAGER = "neither apt-get nor dnf is on this host"
EFA_BY_DNF = "gpuctl changes EFA on hosts with apt only: run EFA's installer here"


class Part(NamedTuple):
    """Content of a part.

    `shown`: its version for people, "" to leave the part as it is. `refused`: why it must not be changed.
    `versions`: package -> full version; `named`: those that are wanted for themselves, the others are dependencies.
    `removes`: packages that go. `holds`: packages to hold, if they are there. `repositories` and `files`: path ->
    content. `units`: to enable, and with `start` to start. `driver`: version that the module for the running kernel
    must have, "" for none. `earlier`: packages whose present version no repository has any more; `unasked`: those of
    which no repository was asked.
    `runtimes`: True to let container runtimes know NVIDIA's. `efa`: what EFA's installer is to do, see `_efa.read`.
    `nccl_tests`: what is built or checked, see `_nccl_tests.read`.
    `built`: further modules that DKMS builds, with their versions. `modules`: to be loaded, by one of `files`; a file
    whose content is None goes.
    """

    shown: str = ""
    refused: str = ""
    versions: Mapping[str, str] = {}
    named: Sequence[str] = ()
    removes: Sequence[str] = ()
    holds: Sequence[str] = ()
    repositories: Mapping[str, str] = {}
    files: Mapping[str, str | None] = {}
    units: Sequence[str] = ()
    start: bool = True
    driver: str = ""
    earlier: Sequence[str] = ()
    unasked: Sequence[str] = ()
    runtimes: bool = False
    efa: Mapping[str, Any] = {}
    nccl_tests: Mapping[str, str] = {}
    built: Mapping[str, str] = {}
    modules: Sequence[str] = ()


def type_of(key: str) -> Type | None:
    """None: no profile has these knobs, as their values are a plan for one host."""
    return None


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """State of each part; the text of a reading is its version."""
    parts = {knob.name: Part(**knob.value) for knob in knobs}
    driver = parts.get("gpu_stack.driver")
    named = [knob._replace(value=parts[knob.name].shown or "as it is") for knob in knobs]
    return read_all(snapshot, named, lambda snapshot, knob: _read(snapshot, knob, parts[knob.name], driver))


def _read(snapshot: HostSnapshot, knob: Knob, part: Part, driver: Part | None) -> Reading:
    if part.refused:
        raise Refused(part.refused)
    if not part.shown:
        return Reading(knob.name, "as it is", now="as it is", state=OK)
    host = snapshot.host
    if part.nccl_tests:
        return _nccl_tests.read(snapshot, knob, part.nccl_tests)
    by = manager(host)
    if not by:
        raise Refused(NO_MANAGER)
    if part.efa and by == "dnf":
        raise Refused(EFA_BY_DNF)
    if part.efa:
        driver_changes = driver is not None and bool(driver.shown and not driver.refused and _packages(host, driver))
        return _efa.read(snapshot, knob, part.efa, driver_changes=driver_changes)
    host = _read_once(snapshot, by)
    runtimes = _container_runtimes.files(host) if part.runtimes else {}
    files = tuple(
        step
        for kind, texts in (("file", part.files), ("repository", part.repositories))
        for path, text in texts.items()
        for step in snapshot.step(f"{kind}:{path}", None if text is None else described(text))
    )
    files += tuple(step for path, text in runtimes.items() for step in snapshot.step(f"file:{path}", text))
    packages = _packages(host, part)
    installed = _installed(host, part)
    built = (*(_module(host, part) if part.driver else ()), *_built(host, part))
    units = _units(host, part, bool(packages))
    other = _other_driver(host, part)
    steps = (*files, *packages, *built, *units)
    absent = [name for name in part.modules if not host.exists(f"/sys/module/{name}")]
    late = _late(host, part, absent, is_settled=not steps)
    reading = settled(
        knob,
        now=installed if part.named else _loaded(part, absent),
        steps=steps,
        refresh=tuple(f"{LOAD}{name}" for name in absent) if part.start else (),
        reboot=bool(other or late),
        notes=(*_earlier(part, packages), *((other,) if other else ()), *late),
        disruptive=_disturbs(host, part, packages),
    )
    lost = [name for name, path in DEVICES.items() if name in part.modules and not absent and not host.exists(path)]
    if steps or not lost:
        return reading
    return reading.but(state=FAILED, reason=f"{lost[0]} is loaded, but {DEVICES[lost[0]]} does not exist")


def _read_once(snapshot: HostSnapshot, by: str) -> Host:
    """The host, with one list of packages for all parts: dpkg prints all as fast as one, rpm does not."""
    return snapshot.unchanging if by == "apt" else snapshot.host


def _loaded(part: Part, absent: Sequence[str]) -> str:
    if not part.modules:
        return "as it is" if not part.shown else part.shown
    return f"not loaded: {', '.join(absent)}" if absent else f"loaded: {', '.join(part.modules)}"


def _late(host: Host, part: Part, absent: Sequence[str], *, is_settled: bool) -> list[str]:
    """Why modules are not in use before a reboot; `Unreadable` if a loaded one of a settled part has no version."""
    late = [f"{', '.join(absent)} is loaded by the next boot"] if absent and not part.start else []
    for name in (name for name in part.built if name in part.modules and name not in absent):
        running = host.value(f"/sys/module/{name}/version")
        if running is None and is_settled:
            raise Unreadable(f"the version of the loaded {name} is unknown")
        if running is not None and running != part.built[name]:
            late.append(f"the loaded {name} is {running} until a reboot")
    return late


def _packages(host: Host, part: Part) -> tuple[Step, ...]:
    """Steps of the packages: versions, marks and holds."""
    if manager(host) == "dnf":
        return _stack_rpms.steps(host, part.versions, part.named, part.removes, part.holds)
    now = deb.states(host, [*part.versions, *part.removes, *part.holds])
    desired: dict[str, str | None] = {}
    for name, version in part.versions.items():
        words = (now[name] or "").split()
        is_auto = name not in part.named and (not deb.version_of(now[name]) or "auto" in words)
        held = name in part.holds or "hold" in words
        desired[name] = f"{version} {'auto' if is_auto else 'manual'}{' hold' if held else ''}"
    for name in part.holds:
        text = now[name]
        if name not in desired and deb.version_of(text):
            desired[name] = text if text is None or text.endswith(" hold") else f"{text} hold"
    for name in part.removes:
        if now[name] not in (None, deb.REMOVED):
            desired[name] = deb.removal_leaves(host, name)
    return tuple(Step(f"deb:{name}", now[name], text) for name, text in desired.items() if now[name] != text)


def _installed(host: Host, part: Part) -> str:
    """Versions of the packages that are wanted for themselves."""
    names = [name for name in part.named if not rpm_packages.is_kernel(name)]
    if manager(host) == "dnf":
        now = rpm_packages.versions(host, names)
    else:
        now = {name: deb.version_of(text) for name, text in deb.states(host, part.named).items()}
    shown = [version or "absent" for version in dict.fromkeys(now.values())]
    if len(shown) > 1 and all(now.values()):
        shown = [f"{name} {version}" for name, version in now.items()]
    return ", ".join(shown[:4]) or "absent"


def _module(host: Host, part: Part) -> tuple[Step, ...]:
    """The step that builds the module for the running kernel, if its packages did not."""
    kernel = host.value("/proc/sys/kernel/osrelease")
    if kernel is None:
        raise Unreadable("the running kernel is unknown")
    now = Module(kernel).read(host)
    return () if now == part.driver else (Step(f"module:{kernel}", now, part.driver),)


def _built(host: Host, part: Part) -> tuple[Step, ...]:
    """Steps that build further modules for the running kernel, if their packages did not."""
    if not part.built:
        return ()
    kernel = host.value("/proc/sys/kernel/osrelease")
    if kernel is None:
        raise Unreadable("the running kernel is unknown")
    versions = {name: Module(f"{kernel}:{name}").read(host) for name in part.built}
    return tuple(
        Step(f"module:{kernel}:{name}", versions[name], version)
        for name, version in part.built.items()
        if versions[name] != version
    )


def _units(host: Host, part: Part, packages_change: bool) -> tuple[Step, ...]:
    """Steps that enable and start services; of packages that are not there yet, systemd knows none."""
    steps: tuple[Step, ...] = ()
    for name, properties in (show(host, *part.units) if part.units else {}).items():
        missing = properties["LoadState"] == "not-found"
        if missing and not packages_change:
            raise Unreadable(f"{name} does not exist, although its package is installed")
        boot = "disabled" if missing else properties["UnitFileState"]
        if boot not in ("enabled", "static", "indirect"):
            steps += (Step(f"unit:{name}:boot", boot, "enabled"),)
        if part.start and (missing or runs(properties["ActiveState"]) != "active"):
            steps += (Step(f"unit:{name}:now", "inactive", "active"),)
    return steps


def _disturbs(host: Host, part: Part, packages: Sequence[Step]) -> str:
    changes = any(step.setting.startswith(PACKAGES) for step in packages)
    running = _running(host) if part.driver and changes else ""
    return f"replaces the driver {running} under running programs" if running else ""


def _running(host: Host) -> str:
    return host.value(RUNNING) or ""


def _other_driver(host: Host, part: Part) -> str:
    """Why a reboot is needed before the driver is in use; "" if it is not."""
    if not part.driver:
        return ""
    foreign = [name for name in FOREIGN if host.exists(f"/sys/module/{name}")]
    if foreign:
        return f"{', '.join(foreign)} drives the GPUs until a reboot"
    running = _running(host)
    return f"the running module is {running} until a reboot" if running and running != part.driver else ""


def _earlier(part: Part, packages: Sequence[Step]) -> tuple[str, ...]:
    """What undo will not be able to restore."""
    replaced = {
        step.setting.partition(":")[2]
        for step in packages
        if step.setting.startswith(PACKAGES) and deb.version_of(step.before) not in ("", deb.version_of(step.after))
    }
    notes = {
        "rollback cannot restore these versions, which no repository has": part.earlier,
        "whether rollback can restore these versions is unknown": part.unasked,
    }
    named = {text: [name for name in names if name in replaced] for text, names in notes.items()}
    return tuple(f"{text}: {', '.join(names[:4])}{' …' * (len(names) > 4)}" for text, names in named.items() if names)
