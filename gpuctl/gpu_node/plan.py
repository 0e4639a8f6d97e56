"""The plan of one host: module flavour, fabric services, packages, holds and reboot, with all findings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import NamedTuple

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, unknown
from gpuctl.gpu_node import components, dkms_modules, driver_check, gpu_choice, host_check, nccl_tests, offers, rdma
from gpuctl.gpu_node.case import Case
from gpuctl.gpu_node.model import Choice, Component, HostGpuFacts, StackPlan, StackRequest
from gpuctl.gpu_node.rows import Knowledge, PackageSet
from gpuctl.gpu_node.version import DriverVersion, upstream

BESIDE_DRIVER = (dkms_modules.GDRCOPY, dkms_modules.GDS)  # modules that DKMS builds for an installed driver
METAPACKAGE = "cuda-drivers"
BUILDS_MODULES = ("driver", "efa", *BESIDE_DRIVER)  # by DKMS


class Driver(NamedTuple):
    """Decision about the driver. `request`: with the full version, if one could be chosen of a branch."""

    component: Component
    request: StackRequest
    chosen: PackageSet | None
    findings: list[Finding]


def plan(host: str, facts: HostGpuFacts, request: StackRequest, known: Knowledge, today: date) -> StackPlan:
    """Decide the stack of one host; nothing of it may be applied if `refused`.

    The versions that the packages resolve to are judged later, by `resolution.resolved`.
    """
    rows = gpu_choice.models(facts, known)
    flavour, fabric = gpu_choice.flavour(rows, request), gpu_choice.fabric(facts, rows, known)
    findings = [*gpu_choice.judge_models(host, facts, known)]
    gpus = gpu_choice.summary(rows, facts)
    if facts.gpus == ():
        return StackPlan(host, flavour, fabric, gpus, reboot=False, reboot_why=flavour.why, findings=tuple(findings))
    case = Case(host, facts, request, known)
    driver = None if request.driver is None else _driver(case, request.driver, flavour, fabric)
    if driver is not None:
        request = driver.request
        case = replace(case, request=request)
        findings += [
            *gpu_choice.judge_flavour(host, rows, request, known),
            *driver_check.judge_driver(host, rows, request, known, today),
            *gpu_choice.judge_fabric(host, fabric),
            *driver.findings,
        ]
    reboot = needs_reboot(facts, flavour, request) if driver else Choice("no", flavour.why)
    planned = [components.toolkit(case), components.dcgm(case), components.efa(case)]
    direct = rdma.decide(case, flavour, reboot, planned[-1][0])
    tests, more_findings, waits = nccl_tests.decide(case, reboot, planned[-1][0])
    others = [*(component for component, _ in planned if component is not None), *direct.parts]
    others += [tests] if tests is not None else []
    parts = [*([driver.component] if driver else []), *others]
    findings += [*(finding for _, more in planned for finding in more), *direct.findings, *more_findings]
    findings += judge_host(case, driver, parts)
    chosen = driver.chosen if driver else None
    service = next((row for row in known.fabric if row.name == fabric.value), None) if driver else None
    return StackPlan(
        host,
        flavour,
        fabric,
        gpus,
        driver=str(request.driver or ""),
        components=tuple(parts),
        services=service.services if service else (),
        modules=service.modules if service else (),
        module_stream=_stream(chosen, flavour, request),
        packages=_to_install(facts, driver, parts),
        removable=request.removable,
        waits=(*direct.waits, *waits),
        imex_nodes=request.imex_nodes if fabric.value == "imex" else (),
        efa_kind=(request.efa_kind or components.FULL) if request.efa else "",
        efa_uri=components.efa_uri(case) if request.efa else "",
        efa_keys=components.efa_keys(case) if request.efa else (),
        nccl_tests=tuple(nccl_tests.archive(request, known).items()),
        additions=tuple(row for row in facts.additions or () if not row.wrong),
        holds=holds(chosen, flavour, fabric, request, facts) if chosen else (),
        pin=offers.filled(chosen.pin, request) if chosen and isinstance(request.driver, DriverVersion) else "",
        reboot={"yes": True, "no": False}.get(reboot.value or ""),
        reboot_why=reboot.why,
        findings=tuple(findings),
    )


def _driver(case: Case, desired: DriverVersion | int, flavour: Choice, fabric: Choice) -> Driver:
    """Compare the driver's packages with those on the host, and choose their versions."""
    facts, request = case.facts, case.request
    chosen = package_set(facts, request, case.known)
    component = Component("driver", str(desired), None, why=flavour.why)
    if chosen is None:
        return Driver(component, request, None, [_no_set(case.host, facts, request)])
    if flavour.value not in {"open", "proprietary"} or fabric.value is None:
        return Driver(component, request, chosen, [])  # judge_flavour and judge_fabric have the finding
    findings = [*_fabric_packages(case, chosen, fabric), *components.judge_origin(case)]
    if facts.packages is None:
        return Driver(component, request, chosen, findings)  # judge_packages has the finding
    names = _names(chosen, flavour, fabric, case)
    free = chosen.free if fabric.value == "nvlsm" else ()
    component = replace(component, installed=_installed(facts.packages, names))
    if isinstance(desired, DriverVersion) and _complete(facts.packages, names, free, desired):
        removes = _replaced(case, names, flavour, desired)
        # A run that was killed between unpacking and removing leaves both flavours.
        present = tuple((name, facts.packages[name]) for name in (*names, *free))
        component = replace(component, removes=removes, changes=bool(removes), versions=present)
        return Driver(component, request, chosen, findings)
    version, selection = offers.of_driver(case, names, free, desired, _add_repository(case))
    findings += selection.findings
    if version is None:
        specs = (*(_unresolved(chosen, name, request) for name in names), *free)
        return Driver(replace(component, packages=specs, changes=True), request, chosen, findings)
    changes = not _complete(facts.packages, names, free, version)
    specs = tuple(offers.with_version(chosen.manager, name, full) for name, full in selection.versions.items())
    removes = _replaced(case, names, flavour, version)
    versions = selection.versions if changes else {name: facts.packages[name] for name in (*names, *free)}
    component = replace(
        component,
        desired=str(version),
        packages=specs if changes else (),
        removes=removes,
        changes=changes or bool(removes),
        versions=tuple(versions.items()),
    )
    return Driver(component, replace(request, driver=version), chosen, findings)


