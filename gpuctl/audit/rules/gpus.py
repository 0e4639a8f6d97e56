"""Rules on settings of GPUs that jobs leave behind, and on heat, power and memory beyond what a test run needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Number, Verdict, ok, or_ok
from gpuctl.domain.gpu_health import AT_WORK
from gpuctl.domain.node_facts import ABSENT, Facts, Fleet, equal, get, unread, why

CLOSE_C = 5  # degrees below the temperature at which a GPU slows down
DCGM = "DCGM, dcgm_errors.h"
NVML = "NVIDIA NVML, nvml.h"
FAST = ("P0", "P1", "P2")  # states in which a GPU computes; in the others it lowers the speed of its PCIe link
Gpu = Mapping[str, Any]


@dataclass(frozen=True)
class Issue:
    """A fault or a doubtful setting of a GPU. GPUs of a node with the same one share a finding, without its numbers."""

    verdict: Verdict
    message: str
    hint: str
    numbers: Mapping[str, Number] = field(default_factory=dict, hash=False, compare=False)
    source: str = ""


@dataclass(frozen=True)
class GpuRule:
    """A rule on one value of a GPU. `always`: every GPU on Linux has the value; one that is missing is UNKNOWN.

    `limits`: values of which one is the limit; it is UNKNOWN what cannot be read, as with each of `needs`, values with
    their names. `unjudged`: why the value of a GPU cannot be judged; "" if it can. OK says so, and of how many.
    """

    check: str
    value: str
    what: str
    fine: str
    judge: Callable[[Gpu], Issue | None]
    always: bool = False
    limits: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    unjudged: Callable[[Gpu], str] = lambda _: ""

    def __call__(self, fleet: Fleet) -> list[Finding]:
        findings = [finding for node, facts in fleet.items() for finding in self._node(node, facts)]
        known = [gpu for facts in fleet.values() for gpu in _gpus(facts) if gpu.get(self.value) is not None]
        if not findings and not known:
            return [ok(self.check, "", f"not judged: no GPU reports its {self.what}")]
        reasons = Counter(map(self.unjudged, known))
        judged = reasons.pop("", 0)
        why_not = "; ".join(reasons)
        if not findings and not judged:
            return [ok(self.check, "", f"not judged: {why_not}")]
        some = f"; not judged: {len(known) - judged} of {len(known)} GPUs: {why_not}" if reasons else ""
        return or_ok(self.check, "", findings, self.fine + some)

    def _node(self, node: str, facts: Facts) -> Iterator[Finding]:
        if get(facts, "gpu", "gpus") is None:
            yield unread(self.check, node, f"the {self.what} of its GPUs is", why(facts, "gpu", "gpus"))
        reasons: dict[str, list[int]] = {}
        issues: dict[Issue, list[int]] = {}
        for index, gpu in enumerate(_gpus(facts)):
            reason = self._unknown(gpu, facts)
            if reason is not None:
                reasons.setdefault(reason, []).append(index)
            elif gpu.get(self.value) is not None and not self.unjudged(gpu) and (issue := self.judge(gpu)):
                issues.setdefault(issue, []).append(index)
        for reason, unknown in reasons.items():
            yield unread(self.check, node, f"{_names(unknown)}: {self.what} is", reason)
        for issue, alike in issues.items():
            numbers = issue.numbers if len(alike) == 1 else {}
            message = f"{_names(alike)}: {issue.message}"
            yield Finding(self.check, node, issue.verdict, message, numbers, issue.hint, issue.source)

    def _unknown(self, gpu: Gpu, facts: Facts) -> str | None:
        """Why the value of a GPU is not known; None if it is, or if GPUs of its kind have none."""
        reason: str | None = gpu["unread"].get(self.value)
        if reason is None and gpu.get(self.value) is not None:
            return self._limit_unknown(gpu, facts) or self._need_unknown(gpu)
        if reason is not None:
            return reason
        if self.always:
            return "nvidia-smi does not report it"
        reported = any(other.get(self.value) is not None for other in _alike(gpu, facts))
        return "nvidia-smi reports it of the GPUs beside it, and not of this one" if reported else None

    def _limit_unknown(self, gpu: Gpu, facts: Facts) -> str | None:
        """Why the limit of a GPU's value is not known; None if it is, or if the GPU or this output has none."""
        if any(gpu.get(name) is not None for name in self.limits):
            return None
        reasons = [gpu["unread"][name] for name in self.limits if name in gpu["unread"]]
        reason = next((reason for reason in reasons if reason != ABSENT), None)
        reported = any(other.get(name) is not None for other in _alike(gpu, facts) for name in self.limits)
        beside = "nvidia-smi reports its limit of the GPUs beside it, and not of this one" if reported else None
        return f"its limit is {reason}" if reason else beside

    def _need_unknown(self, gpu: Gpu) -> str | None:
        """Why a value is not known without which the GPU cannot be judged; None if it is, or if it has none."""
        reasons = {name: gpu["unread"].get(value, ABSENT) for value, name in self.needs.items()}
        return next((f"{name} is {reason}" for name, reason in reasons.items() if reason != ABSENT), None)


