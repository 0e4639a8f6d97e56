"""Decisions that follow from a host's GPUs: models, kernel module flavour, and the services of their fabric."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, ok, unknown, warn
from gpuctl.gpu_node.model import Choice, HostGpuFacts, StackRequest
from gpuctl.gpu_node.rows import Fabric, GpuModel, Knowledge

HGX_GPUS = 8  # a full board of GPUs that NVSwitches connect
NO_SERVICES = "none"
MEANING = {"open": "the open module only", "proprietary": "the proprietary module only", "grid": "the GRID module only"}


def models(facts: HostGpuFacts, known: Knowledge) -> tuple[GpuModel, ...] | None:
    """Models of all GPUs, in bus order; None if any is not known, or the bus could not be read."""
    rows = [known.model(gpu) for gpu in facts.gpus or ()]
    whole = tuple(row for row in rows if row is not None)
    return whole if facts.gpus is not None and len(whole) == len(rows) else None


def summary(rows: Sequence[GpuModel] | None, facts: HostGpuFacts) -> str:
    """ "8 x H100 SXM", "none", or "unknown"."""
    if rows is None:
        return "unknown" if facts.gpus is None else f"{len(facts.gpus)} of unknown model"
    counts = {row.model: sum(other.model == row.model for other in rows) for row in rows}
    return named(f"{count} x {model}" for model, count in counts.items()) or "none"


def judge_models(host: str, facts: HostGpuFacts, known: Knowledge) -> list[Finding]:
    """GPUs that can be identified by their ids, are all of one model, and are all served by the driver."""
    if facts.gpus is None:
        return [unknown("gpus", host, f"the PCI bus could not be read{facts.why('gpus')}")]
    strange = [f"{gpu.device} at {gpu.address}" for gpu in facts.gpus if known.model(gpu) is None]
    if strange:
        hint = "add the ids, with their source, to gpuctl/data/gpu_stack/gpus.yml"
        return [
            unknown("gpus", host, f"unknown GPU ids, or no subsystem id to distinguish them: {named(strange)}", hint)
        ]
    names = sorted({row.model for row in models(facts, known) or ()})
    if len(names) > 1:
        hint = "give the host GPUs of one model, or exclude it: one driver stack cannot be proved for several"
        return [fail("mixed host", host, f"GPUs of several models: {named(names)}", hint)]
    return [ok("gpus", host, f"{len(facts.gpus)} x {names[0]}" if names else "no NVIDIA GPU"), *_lost(host, facts)]


def _lost(host: str, facts: HostGpuFacts) -> list[Finding]:
    """Compare the bus with nvidia-smi, where a driver is loaded."""
    listed = len(facts.gpus or ())
    if facts.running_module is None:
        return [unknown("lost gpu", host, f"the loaded module could not be read{facts.why('running_module')}")]
    if not facts.running_module or not listed:
        return []
    if facts.smi_gpus is None and _awaits_reboot(facts):
        message = f"nvidia-smi lists GPUs again after a reboot{facts.why('smi_gpus')}"
        return [warn("lost gpu", host, message, "drain and reboot the host")]
    if facts.smi_gpus is None:
        return [unknown("lost gpu", host, f"nvidia-smi lists no GPUs{facts.why('smi_gpus')}", "run nvidia-smi -L")]
    if facts.smi_gpus < listed:
        message = f"the PCI bus has {listed} GPUs, nvidia-smi lists {facts.smi_gpus}"
        return [fail("lost gpu", host, message, "read the kernel log for an Xid, and repair the host first")]
    return []


def _awaits_reboot(facts: HostGpuFacts) -> bool:
    """True between an upgrade and its reboot: nvidia-smi and its library are newer than the module that runs."""
    return "version mismatch" in facts.why("smi_gpus").lower() and facts.running_module != facts.installed_module


def flavour(rows: Sequence[GpuModel] | None, request: StackRequest) -> Choice:
    """Flavour of the kernel module; `judge_flavour` checks whether the GPUs accept it."""
    if request.driver is None:
        return Choice("none", "the site installs no driver")
    if rows is None:
        return Choice(None, "not all GPUs are known")
    if not rows:
        return Choice("none", "the host has no NVIDIA GPU")
    # The site cannot choose for a GPU that neither module serves.
    if request.flavour != "auto" and all(row.modules != "grid" for row in rows):
        return Choice(request.flavour, "set by the site")
    return _flavour_of_gpus(rows)


def _flavour_of_gpus(rows: Sequence[GpuModel]) -> Choice:
    needs = sorted({row.modules for row in rows} - {"either"})
    if len(needs) > 1:
        return Choice(None, f"the GPUs need different modules: {named(needs)}")
    if needs:
        model = next(row.model for row in rows if row.modules == needs[0])
        return Choice(needs[0], f"{model} works with {MEANING[needs[0]]}")
    return Choice("open", f"{rows[0].model} works with both; open is the default since 560")


def judge_flavour(host: str, rows: Sequence[GpuModel] | None, request: StackRequest, known: Knowledge) -> list[Finding]:
    """Refusals of a flavour that the GPUs or the driver branch do not have."""
    choice = flavour(rows, request)
    if choice.value is None:
        return [unknown("flavour", host, f"no kernel module can be chosen: {choice.why}")]
    if choice.value == "none":
        return []
    if choice.value == "grid":
        hint = "install NVIDIA's GRID driver from the cloud provider; gpuctl does not have it"
        return [fail("flavour", host, f"{choice.why}, which no package repository has", hint)]
    wrong = [row for row in rows or () if row.modules not in {"either", choice.value}]
    if wrong:
        message = f"{choice.value} module requested; {wrong[0].model} works with {MEANING[wrong[0].modules]}"
        return [_sourced(fail("flavour", host, message, "set flavour: auto"), wrong[0].source)]
    return _proprietary_branch(host, choice, request, known)


def _proprietary_branch(host: str, choice: Choice, request: StackRequest, known: Knowledge) -> list[Finding]:
    row = next((row for row in known.branches if row.branch == request.branch), None)
    if choice.value == "proprietary" and row is not None and not row.proprietary:
        message = f"no proprietary module is documented for branch {row.branch}"
        return [_sourced(unknown("flavour", host, message, "use an older branch, such as 580"), row.source)]
    return []


def _sourced(finding: Finding, source: str) -> Finding:
    return Finding(**{**finding.as_dict(), "verdict": finding.verdict, "source": source})


def fabric(facts: HostGpuFacts, rows: Sequence[GpuModel] | None, known: Knowledge) -> Choice:
    """Services of the GPUs' fabric: the first row of `fabric.yml` that fits, none, or None if unknown."""
    if rows is None:
        return Choice(None, "not all GPUs are known")
    for row in known.fabric:
        detected = DETECTIONS[row.detect](row, facts, rows)
        if detected is None:
            return Choice(None, f"{UNREADABLE[row.detect]} could not be read")
        if detected:
            return Choice(row.name, row.why)
    forms = {row.form for row in rows}
    if len(rows) >= HGX_GPUS and forms == {"sxm"}:
        return Choice(None, f"{len(rows)} GPUs of an HGX board, and no NVSwitch or management bridge on the bus")
    return Choice(NO_SERVICES, "no NVSwitch, no management bridge, and NVLink stays inside the host")