def _names(chosen: PackageSet, flavour: Choice, fabric: Choice, case: Case) -> list[str]:
    """Packages of the set that the site wants."""
    templates = one_version_packages(chosen, flavour, fabric, case.facts.architecture)
    names = (offers.filled(name, case.request) for name in templates)
    return [name for name in names if name not in case.request.without]


def _replaced(case: Case, names: Sequence[str], flavour: Choice, version: DriverVersion) -> tuple[str, ...]:
    """Installed packages of another flavour or branch. apt need not see that they must go; dnf's are obsoleted."""
    if case.manager != "apt":
        return ()
    stays = {*names, *case.request.without}
    others = _other_flavour(case, flavour, version)
    return tuple(
        name
        for name, version in (case.facts.packages or {}).items()
        if name not in stays and (name in others or _is_of_another_branch(case, name, version))
    )


def _other_flavour(case: Case, flavour: Choice, version: DriverVersion) -> set[str]:
    """Packages of the desired branch that only the other flavour has, without metapackages of the desired version."""
    rows = [row for row in case.known.sets if row.has(case.request.branch or 0)]
    rows = [row for row in rows if case.facts.distribution in row.distributions]
    is_open = flavour.value == "open"
    other = {name for row in rows for name in (row.proprietary if is_open else row.open)}
    other -= {name for row in rows for name in (row.open if is_open else row.proprietary)}
    packages = case.facts.packages or {}
    filled = {offers.filled(name, case.request) for name in other}
    return {
        name
        for name in filled & set(packages)
        if not (name.startswith(METAPACKAGE) and upstream(packages[name]) == version)
    }