def _gpus(facts: Facts) -> Sequence[Gpu]:
    return get(facts, "gpu", "gpus") or ()


def _alike(gpu: Gpu, facts: Facts) -> list[Gpu]:
    """GPUs of the node that report the same values: of one model, and with MIG or without."""
    return [other for other in _gpus(facts) if (other["model"], other["mig"]) == (gpu["model"], gpu["mig"])]


def _names(indices: Sequence[int]) -> str:
    """GPUs by their numbers: nvidia-smi counts them by their place on the bus."""
    return f"GPU {named(map(str, indices), 16)}"


def _persistence(gpu: Gpu) -> Issue | None:
    if gpu["persistence"] != "Disabled":
        return None
    hint = "run systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1"
    return Issue(Verdict.WARN, "persistence mode is off: the driver unloads between jobs", hint)


def _compute_mode(gpu: Gpu) -> Issue | None:
    hint = "run nvidia-smi -c DEFAULT, once it is unused"
    if gpu["compute_mode"] == "Prohibited":
        return Issue(Verdict.FAIL, "compute mode is Prohibited: nothing can run on it", hint)
    if gpu["compute_mode"] in {"Exclusive_Process", "Exclusive_Thread"}:
        message = f"compute mode is {gpu['compute_mode']}: only one process, or MPS, can use it"
        return Issue(Verdict.WARN, message, f"if no MPS server needs it: {hint}")
    return None


def _sram(gpu: Gpu) -> Issue | None:
    if not gpu["sram_threshold"]:
        return None
    message, hint = "uncorrectable SRAM errors exceed the threshold", "drain it; run the field diagnostic"
    return Issue(Verdict.FAIL, message, hint, source=f"{DCGM}, id 118")


def _temperature(gpu: Gpu) -> Issue | None:
    now, margin = gpu["temperature_c"], gpu["margin_c"]
    if margin is None and None not in (now, gpu["slow_at_c"]):
        margin = gpu["slow_at_c"] - now
    if margin is None or margin > CLOSE_C:
        return None
    message = f"{now} C, {max(margin, 0)} C below where it slows down"
    verdict = Verdict.FAIL if margin <= 0 else Verdict.WARN
    return Issue(verdict, message, "check fans, airflow and coolant", {"temperature_c": now, "margin_c": margin})


def _no_limit(gpu: Gpu) -> str:
    if gpu["margin_c"] is not None or gpu["slow_at_c"] is not None:
        return ""
    return "the driver does not state at which temperature it slows down"


def _memory_temperature(gpu: Gpu) -> Issue | None:
    now, limit = gpu["memory_c"], gpu["memory_limit_c"]
    if now < limit:
        return None
    message = f"its memory is at {now} C; software slowdown begins at {limit} C"
    numbers = {"memory_c": now, "memory_limit_c": limit}
    return Issue(Verdict.WARN, message, "check fans, airflow and coolant", numbers, NVML)


