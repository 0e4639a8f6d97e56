"""GPUDirect RDMA and Storage in the plan: peer memory of each adapter's driver, GDRCopy, and GDS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from gpuctl.core.text import named
from gpuctl.domain import gpudirect
from gpuctl.domain.findings import Finding, Verdict, fail, unknown, warn
from gpuctl.gpu_node import dkms_modules
from gpuctl.gpu_node.case import Case
from gpuctl.gpu_node.components import Planned
from gpuctl.gpu_node.dkms_modules import AS_ROOT, GDRCOPY, GDS
from gpuctl.gpu_node.model import Choice, Component, HostGpuFacts
from gpuctl.gpu_node.rows import DmaBuf

PEER_MEMORY = "peer memory"
EFA = "efa"
DMABUF, PEERMEM, EFA_PEERMEM = "dmabuf", gpudirect.PEERMEM[0], gpudirect.EFA_PEERMEM
OLD_MODULE, OLD_PACKAGES = gpudirect.PEERMEM[1], ("nvidia-peer-memory", "nvidia-peer-memory-dkms")
REBOOT, EFA_DRIVER = "a reboot into the installed driver", "EFA's driver"


class Decision(NamedTuple):
    """GDRCopy, GDS and peer memory, if the site sets them. `waits`: those that stay as they are, and the event."""

    parts: tuple[Component, ...]
    findings: list[Finding]
    waits: tuple[tuple[str, str], ...] = ()


def decide(case: Case, flavour: Choice, reboot: Choice, efa: Component | None) -> Decision:
    """The parts beside the driver of the request, or that of the host. `efa`: its component, None if not set."""
    request = case.request
    asked = {GDRCOPY: request.gdrcopy, GDS: request.gds, PEER_MEMORY: request.peer_memory}
    parts = tuple(Component(name, desired, None, changes=False) for name, desired in asked.items() if desired)
    if not parts:
        return Decision((), [])
    if request.driver is None and case.facts.installed_module:
        other = _other_module(case)
        if other.value is None:
            return Decision(
                parts, [unknown(check, case.host, other.why, AS_ROOT) for check, desired in asked.items() if desired]
            )
        if other.value == "yes":
            hint = "drain and reboot the host, then run gpuctl bootstrap gpu-node again"
            message = f"it waits for {REBOOT}: {other.why}"
            findings = [warn(check, case.host, message, hint) for check, desired in asked.items() if desired]
            return Decision(parts, findings, tuple((part.name, REBOOT) for part in parts))
    planned = [dkms_modules.gdrcopy(case), dkms_modules.gds(case, flavour), peer_memory(case, flavour, efa)]
    made = tuple(part for part, _ in planned if part is not None)
    findings = [finding for _, more in planned for finding in more]
    peers = planned[-1][0]
    if request.driver is not None and reboot.value != "no":
        message = f"{' and '.join(part.name for part in made)} are set up now, and loaded by the reboot"
        findings.append(warn(PEER_MEMORY, case.host, f"{message}: {reboot.why}", "drain and reboot the host"))
    waits = ((PEER_MEMORY, EFA_DRIVER),) if peers is not None and _waits_for_efa(case) else ()
    return Decision(made, findings, waits)


def _other_module(case: Case) -> Choice:
    """yes if a driver runs that is not the installed one, no, or None; and the reason."""
    facts = case.facts
    if facts.foreign_modules:
        return Choice("yes", f"{named(facts.foreign_modules)} is loaded")
    if facts.running_module is None or facts.foreign_modules is None:
        return Choice(None, f"the loaded modules could not be read{facts.why('running_module', 'foreign_modules')}")
    if facts.running_module and facts.running_module != facts.installed_module:
        return Choice("yes", f"the running module is {facts.running_module}, installed is {facts.installed_module}")
    if facts.running_module and None in (facts.running_open, facts.installed_open):
        reason = facts.why("running_open", "installed_open")
        return Choice(None, f"the flavour of the running or of the installed module could not be read{reason}")
    if facts.running_module and facts.running_open != facts.installed_open:
        return Choice("yes", f"the running module is {_flavour(facts.running_open)}, the installed one is not")
    return Choice("no", "no other module is loaded")


def _flavour(is_open: bool | None) -> str:
    return "open" if is_open else "proprietary"


def has_path(peers: Component, path: str) -> bool:
    """True if a driver of the host uses this path: dmabuf, nvidia_peermem or efa_nv_peermem."""
    return path in peers.desired.split(", ")


def peer_memory(case: Case, flavour: Choice, efa: Component | None) -> Planned:
    """DMA-BUF for each adapter's driver that has it, else nvidia_peermem, or efa_nv_peermem for efa."""
    desired = case.request.peer_memory
    if desired is None:
        return None, []
    component = Component(PEER_MEMORY, desired, None)
    if _waits_for_efa(case):
        hint = "run gpuctl bootstrap gpu-node again once the efa module is loaded"
        message = f"peer memory waits for {EFA_DRIVER}, which is not loaded"
        return replace(component, changes=False), [warn(PEER_MEMORY, case.host, message, hint)]
    if findings := dkms_modules.no_driver(case, PEER_MEMORY) or _no_device(case):
        return component, findings
    drivers = case.facts.rdma_drivers or ()
    dmabuf = {name: _dmabuf(case, flavour, name) for name in drivers}
    if desired == DMABUF:
        findings = _only_dmabuf(case, dmabuf)
        is_there = not any(one.verdict in {Verdict.FAIL, Verdict.UNKNOWN} for one in findings)
        component = replace(component, installed=DMABUF, changes=False) if is_there else component
        return replace(component, why=_reasons(dmabuf, "yes")), findings
    return _of_each(case, component, dmabuf, efa)


