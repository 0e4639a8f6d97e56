"""Steps that bring a part's packages on a host with dnf: versions, marks, and locks with the plugin that obeys them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from ..host import Host
from ..model import Refused, Step, Unreadable
from ..resources import rpm_packages
from ..resources.lock import PLUGIN, Lock, unheeded
from ..resources.package import Package

RPM = "rpm:"


def steps(
    host: Host, versions: Mapping[str, str], named: Sequence[str], removes: Sequence[str], holds: Sequence[str]
) -> tuple[Step, ...]:
    """Steps of the packages and their locks. `named`, `removes` and `holds`: see `gpu_stack.Part`; a name to hold may
    be a pattern, which stands for the packages of the running kernel.
    """
    keys = {rpm_packages.key_of(name, version): version for name, version in versions.items()}
    now = rpm_packages.states(host, [*keys, *removes, *holds])
    if wrong := rpm_packages.several(now):
        raise Refused(wrong)
    desired: dict[str, str | None] = {}
    for key, version in keys.items():
        text = now[key]
        is_auto = key.partition("=")[0] not in named and (not text or rpm_packages.mark_of(text) == "auto")
        desired[key] = f"{version} {'auto' if is_auto else 'manual'}"
    desired.update(dict.fromkeys(name for name in removes if now[name] is not None))
    packages = [Step(f"{RPM}{name}", now[name], text) for name, text in desired.items() if now[name] != text]
    plain = {name: versions.get(name) or rpm_packages.version_of(now[name]) for name in holds}
    locks = {name: version for name, version in plain.items() if version and name not in removes}
    locks.update(_of_kernel(host, [name for name in holds if "*" in name]))
    if locks and (wrong := unheeded(host)):
        raise Refused(wrong)
    changes = [*_locks(host, {**dict.fromkeys(removes), **locks})]
    obeyed = [Step(f"package:{PLUGIN}", None, "installed")] if locks and not Package(PLUGIN).read(host) else []
    return (*obeyed, *packages, *changes)


def _of_kernel(host: Host, patterns: Sequence[str]) -> dict[str, str]:
    """Packages of the running kernel with their versions."""
    if not patterns:
        return {}
    kernel = host.value("/proc/sys/kernel/osrelease")
    if kernel is None:
        raise Unreadable("the running kernel is unknown")
    release, _, flavour = kernel.partition("+")  # "5.14.0-427.el9.aarch64+64k" has kernel-64k-core
    prefix = f"kernel-{flavour}-" if flavour else ""
    of_kernel = [row for row in rpm_packages.installed(host) if f"{row.version}.{row.architecture}" == release]
    locks = {
        row.name: row.version
        for row in of_kernel
        if f"{row.name}-".startswith(prefix) and any(fnmatchcase(row.name, glob) for glob in patterns)
    }
    if not locks:
        raise Unreadable(f"no package of rpm has the running kernel {kernel}, so that it cannot be locked")
    return locks


def _locks(host: Host, desired: Mapping[str, str | None]) -> Iterator[Step]:
    for name, version in desired.items():
        now = Lock(name).read(host)
        if now != version:
            yield Step(f"lock:{name}", now, version)
