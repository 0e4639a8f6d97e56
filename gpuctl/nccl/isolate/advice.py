"""What else could explain a verdict, and what to do next."""

from __future__ import annotations

from collections.abc import Set

from gpuctl.nccl.isolate.model import Fault, Kind

LOST = "look at it by its console or its management address; it was not there to be cleaned up"
CUT_OFF = "see whether this machine still reaches them, and what they share (power, a switch); then isolate anew"
UNTESTED = "mend what the cause names, which says nothing of the hardware: `gpuctl nccl preflight` finds the usual ones"
WRONG = (
    "keep these out of service until one of them is known to be the cause: wrong sums are never chance; look at their"
    " GPUs' Xid errors, ECC counters and row remaps, run DCGM's diagnostics on each, then isolate again"
)
ONCE = "look at the kernel's log of both at that time; --pairs-per-node 8 tests for what comes and goes"
SHARED = (
    "look at what all nodes share: how the test is launched, driver and NCCL versions, a fall-back to TCP, the switches"
)
DOUBT = "add nodes that are known to be good, or say what is expected of these by a baseline, and isolate again"
ALL_SLOW = "check what all share: transport (a fall-back to TCP), NCCL and plugin versions, clocks, the switches"
BASELINE = "`gpuctl nccl calibrate` records what this fleet should reach"
TWO_SPEEDS = (
    "say what a pair should reach (--expect, --instance), or add nodes that are known to be good: then one of the two"
    " speeds is the right one"
)
TWO_RACKS = (
    "where the racks are joined at less than full speed by design this is well; else look at both uplinks: only a third"
    " rack, or --expect, would tell"
)
TOGETHER = (
    "large rings reach less than pairs on oversubscribed uplinks; else isolate with a higher --pairs-per-node, as a"
    " fault that comes and goes may have stayed unseen"
)

EFA = "NCCL_IB_HCA does not choose among EFA's adapters: to run these one at a time, name them with --rails"

_ELSE = {
    Kind.NODE: "what else it could be: the cable or the switch port of the node, as both are in all of its runs",
    Kind.LINK: "what else it could be: one of the two nodes, only towards the other; their other runs are fine",
    Kind.UPLINK: "what else it could be: other traffic over this uplink in every one of these runs",
    Kind.RACK: "what else it could be: its switch, power or cooling, or the same mistake on all of its nodes",
}
_NEXT = {
    Kind.NODE: "take it out of service",
    Kind.LINK: "keep the two apart and have the switch path between them looked at",
    Kind.UPLINK: "have the uplink's ports and optics looked at",
    Kind.RACK: "have the rack's switch looked at, and compare its nodes' settings with others",
}


CORRUPT = (
    "take it out of service: a node whose sums are wrong spoils training in silence; look at its GPUs' Xid errors, ECC"
    " counters and row remaps, and run DCGM's diagnostics"
)
STOPPED = (
    "take it out of service; look there at the kernel's log (Xid, the adapter's driver), at its GPUs and adapters:"
    " `gpuctl nccl preflight` asks for these"
)


def on(fault: Fault, ends: Set[str]) -> str:
    """What to do about an accepted cause, whose bad runs ended so ("hung", "corrupt"); slow ones have no such end."""
    if fault.rail:
        return f"have adapter {fault.rail} of {fault.cause}, its cable and its switch port looked at"
    if fault.cause.kind is Kind.NODE and ends:
        return CORRUPT if "corrupt" in ends else STOPPED
    return f"{_NEXT[fault.cause.kind]}; {_ELSE[fault.cause.kind]}"
