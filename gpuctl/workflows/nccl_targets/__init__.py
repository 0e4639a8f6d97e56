"""Targets of NCCL tests: hosts of an inventory, a Slurm job, a deployed environment, or pods of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuctl.core.errors import InvalidInput
from gpuctl.workflows.nccl_targets.model import NodeAccess, Notify, TargetRequest, flags, set_options

GPUS = 8  # per node, unless an option or a cluster file has another number


def _slurm(request: TargetRequest, gpus: int, notify: Notify) -> NodeAccess:
    from gpuctl.workflows.nccl_targets import slurm

    return slurm.access(request, gpus, notify)


def _environment(request: TargetRequest, gpus: int, notify: Notify) -> NodeAccess:
    from gpuctl.workflows.nccl_targets import environment

    return environment.access(request, gpus, notify)


def _pods(request: TargetRequest, gpus: int, notify: Notify) -> NodeAccess:
    from gpuctl.workflows.nccl_targets import pods

    return pods.access(request, gpus, notify)


def _hosts(request: TargetRequest, gpus: int, notify: Notify) -> NodeAccess:
    from gpuctl.workflows.nccl_targets import hosts

    return hosts.access(request)


@dataclass(frozen=True)
class Target:
    """`selector`: the option that selects this target, as (group, option); None for the default target.

    `accepts`: groups of options, or single options, that apply to it. `nodes`: what --nodes names there.
    """

    access: Callable[[TargetRequest, int, Notify], NodeAccess]
    accepts: tuple[str, ...]
    selector: tuple[str, str] | None = None
    nodes: str = ""


# The first target whose selector is set is used; the last one needs none.
TARGETS = {
    "slurm": Target(_slurm, ("slurm",), ("slurm", "slurm"), "nodes of Slurm, or how many"),
    "environment": Target(
        _environment, ("environment", "pods", "ssh_args"), ("environment", "cluster"), "pods or nodes of the cluster"
    ),
    "pods": Target(_pods, ("pods",), ("pods", "image"), "nodes of the cluster"),
    "hosts": Target(_hosts, ("hosts",)),
}
DOING = "run NCCL tests"


def node_access(request: TargetRequest, gpus: int, notify: Notify) -> NodeAccess:
    """Access to the nodes of the requested target, each with this number of GPUs.

    `InvalidInput` if options of several targets are mixed, or match nothing.
    """
    target = select(request)
    _refuse_mixed(request, target)
    return target.access(request, gpus, notify)


def select(request: TargetRequest) -> Target:
    """The target that the options select."""
    return next(target for target in TARGETS.values() if target.selector is None or _is_set(request, target.selector))


def gpus_per_node(request: TargetRequest) -> int:
    """GPUs of a node unless an option says otherwise: as in the cluster file, else eight."""
    if not request.environment.cluster:
        return GPUS
    from gpuctl.workflows import nccl_on_cluster

    return nccl_on_cluster.file_of(request.environment.cluster).gpus.per_node


def _is_set(request: TargetRequest, selector: tuple[str, str]) -> bool:
    group, option = selector
    return bool(getattr(getattr(request, group), option))


def _refuse_mixed(request: TargetRequest, target: Target) -> None:
    """Raise `InvalidInput` for options of other targets."""
    foreign = {
        group: names
        for group in TARGETS
        if group not in target.accepts
        and (names := [name for name in set_options(getattr(request, group)) if name not in target.accepts])
    }
    if not foreign:
        return
    if target.selector is not None:
        every = flags([name for names in foreign.values() for name in names])
        wrong = f"{every} cannot be combined with {flags([target.selector[1]])}"
        raise InvalidInput(DOING, wrong, f"leave one of them out; --nodes names {target.nodes}")
    group, names = next(iter(foreign.items()))
    needed = " or ".join(flags([t.selector[1]]) for t in TARGETS.values() if t.selector and group in t.accepts)
    raise InvalidInput(DOING, f"{flags(names)} needs {needed}", f"add {needed}, or leave it out")
