"""Rules on GPUs: how many, which, their driver, their switches' manager, their memory, their clocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuctl.domain.findings import Finding, Verdict, fail, or_ok
from gpuctl.domain.gpu_health import CAPPED, SLOWED
from gpuctl.domain.gpu_health import issues as health_issues
from gpuctl.nccl.preflight.checks import Facts, Fleet, equal, get, unread, usual, why


def count(fleet: Fleet) -> list[Finding]:
    """Every GPU of the bus is served, and every node has as many as the others."""
    found, counts = [], {node: _count(facts) for node, facts in fleet.items()}
    for node, facts in fleet.items():
        there = max(get(facts, "gpu", "attached") or 0, get(facts, "gpu", "on_bus") or 0)
        own = counts[node]
        if own is None:
            found.append(unread("gpu-count", node, "its GPUs are", why(facts, "gpu", "gpus"), "run nvidia-smi there"))
        elif own == 0:
            found.append(fail("gpu-count", node, "it has no GPU that answers", "look at nvidia-smi and dmesg", gpus=0))
        elif own < there:
            says = f"{own} GPUs answer, the node has {there}"
            found.append(fail("gpu-count", node, says, "look for Xid 79 in dmesg; reboot it", gpus=own, there=there))
    told = {finding.subject for finding in found}
    odd = equal("gpu-count", "{} GPUs", counts, "look for a GPU that fell off the bus: dmesg, Xid 79")
    found += [finding for finding in odd if finding.subject not in told]
    return or_ok("gpu-count", "", found, f"{usual(counts)} GPUs on each node")


def _count(facts: Facts) -> int | None:
    gpus = get(facts, "gpu", "gpus")
    return None if gpus is None else len(gpus)


def model(fleet: Fleet) -> list[Finding]:
    """All GPUs of all nodes are of one model."""
    models = {node: _models(facts) for node, facts in fleet.items()}
    found = [
        fail("gpu-model", node, f"its GPUs are of several models: {own}", "run on GPUs of one model only")
        for node, own in models.items()
        if own and "; " in own
    ]
    found += equal("gpu-model", "{}", models, "leave the node out: the slowest GPU sets the pace of all")
    found += [finding for node, facts in fleet.items() for finding in _untold_models(node, facts)]
    if not found and usual(models) is None:
        return [unread("gpu-model", "", "the GPUs' model is", "no node has one that answers")]
    return or_ok("gpu-model", "", found, f"all are {usual(models)}")


def _models(facts: Facts) -> str | None:
    """Those that are known."""
    return "; ".join(sorted({gpu["model"] for gpu in get(facts, "gpu", "gpus") or () if gpu["model"]})) or None


def _untold_models(node: str, facts: Facts) -> list[Finding]:
    gpus = get(facts, "gpu", "gpus")
    if gpus is None:
        return [unread("gpu-model", node, "its GPUs' model is", why(facts, "gpu", "gpus"))]
    untold = _which(gpu["model"] is None for gpu in gpus)
    return [unread("gpu-model", node, f"the model of {untold} is", "nvidia-smi does not tell")] if untold else []


def _which(these: Iterable[bool]) -> str:
    """GPUs by their numbers: "GPU 0, 3"; nvidia-smi counts them by their place on the bus."""
    numbers = ", ".join(str(index) for index, this in enumerate(these) if this)
    return f"GPU {numbers}" if numbers else ""


def driver(fleet: Fleet) -> list[Finding]:
    """One driver version everywhere, and its kernel module is the one that is loaded."""
    versions = {node: get(facts, "gpu", "driver") for node, facts in fleet.items()}
    found = []
    for node, facts in fleet.items():
        own, module = versions[node], get(facts, "gpu", "module")
        if own is None:
            found.append(unread("driver", node, "its driver version is", why(facts, "gpu", "driver")))
        elif module is not None and module != own:
            says = f"driver {own} is installed, its loaded kernel module is {module}"
            found.append(fail("driver", node, says, "reboot it, or reload the module", driver=own, module=module))
    found += equal("driver", "driver {}", versions, "install one version on all nodes")
    return or_ok("driver", "", found, f"driver {usual(versions)} everywhere")


def fabric_manager(fleet: Fleet) -> list[Finding]:
    """Where there are NVSwitches: the manager runs, in the driver's own version, and the GPUs have joined."""
    needs = {node: facts for node, facts in fleet.items() if get(facts, "gpu", "switches") or _states(facts)}
    found = [finding for node, facts in needs.items() for finding in _manager(node, facts)]
    found += [
        unread("fabric-manager", node, "whether it has NVSwitches is", why(facts, "gpu", "module", "gpus"))
        for node, facts in fleet.items()
        if node not in needs and get(facts, "gpu", "switches") is None and get(facts, "gpu", "gpus") is None
    ]
    says = "runs in the driver's version, all GPUs have joined" if needs else "no node has NVSwitches"
    return or_ok("fabric-manager", "", found, says)


