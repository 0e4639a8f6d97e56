"""Parts of the stack beside the driver: container toolkit, DCGM and EFA, compared with what a host has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, fail, unknown, warn
from gpuctl.gpu_node import offers
from gpuctl.gpu_node.case import Case
from gpuctl.gpu_node.model import Component
from gpuctl.gpu_node.rows import Efa
from gpuctl.gpu_node.version import driver_version

Planned = tuple[Component | None, list[Finding]]
TOOLKIT_REPOSITORY = "add NVIDIA's container toolkit repository and its key, fetch the package lists, and plan again"
FULL = "full"  # EFA with libfabric and Open MPI
CUDA_REPOSITORY = "add NVIDIA's CUDA repository and its key, fetch the package lists, and plan again"


def toolkit(case: Case) -> Planned:
    """NVIDIA's container toolkit: all its packages in one version."""
    if case.request.toolkit is None:
        return None, []
    row = case.known.toolkit[0]
    component = Component("container toolkit", f"{case.request.toolkit}-{row.revision}", None)
    return of_packages(case, component, row.packages, TOOLKIT_REPOSITORY)


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
    return of_packages(case, component, row.packages, CUDA_REPOSITORY)


def efa(case: Case) -> Planned:
    """EFA's installer, by the version that it recorded and the packages that this record names."""
    facts, desired = case.facts, case.request.efa
    if desired is None:
        return None, []
    component = Component("efa", desired, None)
    findings = _efa_impossible(case)
    if findings:
        return component, findings
    row = _efa_row(case)
    unread = [name for name in ("efa_installed", "efa_wrong", "efa_kind") if name in facts.unread]
    if row is None or unread or facts.efa_installed is None or facts.efa_wrong is None:
        message = f"the installed version could not be read{facts.why(*unread)}"
        return component, [unknown("efa", case.host, message, "look at /opt/amazon/efa_installed_packages")]
    kind = case.request.efa_kind or FULL
    is_there = facts.efa_installed == desired and facts.efa_kind == kind
    if facts.efa_wrong:
        message = f"{facts.efa_installed or 'no recorded version'}, and not whole: {'; '.join(facts.efa_wrong)}"
        findings.append(warn("efa", case.host, message, "gpuctl bootstrap gpu-node repairs it"))
    if facts.efa_installed and _number(facts.efa_installed) > _number(desired):
        message = f"{facts.efa_installed} is installed, and is removed before {desired} is installed"
        findings.append(warn("efa", case.host, message, f"set efa: {facts.efa_installed} to keep it"))
    shown = facts.efa_installed + (f" {facts.efa_kind}" if facts.efa_kind not in {None, "full"} else "")
    installed = shown + (", not whole" if facts.efa_wrong else "")
    devices = plural(len(facts.efa_devices or ()), "EFA device")
    why = f"{kind}, for {devices}; the installed version is that of {row.record}"
    changes = bool(not is_there or facts.efa_wrong)
    if not facts.efa_installed:
        why += "; its uninstaller, for rollback, takes rdma-core along, also the distribution's"
    return replace(component, installed=installed, why=why, changes=changes), findings


def _efa_row(case: Case) -> Efa | None:
    return next((row for row in case.known.efa if case.facts.distribution in row.distributions), None)


def _efa_impossible(case: Case) -> list[Finding]:
    """Why EFA's installer has no place on the host."""
    facts = case.facts
    if facts.efa_devices is None:
        message = f"the PCI bus could not be read{facts.why('efa_devices')}"
        return [unknown("efa", case.host, message, "read the host as root")]
    if not facts.efa_devices:
        hint = "attach an interface of the type efa to the instance, or leave efa out of its gpu_stack"
        return [fail("efa", case.host, "the PCI bus has no EFA device", hint)]
    if _efa_row(case) is None:
        name = facts.distribution or f"its distribution, which could not be read{facts.why('distribution')}"
        hint = "leave efa out of its gpu_stack; or add the distribution to packages.yml, with a source"
        return [unknown("efa", case.host, f"no row says that EFA's installer supports {name}", hint)]
    return []


def efa_uri(case: Case) -> str:
    """Address of the archives of EFA's installer; "" if no row has the distribution."""
    row = _efa_row(case)
    return case.request.efa_source or (row.base if row else "")


def efa_keys(case: Case) -> tuple[str, ...]:
    """Fingerprints of keys that may sign them."""
    pinned = tuple(key.fingerprint for key in case.known.keys if key.name == "efa")
    return (case.request.efa_key,) if case.request.efa_key else pinned


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def of_packages(case: Case, component: Component, packages: Sequence[str], add: str) -> Planned:
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