def _is_of_another_branch(case: Case, name: str, version: str) -> bool:
    """True for a driver, or a service of its fabric, that is not of the desired branch.

    Ubuntu's packages with "-server" are another line of the same branch.
    """
    rows = [row for row in case.known.sets if case.facts.distribution in row.distributions]
    for template in {name for row in rows for name in (*row.open, *row.proprietary, *row.fabric_manager, *row.imex)}:
        match = re.fullmatch(re.escape(template).replace(r"\{branch\}", r"(\d+)(-server)?"), name)
        if match is None:
            continue
        real = upstream(version)
        branch = int(match[1]) if match.groups() else real.branch if real else case.request.branch
        return branch != case.request.branch or bool(match.groups() and match[2])
    return False


def _add_repository(case: Case) -> str:
    if case.request.repository == "distribution":
        return "enable the components of the distribution that have NVIDIA's driver, fetch the lists, and plan again"
    fitting = (row for row in case.known.keys if case.facts.distribution in row.distributions)
    key = next((row for row in fitting if row.name.startswith("cuda-")), None)
    fingerprint = f" (fingerprint {key.fingerprint})" if key else ""
    return f"add NVIDIA's CUDA repository with its key{fingerprint}, fetch the package lists, and plan again"


def _installed(packages: Mapping[str, str], names: Sequence[str]) -> str:
    """Driver versions of the installed parts: "", "580.178.04", or all that differ."""
    versions = [str(upstream(packages[name]) or packages[name]) for name in names if name in packages]
    return named(dict.fromkeys(versions))


def _complete(packages: Mapping[str, str], names: Sequence[str], free: Sequence[str], version: DriverVersion) -> bool:
    """True if every part is installed in this version."""
    whole = all(name in packages for name in (*names, *free))
    return whole and all(upstream(packages[name]) == version for name in names)


def _unresolved(chosen: PackageSet, name: str, request: StackRequest) -> str:
    """A package while its full version is not known; without one if only a branch is set."""
    if not isinstance(request.driver, DriverVersion):
        return name
    return f"{name}={request.driver}*" if chosen.manager == "apt" else f"{name}-{request.driver}"


def _fabric_packages(case: Case, chosen: PackageSet, fabric: Choice) -> list[Finding]:
    """Refuse a repository that lacks the services of the host's fabric."""
    needed = {"fabric_manager": chosen.fabric_manager, "nvlsm": chosen.fabric_manager, "imex": chosen.imex}
    if needed.get(fabric.value or "", ("none",)):
        return []
    message = f"the {case.request.repository} repository has no package of {fabric.value}, which this host needs"
    return [fail("packages", case.host, message, "set repository: nvidia")]


def _to_install(facts: HostGpuFacts, driver: Driver | None, parts: Sequence[Component]) -> tuple[str, ...]:
    """Packages of the components that change, and the headers if the driver does and they are missing."""
    packages = [package for component in parts if component.changes for package in component.packages]
    if driver and driver.chosen and driver.component.changes and facts.headers is False:
        headers = offers.headers_of(driver.chosen, facts)
        packages = [*([headers] if headers else []), *packages]
    return tuple(packages)


def judge_host(case: Case, driver: Driver | None, parts: Sequence[Component]) -> list[Finding]:
    """Findings about the host itself. What only matters to a change is not judged on a host that needs none."""
    host, facts = case.host, case.facts
    findings: list[Finding] = []
    if driver:
        findings += [*host_check.judge_foreign_modules(host, facts), *host_check.judge_modules(host, facts)]
        if driver.component.changes is not False:
            headers = offers.headers_of(driver.chosen, facts) if driver.chosen else None
            findings += host_check.judge_headers(host, facts, headers)
    if not driver and any(part.name in BESIDE_DRIVER and part.changes is not False for part in parts):
        findings += host_check.judge_headers(host, facts, "")
    if any(part.name in BUILDS_MODULES and part.changes is not False for part in parts):
        findings += host_check.judge_secure_boot(host, facts)
    if parts:
        findings += host_check.judge_packages(host, facts, case.request, case.known)
        findings += host_check.judge_repositories(host, facts, case.known)
    findings += host_check.judge_interrupted(host, facts) if parts else []
    if any(component.changes is not False for component in parts):
        findings += [*host_check.judge_lists(host, facts), *host_check.judge_busy(host, facts)]
    return findings


