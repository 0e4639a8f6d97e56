"""Versions that a host's repositories offer, and the ones that a plan takes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, unknown
from gpuctl.gpu_node.case import Case
from gpuctl.gpu_node.model import HostGpuFacts, StackRequest
from gpuctl.gpu_node.rows import Knowledge, PackageSet, Source
from gpuctl.gpu_node.version import DriverVersion, upstream

REPOSITORY = "repository"
ONE_VERSION = "one version"
REFRESH = "fetch the host's package lists (apt-get update, dnf makecache), and plan again"
Offers = Mapping[str, Sequence[str]]


class Selection(NamedTuple):
    """Full versions by package, or the findings that say why none could be chosen."""

    versions: Mapping[str, str]
    findings: tuple[Finding, ...] = ()


def names_to_look_up(request: StackRequest, known: Knowledge) -> tuple[str, ...]:
    """Packages whose versions decide a plan, of every distribution and GPU: a host is asked only once."""
    names: list[str] = []
    for row in known.sets:
        if request.branch is not None and row.has(request.branch) and row.repository == request.repository:
            sets = (row.open, row.proprietary, row.libraries, row.fabric_manager, row.nvlsm, row.imex, row.free)
            names += [filled(name, request) for group in sets for name in group]
            names.append(row.headers)
    if request.toolkit is not None:
        names += [name for row in known.toolkit for name in row.packages]
    if request.dcgm is not None:
        names += [name for row in known.dcgm for name in row.packages]
    if request.gdrcopy is not None:
        names += [name for row in known.gdrcopy for name in row.packages]
    if request.gds is not None:
        names += [name for row in known.gds for name in row.packages]
    return tuple(dict.fromkeys(names))


def sources(request: StackRequest, known: Knowledge) -> list[dict[str, Any]]:
    """Repositories that hosts without them get, for the request of facts; none unless the site sets `source`."""
    if request.source is None:
        return []
    wanted = {"toolkit"} if request.toolkit is not None else set()
    if request.repository == "nvidia" and (request.driver is not None or request.dcgm is not None):
        wanted.add("driver")
    return [
        {
            "name": row.name,
            "distributions": list(row.distributions),
            "uri": _address(row, request.source, row.path),
            "suite": row.suite,
            "key": _address(row, request.source, row.key),
            "match": next(key.uri for key in known.keys if re.search(key.uri, row.path)),
        }
        for row in known.repositories
        if row.component in wanted
    ]


def _address(row: Source, source: str, path: str) -> str:
    """An address of NVIDIA's, or of a mirror that has the same paths."""
    return f"{row.base if source == 'nvidia' else source.rstrip('/')}/{path}"


def filled(template: str, request: StackRequest) -> str:
    """A name with the driver's branch and version."""
    return template.replace("{branch}", str(request.branch)).replace("{version}", str(request.driver))


def without_epoch(version: str) -> str:
    epoch, separator, rest = version.partition(":")
    return rest if separator and epoch.isdigit() else version


def exact(case: Case, names: Sequence[str], fits: Callable[[str], bool], desired: str, add: str) -> Selection:
    """The newest offered version that fits, of every package. `desired`: its name in messages; `add`: the hint if no
    repository has any of the packages.
    """
    wrong = _unoffered(case, names, desired, add)
    if wrong:
        return Selection({}, tuple(wrong))
    offers = case.facts.offers or {}
    fitting = {name: [version for version in offers[name] if fits(version)] for name in names}
    if all(fitting.values()):
        return Selection({name: versions[0] for name, versions in fitting.items()})
    shown = "; ".join(f"{name} has {offers[name][0]}" for name in names if not fitting[name])
    hint = f"set a version that the repositories have, or {REFRESH}"
    return Selection({}, (fail(REPOSITORY, case.host, f"no {desired} in the host's repositories: {shown}", hint),))


