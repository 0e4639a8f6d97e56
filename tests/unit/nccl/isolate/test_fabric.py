"""Isolation looks at the network that ranks said they used, and finds the adapters they opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.isolate import fabric
from gpuctl.nccl.isolate.model import Fleet
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Rank, Sweep, Transport
from tests.rig.nccl.builders import GIB, run
from tests.rig.nccl.simulated import CALM, RAILS, Played, known, net, play_fleet, seeded
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.runner import SimulatedFleet

SIXTEEN = [f"node-{number}" for number in range(16)]


def spoken(speaks: Mapping[str, str], network: str | None = None, nics: tuple[str, ...] = ()) -> Played:
    """A healthy fleet of 16 whose nodes say these networks; all others InfiniBand."""
    made = net(16)
    simulated = SimulatedFleet(made, CALM, seeded(1), speaks=speaks, nics=nics)
    return play_fleet(replace(known(made), network=network), simulated)


def told(played: Played) -> list[tuple[str, Verdict]]:
    return [(finding.subject, finding.verdict) for finding in transports(played)]


def transports(played: Played) -> list[Finding]:
    return [finding for finding in played.end.findings if finding.check == "transport"]


def test_a_fleet_wholly_on_sockets_does_not_pass_as_healthy() -> None:
    (finding,) = transports(spoken(dict.fromkeys(SIXTEEN, "Socket")))
    assert finding.verdict is Verdict.UNKNOWN
    assert "every rank uses TCP sockets" in finding.message


def test_where_another_network_is_expected_every_node_on_sockets_is_named() -> None:
    played = spoken(dict.fromkeys(SIXTEEN, "Socket"), network="efa")
    assert sorted(told(played)) == sorted((node, Verdict.FAIL) for node in SIXTEEN)


def test_sockets_that_are_meant_are_fine() -> None:
    assert told(spoken(dict.fromkeys(SIXTEEN, "Socket"), network="socket")) == [("", Verdict.OK)]


def test_a_node_that_fell_back_is_named_even_where_its_runs_are_no_slower() -> None:
    played = spoken({"node-5": "Socket"})
    assert played.named == []
    assert told(played) == [("node-5", Verdict.FAIL)]


def test_where_no_rank_said_its_network_it_is_unknown() -> None:
    assert told(spoken(dict.fromkeys(SIXTEEN, ""))) == [("", Verdict.UNKNOWN)]


def test_a_node_that_says_nothing_beside_others_that_do_is_unknown() -> None:
    (finding,) = transports(spoken({"node-5": ""}))
    assert finding.verdict is Verdict.UNKNOWN
    assert "node-5" in finding.message


def test_wrong_values_fail_whatever_the_speed() -> None:
    made = net(16)
    played = play_fleet(known(made), SimulatedFleet(made, CALM, seeded(1), [Fault("corrupt", "node", ("node-5",))]))
    assert played.named == ["node-5"]


def test_the_adapters_that_all_nodes_opened_are_run_one_at_a_time() -> None:
    made = net(16)
    fault = Fault("slow", "rail", ("node-5", "mlx5_2"), 0.5)
    simulated = SimulatedFleet(made, CALM, seeded(1), [fault], nics=tuple(f"{name}:1/IB" for name in RAILS))
    played = play_fleet(known(made), simulated)
    assert (played.named, played.end.faults[0].rail) == (["node-5"], "mlx5_2")


def test_adapters_of_efa_are_not_chosen_and_it_is_said() -> None:
    made = net(16)
    nics = ("rdmap0s6", "rdmap16s27")
    simulated = SimulatedFleet(made, CALM, seeded(1), [Fault("slow", "node", ("node-5",), 0.5)], nics=nics)
    played = play_fleet(known(made), simulated)
    assert (played.named, played.end.rails) == (["node-5"], 0)
    assert "list them with --rails" in played.end.findings[0].hint


def said(nodes: tuple[str, ...], outcome: Outcome, *spoke: Transport) -> LaunchResult:
    done = run({GIB: 300.0}, outcome)
    ranks = tuple(Rank(number, node, None, None, None) for number, node in enumerate(nodes))
    return LaunchResult(Launch(nodes, Sweep()), replace(done, ranks=ranks, transports=spoke), 1.0)


def test_only_adapters_that_every_node_opened_count_in_the_order_of_their_numbers() -> None:
    first = Transport(0, "a", "IB", nics=("mlx5_10:1/IB", "mlx5_2:1/IB", "mlx5_3:1/IB"))
    second = Transport(1, None, "IB", nics=("mlx5_2:1/IB", "mlx5_10:1/IB"))
    history = [said(("a", "b"), Outcome.COMPLETE, first, second)]
    assert fabric.rails(Fleet(("a", "b")), history) == ("mlx5_2", "mlx5_10")
    assert fabric.rails(Fleet(("a", "b", "c")), history) == ()


def test_interfaces_of_sockets_are_no_adapters() -> None:
    every = [Transport(number, node, "Socket", nics=("eth0", "eth1")) for number, node in enumerate("ab")]
    assert fabric.rails(Fleet(("a", "b")), [said(("a", "b"), Outcome.COMPLETE, *every)]) == ()


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.HUNG])
def test_of_a_run_that_broke_off_only_ranks_that_spoke_are_asked(outcome: Outcome) -> None:
    whole = said(("a", "b"), Outcome.COMPLETE, Transport(0, "a", "IB"), Transport(1, "b", "IB"))
    broken = said(("a", "b"), outcome, Transport(1, "b", "Socket"))
    (finding,) = fabric.findings(Fleet(("a", "b")), [broken, whole])
    assert (finding.subject, finding.verdict) == ("b", Verdict.FAIL)


def test_where_nothing_ran_there_is_nothing_to_say() -> None:
    assert fabric.findings(Fleet(("a", "b")), [said(("a", "b"), Outcome.HUNG)]) == []
