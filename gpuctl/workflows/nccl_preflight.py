"""Preflight for a run over ssh: check in one visit to each node what would stop the run or disturb others."""

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
    """Check that nodes are idle, have the same builds of nccl-tests and MPI, and reach each other by ssh and name.

    The first host launches. `alone`: each host runs its own test, and needs neither MPI nor the others. Only the
    findings that `stopping` returns forbid the run: UNKNOWN does not.
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
    """The fabric as the hosts report it. `rails`: the adapters that every host has.

    `racks`: host -> its rack, if known. `racks_are`: what identifies a rack, such as a switch; "" if no rack is known.
    `devices`: host -> all its adapters, None if unknown.
    """

    rails: tuple[str, ...]
    racks: dict[str, str]
    racks_are: str
    devices: dict[str, tuple[str, ...] | None]


def layout(hosts: Sequence[Target]) -> Layout:
    """Read the layout in one visit to each host. No rails if a host did not answer, or on EFA."""
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
