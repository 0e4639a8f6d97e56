"""A fact that could not be read is never a fault: each one of each node is lost in turn."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl import preflight
from tests.rig.nccl.fleets import Facts, efa, fleet, node, port, roce

Path = tuple[str | int, ...]


def peers(nodes: dict[str, Facts], otherwise: bool = False) -> dict[str, Facts]:
    """The same nodes, each of which looked up the next one and logged in there."""
    names = list(nodes)
    for name, other in zip(names, [*names[1:], names[0]], strict=True):
        address = f"10.0.0.{other.rpartition('-')[2]}"
        nodes[name]["names"]["peers"] = {
            other: {
                "forward": [] if otherwise else [address],
                "reverse": [f"{other}.cluster"],
                "back": [address] if otherwise else None,
                "error": None,
            }
        }
        told = {"ok": True, "hostname": other, "error": None, "seconds": 0.2}
        nodes[name]["reach"]["peers"] = {other: told}
    return nodes


def of_tcp(facts: Facts) -> Facts:
    """A node with a port that is down, and the memory a login usually may lock."""
    facts["rdma"]["ports"] = [port("mlx5_0", state="DOWN", physical="Polling")]
    facts["limits"]["memlock"] = 65536
    return facts


def with_managements(facts: Facts) -> Facts:
    """RoCE rails, and one port more of the same kind that carries the default route."""
    roce(facts)["rdma"]["ports"].append(port("mlx5_9", link="Ethernet", net="eth0"))
    return facts


def by_module(facts: Facts) -> Facts:
    """Data goes to the GPU by the peer memory module alone."""
    facts["gpu"]["open_module"] = False
    facts["peer_memory"]["modules"] = ["nvidia_peermem"]
    return facts


def one_efa(facts: Facts) -> Facts:
    """One EFA device, and a driver that needs no module."""
    return by_module(efa(facts, 1))


def mixed(facts: Facts) -> Facts:
    """A GPU without ECC among others, on each node alike."""
    facts["gpu"]["gpus"][0].update(ecc="Disabled", ecc_pending="Disabled")
    return facts


def every(change: Callable[[Facts], Facts], count: int = 3) -> dict[str, Facts]:
    return peers({name: change(facts) for name, facts in fleet(count).items()})


FLEETS: dict[str, dict[str, Facts]] = {
    "InfiniBand": every(lambda facts: facts),
    "EFA": every(efa),
    "one EFA device": every(one_efa),
    "RoCE": every(roce),
    "RoCE with gateways": every(lambda facts: roce(facts, isolated=False)),
    "RoCE and management": every(with_managements),
    "TCP": every(of_tcp),
    "peer memory": every(by_module),
    "two nodes": every(lambda facts: facts, 2),
    "mixed ECC": every(mixed),
    "names of the inventory alone": peers(fleet(3), otherwise=True),
    "one node": {"node-1": node(1)},
}


def facts_of(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where each fact lies: a value, a list, or what is itself None or a mapping of one subject's."""
    if isinstance(value, dict):
        for name, own in value.items():
            if name not in ("unread", "table"):  # a route that was read has a table
                yield from facts_of(own, (*path, name))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield path
        for index in sorted({0, len(value) - 1}):  # the others are like the first
            yield from facts_of(value[index], (*path, index))
    else:
        yield path


def without(nodes: dict[str, Facts], name: str, path: Path) -> dict[str, Facts]:
    return {**nodes, name: lost(nodes[name], path)}


def lost(value: Any, path: Path) -> Any:
    """A copy, of which only what leads to the fact is new."""
    if not path:
        return None
    own = copy.copy(value)
    own[path[0]] = lost(value[path[0]], path[1:])
    return own


def failed(nodes: dict[str, Facts]) -> list[str]:
    return [f"{f.check} {f.subject}: {f.message}" for f in preflight.judge(nodes) if f.verdict is Verdict.FAIL]


@pytest.mark.parametrize("name", FLEETS)
def test_no_fact_that_is_lost_makes_a_fault(name: str) -> None:
    nodes = FLEETS[name]
    assert failed(nodes) == []
    found = {
        (node_, path): wrong
        for node_ in nodes
        for path in facts_of(nodes[node_])
        if (wrong := failed(without(nodes, node_, path)))
    }
    assert found == {}


LOST = [
    ("gpu", "gpus", 0, "model"),
    ("gpu", "gpus", 0, "ecc"),
    ("gpu", "gpus", 0, "ecc_pending"),
    ("gpu", "gpus", 0, "slowed_by"),
    ("gpu", "gpus", 0, "fabric_state"),
    ("gpu", "gpus", 0, "fabric_status"),
    ("gpu", "gpus"),
    ("gpu", "driver"),
    ("gpu", "fabric_manager"),
    ("gpu", "fabric_manager_runs"),
    ("rdma", "ports"),
    ("rdma", "ports", 0, "efa"),
    ("rdma", "ports", 0, "state"),
    ("rdma", "ports", 0, "rate_gbps"),
    ("rdma", "ports", 0, "link"),
    ("peer_memory", "modules"),
    ("limits", "memlock"),
    ("programs", "test"),
    ("programs", "test_sha256"),
    ("programs", "test_mpi"),
    ("programs", "mpirun"),
    ("programs", "mpi"),
    ("names", "hostname"),
    ("names", "peers"),
    ("names", "peers", "node-2", "forward"),
    ("names", "peers", "node-2", "reverse"),
    ("reach", "peers"),
    ("reach", "peers", "node-2", "ok"),
    ("jobs", "slurm_state"),
    ("jobs", "slurm_steps"),
    ("jobs", "nccl_tests"),
    ("jobs", "kubernetes_pods"),
]


@pytest.mark.parametrize("path", LOST, ids=lambda path: ".".join(map(str, path)))
def test_a_fact_that_a_rule_needs_is_unknown_where_it_is_lost(path: Path) -> None:
    found = preflight.judge(without(FLEETS["InfiniBand"], "node-1", path))
    assert {f.subject for f in found if f.verdict is Verdict.UNKNOWN} == {"node-1"}
