"""The hints of findings: other explanations of a verdict, and the next step."""

from __future__ import annotations

from collections.abc import Set

from gpuctl.nccl.isolate.model import Fault, Kind

LOST = "check it over its console or management address; it could not be reached for cleanup"
CUT_OFF = (
    "check that this machine still reaches them, and what they share (power, a switch); then run the isolation again"
)
UNTESTED = (
    "fix the cause above, which is no evidence about the hardware: `gpuctl nccl preflight` finds the usual causes"
)
WRONG = (
    "keep these out of service until one of them is known to be the cause: wrong sums are never chance; check their"
    " GPUs' Xid errors, ECC counters and row remaps, run DCGM's diagnostics on each, then isolate again"
)
ONCE = "check the kernel log of both at that time; --pairs-per-node 8 tests for intermittent faults"
SHARED = (
    "check what all nodes share: how the test is launched, driver and NCCL versions, a fall-back to TCP, the switches"
)
OPEN = "add nodes that are known to be good, or give the expected bandwidth by a baseline, and isolate again"
ALL_SLOW = "check what all share: transport (a fall-back to TCP), NCCL and plugin versions, clocks, the switches"
BASELINE = "`gpuctl nccl calibrate` records what this fleet should reach"
TWO_SPEEDS = (
    "set the bandwidth that a pair should reach (--expect, --instance), or add nodes that are known to be good: this"
    " decides which of the two speeds is the right one"
)
TWO_RACKS = (
    "this is fine if the racks are joined at less than full speed by design; otherwise check both uplinks: only a third"
    " rack, or --expect, can tell them apart"
)
UNSTEADY = (
    "an intermittent fault slows some of the runs, or other jobs use the fabric: isolate again while it is idle, with a"
    " higher --pairs-per-node"
)
TOGETHER = (
    "large rings reach less than pairs on oversubscribed uplinks; otherwise isolate with a higher --pairs-per-node, as"
    " an intermittent fault may have gone unnoticed"
)

EFA = "NCCL_IB_HCA does not choose among EFA's adapters: to run these one at a time, list them with --rails"

_ELSE = {
    Kind.NODE: "other explanations: its switch port or cable, as both are in all of its runs",
    Kind.LINK: "other explanations: one of the two nodes, only towards the other; their other runs are fine",
    Kind.UPLINK: "other explanations: other traffic over this uplink in every one of these runs",
    Kind.RACK: "other explanations: its switch, power or cooling, or the same mistake on all of its nodes",
}
_NEXT = {
    Kind.NODE: "take it out of service",
    Kind.LINK: "keep the two apart and have the switch path between them checked",
    Kind.UPLINK: "have the uplink's ports and optics checked",
    Kind.RACK: "have the rack's switch checked, and compare its nodes' settings with others",
}


CORRUPT = (
    "take it out of service: a node whose sums are wrong spoils training in silence; check its GPUs' Xid errors, ECC"
    " counters and row remaps, and run DCGM's diagnostics"
)
STOPPED = (
    "take it out of service; check its kernel log (Xid, the adapter's driver), its GPUs and adapters:"
    " `gpuctl nccl preflight` reads them"
)


def for_fault(fault: Fault, outcomes: Set[str]) -> str:
    """The next step for a fault. `outcomes`: those of its failed runs ("hung", "corrupt"), empty if they are slow."""
    if fault.rail:
        return f"have adapter {fault.rail} of {fault.cause}, its cable and its switch port checked"
    if fault.cause.kind is Kind.NODE and outcomes:
        return CORRUPT if "corrupt" in outcomes else STOPPED
    return f"{_NEXT[fault.cause.kind]}; {_ELSE[fault.cause.kind]}"
