"""GPUDirect RDMA in the plan: peer memory by DMA-BUF or nvidia_peermem, and GDRCopy."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.core.text import named
from gpuctl.domain import gpudirect
from gpuctl.domain.findings import Finding, fail, unknown, warn
from gpuctl.gpu_node import components
from gpuctl.gpu_node.case import Case
from gpuctl.gpu_node.model import Choice, Component

PEER_MEMORY = "peer memory"
GDRCOPY = "gdrcopy"
DMABUF, PEERMEM = "dmabuf", "nvidia_peermem"
OLD_MODULE, OLD_PACKAGES = "nv_peer_mem", ("nvidia-peer-memory", "nvidia-peer-memory-dkms")
ADD = "add a repository that has GDRCopy's packages, fetch the package lists, and plan again"
Planned = components.Planned


def gdrcopy(case: Case) -> Planned:
    """GDRCopy: library and DKMS module in one version; useless without a driver."""
    if case.request.gdrcopy is None:
        return None, []
    component = Component(GDRCOPY, case.request.gdrcopy, None)
    missing = _no_driver(case, GDRCOPY)
    if missing:
        return component, missing
    row, loaded = case.known.gdrcopy[0], case.facts.peer_modules
    planned, findings = components.of_packages(case, component, row.packages, ADD)
    if planned is None or planned.changes is not False or (loaded and row.module in loaded):
        return planned, findings
    if loaded is None:
        message = f"the loaded modules could not be read{case.facts.why('peer_modules')}"
        return planned, [*findings, unknown(GDRCOPY, case.host, message, "read the host as root")]
    return replace(planned, installed=f"{planned.installed}, {row.module} not loaded", changes=True), findings


def peer_memory(case: Case, flavour: Choice) -> Planned:
    """DMA-BUF where kernel, NVIDIA's module and every adapter's driver have it, else nvidia_peermem."""
    desired = case.request.peer_memory
    if desired is None:
        return None, []
    component = Component(PEER_MEMORY, desired, None)
    findings = _no_driver(case, PEER_MEMORY) or _no_device(case)
    if findings:
        return component, findings
    dmabuf = _dmabuf(case, flavour)
    if desired != PEERMEM and dmabuf.value is None:
        hint = "set peer_memory: nvidia_peermem; or add the driver to rdma.yml, with a source"
        return component, [unknown(PEER_MEMORY, case.host, f"whether DMA-BUF works is not known: {dmabuf.why}", hint)]
    if desired == DMABUF and dmabuf.value == "no":
        hint = "set peer_memory: auto; or boot Linux 5.12 or newer, with NVIDIA's open module"
        return component, [fail(PEER_MEMORY, case.host, f"DMA-BUF is not possible: {dmabuf.why}", hint)]
    if desired != PEERMEM and dmabuf.value == "yes":
        return replace(component, desired=DMABUF, installed=DMABUF, why=dmabuf.why, changes=False), []
    component = replace(component, desired=PEERMEM, why="" if desired == PEERMEM else f"no DMA-BUF: {dmabuf.why}")
    return _peermem(case, component)


def _peermem(case: Case, component: Component) -> Planned:
    """nvidia_peermem, only where it can be loaded."""
    host, facts = case.host, case.facts
    if facts.peer_modules is None or facts.packages is None:
        message = f"loaded modules or packages could not be read{facts.why('peer_modules', 'packages')}"
        return component, [unknown(PEER_MEMORY, host, message, "read the host as root")]
    old = [name for name in (*facts.peer_modules, *facts.packages) if name in (OLD_MODULE, *OLD_PACKAGES)]
    if old:
        message = f"{named(old)} is on the host, which nvidia_peermem replaces: only one of them can register"
        hint = "remove the package nvidia-peer-memory-dkms, and unload nv_peer_mem once no job runs"
        return component, [fail(PEER_MEMORY, host, message, hint)]
    is_loaded = PEERMEM in facts.peer_modules
    if not is_loaded and facts.peer_symbols is None:
        message = (
            f"whether nvidia_peermem can be loaded is not known{facts.why('peer_symbols') or ': ib_core is not loaded'}"
        )
        return component, [unknown(PEER_MEMORY, host, message, "load the adapters' driver, and read the host as root")]
    if not is_loaded and not facts.peer_symbols:
        message = "nvidia_peermem cannot be loaded: this ib_core has no peer memory interface"
        hint = "install the adapters' driver with it (MLNX_OFED, DOCA); or use DMA-BUF: Linux 5.12 and the open module"
        return component, [fail(PEER_MEMORY, host, f"{message}{_because(component)}", hint)]
    return replace(component, installed=PEERMEM if is_loaded else "", changes=not is_loaded), []


def _because(component: Component) -> str:
    return f" ({component.why})" if component.why else ""


def _dmabuf(case: Case, flavour: Choice) -> Choice:
    """yes, no or None, and the reason."""
    facts = case.facts
    is_open = facts.installed_open if case.request.driver is None else {"open": True}.get(flavour.value or "", False)
    possible = gpudirect.has_dmabuf(facts.kernel, is_open)
    if possible is None:
        return Choice(None, f"kernel or flavour of NVIDIA's module unreadable{facts.why('kernel', 'installed_open')}")
    if not possible:
        return Choice("no", f"Linux {facts.kernel}, {'open' if is_open else 'proprietary'} module")
    first = {row.driver: row.kernel for row in case.known.dmabuf}
    drivers = facts.rdma_drivers or ()
    other = [name for name in drivers if name not in first]
    if other:
        return Choice(None, f"no row says from which kernel on {named(other)} has it")
    running = gpudirect.version(facts.kernel)
    late = [name for name in drivers if running < gpudirect.version(first[name])]
    if late:
        return Choice("no", f"{named(late)} has it from Linux {first[late[0]]} on, {facts.kernel} runs")
    return Choice("yes", f"Linux {facts.kernel}, open module, {named(drivers)}")


def _no_driver(case: Case, check: str) -> list[Finding]:
    facts = case.facts
    if case.request.driver is not None or facts.installed_module:
        return []
    if facts.installed_module is None:
        message = f"NVIDIA's module could not be read{facts.why('installed_module')}"
        return [unknown(check, case.host, message, "read the host as root")]
    return [fail(check, case.host, "NVIDIA's driver is not installed", "set driver, too; or leave it out")]


def _no_device(case: Case) -> list[Finding]:
    facts = case.facts
    if facts.rdma_drivers is None:
        message = f"the RDMA devices could not be read{facts.why('rdma_drivers')}"
        return [unknown(PEER_MEMORY, case.host, message, "read the host as root")]
    if facts.rdma_drivers:
        return []
    hint = "load the adapters' driver, or leave peer_memory out of its gpu_stack"
    return [fail(PEER_MEMORY, case.host, "the host has no RDMA device", hint)]


def judge_wait(case: Case, reboot: Choice, parts: tuple[Component | None, ...]) -> list[Finding]:
    """Modules for the new driver cannot be loaded beside the running one."""
    names = [part.name for part in parts if part is not None]
    if reboot.value != "yes" or not names:
        return []
    message = f"{' and '.join(names)} wait for the reboot into the new driver"
    return [warn(PEER_MEMORY, case.host, message, "run gpuctl bootstrap gpu-node again after it")]
