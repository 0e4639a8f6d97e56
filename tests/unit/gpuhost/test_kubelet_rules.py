"""Values of kubelet_resources, and what the kubelet does not start with."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kubelet import rules
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kubelet.fields import (
    TYPES,
    memory_bytes,
    millicores,
)
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import kubelet_resources
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml import Mistake

GIB = 2**30
MEMORY = {
    "memoryManagerPolicy": "Static",
    "kubeReserved": {"memory": "512Mi"},
    "systemReserved": {"memory": "512Mi"},
    "evictionHard": {"memory.available": "100Mi"},
}


def problems(whole: dict[str, Any], nodes: int = 2) -> str:
    return "; ".join(rules.problems(whole, whole, cpus=range(8), nodes=range(nodes), memory=64 * GIB))


def reserved(*amounts: str) -> list[dict[str, Any]]:
    return [{"numaNode": number, "limits": {"memory": amount}} for number, amount in enumerate(amounts)]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1Gi", GIB),
        ("500M", 500_000_000),
        ("7", 7),
        ("100Mi", 100 * 2**20),
        ("1.5Gi", 3 * 2**29),
        ("1e3", 1000),
        ("1E", 10**18),
        ("0.5", 1),
        ("1500m", 2),
        (".5Ki", 512),
        ("2Pi", 2**51),
    ],
)
def test_amounts_of_memory(text: str, count: int) -> None:
    assert memory_bytes(text) == count


@pytest.mark.parametrize(("text", "count"), [("500m", 500), ("2", 2000), ("0.5", 500), (1, 1000)])
def test_amounts_of_processors(text: object, count: int) -> None:
    assert millicores(text) == count


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("cpu_manager_policy", "dynamic", "must be one of none, static"),
        ("cpu_manager_policy", True, "must be one of none, static"),
        ("reserved_cpus", "0-", "must list processors"),
        ("reserved_cpus", "3-1", "ends before it begins"),
        ("kube_reserved", {"gpu": 1}, "must be a mapping of cpu, memory"),
        ("kube_reserved", {"memory": "1GB"}, "memory must be an amount"),
        ("reserved_memory", [], "must be a list"),
        ("reserved_memory", [{"numa_node": 0}], "entry 1 needs numa_node and memory"),
        ("reserved_memory", [{"numa_node": -1, "memory": "1Gi"}], "entry 1: numa_node must be a number"),
        ("reserved_memory", [{"numa_node": 0, "memory": "1Gi"}] * 2, "entry 1: numa_node 0 has several"),
    ],
)
def test_wrong_values_are_named(name: str, value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        TYPES[name].check(value)


def test_all_mistakes_of_the_variable_are_named_at_once() -> None:
    mistakes: list[Mistake] = []
    wrong = {"cpu_manger_policy": "static", "reserved_cpus": "a", "topology_manager_scope": "node"}
    assert kubelet_resources.from_variables(wrong, mistakes) == []
    text = "\n".join(map(str, mistakes))
    assert "there is no resource cpu_manger_policy of the kubelet; did you mean cpu_manager_policy?" in text
    assert "kubelet_resources.reserved_cpus must list processors" in text
    assert "kubelet_resources.topology_manager_scope must be one of container, pod" in text


@pytest.mark.parametrize("value", ["", [], False, 0])
def test_an_empty_value_that_is_no_mapping_is_a_mistake(value: object) -> None:
    mistakes: list[Mistake] = []
    assert kubelet_resources.from_variables(value, mistakes) == []
    assert "kubelet_resources is not a mapping" in str(mistakes[0])


def test_policies_are_written_as_the_kubelet_spells_them() -> None:
    (row,) = kubelet_resources.from_variables({"memory_manager_policy": "static", "cpu_manager_policy": "Static"}, [])
    assert row["value"] == '{"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static"}'


@pytest.mark.parametrize(
    ("whole", "problem"),
    [
        ({"cpuManagerPolicy": "static"}, "static needs reserved_cpus, or cpu in kube_reserved"),
        ({"reservedSystemCPUs": "6-9"}, "reserved_cpus has 8-9, and the host's processors are 0-7"),
        ({"reservedSystemCPUs": "0-7"}, "leaves no processor for pods"),
        ({"kubeReserved": {"cpu": "8"}}, "leave no processor for pods"),
        ({"reservedSystemCPUs": "0", "kubeReservedCgroup": "/kube"}, "does not take reserved_cpus together"),
        ({"memoryManagerPolicy": "Static"}, "needs reserved_memory"),
        ({**MEMORY, "reservedMemory": reserved("1Gi")}, "is 1024Mi in all, and must be 1124Mi: kubeReserved 512Mi"),
        ({**MEMORY, "reservedMemory": reserved("1Gi", "50Mi", "50Mi")}, "is for NUMA node 2, and the host has 0-1"),
        ({"kubeReserved": {"memory": "1GB"}, "memoryManagerPolicy": "Static", "reservedMemory": reserved("1Gi")},
         "an amount of the kubelet's files must be an amount of memory"),
    ],
)  # fmt: skip
def test_what_does_not_start_is_refused(whole: dict[str, Any], problem: str) -> None:
    assert problem in problems(whole)


@pytest.mark.parametrize(
    "whole",
    [
        {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "500m"}},
        {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1"},
        {**MEMORY, "reservedMemory": reserved("1Gi", "100Mi")},
        # Without evictionHard, the kubelet's default of 100Mi counts; a percentage is of the host's memory.
        {**MEMORY, "evictionHard": None, "reservedMemory": reserved("1124Mi")},
        {**MEMORY, "evictionHard": {"memory.available": "25%"}, "reservedMemory": reserved("17Gi")},
        {**MEMORY, "evictionHard": {"nodefs.available": "10%"}, "reservedMemory": reserved("1Gi")},
    ],
)
def test_what_starts_is_accepted(whole: dict[str, Any]) -> None:
    assert problems(whole) == ""


def test_the_topology_manager_takes_eight_numa_nodes() -> None:
    assert "at most 8 NUMA nodes, and the host has 9" in problems({"topologyManagerPolicy": "restricted"}, nodes=9)


def test_fields_that_the_kubelet_does_not_have_yet_are_named() -> None:
    assert rules.too_new({"memoryManagerPolicy": "Static"}, (1, 20)) == [
        "memoryManagerPolicy needs Kubernetes 1.22, and this kubelet is 1.20"
    ]
    assert rules.too_new({"memoryManagerPolicy": "Static", "cpuManagerPolicy": "static"}, (1, 22)) == []


@pytest.mark.parametrize("text", ["-1", "1GB", "1e", "Gi", "1 Gi", True, "1e9999"])
def test_no_amounts(text: object) -> None:
    with pytest.raises(ValueError, match="must be an amount"):
        memory_bytes(text)


def test_a_percentage_is_a_number_of_32_bits_as_in_the_kubelet() -> None:
    # float32(5)/100 is 0.05000000074505806.
    due = 1536 * 2**20 + int(64 * GIB * 0.05000000074505806)
    assert due != 1536 * 2**20 + 64 * GIB // 20
    whole = {
        "memoryManagerPolicy": "Static",
        "kubeReserved": {"memory": "1.5Gi"},
        "evictionHard": {"memory.available": "5%"},
        "reservedMemory": reserved(str(due)),
    }
    assert problems(whole) == ""
