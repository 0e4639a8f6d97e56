"""Verification of a GPU host's stack by its own tools, after a change and before jobs return: pure rules over facts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.core.text import named, plural
from gpuctl.domain import nvlink_fabric
from gpuctl.domain.findings import Finding, fail, ok, or_ok, unknown, warn
from gpuctl.domain.node_facts import get, why
from gpuctl.gpu_node import gds_check
from gpuctl.gpu_node.dkms_modules import GDRCOPY, GDS
from gpuctl.gpu_node.host_check import AS_ROOT, judge_interrupted
from gpuctl.gpu_node.model import CdiSpec, Component, HostGpuFacts, StackPlan
from gpuctl.gpu_node.rdma import DMABUF, PEER_MEMORY, has_path
from gpuctl.gpu_node.version import driver_version

SUBJECTS = ("gpu", "rdma")  # of facts/gather.py, beside the facts of the plan
SMI_HINT = "run nvidia-smi on the host, and look for an Xid in its kernel log"
CDI_HINT = "systemctl restart nvidia-cdi-refresh, or nvidia-ctk cdi generate --output=/run/cdi/nvidia.yaml"
WITH_SWITCHES = ("fabric_manager", "nvlsm")
Readings = Mapping[str, Any]


def judge(made: StackPlan, facts: HostGpuFacts, readings: Readings) -> list[Finding]:
    """Judge whether the host has, runs and shows what `made` decides. `readings`: SUBJECTS of the same host.

    A plan is refused for jobs, too; here only what the host has counts, so a busy host can be verified.
    """
    host = made.host
    if facts.gpus == ():
        return [fail("gpus", host, "the PCI bus has no GPU of NVIDIA", "leave the host out, or look at its hardware")]
    findings = [
        *judge_interrupted(host, facts),
        *(finding for part in made.components for finding in _component(made, facts, part, readings)),
    ]
    if made.driver:
        findings += [*_module(made, facts), *_smi_driver(host, facts, readings)]
    if made.driver or facts.running_module:
        findings += [*_gpus(host, facts, readings), *_ecc(host, readings)]
        findings += _fabric(made, readings)
    for part in made.components:
        findings += _cdi(host, facts, part) if part.name == "container toolkit" else []
    if any(part.name == "efa" for part in made.components):
        findings += _efa(host, facts, readings)
    return findings


def _component(made: StackPlan, facts: HostGpuFacts, part: Component, readings: Readings) -> list[Finding]:
    host, event = made.host, dict(made.waits).get(part.name)
    if event:
        return [fail(part.name, host, f"it waits for {event}", "then run gpuctl bootstrap gpu-node again")]
    if part.changes is None:
        return [unknown(part.name, host, f"whether it is {part.desired} could not be determined", "plan the host")]
    if part.changes:
        message = f"{part.installed or 'nothing'} is installed, should be {part.desired}"
        return [fail(part.name, host, message, "gpuctl bootstrap gpu-node")]
    if part.name == GDS:
        return gds_check.judge(host, part, readings, None if facts.gpus is None else len(facts.gpus))
    return _direct(host, facts, part) or [ok(part.name, host, part.desired)]


def _direct(host: str, facts: HostGpuFacts, part: Component) -> list[Finding]:
    """Findings about GPUDirect RDMA beyond packages and loaded modules."""
    if part.name == PEER_MEMORY and has_path(part, DMABUF) and not facts.running_open:
        if facts.running_open is None:
            return [
                unknown(part.name, host, f"whether the open module runs is unknown{facts.why('running_open')}", AS_ROOT)
            ]
        return [fail(part.name, host, "DMA-BUF needs the open module, the proprietary one runs", "reboot the host")]
    if part.name == GDRCOPY and not facts.gdrdrv_device:
        if facts.gdrdrv_device is None:
            return [unknown(part.name, host, f"/dev/gdrdrv could not be read{facts.why('gdrdrv_device')}", AS_ROOT)]
        hint = "modprobe gdrdrv, and look at the kernel log"
        return [fail(part.name, host, f"{part.desired} is installed, but /dev/gdrdrv does not exist", hint)]
    return []


def _module(made: StackPlan, facts: HostGpuFacts) -> list[Finding]:
    """Running, installed and desired module are one."""
    host, desired = made.host, driver_version(made.driver)
    running, installed = facts.running_module, facts.installed_module
    if running is None or installed is None:
        reason = facts.why("running_module", "installed_module")
        return [unknown("module", host, f"the running or the installed module could not be read{reason}", AS_ROOT)]
    if desired is None:
        return [unknown("module", host, f"no version of branch {made.driver} could be chosen", "plan the host")]
    if not running:
        return [fail("module", host, "no module is loaded", "modprobe nvidia, and look at the kernel log")]
    if running != made.driver or installed != made.driver:
        message = f"running {running}, installed {installed or 'none'}, should be {made.driver}"
        return [fail("module", host, message, "drain and reboot the host", running=running, installed=installed)]
    return _flavour(made, facts)


def _flavour(made: StackPlan, facts: HostGpuFacts) -> list[Finding]:
    host, desired = made.host, made.flavour.value
    if facts.running_open is None or desired is None:
        return [unknown("module", host, f"its flavour could not be read{facts.why('running_open')}", AS_ROOT)]
    if facts.running_open != (desired == "open"):
        flavour = "open" if facts.running_open else "proprietary"
        message = f"the running one is {flavour}, should be {desired}"
        return [fail("module", host, message, "drain and reboot the host")]
    return [ok("module", host, f"{made.driver}, {desired}: running, installed and desired")]


def _smi_driver(host: str, facts: HostGpuFacts, readings: Readings) -> list[Finding]:
    """Libraries and module are of one version; else nvidia-smi prints "Driver/library version mismatch"."""
    shown = get(readings, "gpu", "driver")
    if shown is None:
        return [unknown("nvidia-smi", host, f"it names no driver: {why(readings, 'gpu', 'driver')}", SMI_HINT)]
    if facts.running_module and shown != facts.running_module:
        return [fail("nvidia-smi", host, f"it names driver {shown}, the module is {facts.running_module}", SMI_HINT)]
    return [ok("nvidia-smi", host, f"driver {shown}")]


def _gpus(host: str, facts: HostGpuFacts, readings: Readings) -> list[Finding]:
    """Every GPU of the PCI bus is in nvidia-smi, by its address."""
    gpus = get(readings, "gpu", "gpus")
    if facts.gpus is None or gpus is None:
        reason = facts.why("gpus") or f": {why(readings, 'gpu', 'gpus')}"
        return [unknown("gpus", host, f"the GPUs could not be listed{reason}", SMI_HINT)]
    listed = {_address(gpu["address"]) for gpu in gpus if gpu["address"]}
    missing = [gpu.address for gpu in facts.gpus if _address(gpu.address) not in listed]
    if missing and len(listed) < len(gpus):
        return [unknown("gpus", host, "nvidia-smi lists GPUs without an address", SMI_HINT)]
    if missing:
        count = f"{len(facts.gpus) - len(missing)} of {len(facts.gpus)} GPUs"
        return [fail("gpus", host, f"nvidia-smi lists {count}, not {named(missing)}", SMI_HINT)]
    return [ok("gpus", host, f"nvidia-smi lists all {len(facts.gpus)}")]


def _address(text: str) -> str:
    """0000:17:00.0 for the form of nvidia-smi, too: 00000000:17:00.0."""
    match = re.fullmatch(r"([0-9A-Fa-f]+):(.+)", text)
    return f"{int(match[1], 16):04x}:{match[2].lower()}" if match else text.lower()


def _ecc(host: str, readings: Readings) -> list[Finding]:
    gpus = get(readings, "gpu", "gpus") or ()
    pending = [gpu for gpu in gpus if gpu["ecc_pending"] is not None and gpu["ecc_pending"] != gpu["ecc"]]
    if not pending:
        return []
    message = f"another mode waits for a reset of {plural(len(pending), 'GPU')}"
    return [warn("ecc", host, message, "reset the GPUs, or reboot the host")]


def _fabric(made: StackPlan, readings: Readings) -> list[Finding]:
    """All GPUs have joined; where the switches are of this host, fabric manager runs in the driver's version."""
    host = made.host
    if made.fabric.value is None:
        return [unknown("fabric", host, f"its services are unknown: {made.fabric.why}", AS_ROOT)]
    if made.fabric.value == "none":
        return []
    gpus = get(readings, "gpu", "gpus")
    if gpus is None:
        return [unknown("fabric", host, f"its state could not be read: {why(readings, 'gpu', 'gpus')}", SMI_HINT)]
    findings = []
    if wrong := nvlink_fabric.not_joined(gpus):
        hint = "look at journalctl -u nvidia-fabricmanager; restart it, then reset the GPUs"
        findings.append(fail("fabric", host, f"GPUs have not joined: {named(wrong)}", hint))
    if faults := nvlink_fabric.faults(gpus):
        shown = named(f"GPU {index}: {fault}" for index, fault in faults.items())
        findings.append(
            fail("fabric", host, f"the fabric's health: {shown}", "look at journalctl -u nvidia-fabricmanager")
        )
    if silent := sum(nvlink_fabric.unreported(gpus)):
        findings.append(unknown("fabric", host, f"{plural(silent, 'GPU')} report no fabric state", SMI_HINT))
    if made.fabric.value in WITH_SWITCHES:
        findings += _fabric_manager(made, readings)
    return or_ok("fabric", host, findings, f"{made.fabric.value}: all GPUs have joined")


