"""Rules on GPUs: number, model, driver, fabric manager, memory, clocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuctl.domain import nvlink_fabric
from gpuctl.domain.findings import Finding, Verdict, fail, or_ok
from gpuctl.domain.gpu_health import CAPPED, SLOWED, why_capped
from gpuctl.domain.gpu_health import issues as health_issues
from gpuctl.domain.node_facts import Facts, Fleet, equal, get, some, unread, usual, why

NOT_JOINED = "GPUs have not joined the NVLink fabric: {}"
REJOIN = "check systemctl status nvidia-fabricmanager; restart it, then reset the GPUs"


def count(fleet: Fleet) -> list[Finding]:
    """Check that every GPU on the bus answers, and that all nodes have the same number."""
    findings, counts = [], {node: _count(facts) for node, facts in fleet.items()}
    for node, facts in fleet.items():
        present = max(get(facts, "gpu", "attached") or 0, get(facts, "gpu", "on_bus") or 0)
        answering = counts[node]
        if answering is None:
            findings.append(
                unread("gpu-count", node, "its GPUs are", why(facts, "gpu", "gpus"), "run nvidia-smi there")
            )
        elif answering == 0:
            findings.append(fail("gpu-count", node, "no GPU answers", "check nvidia-smi and dmesg", gpus=0))
        elif answering < present:
            message = f"{answering} GPUs answer, the node has {present}"
            findings.append(
                fail("gpu-count", node, message, "look for Xid 79 in dmesg; reboot it", gpus=answering, present=present)
            )
        if answering and get(facts, "gpu", "attached") is None and "attached" in facts["gpu"].get("unread", {}):
            what = f"{answering} GPUs answer; how many the driver has is"
            findings.append(unread("gpu-count", node, what, why(facts, "gpu", "attached"), "run nvidia-smi -q there"))
    subjects = {finding.subject for finding in findings}
    odd = equal("gpu-count", "{} GPUs", counts, "look for a GPU that fell off the bus: dmesg, Xid 79")
    findings += [finding for finding in odd if finding.subject not in subjects]
    return or_ok("gpu-count", "", findings, f"{usual(counts)} GPUs on each node")


def _count(facts: Facts) -> int | None:
    gpus = get(facts, "gpu", "gpus")
    return None if gpus is None else len(gpus)


def model(fleet: Fleet) -> list[Finding]:
    """Check that all GPUs are of one model."""
    models = {node: _models(facts) for node, facts in fleet.items()}
    findings = [
        fail("gpu-model", node, f"its GPUs are of several models: {node_model}", "run on GPUs of one model only")
        for node, node_model in models.items()
        if node_model and "; " in node_model
    ]
    findings += equal("gpu-model", "{}", models, "leave the node out: the slowest GPU sets the pace of all")
    findings += [finding for node, facts in fleet.items() for finding in _unknown_models(node, facts)]
    if not findings and usual(models) is None:
        return [unread("gpu-model", "", "the GPUs' model is", "no GPU of any node answers")]
    return or_ok("gpu-model", "", findings, f"all are {usual(models)}")


def _models(facts: Facts) -> str | None:
    """Known values."""
    return "; ".join(sorted({gpu["model"] for gpu in get(facts, "gpu", "gpus") or () if gpu["model"]})) or None


def _unknown_models(node: str, facts: Facts) -> list[Finding]:
    gpus = get(facts, "gpu", "gpus")
    if gpus is None:
        return [unread("gpu-model", node, "its GPUs' model is", why(facts, "gpu", "gpus"))]
    unknown = _which(gpu["model"] is None for gpu in gpus)
    return [unread("gpu-model", node, f"the model of {unknown} is", "nvidia-smi does not report it")] if unknown else []


def _which(these: Iterable[bool]) -> str:
    """GPUs by their numbers: "GPU 0, 3"; nvidia-smi counts them by their place on the bus."""
    numbers = ", ".join(str(index) for index, this in enumerate(these) if this)
    return f"GPU {numbers}" if numbers else ""


def driver(fleet: Fleet) -> list[Finding]:
    """One driver version everywhere, and its kernel module is the one that is loaded."""
    versions = {node: get(facts, "gpu", "driver") for node, facts in fleet.items()}
    findings = []
    for node, facts in fleet.items():
        installed, module = versions[node], get(facts, "gpu", "module")
        if installed is None:
            findings.append(unread("driver", node, "its driver version is", why(facts, "gpu", "driver")))
        elif module is not None and module != installed:
            message = f"driver {installed} is installed, its loaded kernel module is {module}"
            findings.append(
                fail("driver", node, message, "reboot it, or reload the module", driver=installed, module=module)
            )
    findings += equal("driver", "driver {}", versions, "install one version on all nodes")
    return or_ok("driver", "", findings, f"driver {usual(versions)} everywhere")


def fabric_manager(fleet: Fleet) -> list[Finding]:
    """Check nodes with NVSwitches: fabric manager runs in the driver's version, and the GPUs joined the fabric."""
    needs = {node: facts for node, facts in fleet.items() if get(facts, "gpu", "switches") or _has_fabric(facts)}
    findings = [finding for node, facts in needs.items() for finding in _manager(node, facts)]
    findings += [
        unread("fabric-manager", node, "whether it has NVSwitches is", why(facts, "gpu", "module", "gpus"))
        for node, facts in fleet.items()
        if node not in needs and get(facts, "gpu", "switches") is None and get(facts, "gpu", "gpus") is None
    ]
    return or_ok("fabric-manager", "", findings, _all_well(needs))


