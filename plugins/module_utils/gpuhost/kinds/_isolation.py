"""Divide a host's processors: a few cores of each NUMA node for the system, and isolated ones for jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..host import Host
from ..model import Unreadable, Unsupported
from ..topology import CPU, as_list, cpus_of, nodes

# Names that stand for lists of processors in kernel arguments.
HOUSEKEEPING, ISOLATED = "housekeeping", "isolated"
SHARE, MOST = 8, 4  # one core in eight for the system, and at most four of a node


def resolve(host: Host, text: str) -> str:
    """A value with the host's list of processors in place of a name, as "managed_irq,isolated"."""
    flags, comma, name = text.rpartition(",")
    if name not in (HOUSEKEEPING, ISOLATED):
        return text
    on = nodes(host)
    cores = {cpu: _core(host, cpu) for cpus in on.values() for cpu in cpus}
    system = housekeeping(on, cores)
    rest = sorted(set(cores) - set(system))
    if not rest:
        raise Unsupported("this host has too few cores to isolate some")
    return flags + comma + as_list(system if name == HOUSEKEEPING else rest)


def housekeeping(on: Mapping[int, Sequence[int]], cores: Mapping[int, Sequence[int]]) -> list[int]:
    """Processors for the system. `on`: node -> its processors; `cores`: processor -> all processors of its core.

    At least one whole core of each node, so that its devices have processors for their interrupts.
    """
    system: list[int] = []
    for cpus in on.values():
        of_node = sorted({tuple(cores[cpu]) for cpu in cpus})
        kept = min(max(1, len(of_node) // SHARE), MOST)
        system += [cpu for core in of_node[:kept] for cpu in core]
    return sorted(set(system))


def _core(host: Host, cpu: int) -> list[int]:
    path = f"{CPU}/cpu{cpu}/topology/thread_siblings_list"
    text = host.value(path)
    if not text:
        raise Unreadable(f"cannot read {path}, which names the threads of a core")
    return cpus_of(text)