def _reasons(dmabuf: Mapping[str, Choice], value: str | None) -> str:
    """Reasons of the drivers with this answer, each once."""
    return named(dict.fromkeys(choice.why for choice in dmabuf.values() if choice.value == value))


def _only_dmabuf(case: Case, dmabuf: Mapping[str, Choice]) -> list[Finding]:
    """Findings where DMA-BUF is asked for, and nothing else."""
    values = [choice.value for choice in dmabuf.values()]
    if "no" in values:
        hint = "set peer_memory: auto; or boot Linux 5.12 or newer, with NVIDIA's open module"
        message = f"DMA-BUF is not possible: {_reasons(dmabuf, 'no')}"
        return [fail(PEER_MEMORY, case.host, message, hint)]
    if None not in values:
        return []
    hint = "set peer_memory: auto; or add the driver to rdma.yml, with a source"
    message = f"whether DMA-BUF works is not known: {_reasons(dmabuf, None)}"
    listed = {row.driver for row in case.known.dmabuf}
    others = all(name not in listed for name, choice in dmabuf.items() if choice.value is None)
    return [(warn if "yes" in values and others else unknown)(PEER_MEMORY, case.host, message, hint)]


def _of_each(case: Case, component: Component, dmabuf: Mapping[str, Choice], efa: Component | None) -> Planned:
    """The path of each driver, and what it lacks."""
    host, loaded = case.host, case.facts.peer_modules
    if component.desired == PEERMEM and set(dmabuf) == {EFA}:
        hint = "set peer_memory: auto, which takes DMA-BUF or efa_nv_peermem"
        return component, [fail(PEER_MEMORY, host, "nvidia_peermem does not serve efa, the only driver", hint)]
    chosen = {name: choice for name, choice in dmabuf.items() if name == EFA or component.desired != PEERMEM}
    # A loaded efa_nv_peermem serves efa, whether it has DMA-BUF as well or not.
    open_questions = {
        name: choice
        for name, choice in chosen.items()
        if choice.value is None and not (name == EFA and EFA_PEERMEM in (loaded or ()))
    }
    if open_questions:
        hint = "set peer_memory: nvidia_peermem; or add the driver to rdma.yml, with a source"
        message = f"whether DMA-BUF works is not known: {_reasons(open_questions, None)}"
        return component, [unknown(PEER_MEMORY, host, message, hint if EFA not in open_questions else AS_ROOT)]
    paths = {name: _path(name, chosen.get(name)) for name in dmabuf}
    missing = {name: choice for name, choice in chosen.items() if choice.value == "no"}
    why = f"no DMA-BUF: {_reasons(missing, 'no')}" if missing else _reasons(chosen, "yes")
    text = ", ".join(sorted(set(paths.values())))
    component = replace(component, desired=text, installed=text, why=why, changes=False)
    findings: list[Finding] = []
    if paths.get(EFA) == EFA_PEERMEM:
        findings += _efa_peermem(case, component, efa)
    if PEERMEM not in paths.values():
        return component, findings
    component, more = _peermem(case, component)
    return component, [*findings, *more]


def _path(driver: str, dmabuf: Choice | None) -> str:
    if dmabuf is not None and dmabuf.value == "yes":
        return DMABUF
    return EFA_PEERMEM if driver == EFA else PEERMEM


def _efa_peermem(case: Case, component: Component, efa: Component | None) -> list[Finding]:
    """efa_nv_peermem, which EFA's installer brings and loads."""
    facts, host = case.facts, case.host
    if facts.peer_modules is None:
        message = f"the loaded modules could not be read{facts.why('peer_modules')}"
        return [unknown(PEER_MEMORY, host, message, AS_ROOT)]
    if EFA_PEERMEM in facts.peer_modules:
        return []
    if efa is not None and efa.changes:
        message = f"efa waits for EFA's installer: efa_nv_peermem is not loaded{_because(component)}"
        return [warn(PEER_MEMORY, host, message, "run gpuctl bootstrap gpu-node again after it")]
    hint = "set efa, whose installer brings efa_nv_peermem, and load it; or use DMA-BUF: Linux 5.16 and the open module"
    return [fail(PEER_MEMORY, host, f"efa_nv_peermem is not loaded, which efa needs{_because(component)}", hint)]


