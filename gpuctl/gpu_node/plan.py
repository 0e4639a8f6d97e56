"""The plan of one host: module flavour, fabric services, packages, holds and reboot, with all findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from gpuctl.domain.findings import Finding, unknown
from gpuctl.gpu_node import driver_check, gpu_choice, host_check
from gpuctl.gpu_node.model import Choice, HostGpuFacts, StackPlan, StackRequest
from gpuctl.gpu_node.rows import Knowledge, PackageSet
from gpuctl.gpu_node.version import DriverVersion


def plan(host: str, facts: HostGpuFacts, request: StackRequest, known: Knowledge, today: date) -> StackPlan:
    """Decide the stack of one host; nothing of it may be applied if `refused`.

    The versions that the packages resolve to are judged later, by `package_check.judge_transaction`.
    """
    rows = gpu_choice.models(facts, known)
    flavour, fabric = gpu_choice.flavour(rows, request), gpu_choice.fabric(facts, rows, known)
    findings = [*gpu_choice.judge_models(host, facts, known)]
    if facts.gpus == () or request.driver is None:
        return StackPlan(host, flavour, fabric, reboot=False, reboot_why=flavour.why, findings=tuple(findings))
    findings += [
        *gpu_choice.judge_flavour(host, rows, request, known),
        *driver_check.judge_driver(host, rows, request, known, today),
        *gpu_choice.judge_fabric(host, fabric),
        *judge_host(host, facts, request, known),
    ]
    chosen = package_set(facts, request, known)
    if chosen is None:
        findings.append(_no_set(host, facts, request))
    reboot = needs_reboot(facts, flavour, request)
    service = next((row for row in known.fabric if row.name == fabric.value), None)
    return StackPlan(
        host,
        flavour,
        fabric,
        services=service.services if service else (),
        modules=service.modules if service else (),
        module_stream=_stream(chosen, flavour, request),
        packages=packages(chosen, flavour, fabric, request, facts.architecture) if chosen else (),
        holds=holds(chosen, flavour, fabric, request, facts) if chosen else (),
        pin=_filled(chosen.pin, request) if chosen and isinstance(request.driver, DriverVersion) else "",
        reboot={"yes": True, "no": False}.get(reboot.value or ""),
        reboot_why=reboot.why,
        findings=tuple(findings),
    )


def judge_host(host: str, facts: HostGpuFacts, request: StackRequest, known: Knowledge) -> list[Finding]:
    """Findings about the host itself."""
    return [
        *host_check.judge_headers(host, facts),
        *host_check.judge_secure_boot(host, facts),
        *host_check.judge_foreign_modules(host, facts),
        *host_check.judge_modules(host, facts),
        *host_check.judge_packages(host, facts, request, known),
        *host_check.judge_keys(host, facts, known),
        *host_check.judge_busy(host, facts),
    ]


def package_set(facts: HostGpuFacts, request: StackRequest, known: Knowledge) -> PackageSet | None:
    """The row of the host's distribution and the driver's branch; None if no row fits."""
    fitting = (row for row in known.sets if row.fits(facts.distribution or "", request.branch or 0))
    return next(fitting, None)


def _no_set(host: str, facts: HostGpuFacts, request: StackRequest) -> Finding:
    if facts.distribution is None:
        return unknown("packages", host, "the distribution could not be read")
    message = f"no package names are known for branch {request.branch} on {facts.distribution}"
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


def packages(
    chosen: PackageSet, flavour: Choice, fabric: Choice, request: StackRequest, architecture: str | None
) -> tuple[str, ...]:
    """Packages as the package manager takes them; without versions while only a branch is set."""
    names = [_filled(name, request) for name in one_version_packages(chosen, flavour, fabric, architecture)]
    free = chosen.free if fabric.value == "nvlsm" and names else ()
    if not isinstance(request.driver, DriverVersion):
        return (*names, *free)
    form = "{name}={version}*" if chosen.manager == "apt" else "{name}-{version}"
    return (*(form.format(name=name, version=request.driver) for name in names), *free)


def holds(
    chosen: PackageSet, flavour: Choice, fabric: Choice, request: StackRequest, facts: HostGpuFacts
) -> tuple[str, ...]:
    """Packages to hold: the set, and the kernel for which DKMS built the module."""
    names = [_filled(name, request) for name in one_version_packages(chosen, flavour, fabric, facts.architecture)]
    kernel = [name.replace("{kernel}", facts.kernel) for name in chosen.kernel] if facts.kernel else []
    return (*names, *kernel) if names else ()


def _stream(chosen: PackageSet | None, flavour: Choice, request: StackRequest) -> str:
    streams = {"open": chosen.stream_open, "proprietary": chosen.stream_proprietary} if chosen else {}
    return _filled(streams.get(flavour.value or "", ""), request)


def _filled(template: str, request: StackRequest) -> str:
    return template.replace("{branch}", str(request.branch)).replace("{version}", str(request.driver))


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