def _all_well(needs: Fleet) -> str:
    """What was read of the nodes with NVSwitches, all of whom are well."""
    if not needs:
        return "no node has NVSwitches"
    silent = [node for node, facts in needs.items() if not _states(facts)]
    if len(silent) == len(needs):
        return "runs in the driver's version; these GPUs report no fabric state"
    joined = "runs in the driver's version, all GPUs have joined"
    return f"{joined}; those of {some(silent)} report no fabric state" if silent else joined


def _manager(node: str, facts: Facts) -> list[Finding]:
    rule, version, driver_ = "fabric-manager", get(facts, "gpu", "fabric_manager"), get(facts, "gpu", "driver")
    wrong = nvlink_fabric.not_joined(get(facts, "gpu", "gpus") or ())
    findings = _unknown_states(node, facts)
    if wrong:
        findings.append(fail(rule, node, NOT_JOINED.format(", ".join(wrong)), REJOIN))
    findings += fabric_health(node, facts)
    if not get(facts, "gpu", "switches"):
        return findings  # the switches belong to another machine, as in NVL72 racks
    if version is None:
        reason = why(facts, "gpu", "fabric_manager")
        return [*findings, unread(rule, node, "the fabric manager's version is", reason, "install it")]
    runs = get(facts, "gpu", "fabric_manager_runs")
    if runs is None:
        reason = why(facts, "gpu", "fabric_manager_runs")
        findings.append(unread(rule, node, "whether the fabric manager runs is", reason))
    elif not runs:
        findings.append(fail(rule, node, "the fabric manager does not run", "systemctl start nvidia-fabricmanager"))
    if driver_ is not None and version != driver_:
        message = f"fabric manager {version} and driver {driver_} differ: it refuses to start"
        findings.append(
            fail(rule, node, message, "install both in one version", fabric_manager=version, driver=driver_)
        )
    return findings


def _states(facts: Facts) -> list[tuple[str, str | None]]:
    return nvlink_fabric.states(get(facts, "gpu", "gpus") or ())


def _has_fabric(facts: Facts) -> bool:
    """True if GPUs report a fabric state, or should, and it could not be read."""
    gpus = get(facts, "gpu", "gpus") or ()
    return bool(nvlink_fabric.states(gpus) or nvlink_fabric.unread(gpus))


def fabric_health(node: str, facts: Facts) -> list[Finding]:
    """Findings for GPUs whose NVLink fabric reports a fault, or a state that is not known."""
    gpus = get(facts, "gpu", "gpus") or ()
    hint = "read the log of fabric manager, and of the fabric's switches; drain the node"
    findings = [
        fail("fabric-manager", node, f"GPU {index}: the health of its NVLink fabric: {faults}", hint)
        for index, faults in nvlink_fabric.faults(gpus).items()
    ]
    unclear = {
        index: gpu["unread"]["fabric_faults"] for index, gpu in enumerate(gpus) if "fabric_faults" in gpu["unread"]
    }
    what = "the health of its NVLink fabric is"
    return findings + [unread("fabric-manager", node, f"GPU {i}: {what}", reason) for i, reason in unclear.items()]


def fabric_reports(fleet: Fleet) -> list[Finding]:
    """Findings on what GPUs say of their fabric, where nothing is known of fabric manager; none if all is well."""
    findings = []
    for node, facts in fleet.items():
        gpus = get(facts, "gpu", "gpus") or ()
        if wrong := nvlink_fabric.not_joined(gpus):
            findings.append(fail("fabric-manager", node, NOT_JOINED.format(", ".join(wrong)), REJOIN))
        findings += _unknown_states(node, facts) if _has_fabric(facts) else []
        findings += fabric_health(node, facts)
    return findings


