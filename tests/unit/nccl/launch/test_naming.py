"""Our names for nodes: what hosts call themselves may be another node's name, or the name of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuctl.domain.ranks import Process
from gpuctl.nccl.launch import host_names, outcome
from gpuctl.nccl.launch.outcome import ProgramEnd
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Rank, Run, Sweep
from gpuctl.nccl.parsing import parse

HEAD = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
"""
NODES = ("node-1", "node-2", "node-3", "node-4")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
BEFORE = ("node-0", "node-1", "node-2", "node-3")  # hosts that count from 0
FAILURE = "{}: Test NCCL failure common.cu:1 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '\n"


def heard(hosts: Sequence[str], networks: Sequence[str] = ()) -> str:
    """What nccl-tests and NCCL print at the start, one rank a host."""
    text = HEAD
    for rank, host in enumerate(hosts):
        text += f"#  Rank {rank:2d} Group  0 Pid {1000 + rank} on {host} device  0 [0000:06:00] NVIDIA H100\n"
    for rank, network in enumerate(networks):
        line = f"{hosts[rank]}:{1000 + rank}:{1000 + rank} [0] NCCL INFO"
        text += f"{line} Using network {network}\n"
        text += (
            f"{line} ncclCommInitRank comm 0x{rank + 1:x} rank {rank} nranks {len(hosts)} cudaDev 0 - Init COMPLETE\n"
        )
    return text


def settled(text: str, nodes: Sequence[str] = NODES, hosts: Sequence[str] = ADDRESSES, **more: Any) -> LaunchResult:
    own: dict[str, Any] = {"stop": "", "answer": {"code": 3}, "ssh": None, "last": (), "looks": {}, "lost": ()}
    end = ProgramEnd(**{**own, "done_size": "", "hosts": tuple(hosts)[: len(nodes)], **more})
    runs = list(parse.runs(text.splitlines(keepends=True)))
    return outcome.settle(Launch(tuple(nodes), Sweep(gpus_per_node=1)), runs, end, 1.0)


def test_hosts_that_count_from_another_number_are_not_renamed_twice() -> None:
    ended = settled(heard(BEFORE) + FAILURE.format("node-0"))
    assert (ended.run.outcome, ended.run.cause) == (Outcome.FAILED, "node-1: unhandled system error")


def test_hosts_that_have_each_others_names_are_told_apart() -> None:
    ended = settled(heard(("b", "a")) + FAILURE.format("a"), nodes=("a", "b"))
    assert ended.run.cause == "b: unhandled system error"


def test_what_we_say_ourselves_keeps_its_names() -> None:
    moving = {node: [Process(1, "all_reduce_perf", "R", 0, False)] for node in NODES}
    looks = {**moving, "node-1": [Process(1, "all_reduce_perf", "S", 0, True)]}
    ended = settled(heard(BEFORE), stop="limit", answer=None, looks=looks)
    assert str(ended.run.cause).endswith("on node-1 rank 0 is doing nothing; node-2, node-3, node-4 wait for it")
    missing = settled(heard(BEFORE), answer={"missing": "mpirun"})
    assert str(missing.run.cause).startswith("node-1: Open MPI is not installed there")
    assert settled(heard(BEFORE), answer=None).run.cause == "node-1: it ended without output"


def test_ranks_of_hosts_with_one_name_are_on_their_own_nodes() -> None:
    run = settled(heard(["ubuntu"] * 4, ["IB", "Socket", "IB", "IB"])).run
    assert [rank.host for rank in run.ranks] == list(NODES)
    assert [(one.host, one.network) for one in run.transports][1] == ("node-2", "Socket")


def test_a_failure_on_one_of_several_hosts_with_one_name_names_its_rank_or_all_of_them() -> None:
    warned = "ubuntu:1001:1001 [0] NCCL WARN Call to ibv_create_qp failed\n"
    assert settled(heard(["ubuntu"] * 4, ["IB"] * 4) + warned + FAILURE.format("ubuntu")).run.cause == (
        "rank 1 on node-2: unhandled system error, Call to ibv_create_qp failed"
    )
    assert settled(heard(["ubuntu"] * 4) + FAILURE.format("ubuntu")).run.cause == (
        "one of node-1, node-2, node-3, node-4 (each is called ubuntu): unhandled system error"
    )


def test_all_hosts_that_call_themselves_as_one_node_is_called_do_not_accuse_it() -> None:
    cause = settled(heard(["node-1"] * 4) + FAILURE.format("node-1")).run.cause
    assert str(cause).startswith("one of node-1, node-2, node-3, node-4 (each is called node-1)")


def of(hosts: Sequence[str], env: dict[str, str] | None = None) -> host_names.Names:
    ranks = tuple(Rank(number, host, None, None, None) for number, host in enumerate(hosts))
    run = Run(Outcome.FAILED, None, None, (), None, None, ranks)
    return host_names.names(run, Launch(NODES, Sweep(gpus_per_node=1, env=env or {})), ADDRESSES)


def test_a_name_is_replaced_only_where_it_stands_whole() -> None:
    text = "10.0.0.1: lost, 10.0.0.11 and 10.0.0.1.5 are not, nor w1-b; but w1 is"
    assert of(["w1"]).text(text) == "node-1: lost, 10.0.0.11 and 10.0.0.1.5 are not, nor w1-b; but node-1 is"
    assert of([]).text(None) is None


def test_a_split_launch_counts_the_ranks_of_each_part_anew() -> None:
    own = {"NCCL_TESTS_SPLIT": "DIV 2"}
    assert of(["a", "b", "c", "d"], own).text("rank 0 on c: it broke") == "rank 0 on node-3: it broke"
    assert of(["a", "a", "c", "d"], own).name_of(0, "a") == "one of node-1, node-2 (each is called a)"
    assert of(["a", "a", "c", "d"]).name_of(1, "a") == "node-2"


def test_many_nodes_with_one_name_are_not_all_listed() -> None:
    nodes = tuple(f"node-{number}" for number in range(1, 65))
    launch = Launch(nodes, Sweep(gpus_per_node=1))
    ranks = tuple(Rank(number, "ubuntu", None, None, None) for number in range(64))
    names = host_names.names(Run(Outcome.FAILED, None, None, (), None, None, ranks), launch, [f"{n}.x" for n in nodes])
    assert names.word("ubuntu") == "one of node-1, node-2, node-3, node-4 and 60 more (each is called ubuntu)"
