"""GDRCopy and GDS in the plan: packages of one version, whose module DKMS builds and the host loads."""

from __future__ import annotations

import re
from dataclasses import replace

from gpuctl.domain.findings import Finding, fail, unknown, warn
from gpuctl.gpu_node import components
from gpuctl.gpu_node.case import Case
from gpuctl.gpu_node.components import Planned
from gpuctl.gpu_node.model import Choice, Component
from gpuctl.gpu_node.rows import DkmsModule

GDRCOPY = "gdrcopy"
GDS = "gds"  # GPUDirect Storage
ADD = "add a repository that has GDRCopy's packages, fetch the package lists, and plan again"
AS_ROOT = "read the host as root"


def gdrcopy(case: Case) -> Planned:
    """GDRCopy: library and DKMS module in one version; useless without a driver."""
    if case.request.gdrcopy is None:
        return None, []
    component = Component(GDRCOPY, case.request.gdrcopy, None)
    missing = no_driver(case, GDRCOPY)
    if missing:
        return component, missing
    row, facts = case.known.gdrcopy[0], case.facts
    planned, findings = components.of_packages(case, component, row.packages, ADD)
    if planned is None or planned.changes is not False:
        return planned, findings
    version = None if facts.peer_modules is None else facts.gdrdrv_module
    reason = facts.why("peer_modules", "gdrdrv_module")
    planned, more = _loaded(case, planned, row, Choice(version, reason))
    return planned, [*findings, *more]


def gds(case: Case, flavour: Choice) -> Planned:
    """GPUDirect Storage: nvidia-fs as a DKMS module, beside NVIDIA's open module and without Secure Boot.

    Source: NVIDIA/cloud-native-docs, gpu-operator/platform-support.rst, 52dcb7b.
    """
    if case.request.gds is None:
        return None, []
    component = Component(GDS, case.request.gds, None)
    if findings := no_driver(case, GDS) or _unsupported(case, flavour):
        return component, findings
    row, facts = case.known.gds[0], case.facts
    planned, findings = components.of_packages(case, component, row.packages, components.CUDA_REPOSITORY)
    findings = [*findings, *_unproved(case)]
    if planned is None or planned.changes is not False:
        return planned, findings
    planned, more = _loaded(case, planned, row, Choice(facts.nvidia_fs_module, facts.why("nvidia_fs_module")))
    return planned, [*findings, *more]


def _unproved(case: Case) -> list[Finding]:
    """A warning where the verification will be unknown, which stops a roll-out before it drains the host."""
    if case.facts.gdscheck_lacks == "":
        return []
    reason = case.facts.gdscheck_lacks or f"gdscheck could not be looked up{case.facts.why('gdscheck_lacks')}"
    message = f"GPUDirect Storage cannot be verified, and no roll-out takes the host: {reason}"
    return [warn(GDS, case.host, message, "install gds-tools of the host's CUDA; or leave gds out")]


def _unsupported(case: Case, flavour: Choice) -> list[Finding]:
    """Findings where nvidia-fs cannot work, or may not."""
    facts, host = case.facts, case.host
    is_open = facts.installed_open if case.request.driver is None else {"open": True}.get(flavour.value or "", False)
    findings: list[Finding] = []
    if is_open is None:
        message = f"the flavour of NVIDIA's module could not be read{facts.why('installed_open')}"
        findings.append(unknown(GDS, host, message, AS_ROOT))
    elif not is_open:
        message = "nvidia-fs needs NVIDIA's open module, the host has or gets the proprietary one"
        findings.append(fail(GDS, host, message, "set flavour: open; or leave gds out"))
    if facts.secure_boot is None:
        message = f"whether Secure Boot is on could not be read{facts.why('secure_boot')}"
        findings.append(unknown(GDS, host, message, AS_ROOT))
    elif facts.secure_boot:
        message = "GPUDirect Storage is not supported with Secure Boot, which is on"
        findings.append(fail(GDS, host, message, "switch Secure Boot off in the firmware; or leave gds out"))
    return findings


def _loaded(case: Case, planned: Component, row: DkmsModule, loaded: Choice) -> tuple[Component, list[Finding]]:
    """A component whose packages are right, with its module. `loaded`: its version, "" if it is not loaded."""
    name = planned.name
    if loaded.value is None:
        message = f"whether {row.module} is loaded, and its version, could not be read{loaded.why}"
        return replace(planned, changes=None), [unknown(name, case.host, message, AS_ROOT)]
    if not loaded.value:
        return replace(planned, installed=f"{planned.installed}, {row.module} not loaded", changes=True), []
    if loaded.value != module_version(planned):
        shown = f"{planned.installed}, {row.module} {loaded.value} loaded"
        message = f"{row.module} {loaded.value} is loaded, and stays until a reboot"
        findings = [warn(name, case.host, message, "drain and reboot the host")]
        return replace(planned, installed=shown, changes=True), findings
    return planned, []


def module_version(part: Component) -> str:
    """Version of the module for that of its packages: 2.5 for 2.5.2-1 of GDRCopy, 2.26.6 for 2.26.6-1 of GDS."""
    numbers = re.split("[.-]", part.desired)
    return ".".join(numbers[:2]) if part.name == GDRCOPY else part.desired.partition("-")[0]


def no_driver(case: Case, check: str) -> list[Finding]:
    """Findings of a host that has no driver, and gets none."""
    facts = case.facts
    if case.request.driver is not None or facts.installed_module:
        return []
    if facts.installed_module is None:
        message = f"NVIDIA's module could not be read{facts.why('installed_module')}"
        return [unknown(check, case.host, message, AS_ROOT)]
    return [fail(check, case.host, "NVIDIA's driver is not installed", "set driver, too; or leave it out")]