def of_driver(
    case: Case, names: Sequence[str], free: Sequence[str], desired: DriverVersion | int, add: str
) -> tuple[DriverVersion | None, Selection]:
    """The driver's full version that every part is offered in, and the full versions of the packages.

    Of a branch it is the newest one. `free`: packages with a version line of their own, taken as they are.
    """
    wrong = _unoffered(case, [*names, *free], f"driver {desired}", add)
    if wrong:
        return None, Selection({}, tuple(wrong))
    offers = case.facts.offers or {}
    parts = {name: _by_upstream(offers[name]) for name in names}
    common = set.intersection(*(set(versions) for versions in parts.values())) if parts else set()
    version = _choose(common, desired)
    if version is None:
        return None, Selection({}, (_differ(case.host, parts, desired),))
    chosen = {name: versions[version] for name, versions in parts.items()}
    return version, Selection({**chosen, **{name: offers[name][0] for name in free}})


def _unoffered(case: Case, names: Sequence[str], desired: str, add: str) -> list[Finding]:
    host, offers = case.host, case.facts.offers
    if offers is None:
        message = f"the versions in the host's repositories could not be read{case.facts.why('offers')}"
        return [unknown(REPOSITORY, host, message, REFRESH)]
    unasked = [name for name in names if name not in offers]
    if unasked:
        message = f"versions of {named(unasked)} were not looked up"
        return [unknown(REPOSITORY, host, message, "read the host again: its facts are of another request")]
    missing = [name for name in names if not offers[name]]
    if len(missing) == len(names) and names:
        message = f"no repository of the host has {desired}, so its versions cannot be checked: {named(names)}"
        return [unknown(REPOSITORY, host, message, add)]
    if missing:
        return [fail(REPOSITORY, host, f"no repository of the host has {named(missing)}", add)]
    return []


def _by_upstream(versions: Iterable[str]) -> dict[DriverVersion, str]:
    """Driver version -> the newest full version of a package with it."""
    by_driver: dict[DriverVersion, str] = {}
    for version in versions:
        real = upstream(version)
        if real is not None:
            by_driver.setdefault(real, version)
    return by_driver


def _choose(common: Iterable[DriverVersion], desired: DriverVersion | int) -> DriverVersion | None:
    if isinstance(desired, DriverVersion):
        return desired if desired in set(common) else None
    return max((version for version in common if version.branch == desired), default=None)


def _differ(host: str, parts: Mapping[str, Mapping[DriverVersion, str]], desired: DriverVersion | int) -> Finding:
    """The newest version of each part, in the desired branch if it has one."""
    branch = desired.branch if isinstance(desired, DriverVersion) else desired
    by_version: dict[str, list[str]] = {}
    for name, versions in parts.items():
        newest = max([v for v in versions if v.branch == branch] or versions, default=None)
        exactly = isinstance(desired, DriverVersion) and desired in versions
        by_version.setdefault(str(desired if exactly else newest or "no driver version"), []).append(name)
    shown = "; ".join(f"{named(names)} {version}" for version, names in by_version.items())
    label = f"driver {desired}" if isinstance(desired, DriverVersion) else f"version of branch {branch}"
    hint = "use a repository that has all parts in one version, such as NVIDIA's CUDA repository, or another driver"
    return fail(ONE_VERSION, host, f"no {label} that all parts are offered in: {shown}", hint)


def with_version(manager: str, name: str, version: str) -> str:
    """A package and its full version, as the package manager takes them."""
    return f"{name}={version}" if manager == "apt" else f"{name}-{version}"


def headers_of(chosen: PackageSet, facts: HostGpuFacts) -> str | None:
    """The package with the headers of the running kernel, as the package manager takes it; "" if no repository has it.

    None if it is not known.
    """
    if facts.offers is None or facts.kernel is None:
        return None
    name = chosen.headers.replace("{kernel}", facts.kernel)
    if name not in facts.offers:
        return None
    versions = facts.offers[name]
    if chosen.manager == "apt":
        return name if versions else ""
    # kernel-devel has the release without the architecture as its version.
    fitting = next((version for version in versions if f"{version}.{facts.architecture}" == facts.kernel), None)
    return f"{name}-{fitting}" if fitting else ""
