"""Findings on the use of GPUs: what is unknown, and what is not as its owners intend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from gpuctl.core.text import named, plural
from gpuctl.domain import kube_nodes, slurm_states
from gpuctl.domain.findings import Finding, fail, ok, unknown, warn
from gpuctl.domain.gpu_owners import Kind
from gpuctl.nodes.model import Node, Process, SlurmState, State, User

LOST = "look for Xid messages: gpuctl audit --from FILE judges the kernel log"
NO_RESET = "a reset or a reboot of the node frees the GPU; first make sure that nobody else computes there"
UNSEEN = {
    "api": "the API shows which pods have GPUs, but no process, utilisation or memory, and no use outside of pods",
    "slurm": "Slurm shows which jobs have GPUs, but no process, utilisation or memory, and no use outside of jobs",
}
ASK = {
    "api": "ask the nodes themselves, with --inventory or --probe",
    "slurm": "ask the nodes themselves: --inventory NAME, or --via ssh",
}
Rule = Callable[[Node], Iterator[Finding]]


def judge(node: Node) -> list[Finding]:
    """Findings of a node, never none."""
    findings = [finding for rule in RULES for finding in rule(node)]
    return findings or [ok("use", node.name, counts(node))]


def counts(node: Node) -> str:
    """ "8 GPUs: 6 in use, 2 idle"."""
    if not node.total:
        return "no GPU"
    parts = [f"{count} {state}" for state in State if (count := node.count(state))]
    return f"{plural(node.total, 'GPU')}: {', '.join(parts)}"


def _reachable(node: Node) -> Iterator[Finding]:
    if not node.reached and node.scheduler is None:
        hint = "reach it, or leave it out with --limit"
        yield unknown("reachable", node.name, f"nothing is known of it: {node.why}", hint)
    elif node.why:
        yield unknown("gpus", node.name, f"the use of its GPUs is unknown: {node.why}", "run nvidia-smi there")


def _scheduler(node: Node) -> Iterator[Finding]:
    """Findings about a node of which only the scheduler was asked, with the values that it does not have."""
    if node.scheduler is None:
        return
    if node.scheduler.no_answer:
        yield unknown("reachable", node.name, f"the node itself gave no answer: {node.scheduler.no_answer}")
    if not node.total and node.scheduler.source == "api":
        yield fail("gpus", node.name, kube_nodes.NONE_OFFERED, kube_nodes.PLUGIN_HINT.format(node=node.name))
    if node.total:
        yield unknown("use", node.name, UNSEEN[node.scheduler.source], ASK[node.scheduler.source])
    if node.scheduler.withdrawn:
        message = f"the device plugin has withdrawn {node.scheduler.withdrawn} of {node.total} GPUs as unhealthy"
        yield fail("gpus", node.name, message, LOST, withdrawn=node.scheduler.withdrawn, gpus=node.total)
    if node.scheduler.not_ready:
        message = f"its kubelet is not ready, and its pods may have ended: {node.scheduler.not_ready}"
        yield unknown("reachable", node.name, message)


def _slurm(node: Node) -> Iterator[Finding]:
    if node.slurm is None:
        return
    finding = slurm_states.finding(node.name, node.slurm.state, slurm_reason(node.slurm))
    if finding is not None:
        yield finding


def slurm_reason(slurm: SlurmState) -> str:
    """ "GPU 3 is lost (alice, 11-27 23:00)"; "" without a reason."""
    since = "" if slurm.since is None else f"{datetime.fromtimestamp(slurm.since).astimezone():%m-%d %H:%M}"
    author = ", ".join(part for part in (slurm.by, since) if part)
    return f"{slurm.reason} ({author})" if slurm.reason and author else slurm.reason


def _lost(node: Node) -> Iterator[Finding]:
    lost = (node.total or 0) - len(node.gpus)
    if node.reached and not node.why and lost > 0 and node.scheduler is None:
        message = f"nvidia-smi lists {len(node.gpus)} of {node.total} GPUs; the use of the others is unknown"
        yield unknown("gpus", node.name, message, LOST, listed=len(node.gpus), gpus=node.total)
    elif node.uncounted:
        message = f"{plural(len(node.gpus), 'GPU')} answer; how many the driver has is unknown: {node.uncounted}"
        yield unknown("gpus", node.name, message, LOST, listed=len(node.gpus))


def _unknown(node: Node) -> Iterator[Finding]:
    reasons: dict[str, list[str]] = {}
    for gpu in node.gpus:
        if gpu.state is State.UNKNOWN:
            reasons.setdefault(gpu.why, []).append(str(gpu.index))
        for instance in gpu.instances:
            if instance.state is State.UNKNOWN and gpu.state is not State.UNKNOWN:
                reasons.setdefault(instance.why, []).append(f"{gpu.index} instance {instance.gi}")
    for why, gpus in reasons.items():
        yield unknown("use", node.name, f"the use of GPU {named(gpus, 16)} is unknown: {why}", gpus=len(gpus))


def _held(node: Node) -> Iterator[Finding]:
    openers = {
        gpu: f"{process.name} ({process.pid}) holds it open"
        for user in node.users
        for process in user.processes
        if not process.context and not process.daemon
        for gpu in process.gpus
    }
    hint = "`fuser -v /dev/nvidia*` lists who holds it open, also in containers; a reset frees memory without an owner"
    for gpu in node.gpus:
        if gpu.state is State.MEMORY_IN_USE:
            more = f"; {openers[gpu.index]}" if gpu.index in openers else ""
            yield warn(
                "held-memory",
                node.name,
                f"GPU {gpu.index}: {gpu.why}{more}",
                hint,
                gpu=gpu.index,
                used_mib=gpu.used_mib,
            )


def _foreign(node: Node) -> Iterator[Finding]:
    for user in node.users:
        for gpu, holder in user.foreign.items():
            message = f"{label(user)} computes on GPU {gpu}, which {holder} has"
            yield fail("foreign", node.name, message, "ask its owner; a job's own GPUs are meant for it alone", gpu=gpu)
        if user.unallocated:
            message = (
                f"{label(user)} uses GPU {named(map(str, user.unallocated), 16)}, which the scheduler gave to nobody"
            )
            yield warn("unallocated", node.name, message, "the scheduler may give it to somebody at any time")


def _stuck(node: Node) -> Iterator[Finding]:
    for user, process in _processes(node):
        if process.state == "D":
            place = f" in {process.blocked_in}" if process.blocked_in not in ("", "0") else ""
            message = f"{process.name} ({process.pid}) of {label(user)} waits in the kernel{place}, and ignores signals"
            yield warn("blocked", node.name, message, f"where it stays so: {NO_RESET}", pid=process.pid)
        elif process.state == "Z":
            message = f"{process.name} ({process.pid}) of {label(user)} is a zombie, and still listed on GPU "
            yield warn("zombie", node.name, message + named(map(str, process.gpus), 16), NO_RESET, pid=process.pid)


def _owners(node: Node) -> Iterator[Finding]:
    reasons: dict[str, list[str]] = {}
    for user in node.users:
        if user.kind == Kind.UNKNOWN:
            names = [f"{one.name} ({one.pid})" for one in user.processes if not one.daemon]
            reasons.setdefault(user.why, []).extend(names)
    for why, names in reasons.items():
        if names:
            yield unknown("owner", node.name, f"the owner of {named(names, 4)} is unknown: {why}")


def _processes(node: Node) -> Iterator[tuple[User, Process]]:
    yield from ((user, process) for user in node.users for process in user.processes)


def label(user: User) -> str:
    """ "job 4711 of alice", "alice from 10.0.0.5", "team-a/trainer-0"."""
    return f"{user.what.partition(' step')[0]} of {user.who}" if user.kind == Kind.SLURM else user.who


RULES: tuple[Rule, ...] = (_reachable, _slurm, _scheduler, _lost, _unknown, _held, _foreign, _stuck, _owners)
