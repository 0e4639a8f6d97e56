"""Parts of the stack beside the driver: container toolkit, DCGM and EFA, compared with what a host has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, fail, unknown
from gpuctl.gpu_node import offers
from gpuctl.gpu_node.case import Case
from gpuctl.gpu_node.model import Component
from gpuctl.gpu_node.version import driver_version

Planned = tuple[Component | None, list[Finding]]
TOOLKIT_REPOSITORY = "add NVIDIA's container toolkit repository and its key, fetch the package lists, and plan again"
CUDA_REPOSITORY = "add NVIDIA's CUDA repository and its key, fetch the package lists, and plan again"


def toolkit(case: Case) -> Planned:
    """NVIDIA's container toolkit: all its packages in one version."""
    if case.request.toolkit is None:
        return None, []
    row = case.known.toolkit[0]
    component = Component("container toolkit", f"{case.request.toolkit}-{row.revision}", None)
    return _packages(case, component, row.packages, TOOLKIT_REPOSITORY)


def dcgm(case: Case) -> Planned:
    """DCGM for the CUDA major of the driver; an older generation, of another name, is removed."""
    if case.request.dcgm is None:
        return None, []
    branch = case.request.branch
    if branch is None:  # the site installs no driver: the one on the host counts
        installed = driver_version(case.facts.installed_module or "")
        branch = installed.branch if installed else None
    major = next((row.max_cuda_major for row in case.known.branches if row.branch == branch), None)
    row = next((row for row in case.known.dcgm if row.cuda_major == major), None)
    if row is None:
        message = f"DCGM's packages for driver branch {branch or 'unknown'} are not known"
        hint = "add the branch, or DCGM's packages, to gpuctl/data/gpu_stack"
        return Component("dcgm", case.request.dcgm, None), [unknown("dcgm", case.host, message, hint)]
    removes = tuple(name for name in row.removes if name in (case.facts.packages or {}))
    component = Component("dcgm", case.request.dcgm, None, removes=removes, why=f"for CUDA {major}")
    return _packages(case, component, row.packages, CUDA_REPOSITORY)


def efa(case: Case) -> Planned:
    """EFA's installer, by the version it recorded, where the host has EFA devices."""
    facts, desired = case.facts, case.request.efa
    if desired is None:
        return None, []
    if facts.efa_devices is None:
        message = f"the PCI bus could not be read{facts.why('efa_devices')}"
        return Component("efa", desired, None), [unknown("efa", case.host, message, "read the host as root")]
    if not facts.efa_devices:
        return Component("efa", "none", facts.efa_installed, why="the host has no EFA device", changes=False), []
    record = next((row.record for row in case.known.efa if row.manager == case.manager), "")
    if facts.efa_installed is None:
        message = f"the installed version could not be read{facts.why('efa_installed')}"
        return Component("efa", desired, None), [
            unknown("efa", case.host, message, f"look at {record or 'its record'}")
        ]
    why = f"{plural(len(facts.efa_devices), 'EFA device')}; the installed version is that of {record}"
    return Component("efa", desired, facts.efa_installed, why=why, changes=facts.efa_installed != desired), []


def _packages(case: Case, component: Component, packages: Sequence[str], add: str) -> Planned:
    """The component with its installed version, and the packages to install where it differs from the desired one."""
    facts, desired = case.facts, component.desired
    if facts.packages is None or facts.distribution is None:
        message = f"the installed packages could not be read{facts.why('packages', 'distribution')}"
        return component, [unknown(component.name, case.host, message, "read the host as root")]
    if not case.manager:
        message = f"no package names are known for {facts.distribution}"
        hint = "add the distribution to gpuctl/data/gpu_stack/packages.yml"
        return component, [unknown(component.name, case.host, message, hint)]
    versions = [facts.packages.get(package, "") for package in packages]
    installed = named(dict.fromkeys(offers.without_epoch(version) for version in versions if version))
    if all(_is(version, desired) for version in versions) and not component.removes:
        present = tuple(zip(packages, versions, strict=True))
        return replace(component, installed=installed, changes=False, versions=present), []
    label = f"{component.name} {desired}"
    selection = offers.exact(case, packages, lambda version: _is(version, desired), label, add)
    specs = tuple(offers.with_version(case.manager, name, full) for name, full in selection.versions.items())
    chosen = tuple(selection.versions.items())
    changed = replace(component, installed=installed, packages=specs, changes=True, versions=chosen)
    return changed, list(selection.findings)


def _is(full: str, version: str) -> bool:
    """True for 4.6.0-1 and 1:4.6.0-1.el9 of 4.6.0-1."""
    plain = offers.without_epoch(full)
    return plain == version or plain.startswith(f"{version}.")


def judge_origin(case: Case) -> list[Finding]:
    """A driver that no package manager knows, as a .run file installs it, would stay beside the packages."""
    facts = case.facts
    if not facts.installed_module or facts.packages is None:
        return []
    if any(part.fits(name) for name in facts.packages for part in case.known.one_version):
        return []
    message = f"driver {facts.installed_module} is installed, but by no package"
    hint = "remove it first, for a .run file with nvidia-uninstall; or set driver: none to keep it"
    return [fail("driver origin", case.host, message, hint)]