def _fabric_manager(made: StackPlan, readings: Readings) -> list[Finding]:
    host, version = made.host, get(readings, "gpu", "fabric_manager")
    runs = get(readings, "gpu", "fabric_manager_runs")
    start = "systemctl start nvidia-fabricmanager, and look at its journal"
    findings = []
    if runs is None:
        reason = why(readings, "gpu", "fabric_manager_runs")
        findings.append(unknown("fabric", host, f"whether fabric manager runs could not be read: {reason}", AS_ROOT))
    elif not runs:
        findings.append(fail("fabric", host, "fabric manager does not run", start))
    if version is None:
        reason = why(readings, "gpu", "fabric_manager")
        findings.append(unknown("fabric", host, f"the version of fabric manager could not be read: {reason}", start))
    elif made.driver and version != made.driver:
        message = f"fabric manager is {version}, should be {made.driver}: it starts only beside its own driver"
        findings.append(fail("fabric", host, message, "gpuctl bootstrap gpu-node"))
    return findings


def _cdi(host: str, facts: HostGpuFacts, toolkit: Component) -> list[Finding]:
    """A container that asks for GPUs by CDI gets all of them, and the running driver's libraries."""
    if facts.cdi is None:
        return [unknown("cdi", host, f"its specifications could not be read{facts.why('cdi')}", AS_ROOT)]
    if not facts.cdi:
        missing = "there is no CDI specification of its GPUs"
        if re.match(r"1\.(\d|1[0-7])\.", toolkit.desired):
            return [warn("cdi", host, f"{missing}: toolkits before 1.18 make none by themselves", CDI_HINT)]
        return [fail("cdi", host, missing, CDI_HINT)]
    spec = facts.cdi[-1]
    findings = list(_effective_cdi(host, facts, spec))
    stale = [old.path for old in facts.cdi[:-1] if old.missing or old.drivers != spec.drivers]
    if stale:
        message = f"{named(stale)} is of another driver than {spec.path}, which counts where both name a device"
        findings.append(warn("cdi", host, message, f"remove {named(stale)}"))
    return or_ok("cdi", host, findings, f"{spec.path}: {plural(len(spec.gpus), 'GPU')}, driver {named(spec.drivers)}")


