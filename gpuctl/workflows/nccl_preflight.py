"""Before a run over ssh: what would stop it, or spoil somebody else's, asked in one trip to each node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.hosts.model import Target
from gpuctl.nccl import preflight
from gpuctl.nccl.topology import adapters
from gpuctl.nccl.topology import racks as placement
from gpuctl.workflows import preflight_facts

LIMIT_S = 60.0  # for one node
LAYOUT_ASKS = ("rdma", "names", "gpu")


def before(
    hosts: Sequence[Target],
    *,
    folders: Sequence[str] = (),
    by_name: bool = False,
    ssh_args: str = "",
    alone: bool = False,
) -> list[Finding]:
    """Idle, nccl-tests and MPI of one build, ssh and names between the nodes: findings as of the whole preflight.

    The first host is the one that launches. `alone`: each host runs a test of its own, and needs neither MPI nor the
    others. `stopping` says which findings forbid the run: what could not be read is UNKNOWN, which does not.
    """
    words, asks = preflight_facts.words_for_ssh(ssh_args), preflight.BEFORE_ASKS
    way = preflight_facts.Way(tuple(folders), by_name, words, limit=LIMIT_S, only=asks, apart=alone)
    fleet = preflight_facts.ask(hosts, way, lambda visit: None)
    if not alone:
        return preflight.judge(fleet.nodes, fleet.unasked, preflight.BEFORE)
    lost = preflight.judge({}, fleet.unasked)
    each = [f for node, own in fleet.nodes.items() for f in preflight.judge({node: own}, {}, preflight.BEFORE_ALONE)]
    return lost + each


class Layout(NamedTuple):
    """What hosts know of the fabric by themselves: `rails` are the adapters that each of them has, by their names.

    `racks`: host -> its rack, of those that can tell; `racks_are` says what stands for a rack. Empty: nobody can tell.
    `devices`: host -> all its adapters, None where it did not tell.
    """

    rails: tuple[str, ...]
    racks: dict[str, str]
    racks_are: str
    devices: dict[str, tuple[str, ...] | None]


def layout(hosts: Sequence[Target]) -> Layout:
    """In one trip each. No rails where a host did not answer, nor on EFA."""
    fleet = preflight_facts.ask(
        hosts, preflight_facts.Way(limit=LIMIT_S, only=LAYOUT_ASKS, apart=True), lambda visit: None
    )
    places, racks_are = placement.of_facts(fleet.nodes)
    rails = () if fleet.unasked else adapters.rails(fleet.nodes)
    devices = {host.name: adapters.devices(fleet.nodes.get(host.name, {})) for host in hosts}
    return Layout(rails, {node: "/".join(place) for node, place in places.items()}, racks_are, devices)


def stopping(found: Sequence[Finding]) -> list[Finding]:
    """Those that a run must not begin with."""
    return [finding for finding in found if finding.verdict is Verdict.FAIL]
