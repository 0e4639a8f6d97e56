"""Nodes' facts for tests: GPUs as nvidia-smi reports them, the rest of a healthy InfiniBand node."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import gpu_xml

from gpuctl.domain.findings import Finding, Verdict

DATA = Path(__file__).parents[2] / "data"
Facts = dict[str, Any]


@cache
def _h100() -> dict[str, Any]:
    return dict(gpu_xml.parse((DATA / "nvidia-smi/570-h100-8gpu.xml").read_text()))


def port(device: str, rate: float = 400.0, link: str = "InfiniBand", **more: Any) -> Facts:
    """One active port of a verbs device."""
    own = {"device": device, "port": 1, "efa": False, "state": "ACTIVE", "physical": "LinkUp", "rate_gbps": rate}
    return {**own, "link": link, "net": None, "firmware": "28.39.1002", "numa": "0", "gids": [], **more}


def node(number: int = 1) -> Facts:
    """Eight H100, eight 400 Gb/s InfiniBand ports, two slower Ethernet ports of storage."""
    ports = [port(f"mlx5_{n}") for n in (0, 3, 4, 5, 6, 9, 10, 11)]
    storage = [port(f"mlx5_{n}", 100.0, "Ethernet", net=f"ens{n}") for n in (1, 2)]
    return {
        "address": f"10.0.0.{number}",
        "gpu": {
            **copy.deepcopy(_h100()),
            "module": "570.86.15",
            "open_module": True,
            "switches": 4,
            "fabric_manager": "570.86.15",
            "fabric_manager_runs": True,
            "on_bus": 8,
            "unread": {},
        },
        "rdma": {"ports": [*ports, *storage], "efa": None, "unread": {}},
        "peer_memory": {"kernel": "6.8.0-45-generic", "modules": [], "unread": {}},
        "limits": {"user": "hpc", "memlock": "unlimited", "nofile": 1048576, "unread": {}},
        "programs": {
            "test": "/opt/nccl-tests/build/all_reduce_perf",
            "test_sha256": "ab" * 32,
            "test_mpi": True,
            "mpirun": "/usr/bin/mpirun",
            "mpi": "Open MPI 4.1.4",
            "nccl": "2.27.7",
            "plugin": None,
            "net_plugins": [],
            "conf": {},
            "unread": {},
        },
        "names": {
            "hostname": f"node-{number}",
            "instance": None,
            "interfaces": {"eth0": [f"10.0.0.{number}/24"], "docker0": ["172.17.0.1/16"]},
            "routes": [{"dst": "default", "dev": "eth0", "gateway": "10.0.0.254", "table": "main", "metric": 0}],
            "reached_at": None,
            "switches": None,
            "peers": {},
            "unread": {},
        },
        "jobs": {"slurm_state": "", "slurm_steps": 0, "nccl_tests": 0, "kubernetes_pods": 0, "unread": {}},
        "reach": {"user": "hpc", "peers": {}, "unread": {}},
        "seconds": 1.0,
    }


def efa(facts: Facts, count: int = 16, **more: Any) -> Facts:
    """The same node with EFA instead."""
    ports = [port(f"rdmap{n}s0", 200.0, "Unspecified", efa=True) for n in range(count)]
    own = {"on_bus": count, "domains": count, "libfabric": "2.6.0amzn1.0", "plugin": "1.21.1", "installer": "1.50.0"}
    facts["rdma"] = {"ports": ports, "efa": {**own, "driver": "3.3.1", "peer_memory": "1.2.2", **more}, "unread": {}}
    own_plugin = "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so"
    facts["programs"].update(plugin=own_plugin, net_plugins=[own_plugin])
    return facts


def roce(facts: Facts, isolated: bool = True) -> Facts:
    """The same node with four RoCE rails, each in a subnet of its own, with a gateway or without."""
    gid, index = "0000:0000:0000:0000:0000:ffff:0a0{}:0001", 3
    facts["rdma"]["ports"] = [
        port(
            f"mlx5_{n}",
            link="Ethernet",
            net=f"rail{n}",
            gids=[
                {"index": 1, "gid": "fe80:0000:0000:0000:0000:0000:0000:0001", "type": "RoCE v2", "net": f"rail{n}"},
                {"index": index, "gid": gid.format(n), "type": "RoCE v2", "net": f"rail{n}"},
            ],
        )
        for n in range(4)
    ]
    facts["names"]["interfaces"].update({f"rail{n}": [f"10.{n + 1}.0.1/24"] for n in range(4)})
    if not isolated:
        route = {"dst": "10.0.0.0/8", "dev": "rail0", "gateway": "10.1.0.254", "table": "main", "metric": 0}
        facts["names"]["routes"].append(route)
    return facts


def fleet(count: int = 4, **changed: Callable[[Facts], object]) -> dict[str, Facts]:
    """node-1 … node-N, healthy but for what `node_3=lambda facts: …` does to one."""
    nodes = {f"node-{n}": node(n) for n in range(1, count + 1)}
    for name, change in changed.items():
        change(nodes[name.replace("_", "-")])
    return nodes


def problems(found: list[Finding], rule: str) -> list[tuple[str, Verdict]]:
    """(node, verdict) of a rule's findings that are not OK."""
    return [(f.subject, f.verdict) for f in found if f.check == rule and f.verdict is not Verdict.OK]


def said(found: list[Finding], rule: str) -> str:
    """All that a rule says, in one text."""
    return "\n".join(f.message for f in found if f.check == rule)