def _effective_cdi(host: str, facts: HostGpuFacts, spec: CdiSpec) -> Iterator[Finding]:
    """Faults of the specification that counts."""
    if not spec.drivers:
        yield unknown("cdi", host, f"{spec.path} names no driver", CDI_HINT)
    elif facts.running_module and spec.drivers != (facts.running_module,):
        message = f"{spec.path} is of driver {named(spec.drivers)}, running is {facts.running_module}"
        yield fail("cdi", host, message, CDI_HINT)
    if spec.missing:
        yield fail("cdi", host, f"{spec.path} names files that are not there: {named(spec.missing)}", CDI_HINT)
    if facts.gpus is not None and len(spec.gpus) < len(facts.gpus):
        message = f"{spec.path} offers {len(spec.gpus)} of {plural(len(facts.gpus), 'GPU')}"
        yield fail("cdi", host, message, CDI_HINT)


def _efa(host: str, facts: HostGpuFacts, readings: Readings) -> list[Finding]:
    """libfabric offers every EFA device of the PCI bus; a package or folder proves nothing."""
    if facts.efa_devices is None:
        message = f"the PCI bus could not be read{facts.why('efa_devices')}"
        return [unknown("efa devices", host, message, AS_ROOT)]
    if not facts.efa_devices:
        return []
    efa = get(readings, "rdma", "efa")
    domains = efa["domains"] if efa else None
    if domains is None:
        reason = why(readings, "rdma", "efa domains")
        return [unknown("efa devices", host, f"libfabric does not list them: {reason}", "run fi_info -p efa there")]
    if domains < len(facts.efa_devices):
        message = f"libfabric offers {domains} of {len(facts.efa_devices)}"
        return [fail("efa devices", host, message, "look at dkms status and modinfo efa, then run fi_info -p efa")]
    return [ok("efa devices", host, f"libfabric offers all {len(facts.efa_devices)}")]
