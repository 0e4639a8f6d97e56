"""Rules of the kubelet for reserved resources: a configuration that breaks one does not start."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from ..topology import as_list, cpus_of
from .configuration import NotPlain
from .fields import memory_bytes, millicores

EVICTION = "100Mi"  # of memory.available, where evictionHard is not set
MOST_NODES = 8  # NUMA nodes that the topology manager takes
# Field -> the first minor version of Kubernetes 1 that has it without a feature gate.
SINCE = {"memoryManagerPolicy": 22, "reservedMemory": 22, "topologyManagerPolicy": 18, "topologyManagerScope": 20}
RESERVATIONS = ("kubeReserved", "systemReserved")


def problems(
    whole: Mapping[str, Any], desired: Mapping[str, Any], *, cpus: Sequence[int], nodes: Sequence[int], memory: int
) -> list[str]:
    """Everything that is wrong with a configuration. `cpus`: online; `memory`: bytes of the host."""
    needed = [
        key for key in (*RESERVATIONS, "evictionHard", "reservedSystemCPUs") if isinstance(whole.get(key), NotPlain)
    ]
    if needed:
        return [f"{', '.join(needed)} of the kubelet's files is not understood: write it as key: value lines"]
    try:
        return [*_cpu(whole, cpus), *_memory(whole, desired, nodes, memory), *_topology(whole, nodes)]
    except ValueError as error:
        return [f"an amount of the kubelet's files {error}"]
    except (KeyError, TypeError, AttributeError) as error:
        return [f"the reservations of the kubelet's files are not understood: {type(error).__name__} {error}"]


def too_new(desired: Mapping[str, Any], version: tuple[int, int]) -> list[str]:
    """Desired fields that this kubelet does not have."""
    return [
        f"{key} needs Kubernetes 1.{SINCE[key]}, and this kubelet is {version[0]}.{version[1]}"
        for key in desired
        if version < (1, SINCE.get(key, 0))
    ]


def _cpu(whole: Mapping[str, Any], cpus: Sequence[int]) -> list[str]:
    wrong = []
    reserved = cpus_of(str(whole.get("reservedSystemCPUs") or ""))
    missing = sorted(set(reserved) - set(cpus))
    if missing:
        wrong.append(f"reserved_cpus has {as_list(missing)}, and the host's processors are {as_list(cpus)}")
    elif reserved and not set(cpus) - set(reserved):
        wrong.append("reserved_cpus leaves no processor for pods")
    if reserved:
        rival = [key for key in ("systemReservedCgroup", "kubeReservedCgroup") if whole.get(key)]
        wrong += [f"the kubelet does not take reserved_cpus together with its {key}" for key in rival]
    amount = sum(millicores((whole.get(key) or {}).get("cpu", 0)) for key in RESERVATIONS)
    if whole.get("cpuManagerPolicy") == "static" and not reserved and not amount:
        wrong.append("cpu_manager_policy static needs reserved_cpus, or cpu in kube_reserved or system_reserved")
    if not reserved and amount >= 1000 * len(cpus):
        wrong.append("kube_reserved and system_reserved leave no processor for pods")
    return wrong


def _memory(whole: Mapping[str, Any], desired: Mapping[str, Any], nodes: Sequence[int], memory: int) -> list[str]:
    if whole.get("memoryManagerPolicy") != "Static":
        return []
    entries = desired.get("reservedMemory") or whole.get("reservedMemory")
    if not entries:
        return ["memory_manager_policy Static needs reserved_memory"]
    if isinstance(entries, str):
        return ["set reserved_memory, too: that of the kubelet's files is not understood"]
    wrong = []
    missing = [str(entry["numaNode"]) for entry in entries if entry["numaNode"] not in nodes]
    if missing:
        wrong.append(f"reserved_memory is for NUMA node {', '.join(missing)}, and the host has {as_list(nodes)}")
    total = sum(memory_bytes(entry["limits"].get("memory", 0)) for entry in entries)
    parts = {key: (whole.get(key) or {}).get("memory", "0") for key in RESERVATIONS}
    eviction = EVICTION if whole.get("evictionHard") is None else whole["evictionHard"].get("memory.available", "0")
    share = _share(eviction, memory)
    due = sum(map(memory_bytes, parts.values())) + share
    if total != due:
        sum_text = " + ".join([*(f"{key} {text}" for key, text in parts.items()), f"evictionHard {eviction}"])
        wrong.append(f"reserved_memory is {_mib(total)} in all, and must be {_mib(due)}: {sum_text}")
    return wrong


def _share(text: object, memory: int) -> int:
    """Bytes of a threshold, which may be a percentage of the host's memory.

    The kubelet has percentages as 32-bit numbers, and compares the sum to the byte.
    """
    word = str(text)
    if not word.endswith("%"):
        return memory_bytes(word)
    return int(float(memory) * _of_32_bits(_of_32_bits(float(word[:-1])) / 100))


def _of_32_bits(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


def _mib(count: int) -> str:
    return f"{count // 2**20}Mi" if count % 2**20 == 0 else str(count)


def _topology(whole: Mapping[str, Any], nodes: Sequence[int]) -> list[str]:
    if whole.get("topologyManagerPolicy", "none") == "none" or len(nodes) <= MOST_NODES:
        return []
    return [f"the topology manager takes at most {MOST_NODES} NUMA nodes, and the host has {len(nodes)}"]
