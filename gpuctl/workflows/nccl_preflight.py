"""Preflight for a run over ssh: find what would stop it, or disturb others, in one trip to each node."""

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
    arguments, asks = preflight_facts.split_ssh_args(ssh_args), preflight.BEFORE_ASKS
    options = preflight_facts.FactsOptions(tuple(folders), by_name, arguments, limit=LIMIT_S, only=asks, apart=alone)
    fleet = preflight_facts.ask(hosts, options, lambda visit: None)
    if not alone:
        return preflight.judge(fleet.nodes, fleet.unasked, preflight.BEFORE)
    lost = preflight.judge({}, fleet.unasked)
    separate = [
        f for node, facts in fleet.nodes.items() for f in preflight.judge({node: facts}, {}, preflight.BEFORE_ALONE)
    ]
    return lost + separate


class Layout(NamedTuple):
    """The fabric as hosts themselves report it: `rails` are the names of the adapters that every host has.

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
        hosts, preflight_facts.FactsOptions(limit=LIMIT_S, only=LAYOUT_ASKS, apart=True), lambda visit: None
    )
    places, racks_are = placement.of_facts(fleet.nodes)
    rails = () if fleet.unasked else adapters.rails(fleet.nodes)
    devices = {host.name: adapters.devices(fleet.nodes.get(host.name, {})) for host in hosts}
    return Layout(rails, {node: "/".join(place) for node, place in places.items()}, racks_are, devices)


def stopping(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that forbid a run."""
    return [finding for finding in findings if finding.verdict is Verdict.FAIL]