def judge_fabric(host: str, choice: Choice) -> list[Finding]:
    """UNKNOWN if the services cannot be determined."""
    if choice.value is not None:
        return []
    hint = "read the host again as root; in a virtual machine, its host runs fabric manager"
    return [unknown("fabric", host, f"whether fabric services are needed: {choice.why}", hint)]


def _vpd(row: Fabric, facts: HostGpuFacts, rows: Sequence[GpuModel]) -> bool | None:
    """The bridge is looked for only beside GPUs whose NVSwitches have one: Blackwell on SXM boards."""
    if not any(gpu.form == "sxm" and gpu.architecture == "Blackwell" for gpu in rows):
        return False
    return None if facts.infiniband_vpd is None else any(row.value in text for text in facts.infiniband_vpd)


def _form(row: Fabric, facts: HostGpuFacts, rows: Sequence[GpuModel]) -> bool | None:
    return any(gpu.form == row.value for gpu in rows)


def _nvswitch(row: Fabric, facts: HostGpuFacts, rows: Sequence[GpuModel]) -> bool | None:
    """A switch on the bus: /dev/nvidia-nvswitchctl also exists in a virtual machine without one."""
    return None if facts.nvswitches is None else bool(set(row.value.split()) & set(facts.nvswitches))


DETECTIONS: Mapping[str, Callable[[Fabric, HostGpuFacts, Sequence[GpuModel]], bool | None]] = {
    "infiniband_vpd": _vpd,
    "gpu_form": _form,
    "nvswitch": _nvswitch,
}
UNREADABLE = {"infiniband_vpd": "the adapters' VPD", "gpu_form": "the GPUs", "nvswitch": "the PCI bus"}