def package_set(facts: HostGpuFacts, request: StackRequest, known: Knowledge) -> PackageSet | None:
    """The row of the host's distribution, the driver's branch and its repository; None if no row fits."""
    distribution, branch = facts.distribution or "", request.branch or 0
    return next((row for row in known.sets if row.fits(distribution, branch, request.repository)), None)


def _no_set(host: str, facts: HostGpuFacts, request: StackRequest) -> Finding:
    if facts.distribution is None:
        message = f"the distribution could not be read{facts.why('distribution')}"
        return unknown("packages", host, message, "look at /etc/os-release on the host")
    source = "" if request.repository == "nvidia" else " of the distribution's own repository"
    message = f"no package names are known for branch {request.branch} on {facts.distribution}{source}"
    return unknown("packages", host, message, "add the row to gpuctl/data/gpu_stack/packages.yml")


def one_version_packages(chosen: PackageSet, flavour: Choice, fabric: Choice, architecture: str | None) -> list[str]:
    """Names of the packages that share the driver's full version, as templates."""
    if flavour.value not in {"open", "proprietary"}:
        return []
    driver = chosen.open if flavour.value == "open" else chosen.proprietary
    # NVLSM's switches are configured by fabric manager, too.
    switches = chosen.fabric_manager if fabric.value in {"fabric_manager", "nvlsm"} else ()
    telemetry = chosen.nvlsm if fabric.value == "nvlsm" and architecture == "x86_64" else ()
    imex = chosen.imex if fabric.value == "imex" else ()
    return [*driver, *chosen.libraries, *switches, *telemetry, *imex]


def holds(
    chosen: PackageSet, flavour: Choice, fabric: Choice, request: StackRequest, facts: HostGpuFacts
) -> tuple[str, ...]:
    """Packages to hold: the set, and the kernel for which DKMS built the module."""
    templates = one_version_packages(chosen, flavour, fabric, facts.architecture)
    names = [name for template in templates if (name := offers.filled(template, request)) not in request.without]
    kernel = [name.replace("{kernel}", facts.kernel) for name in chosen.kernel] if facts.kernel else []
    return (*names, *kernel) if names else ()


def _stream(chosen: PackageSet | None, flavour: Choice, request: StackRequest) -> str:
    streams = {"open": chosen.stream_open, "proprietary": chosen.stream_proprietary} if chosen else {}
    return offers.filled(streams.get(flavour.value or "", ""), request)


def needs_reboot(facts: HostGpuFacts, flavour: Choice, request: StackRequest) -> Choice:
    """yes, no or None, and the reason: only where the running module differs, or another driver has the GPUs."""
    if facts.foreign_modules:
        return Choice("yes", f"{', '.join(facts.foreign_modules)} is loaded")
    if facts.running_module is None or facts.foreign_modules is None:
        return Choice(None, "the loaded modules could not be read")
    if not facts.running_module:
        return Choice("no", "no module is loaded; the new one can be loaded at once")
    return _reboot_of_loaded(facts.running_module, facts.running_open, flavour, request)


def _reboot_of_loaded(running: str, is_open: bool | None, flavour: Choice, request: StackRequest) -> Choice:
    exact = isinstance(request.driver, DriverVersion)
    if (running != str(request.driver)) if exact else not running.startswith(f"{request.driver}."):
        return Choice("yes", f"the running module is {running}")
    if flavour.value is None or is_open is None:
        return Choice(None, "the flavour of the running or of the desired module is unknown")
    if is_open != (flavour.value == "open"):
        return Choice("yes", f"the running module is {'open' if is_open else 'proprietary'}")
    if not exact:
        return Choice(None, f"the newest version of branch {request.driver} is not resolved yet")
    return Choice("no", f"the running module is {running} already")


def alike(plans: Sequence[StackPlan]) -> dict[StackPlan, list[str]]:
    """Hosts by plan, for one line per group: the plan without the host's name -> its hosts."""
    groups: dict[StackPlan, list[str]] = {}
    for one in plans:
        groups.setdefault(_anonymous(one), []).append(one.host)
    return groups


def _anonymous(one: StackPlan) -> StackPlan:
    return replace(one, host="", findings=tuple(replace(finding, subject="") for finding in one.findings))