def _peermem(case: Case, component: Component) -> tuple[Component, list[Finding]]:
    """nvidia_peermem, only where it can register; one that is loaded without the interface does nothing."""
    host, facts = case.host, case.facts
    if facts.peer_modules is None or facts.packages is None:
        message = f"loaded modules or packages could not be read{facts.why('peer_modules', 'packages')}"
        return component, [unknown(PEER_MEMORY, host, message, AS_ROOT)]
    old = [name for name in (*facts.peer_modules, *facts.packages) if name in (OLD_MODULE, *OLD_PACKAGES)]
    if old:
        message = f"{named(old)} is on the host, which nvidia_peermem replaces: only one of them can register"
        hint = "remove the package nvidia-peer-memory-dkms, and unload nv_peer_mem once no job runs"
        return component, [fail(PEER_MEMORY, host, message, hint)]
    is_loaded = PEERMEM in facts.peer_modules
    verb = "is loaded, but" if is_loaded else "cannot be loaded:"
    if facts.peer_symbols is None:
        reason = facts.why("peer_symbols") or ": ib_core is not loaded"
        message = f"whether nvidia_peermem can register is not known{reason}"
        return component, [unknown(PEER_MEMORY, host, message, f"load the adapters' driver, and {AS_ROOT}")]
    if not facts.peer_symbols:
        message = f"nvidia_peermem {verb} this ib_core has no peer memory interface"
        hint = "install the adapters' driver with it (MLNX_OFED, DOCA); or use DMA-BUF: Linux 5.12 and the open module"
        return component, [fail(PEER_MEMORY, host, f"{message}{_because(component)}", hint)]
    return replace(component, installed=component.desired if is_loaded else "", changes=not is_loaded), []


def _because(component: Component) -> str:
    return f" ({component.why})" if component.why else ""


def _dmabuf(case: Case, flavour: Choice, driver: str) -> Choice:
    """yes, no or None for one adapter's driver, and the reason.

    NVIDIA's module is the running one, or that of the request, which runs once all is done.
    """
    facts = case.facts
    desired = {"open": True, "proprietary": False}.get(flavour.value or "")
    is_open = facts.running_open if case.request.driver is None else desired
    possible = gpudirect.has_dmabuf(facts.kernel, is_open)
    if possible is None:
        reason = facts.why("kernel", "running_module", "running_open")
        if not reason and case.request.driver is None and facts.running_module == "":
            reason = ": no module is loaded"
        return Choice(None, f"kernel or flavour of NVIDIA's running module unreadable{reason}")
    if not possible:
        return Choice("no", f"Linux {facts.kernel}, {_flavour(is_open)} module")
    row = next((row for row in case.known.dmabuf if row.driver == driver), None)
    if row is None:
        return Choice(None, f"no row says from which kernel on {driver} has it")
    return _of_driver(facts, row)


def _of_driver(facts: HostGpuFacts, row: DmaBuf) -> Choice:
    """yes, no or None for the driver of a row, beside a kernel and a module of NVIDIA that have DMA-BUF."""
    driver = row.driver
    module = facts.efa_module if row.module else ""
    if module is None or (module and not gpudirect.version(module)):
        return Choice(None, f"the version of the loaded {driver} could not be read{facts.why('efa_module')}")
    if module:
        enough = gpudirect.version(module) >= gpudirect.version(row.module)
        text = f"{driver} {module}" if enough else f"{driver} has it from {row.module} on, {module} is loaded"
        return Choice("yes" if enough else "no", f"Linux {facts.kernel}, open module, {text}" if enough else text)
    if gpudirect.version(facts.kernel) < gpudirect.version(row.kernel):
        return Choice("no", f"{driver} has it from Linux {row.kernel} on, {facts.kernel} runs")
    return Choice("yes", f"Linux {facts.kernel}, open module, {driver}")


def _waits_for_efa(case: Case) -> bool:
    """True before EFA's driver is loaded, on a host that gets it."""
    is_asked = case.request.efa is not None or case.request.after_efa
    return is_asked and bool(case.facts.efa_devices) and case.facts.rdma_drivers == ()


def _no_device(case: Case) -> list[Finding]:
    facts = case.facts
    if facts.rdma_drivers is None:
        message = f"the RDMA devices could not be read{facts.why('rdma_drivers')}"
        return [unknown(PEER_MEMORY, case.host, message, AS_ROOT)]
    if facts.rdma_drivers:
        return []
    hint = "load the adapters' driver, or leave peer_memory out of its gpu_stack"
    return [fail(PEER_MEMORY, case.host, "the host has no RDMA device", hint)]
