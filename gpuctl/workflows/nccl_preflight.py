"""Preflight for a run over ssh: find whatever would stop it or disturb others, in one trip to each node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.hosts.model import Target
from gpuctl.nccl import preflight
from gpuctl.nccl.topology import adapters
from gpuctl.nccl.topology import racks as placement
from gpuctl.workflows import preflight_facts

LIMIT_S = 60.0  # for one node
LAYOUT_ASKS = ("rdma", "names", "gpu")


@dataclass(frozen=True)
class BeforeOptions:
    """Options of the run that the checks before it need, too: see `MpirunOptions`."""

    search_path: tuple[str, ...] = ()
    use_inventory_names: bool = False
    ssh_args: str = ""


NO_OPTIONS = BeforeOptions()


def before(hosts: Sequence[Target], options: BeforeOptions = NO_OPTIONS, *, alone: bool = False) -> list[Finding]:
    """Check that hosts are idle, have nccl-tests and MPI of one build, and reach each other; the first host launches.

    `alone`: each host runs a test of its own, and needs neither MPI nor the others. Facts that could not be read are
    UNKNOWN, which does not forbid the run (see `stopping`).
    """
    fleet = preflight_facts.ask(
        hosts,
        preflight_facts.FactsOptions(
            options.search_path,
            options.use_inventory_names,
            preflight_facts.split_ssh_args(options.ssh_args),
            limit=LIMIT_S,
            only=preflight.BEFORE_ASKS,
            apart=alone,
        ),
        lambda _: None,
    )
    if not alone:
        return preflight.judge(fleet.nodes, fleet.unasked, preflight.BEFORE)
    lost = preflight.judge({}, fleet.unasked)
    separate = [
        f for node, facts in fleet.nodes.items() for f in preflight.judge({node: facts}, {}, preflight.BEFORE_ALONE)
    ]
    return lost + separate


class Layout(NamedTuple):
    """Fabric as the hosts themselves report it. `rails`: names of the adapters that every host has.

    `racks`: host -> rack, for hosts whose rack is known; `racks_are`: description of these racks, "" if none is known.
    `devices`: host -> all its adapters, None if unknown.
    """

    rails: tuple[str, ...]
    racks: dict[str, str]
    racks_are: str
    devices: dict[str, tuple[str, ...] | None]


def layout(hosts: Sequence[Target]) -> Layout:
    """Read the fabric in one trip to each host. Without rails if a host did not answer, and on EFA."""
    fleet = preflight_facts.ask(
        hosts, preflight_facts.FactsOptions(limit=LIMIT_S, only=LAYOUT_ASKS, apart=True), lambda _: None
    )
    places, racks_are = placement.of_facts(fleet.nodes)
    rails = () if fleet.unasked else adapters.rails(fleet.nodes)
    devices = {host.name: adapters.devices(fleet.nodes.get(host.name, {})) for host in hosts}
    return Layout(rails, {node: "/".join(place) for node, place in places.items()}, racks_are, devices)


def stopping(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that forbid a run."""
    return [finding for finding in findings if finding.verdict is Verdict.FAIL]
