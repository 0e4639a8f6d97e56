"""Which network the ranks used: a fall-back is named with its node, silence is no proof."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.model import Rank, Run, Transport
from gpuctl.nccl.networks import network
from tests.rig.nccl.judged import GIB, HEALTHY, found, recorded, run, said, verdicts


def on(network: str, given: Run = HEALTHY, **other: object) -> Run:
    """The same run on another network, everywhere."""
    ranks = given.ranks
    named = tuple(Transport(rank.rank, rank.host, network, **other) for rank in ranks)  # type: ignore[arg-type]
    return replace(given, transports=named)


def test_every_rank_on_the_network_of_its_machine_type_is_fine() -> None:
    (fine,) = found(HEALTHY, "transport")
    assert fine.verdict is Verdict.OK
    assert (fine.numbers["nodes"], fine.numbers["adapters_per_node"], fine.numbers["expected"]) == (4, 16, "efa")


@pytest.mark.parametrize("about", [RunContext("p5en.48xlarge"), RunContext(network="efa"), RunContext()])
def test_a_socket_fallback_names_its_node(about: RunContext) -> None:
    fell = said(HEALTHY, "node-2", network="Socket", provider=None, nics=(), gdr=None)
    failed = [finding for finding in found(fell, "transport", about) if finding.verdict is Verdict.FAIL]
    assert [finding.subject for finding in failed] == ["node-2"]
    assert "socket fallback on node-2" in failed[0].message
    assert failed[0].hint


def test_one_rank_of_a_node_is_enough() -> None:
    first, *others = HEALTHY.transports
    one = replace(HEALTHY, transports=(replace(first, network="Socket", provider=None), *others))
    assert "(1 of 8 ranks that reported)" in found(one, "transport")[0].message


def test_libfabric_over_tcp_is_a_fallback_too() -> None:
    (fell,) = [f for f in found(said(HEALTHY, "node-1", provider="tcp;ofi_rxm"), "transport") if f.verdict == "FAIL"]
    assert "socket fallback on node-1" in fell.message


def test_libfabric_without_a_provider_is_not_proved_to_be_efa() -> None:
    assert verdicts(said(HEALTHY, "node-1", provider=None), "transport") == {Verdict.UNKNOWN}


def test_sockets_everywhere_are_unknown_until_somebody_says_they_are_meant() -> None:
    assert verdicts(on("Socket"), "transport", RunContext()) == {Verdict.UNKNOWN}
    assert verdicts(on("Socket"), "transport", RunContext(network="socket")) == {Verdict.OK}
    assert verdicts(on("Socket"), "transport", RunContext("p5en.48xlarge")) == {Verdict.FAIL}


def test_two_networks_half_and_half_accuse_nobody_alone() -> None:
    half = said(said(on("IB"), "node-0", network="GPUDirectTCPX"), "node-1", network="GPUDirectTCPX")
    (finding,) = found(half, "transport", RunContext())
    assert finding.verdict is Verdict.FAIL
    assert finding.subject == "node-0, node-1, node-2, node-3"


@pytest.mark.parametrize("name", ["v100_2n8g_allreduce_efa_nccl24.log", "aws_p3dn_v100_efa_2n16g_nccl246.log"])
def test_one_plugin_under_two_names_is_one_network(name: str) -> None:
    assert verdicts(recorded(name), "transport", RunContext()) == {Verdict.WARN}
    assert verdicts(recorded(name), "transport", RunContext(network="efa")) == {Verdict.WARN}


def test_roce_is_told_from_infiniband_by_the_link_of_the_adapters() -> None:
    roce = on("IB", nics=("mlx5_5:1/RoCE",))
    assert verdicts(roce, "transport", RunContext(network="roce")) == {Verdict.OK}
    assert verdicts(roce, "transport", RunContext(network="ib")) == {Verdict.FAIL}
    assert "IB/RoCE instead of ib on node-0" in found(roce, "transport", RunContext(network="ib"))[0].message
    assert verdicts(on("IB"), "transport", RunContext(network="roce")) == {Verdict.UNKNOWN}


def test_an_adapter_fewer_than_others_names_the_node() -> None:
    fifteen = said(HEALTHY, "node-3", nics=HEALTHY.transports[0].nics[:15])
    (fewer,) = found(fifteen, "transport")
    assert (fewer.verdict, fewer.subject) == (Verdict.FAIL, "node-3")
    assert (fewer.numbers["adapters"], fewer.numbers["most"]) == (15, 16)


def test_data_through_the_hosts_memory_on_some_nodes_fails_and_on_all_is_worth_a_look() -> None:
    (some,) = found(said(HEALTHY, "node-1", gdr=False), "transport")
    assert (some.verdict, some.subject) == (Verdict.FAIL, "node-1")
    every = replace(HEALTHY, transports=tuple(replace(one, gdr=False) for one in HEALTHY.transports))
    assert verdicts(every, "transport") == {Verdict.WARN}


def test_a_log_without_init_lines_is_unknown() -> None:
    (finding,) = found(replace(HEALTHY, transports=()), "transport")
    assert finding.verdict is Verdict.UNKNOWN
    assert "NCCL_DEBUG=INFO" in finding.hint


@pytest.mark.parametrize(
    ("name", "node"),
    [("h100_2n8g_sendrecv_roce_info.log", "fir-a06"), ("moc_h100_roce_2n8g_sendrecv_ncclinfo.log", "MOC-R4PCC04U35")],
)
def test_ranks_that_said_nothing_are_named_by_their_node(name: str, node: str) -> None:
    quiet = recorded(name)
    (finding,) = found(quiet, "transport", RunContext(network="roce"))
    assert finding.verdict is Verdict.UNKNOWN
    assert "4 of 8 ranks" in finding.message
    assert node in finding.message


def test_one_node_alone_needs_no_network() -> None:
    assert not found(recorded("h100_1n8g_allreduce.log"), "transport", RunContext())
    assert not found(run({GIB: 450.0}, nodes=1), "transport")


def silent_ranks(pids: tuple[int, int], spoke: int) -> list[Finding]:
    """Two nodes of two ranks with these process ids; of each `spoke` processes said their network, and no rank."""
    ranks = tuple(Rank(i, f"node-{i // 2}", pids[i % 2], i % 2, "NVIDIA H200") for i in range(4))
    told = tuple(Transport(None, f"node-{i}", "IB", nics=("mlx5_0:1/IB",)) for i in range(2) for _ in range(spoke))
    given = replace(HEALTHY, ranks=ranks, transports=told)
    return found(given, "transport", RunContext(nodes=2, ranks=4, network="ib"))


def test_a_process_without_a_rank_speaks_for_its_node_only_where_it_is_the_only_one_there() -> None:
    assert [one.verdict for one in silent_ranks((7, 7), 1)] == [Verdict.OK]
    (finding,) = silent_ranks((7, 8), 1)
    assert finding.verdict is Verdict.UNKNOWN
    assert "2 of 4 ranks did not report a network, on node-0, node-1" in finding.message
    assert [one.verdict for one in silent_ranks((7, 8), 2)] == [Verdict.OK]


def test_interfaces_of_tcp_are_no_adapters_that_a_node_could_lack() -> None:
    sockets = on("Socket", provider=None, nics=("eth0", "eth1"))
    fewer = said(sockets, "node-1", nics=("eth0",))
    assert verdicts(fewer, "transport", RunContext(network="socket")) == {Verdict.OK}
    fell = said(HEALTHY, "node-2", network="Socket", provider=None, nics=("eth0",), gdr=None)
    assert [one.message for one in found(fell, "transport") if "adapter" in one.message] == []


@pytest.mark.parametrize(
    ("written", "is_"),
    [
        ("ib", "ib"),
        ("IB", "ib"),
        ("InfiniBand", "ib"),
        ("NET/IB", "ib"),
        ("roce", "roce"),
        ("RoCEv2", "roce"),
        ("RoCE v2", "roce"),
        ("EFA", "efa"),
        ("socket", "socket"),
        ("sockets", "socket"),
        ("tcp", "socket"),
        ("AWS Libfabric", "libfabric"),
        ("Libfabric", "libfabric"),
        ("OFI", "libfabric"),
        ("gIB", "gIB"),
        ("ibext_v8", "IBext"),
        ("GPUDirectTCPX_v7", "GPUDirectTCPX"),
        ("fastrak", "FasTrak"),
        ("UCX", "UCX"),
        ("NET/Mesh", "Mesh"),
        ("infinibnd", None),
        ("ethernet", None),
        ("NET/", None),
        ("", None),
    ],
)
def test_a_network_is_known_by_each_of_its_names(written: str, is_: str | None) -> None:
    assert network(written) == is_


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ("IB", "infiniband"),
        ("IBext_v10", "ib"),
        ("IBext_v10", "IBext"),
        ("AWS Libfabric", "OFI"),
        ("gIB", "roce"),
        ("gIB", "gIB"),
        ("GPUDirectTCPX_v7", "GPUDirectTCPX"),
        ("Mesh", "NET/Mesh"),
        ("Socket", "tcp"),
    ],
)
def test_ranks_on_the_network_that_was_meant_do_not_fail_by_another_name_of_it(used: str, expected: str) -> None:
    given = on(used, provider=None if used != "AWS Libfabric" else "efa", nics=())
    assert Verdict.FAIL not in verdicts(given, "transport", RunContext(network=expected))
    fell = said(given, "node-1", network="Socket" if used != "Socket" else "IB", provider=None)
    assert Verdict.FAIL in verdicts(fell, "transport", RunContext(network=expected))