def _unknown_states(node: str, facts: Facts) -> list[Finding]:
    """UNKNOWN for GPUs with a missing status, or without a state although their model has one."""
    gpus = get(facts, "gpu", "gpus") or ()
    reasons = nvlink_fabric.unread(gpus)
    silent = [index for index, is_silent in enumerate(nvlink_fabric.unreported(gpus)) if is_silent]
    reasons = {**dict.fromkeys(silent, "nvidia-smi does not report it"), **reasons}
    hint = "" if nvlink_fabric.states(gpus) else "drivers from 525 on report it: nvidia-smi -q"
    findings = []
    for reason in dict.fromkeys(reasons.values()):
        which = _which(reasons.get(index) == reason for index in range(len(gpus)))
        findings.append(unread("fabric-manager", node, f"whether {which} joined the NVLink fabric is", reason, hint))
    return findings


def memory(fleet: Fleet) -> list[Finding]:
    """Check that no memory repair of a GPU is pending or has failed."""
    findings = [finding for node, facts in fleet.items() for finding in _memory(node, facts)]
    modes = {node: _modes(facts) for node, facts in fleet.items()}
    findings += equal("gpu-memory", "ECC {}", modes, "set it alike on all nodes: nvidia-smi -e 1, then reset")
    return or_ok("gpu-memory", "", findings, "no row remap, page retirement or ECC change waits for a reset")


def _modes(facts: Facts) -> str | None:
    """ECC modes of a node; None if a GPU does not report its mode."""
    gpus = get(facts, "gpu", "gpus") or ()
    return None if any(gpu["ecc"] is None for gpu in gpus) else "; ".join(sorted({gpu["ecc"] for gpu in gpus})) or None


def _memory(node: str, facts: Facts) -> list[Finding]:
    gpus = get(facts, "gpu", "gpus")
    if gpus is None:
        return [unread("gpu-memory", node, "its GPUs' memory is", why(facts, "gpu", "gpus"))]
    # GPUs of workstations have no ECC, and none of them reports it.
    has_ecc = any(gpu["ecc"] or gpu["ecc_pending"] for gpu in gpus)
    unknown = _which(
        has_ecc and None in (gpu["ecc"], gpu["ecc_pending"]) and not {"ecc", "ecc_pending"} & gpu["unread"].keys()
        for gpu in gpus
    )
    findings = [unread("gpu-memory", node, f"{unknown}: ECC is", "nvidia-smi does not report it")] if unknown else []
    return findings + [finding for index, gpu in enumerate(gpus) for finding in _memory_of(node, f"GPU {index}", gpu)]


def _memory_of(node: str, name: str, gpu: dict[str, Any]) -> list[Finding]:
    """Memory findings of one GPU."""
    return [
        Finding("gpu-memory", node, issue.verdict, f"{name}: {issue.message}", hint=issue.hint)
        for issue in health_issues(gpu)
    ]


def clocks(fleet: Fleet) -> list[Finding]:
    """Check that nothing throttles the GPUs' clocks."""
    findings = []
    for node, facts in fleet.items():
        gpus = get(facts, "gpu", "gpus")
        if gpus is None:
            findings.append(unread("clocks", node, "its clocks are", why(facts, "gpu", "gpus")))
            continue
        findings += [f for index, gpu in enumerate(gpus) for f in _clocks_of(node, f"GPU {index}", gpu)]
    return or_ok("clocks", "", findings, "nothing slows them down")


def _clocks_of(node: str, name: str, gpu: Mapping[str, Any]) -> list[Finding]:
    reasons = gpu["slowed_by"]
    if reasons is None:
        reason = gpu["unread"].get("slowed_by", "nvidia-smi does not report it")
        return [unread("clocks", node, f"{name}: what slows it is", reason)]
    slowed = [reason for reason in reasons if reason in SLOWED]
    if slowed:
        message = f"{name} is slowed down by {', '.join(slowed)}"
        return [fail("clocks", node, message, "check cooling and power supply", reasons=", ".join(slowed))]
    reason = why_capped(gpu) if CAPPED in reasons else ""
    if reason:
        message = f"{name} is at its power limit, {reason}"
        return [Finding("clocks", node, Verdict.WARN, message, hint="nvidia-smi -q -d POWER")]
    return []
