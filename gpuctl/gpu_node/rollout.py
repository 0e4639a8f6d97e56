"""A roll-out over a living fleet: which hosts take part, which reboot, and how each of them ended. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.core.exit_codes import NOT_DONE, OK, PROBLEMS
from gpuctl.core.text import named
from gpuctl.domain import node_drain
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.gpu_node import nccl_tests
from gpuctl.gpu_node.dkms_modules import GDS
from gpuctl.gpu_node.model import Choice, HostGpuFacts, StackPlan

MARK = node_drain.ROLLOUT  # how the reasons of its drains begin
LOCAL = "gpuctl runs on it: reboot it by hand, then repeat the command"
# State of a host -> exit code, verdict.
STATES = {
    "done": (OK, Verdict.OK),
    "up to date": (OK, Verdict.OK),
    "waits for a reboot": (OK, Verdict.WARN),
    "refused": (PROBLEMS, Verdict.FAIL),
    "failed": (PROBLEMS, Verdict.FAIL),
    "not started": (NOT_DONE, Verdict.UNKNOWN),
    "not reached": (NOT_DONE, Verdict.UNKNOWN),
    "unfinished": (NOT_DONE, Verdict.UNKNOWN),
}
HINTS = {
    "failed": "look at the host; the same command goes on from here",
    "not started": "look at the hosts that failed, then repeat the command",
    "not reached": "repair the login, then repeat the command",
    "waits for a reboot": "repeat the command with --reboot",
}


@dataclass(frozen=True)
class RolloutRequest:
    """Steps of a roll-out. `batch`: "N" or "P%" hosts at a time. `max_fail`: share of a batch that may fail, "P%".

    `reboot`: reboot hosts whose running module is not the installed one; `reboot_limit`: seconds until one is back.
    `drain`: "kubernetes" (in `context`), "slurm" or None; `drain_limit`: seconds until a node
    is empty. `deep`: level of DCGM's diagnosis that a host must pass, 1 to 3, None for none. `nccl`: a host must pass a
    test of NCCL, with the programs in `search_path`. `bare_pods`,
    `delete_emptydir_data`: also evict pods that would be lost, or lose data.
    """

    batch: str | None = None
    max_fail: str | None = None
    reboot: bool = False
    reboot_limit: float = 1800.0
    deep: int | None = None
    nccl: bool = False
    search_path: tuple[str, ...] = ()
    drain: str | None = None
    drain_limit: float = 3600.0
    context: str = ""
    bare_pods: bool = False
    delete_emptydir_data: bool = False

    def __post_init__(self) -> None:
        kube = {
            "--context": bool(self.context),
            "--bare-pods": self.bare_pods,
            "--delete-emptydir-data": self.delete_emptydir_data,
        }
        if self.search_path and not self.nccl:
            hint = "add it, or leave --search-path out"
            raise InvalidInput("change the stack of GPU hosts", "--search-path needs --nccl", hint)
        if self.drain != "kubernetes" and any(kube.values()):
            names = named(name for name, is_set in kube.items() if is_set)
            hint = "add it, or leave them out"
            raise InvalidInput("change the stack of GPU hosts", f"{names} need --drain kubernetes", hint)
        if self.drain == "kubernetes" and not self.context:
            hint = "add --context NAME; `kubectl config get-contexts` lists them"
            raise InvalidInput("drain nodes", "--drain kubernetes needs the context of the nodes", hint)

    @property
    def is_set(self) -> bool:
        """True if the fleet is to be changed batch by batch, and verified."""
        return bool(self.batch or self.max_fail or self.reboot or self.drain or self.deep or self.nccl)

    @property
    def size(self) -> str:
        return self.batch or ("1" if self.reboot or self.drain else "100%")


@dataclass(frozen=True)
class Outcome:
    """End of a roll-out on one host. `state`: one of STATES. `step`: the one that failed; `text`: why.

    `batch`: from 1 on, 0 for a host in none. `drain`: "drained" (by a roll-out), "undrained", "others" (somebody else
    drained it, and it stays so) or "". `findings`: of its verification, or of its plan if that was refused.
    """

    host: str
    state: str
    step: str = ""
    text: str = ""
    batch: int = 0
    changed: bool = False
    rebooted: bool = False
    drain: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def exit_code(self) -> int:
        return STATES[self.state][0]

    @property
    def note(self) -> str:
        """The reason, and the state of the drain, for people."""
        reason = f"{self.step}: {self.text}" if self.step else self.text
        drain = {"drained": "it stays drained", "others": "somebody else has drained it, and it stays so"}
        return "; ".join(filter(None, [reason, drain.get(self.drain, "")]))

    def as_finding(self) -> Finding:
        message = f"{self.state}: {self.note}" if self.note else self.state
        return Finding("roll-out", self.host, STATES[self.state][1], message, hint=HINTS.get(self.state, ""))

    def as_dict(self) -> dict[str, Any]:
        """JSON form; findings are listed in the report."""
        rows = {"host": self.host, "status": self.state, "batch": self.batch or None, "step": self.step or None}
        drain = {"drain": self.drain or None, "changed": self.changed, "rebooted": self.rebooted}
        return {**rows, **drain, "error": {"wrong": self.text, "hint": ""} if self.text else None}


def participation(made: StackPlan, facts: HostGpuFacts, *, drained: bool, drains: bool, reboots: bool) -> str:
    """due, refused or up to date. `drained`: by an earlier roll-out; `drains`, `reboots`: options of this one.

    A host whose dpkg was interrupted is planned once that is repaired; jobs refuse only a host that is not drained.
    """
    if any(row.check == "interrupted" and row.verdict is Verdict.FAIL for row in made.findings):
        return "due"
    if any(_refuses(row, drains) for row in made.findings):
        return "refused"
    is_due = drained or made.changes is not False or (reboots and needs_reboot(made, facts).value != "no")
    return "due" if is_due else "up to date"


def hindrance(made: StackPlan, facts: HostGpuFacts, steps: RolloutRequest, *, local: bool) -> str:
    """Why a host that is due would fail in the middle, known before anything is changed; "" if nothing is."""
    if facts.gdscheck_lacks != "" and any(part.name == GDS for part in made.components):
        reason = facts.gdscheck_lacks or f"gdscheck could not be looked up{facts.why('gdscheck_lacks')}"
        return f"its GPUDirect Storage could not be verified: {reason}"
    if any(row.check == "interrupted" and row.verdict is Verdict.FAIL for row in made.findings):
        return ""  # it is planned once that is repaired
    if made.reboot is None and (steps.reboot or steps.drain):
        return f"whether it needs a reboot is unknown: {made.reboot_why}"
    why = ""
    if made.reboot and steps.drain and not steps.reboot:
        why = "--reboot is not set"
    elif made.reboot and steps.reboot and local:
        why = LOCAL
    elif made.reboot and steps.reboot and not steps.drain and facts.busy:
        why = f"it is in use: {'; '.join(facts.busy)}"
    return f"it needs a reboot ({made.reboot_why}), and {why}" if why else ""


def _refuses(row: Finding, drains: bool) -> bool:
    if row.check == "busy" and row.verdict is Verdict.FAIL:
        return not drains
    return row.verdict in {Verdict.FAIL, Verdict.UNKNOWN}


def needs_reboot(made: StackPlan, facts: HostGpuFacts) -> Choice:
    """yes, no or None, and the reason: where the running module is not the installed one, or none is loaded."""
    if made.driver and made.reboot is False and facts.running_module == "":
        return Choice("yes", "no module is loaded")
    return Choice(None if made.reboot is None else "yes" if made.reboot else "no", made.reboot_why)


def lacks_module(made: StackPlan, facts: HostGpuFacts) -> str:
    """Why a reboot would not bring the desired module; "" if it is installed for the running kernel, or none is."""
    if not made.driver:
        return ""
    kernel, installed = facts.kernel or "unknown", facts.installed_module
    if installed is None:
        return (
            f"whether module {made.driver} is installed for kernel {kernel} is unknown{facts.why('installed_module')}"
        )
    is_desired = installed == made.driver or installed.startswith(f"{made.driver}.")
    return "" if is_desired else f"module {made.driver} is not installed for kernel {kernel}"


def waiting(made: StackPlan) -> tuple[str, ...]:
    """Components that stay as they are until the driver, EFA or a reboot is through."""
    return tuple(name for name, event in made.waits if not event.startswith(nccl_tests.LACKS))


def reason(made: StackPlan) -> str:
    """Reason of a drain, as Slurm and Kubernetes show it."""
    parts = [f"{part.name} {part.desired}" for part in made.components if part.changes]
    return f"{MARK}: {', '.join(parts) or 'verify'}"


def in_order(names: Sequence[str], drained: Sequence[str]) -> list[str]:
    """Hosts that an earlier roll-out left drained come first: they serve nobody."""
    return sorted(names, key=lambda name: name not in drained)
