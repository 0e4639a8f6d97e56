"""Match a rank's network with the expected one: efa, ib, roce, socket, or NCCL's own word."""

from __future__ import annotations

import re

from gpuctl.nccl.model import Transport

EFA, IB, ROCE, SOCKET, LIBFABRIC = "efa", "ib", "roce", "socket", "libfabric"
GIB = "gIB"  # Google's plugin, for RoCE
# What people and NCCL call them, without case, spaces and versions -> the word that is used here.
NETWORKS = {
    **{name: name for name in (EFA, IB, ROCE, SOCKET)},
    "infiniband": IB,
    "rocev2": ROCE,
    "tcp": SOCKET,
    "sockets": SOCKET,
    **dict.fromkeys(("libfabric", "awslibfabric", "ofi"), LIBFABRIC),
    # Plugins that NCCL prints as they call themselves ("Using network FasTrak").
    **{name.lower(): name for name in ("IBext", GIB, "GPUDirectTCPX", "FasTrak", "UCX")},
}
_OWN = "NET/"  # NCCL's way to write any network: NET/IB, and NET/Mesh for a plugin that is not listed
_VERSION = re.compile(r"_v\d+$")


def network(text: str) -> str | None:
    """Canonical name of a network: "ib" for InfiniBand or NET/IB; None for an unknown name."""
    plugin = text.strip().removeprefix(_OWN)
    known = NETWORKS.get(re.sub(r"[\s_-]", "", _bare(plugin)))
    return known or (plugin or None if text.strip().startswith(_OWN) else None)


def _bare(name: str) -> str:
    """Lower-case name without the plugin interface's version: GPUDirectTCPX_v7."""
    return _VERSION.sub("", name.lower())


def describe(one: Transport) -> str:
    """NCCL's word for the network, with libfabric's provider or the adapters' link layer if known."""
    more = one.provider or "+".join(sorted(_links(one)))
    return f"{one.network or 'nothing'}/{more}" if more else one.network or "nothing"


def word(one: Transport) -> str:
    """Kind of network, for comparing ranks: more detail or another name for the same network is no difference.

    NCCL 2.4 called one plugin both "OFI" and "AWS Libfabric" in one log; "IBext_v8" is InfiniBand, too.
    """
    named = (one.network or "").lower()
    if _is_socket(one):
        return SOCKET
    if _is_libfabric(named):
        return LIBFABRIC
    return "IB" if named.startswith("ib") else _VERSION.sub("", one.network or "nothing")


def suits(one: Transport, expected: str) -> bool | None:
    """Return True if a rank uses the expected network, under any name; None if the log does not tell."""
    kind, named = network(expected) or expected, (one.network or "").lower()
    if kind == SOCKET:
        return _is_socket(one)
    if kind == EFA:
        # The plugin alone is not EFA: libfabric also has providers that go over TCP.
        return (None if one.provider is None else one.provider.startswith(EFA)) if _is_libfabric(named) else False
    if kind == LIBFABRIC:
        return _is_libfabric(named) and not _is_socket(one)
    if kind in (IB, ROCE):
        return kind == ROCE if named == GIB.lower() else _verbs(one, named, kind)
    return _bare(named) == _bare(kind)


def _verbs(one: Transport, named: str, kind: str) -> bool | None:
    """Distinguish InfiniBand from RoCE, which share one word, by the adapter list ("mlx5_5:1/RoCE")."""
    # A plugin of the switch's maker stands before NCCL's own: "IBext", "IBext_v8".
    if not named.startswith("ib"):
        return False
    links = {link.lower() for link in _links(one)}
    if not links:
        return True if kind == IB else None
    # A fast Ethernet adapter beside those of InfiniBand is no other network.
    return kind in links


def _links(one: Transport) -> set[str]:
    return {nic.rpartition("/")[2] for nic in one.nics if "/" in nic}


def _is_socket(one: Transport) -> bool:
    # libfabric's own ways over TCP are as slow.
    return (one.network or "").lower() == SOCKET or (one.provider or "").partition(";")[0] in ("tcp", "sockets", "udp")


def _is_libfabric(named: str) -> bool:
    return "libfabric" in named or "ofi" in named