def _manager(node: str, facts: Facts) -> list[Finding]:
    rule, version, driver_ = "fabric-manager", get(facts, "gpu", "fabric_manager"), get(facts, "gpu", "driver")
    wrong = sorted({f"{s} ({status or '?'})" for s, status in _states(facts) if _has_not_joined(s, status)})
    found = _untold_states(node, facts)
    if wrong:
        advice = "systemctl status nvidia-fabricmanager; restart it, then reset the GPUs"
        found.append(fail(rule, node, f"GPUs have not joined the NVLink fabric: {', '.join(wrong)}", advice))
    if not get(facts, "gpu", "switches"):
        return found  # the switches are another machine's, as in NVL72 racks
    if version is None:
        reason = why(facts, "gpu", "fabric_manager")
        return [*found, unread(rule, node, "the fabric manager's version is", reason, "install it")]
    runs = get(facts, "gpu", "fabric_manager_runs")
    if runs is None:
        reason = why(facts, "gpu", "fabric_manager_runs")
        found.append(unread(rule, node, "whether the fabric manager runs is", reason))
    elif not runs:
        found.append(fail(rule, node, "the fabric manager does not run", "systemctl start nvidia-fabricmanager"))
    if driver_ is not None and version != driver_:
        says = f"fabric manager {version} and driver {driver_} differ: it refuses to work so"
        found.append(fail(rule, node, says, "install both in one version", fabric_manager=version, driver=driver_))
    return found


def _states(facts: Facts) -> list[tuple[str, str | None]]:
    """Of the GPUs that tell: older drivers do not."""
    gpus = get(facts, "gpu", "gpus") or ()
    return [(gpu["fabric_state"], gpu["fabric_status"]) for gpu in gpus if gpu["fabric_state"]]


def _has_not_joined(state: str, status: str | None) -> bool:
    return state != "Completed" or status not in (None, "Success")


def _untold_states(node: str, facts: Facts) -> list[Finding]:
    """Of GPUs that tell half of it, or nothing where others of their node do."""
    gpus = get(facts, "gpu", "gpus") or ()
    states = bool(_states(facts))
    untold = _which(
        gpu["fabric_status"] is None if gpu["fabric_state"] == "Completed" else states and gpu["fabric_state"] is None
        for gpu in gpus
    )
    what = f"whether {untold} joined the NVLink fabric is"
    return [unread("fabric-manager", node, what, "nvidia-smi does not tell")] if untold else []


def memory(fleet: Fleet) -> list[Finding]:
    """No repair of GPU memory waits for a reset, none has failed."""
    found = [finding for node, facts in fleet.items() for finding in _memory(node, facts)]
    modes = {node: _modes(facts) for node, facts in fleet.items()}
    found += equal("gpu-memory", "ECC {}", modes, "set it alike on all nodes: nvidia-smi -e 1, then reset")
    return or_ok("gpu-memory", "", found, "no row remap, page retirement or ECC change waits for a reset")


def _modes(facts: Facts) -> str | None:
    """None where a GPU does not tell: what its node has is then not known."""
    gpus = get(facts, "gpu", "gpus") or ()
    return None if any(gpu["ecc"] is None for gpu in gpus) else "; ".join(sorted({gpu["ecc"] for gpu in gpus})) or None


def _memory(node: str, facts: Facts) -> list[Finding]:
    gpus = get(facts, "gpu", "gpus")
    if gpus is None:
        return [unread("gpu-memory", node, "its GPUs' memory is", why(facts, "gpu", "gpus"))]
    # GPUs of workstations have no ECC, and all of them say nothing of it.
    tells = any(gpu["ecc"] or gpu["ecc_pending"] for gpu in gpus)
    untold = _which(tells and None in (gpu["ecc"], gpu["ecc_pending"]) for gpu in gpus)
    found = [unread("gpu-memory", node, f"{untold}: ECC is", "nvidia-smi does not tell")] if untold else []
    return found + [finding for index, gpu in enumerate(gpus) for finding in _memory_of(node, f"GPU {index}", gpu)]


def _memory_of(node: str, name: str, gpu: dict[str, Any]) -> list[Finding]:
    """One GPU."""
    return [
        Finding("gpu-memory", node, issue.verdict, f"{name}: {issue.message}", hint=issue.hint)
        for issue in health_issues(gpu)
    ]


def clocks(fleet: Fleet) -> list[Finding]:
    """Nothing holds the GPUs' clocks down."""
    found = []
    for node, facts in fleet.items():
        gpus = get(facts, "gpu", "gpus")
        if gpus is None:
            found.append(unread("clocks", node, "its clocks are", why(facts, "gpu", "gpus")))
            continue
        found += [f for index, gpu in enumerate(gpus) for f in _clocks_of(node, f"GPU {index}", gpu)]
    return or_ok("clocks", "", found, "nothing slows them down")


def _clocks_of(node: str, name: str, gpu: Mapping[str, Any]) -> list[Finding]:
    reasons = gpu["slowed_by"]
    if reasons is None:
        reason = gpu["unread"].get("slowed_by", "nvidia-smi does not tell")
        return [unread("clocks", node, f"{name}: what slows it is", reason)]
    slowed = [reason for reason in reasons if reason in SLOWED]
    if slowed:
        says = f"{name} is slowed down by {', '.join(slowed)}"
        return [fail("clocks", node, says, "check cooling and power supply", reasons=", ".join(slowed))]
    if CAPPED in reasons:
        return [Finding("clocks", node, Verdict.WARN, f"{name} is at its power limit", hint="nvidia-smi -q -d POWER")]
    return []
