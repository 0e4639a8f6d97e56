"""States of Slurm nodes: names and suffixes of sinfo(1), NODE STATE CODES, in Slurm 22.05 and newer."""

from __future__ import annotations

from gpuctl.domain.findings import Finding, fail, warn

# Suffix -> what it says about the node.
SUFFIXES = {
    "*": "it does not respond",
    "~": "it is powered down",
    "#": "it is being powered up",
    "!": "it is about to be powered down",
    "%": "it is being powered down",
    "@": "it is to be rebooted",
    "^": "it is being rebooted",
    "$": "it is reserved for maintenance",
    "-": "it is planned for a job that waits",
    "+": "a job is ending there",
}
# Names of nodes without a job; "" is a host that is no Slurm node.
WITHOUT_JOB = ("", "idle", "down", "drained")
# Names of nodes that a job has, had a moment ago, or gets next.
IN_USE = {
    "allocated": "a job has it",
    "mixed": "a job has a part of it",
    "completing": "a job is ending there",
    "draining": "a job still runs there",
    "failing": "a job still runs there",
    "reserved": "it is in a reservation",
    "maint": "it is in a reservation for maintenance",
    "planned": "a job is planned there next",
    "blocked": "a job has its neighbours exclusively",
    "perfctrs": "a job uses its network counters",
}
SUFFIX_IN_USE = {"$": IN_USE["maint"], "-": IN_USE["planned"], "+": IN_USE["allocated"]}
# Suffixes of nodes that Slurm takes away soon, as in "Slurm is rebooting it".
SUFFIX_LEAVING = {
    "!": "is about to power it down",
    "%": "is powering it down",
    "@": "is about to reboot it",
    "^": "is rebooting it",
}
# Beginnings of the names, long and short, of nodes on which no job starts.
UNUSABLE = ("drain", "drng", "down", "fail", "error", "unknown", "inval", "boot", "reboot", "power")


def split(state: str) -> tuple[str, str]:
    """Return the name in lower case, and the suffixes: "idle", "*$" of "IDLE*$"."""
    name = state.rstrip("".join(SUFFIXES))
    return name.lower(), state[len(name) :]


def is_unusable(state: str) -> bool:
    """True if no job can start on the node; what is only in use is usable."""
    name, suffixes = split(state)
    return name.startswith(UNUSABLE) or "*" in suffixes


def is_silent(state: str) -> bool:
    """True if the node does not respond to Slurm."""
    name, suffixes = split(state)
    return "*" in suffixes or name.startswith(("down", "unknown"))


def is_drained(state: str) -> bool:
    """True if somebody took the node out of use: no further job starts, and running ones may go on."""
    return split(state)[0].startswith(("drain", "drng"))


def finding(node: str, state: str, why: str) -> Finding | None:
    """FAIL for a node that does not serve, WARN for one that is drained or leaves; None for one that jobs can use.

    `why`: reason, with who set it; "" if Slurm has none.
    """
    name, suffixes = split(state)
    more = f": {why}" if why else ", without a reason"
    if "*" in suffixes:
        return fail("slurm-state", node, f"Slurm has it {name}, and it does not respond{more}", SILENT_HINT)
    if is_drained(state):
        jobs = "; jobs still run there" if name.startswith(("draining", "drng")) else ""
        return warn("slurm-state", node, f"Slurm has it {name}{more}{jobs}", RESUME_HINT.format(node=node))
    if is_unusable(state):
        return fail("slurm-state", node, f"Slurm has it {name}{more}", RESUME_HINT.format(node=node))
    leaving = [f"Slurm {what}" for suffix, what in SUFFIX_LEAVING.items() if suffix in suffixes]
    powered = ["it is powered down"] if "~" in suffixes else []
    return warn("slurm-state", node, "; ".join(leaving + powered)) if leaving + powered else None


SILENT_HINT = "is it up, and does slurmd run there? `systemctl status slurmd` and its log tell why"
RESUME_HINT = "once its cause is gone: scontrol update NodeName={node} State=RESUME"
