"""Fields of `kubelet_resources`: their types, and the fields of KubeletConfiguration that they become."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from ..topology import as_list, cpus_of

# kubelet.config.k8s.io/v1beta1
NAMES = {
    "cpu_manager_policy": "cpuManagerPolicy",
    "memory_manager_policy": "memoryManagerPolicy",
    "topology_manager_policy": "topologyManagerPolicy",
    "topology_manager_scope": "topologyManagerScope",
    "reserved_cpus": "reservedSystemCPUs",
    "kube_reserved": "kubeReserved",
    "system_reserved": "systemReserved",
    "reserved_memory": "reservedMemory",
}
# Options of the kubelet that override its files.
FLAGS = {
    "cpuManagerPolicy": "--cpu-manager-policy",
    "memoryManagerPolicy": "--memory-manager-policy",
    "topologyManagerPolicy": "--topology-manager-policy",
    "topologyManagerScope": "--topology-manager-scope",
    "reservedSystemCPUs": "--reserved-cpus",
    "kubeReserved": "--kube-reserved",
    "systemReserved": "--system-reserved",
    "reservedMemory": "--reserved-memory",
    "evictionHard": "--eviction-hard",
    "systemReservedCgroup": "--system-reserved-cgroup",
    "kubeReservedCgroup": "--kube-reserved-cgroup",
}
# Of a quantity of Kubernetes: resource.Quantity of apimachinery.
SUFFIXES: dict[str, Fraction] = {unit: Fraction(1000) ** n for n, unit in enumerate("num", -3)}
SUFFIXES.update({unit: Fraction(1000) ** n for n, unit in enumerate(("", *"kMGTPE"))})
SUFFIXES.update({f"{unit}i": Fraction(1024) ** n for n, unit in enumerate("KMGTPE", 1)})
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)")


def quantity(text: object) -> Fraction | None:
    """Amount of a quantity such as 1.5Gi, 500m or 2e3; None if it is none, or negative."""
    match = None if isinstance(text, bool) else _QUANTITY.fullmatch(str(text))
    if match is None:
        return None
    amount = Fraction(match[1]) * (Fraction(10) ** int(match[2]) if match[2] else SUFFIXES[match[3] or ""])
    return amount if amount >= 0 else None


def memory_bytes(text: object) -> int:
    """Bytes of a quantity such as 1Gi, 500M or 1073741824; parts of a byte count as one."""
    amount = quantity(text)
    if amount is None:
        raise ValueError(f"must be an amount of memory such as 1Gi or 500Mi, not {text!r}")
    return math.ceil(amount)


def millicores(text: object) -> int:
    """Thousandths of a processor of a quantity such as 500m, 2 or 0.5."""
    amount = quantity(text)
    if amount is None:
        raise ValueError(f"must be an amount of processors such as 2 or 500m, not {text!r}")
    return math.ceil(amount * 1000)


class Policy(NamedTuple):
    """One of the kubelet's words for a policy; their case does not matter."""

    choices: tuple[str, ...]

    def check(self, value: object) -> str:
        match = next((word for word in self.choices if word.lower() == str(value).lower()), None)
        if match is None or isinstance(value, bool):
            raise ValueError(f"must be one of {', '.join(self.choices)}, not {value!r}")
        return match


class Cpus(NamedTuple):
    """Processors as the kernel lists them: "0-3,64-67"."""

    def check(self, value: object) -> str:
        text = "" if isinstance(value, bool) else str(value).replace(" ", "")
        if not re.fullmatch(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", text):
            raise ValueError(f"must list processors, as in 0-3,64-67, not {value!r}")
        if not all(cpus_of(part) for part in text.split(",")):
            raise ValueError(f"has a range that ends before it begins: {value!r}")
        return as_list(cpus_of(text))


class Reserved(NamedTuple):
    """Amounts of `cpu`, `memory`, `ephemeral-storage` and `pid`."""

    def check(self, value: object) -> dict[str, str]:
        known = {"cpu": millicores, "memory": memory_bytes, "ephemeral-storage": memory_bytes, "pid": memory_bytes}
        if not isinstance(value, Mapping) or not value or set(value) - set(known):
            raise ValueError(f"must be a mapping of {', '.join(known)}, not {value!r}")
        for name, amount in value.items():
            try:
                known[name](amount)
            except ValueError as error:
                raise ValueError(f"{name} {error}") from None
        return {name: str(value[name]) for name in known if name in value}


class NodeMemory(NamedTuple):
    """Entries of `numa_node` and `memory`, one for each NUMA node."""

    def check(self, value: object) -> list[dict[str, Any]]:
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            raise ValueError(f"must be a list of numa_node and memory, not {value!r}")
        return [self._entry(number, entry, value) for number, entry in enumerate(value, 1)]

    @staticmethod
    def _entry(number: int, entry: object, entries: Sequence[object]) -> dict[str, Any]:
        if not isinstance(entry, Mapping) or set(entry) != {"numa_node", "memory"}:
            raise ValueError(f"entry {number} needs numa_node and memory, and nothing else")
        node = entry["numa_node"]
        if isinstance(node, bool) or not re.fullmatch(r"\d{1,4}", str(node)):
            raise ValueError(f"entry {number}: numa_node must be a number from 0, not {node!r}")
        if sum(isinstance(other, Mapping) and str(other.get("numa_node")) == str(node) for other in entries) > 1:
            raise ValueError(f"entry {number}: numa_node {node} has several entries")
        try:
            memory_bytes(entry["memory"])
        except ValueError as error:
            raise ValueError(f"entry {number}: memory {error}") from None
        return {"numaNode": int(node), "limits": {"memory": str(entry["memory"])}}


TYPES: dict[str, Any] = {
    "cpu_manager_policy": Policy(("none", "static")),
    "memory_manager_policy": Policy(("None", "Static")),
    "topology_manager_policy": Policy(("none", "best-effort", "restricted", "single-numa-node")),
    "topology_manager_scope": Policy(("container", "pod")),
    "reserved_cpus": Cpus(),
    "kube_reserved": Reserved(),
    "system_reserved": Reserved(),
    "reserved_memory": NodeMemory(),
}