def _no_limit_of_memory(gpu: Gpu) -> str:
    if gpu.get("memory_limit_c") is not None:
        return ""
    return "the driver states no limit for the memory's temperature; beyond it, it reports sw_thermal_slowdown (clocks)"


def _pcie_speed(gpu: Gpu) -> Issue | None:
    """WARN at most: the utilization is a mean of up to a second, the generation that of a moment."""
    now, most = gpu["pcie_gen"], gpu["most_pcie_gen"]
    if now >= most:
        return None
    state, busy = gpu["performance_state"], gpu["busy_percent"]
    message = f"{busy} % busy in state {state}, and its PCIe link runs at generation {now} of {most}"
    hint = "read it again under load; if it stays: reseat the card, riser or cable; look for AER in dmesg"
    return Issue(Verdict.WARN, message, hint, {"pcie_gen": now, "most_pcie_gen": most}, f"{DCGM}, id 45")


def _idle_link(gpu: Gpu) -> str:
    if gpu.get("most_pcie_gen") is None:
        return "the PCIe generation that it can have is not reported"
    busy = gpu["busy_percent"] is not None and gpu["busy_percent"] >= AT_WORK
    at_work = busy and gpu.get("performance_state") in FAST
    return "" if at_work else "not known to be at work in state P0 to P2, and an idle GPU lowers the speed of its link"


def _power_limit(gpu: Gpu) -> Issue | None:
    limit, default = gpu["power_limit_w"], gpu["default_power_limit_w"]
    if None in (limit, default) or limit >= default:
        return None
    message, hint = f"power limit {limit} W, by default {default} W", f"if it is not intended: nvidia-smi -pl {default}"
    return Issue(Verdict.WARN, message, hint, {"power_limit_w": limit, "default_power_limit_w": default})


def power_limit(fleet: Fleet) -> list[Finding]:
    """No power limit below the default, or other than that of most nodes, is left behind."""
    findings = _power(fleet)
    if any(finding.verdict is not Verdict.OK for finding in findings):
        return findings
    limits = {node: _limits(facts) for node, facts in fleet.items()}
    return equal("power-limit", "power limit {} W", limits, "set it alike on all nodes", Verdict.WARN) or findings


def _limits(facts: Facts) -> str | None:
    limits = {gpu["power_limit_w"] for gpu in _gpus(facts)}
    return None if not limits or None in limits else ", ".join(map(str, sorted(limits)))


persistence = GpuRule(
    "persistence", "persistence", "persistence mode", "persistence mode is on", _persistence, always=True
)
compute_mode = GpuRule(
    "compute-mode", "compute_mode", "compute mode", "no compute mode keeps jobs out", _compute_mode, always=True
)
sram = GpuRule(
    "sram", "sram_threshold", "threshold of SRAM errors", "no GPU exceeds the threshold of SRAM errors", _sram
)
temperature = GpuRule(
    "temperature", "temperature_c", "temperature", f"no GPU is within {CLOSE_C} C of its limit", _temperature,
    always=True, limits=("margin_c", "slow_at_c"), unjudged=_no_limit,
)  # fmt: skip
memory_temperature = GpuRule(
    "memory-temperature", "memory_c", "memory temperature",
    "the memory of no GPU is at the limit that its driver states",
    _memory_temperature, limits=("memory_limit_c",), unjudged=_no_limit_of_memory,
)  # fmt: skip
pcie_speed = GpuRule(
    "pcie-speed", "pcie_gen", "PCIe generation", "no GPU that is known to be at work has a slow PCIe link", _pcie_speed,
    limits=("most_pcie_gen",), needs={"busy_percent": "its utilization", "performance_state": "its performance state"},
    unjudged=_idle_link,
)  # fmt: skip
_power = GpuRule(
    "power-limit", "power_limit_w", "power limit", "no GPU has less than its default", _power_limit,
    limits=("default_power_limit_w",),
)  # fmt: skip
