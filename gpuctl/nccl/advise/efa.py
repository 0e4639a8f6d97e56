"""FI_* variables on EFA: with current libfabric most older advice is needless or harmful."""

from __future__ import annotations

from gpuctl.domain.gpudirect import version
from gpuctl.nccl.advise.model import CHEATSHEET, Setting
from gpuctl.nccl.topology.adapters import Facts, adapters

RDMA_BY_ITSELF = {"libfabric": (1, 18), "plugin": (1, 7)}
PROVIDER_BY_ITSELF = (1, 6)  # of aws-ofi-nccl


def settings(facts: Facts) -> list[Setting]:
    """Variables to set, and older advice to leave out."""
    ports = adapters(facts)
    efa = facts.get("rdma", {}).get("efa")
    if ports is None or ports.kind != "efa" or efa is None:
        return []
    return [
        _provider(version(efa["plugin"])),
        _device_rdma(efa, version(efa["libfabric"]), version(efa["plugin"])),
        Setting(
            "FI_EFA_USE_HUGE_PAGE",
            None,
            "Set it to 0 only where fork fails with ENOMEM, as data loaders may.",
            CHEATSHEET,
        ),
        Setting("RDMAV_FORK_SAFE", None, "Never: it is slow, and EFA needs it no more.", CHEATSHEET),
    ]


def _provider(plugin: tuple[int, ...]) -> Setting:
    if plugin and plugin < PROVIDER_BY_ITSELF:
        why = "aws-ofi-nccl up to 1.5 may choose another provider."
        return Setting("FI_PROVIDER", "efa", why, CHEATSHEET)
    known = (
        "aws-ofi-nccl chooses EFA by itself"
        if plugin
        else "Needed by aws-ofi-nccl up to 1.5 only; its version is unknown"
    )
    return Setting("FI_PROVIDER", None, f"{known}.", CHEATSHEET)


def _device_rdma(efa: Facts, libfabric: tuple[int, ...], plugin: tuple[int, ...]) -> Setting:
    name, versions = (
        "FI_EFA_USE_DEVICE_RDMA",
        f"libfabric {efa['libfabric'] or '?'}, aws-ofi-nccl {efa['plugin'] or '?'}",
    )
    old = (libfabric and libfabric < RDMA_BY_ITSELF["libfabric"]) or (plugin and plugin < RDMA_BY_ITSELF["plugin"])
    if old:
        why = f"{versions}: before libfabric 1.18 and aws-ofi-nccl 1.7 it is off without this."
        return Setting(name, "1", why, CHEATSHEET)
    if libfabric:
        return Setting(name, None, f"{versions}: on by itself where the device has it.", CHEATSHEET)
    return Setting(
        name, None, f"{versions}: not known; 1 is needed before libfabric 1.18 or aws-ofi-nccl 1.7.", CHEATSHEET
    )
