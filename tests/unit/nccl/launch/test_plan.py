"""Which runs a test is made of, and how each is started."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.core.errors import InvalidInput
from gpuctl.nccl import flow, plan
from gpuctl.nccl.model import Launch, Sweep

NODES = ("a", "b", "c", "d")


@given(st.integers(2, 65))
def test_every_pair_is_run_once_in_as_few_rounds_as_can_be(count: int) -> None:
    nodes = tuple(f"n{number}" for number in range(count))
    rounds = plan.pairings(nodes)
    assert len(rounds) == (count - 1 if count % 2 == 0 else count)
    assert all(len(pairs) == count // 2 for pairs in rounds)
    assert all(len({node for pair in pairs for node in pair}) == 2 * len(pairs) for pairs in rounds)
    assert sorted(tuple(sorted(pair)) for pairs in rounds for pair in pairs) == sorted(
        tuple(sorted(pair)) for pair in combinations(nodes, 2)
    )


def test_quick_is_one_all_reduce_and_full_every_collective() -> None:
    ((launch,),) = plan.rounds("quick", NODES, Sweep())
    assert (launch.nodes, launch.sweep.collective) == (NODES, "all_reduce")
    assert [round_[0].sweep.collective for round_ in plan.rounds("full", NODES, Sweep())] == list(plan.COLLECTIVES)


def test_pairs_force_the_ring_unless_the_user_forces_something_else() -> None:
    assert plan.rounds("pairs", NODES, Sweep())[0][0].sweep.env == {"NCCL_ALGO": "Ring"}
    assert plan.rounds("pairs", NODES, Sweep(env={"NCCL_ALGO": "Tree"}))[0][0].sweep.env == {"NCCL_ALGO": "Tree"}


def test_single_nodes_run_at_the_same_time_and_as_they_are() -> None:
    (round_,) = plan.rounds("single", NODES, Sweep())
    assert [launch.nodes for launch in round_] == [("a",), ("b",), ("c",), ("d",)]
    assert all(launch.sweep == Sweep() for launch in round_)


def test_a_split_round_is_one_launch_that_tells_the_slowest_group() -> None:
    rounds = plan.rounds("pairs", NODES, Sweep(gpus_per_node=8), split=True)
    assert [len(round_) for round_ in rounds] == [1, 1, 1]
    (launch,) = rounds[0]
    # The ranks of a pair stand next to each other: sixteen of them are a group.
    assert launch.nodes == ("a", "d", "b", "c")
    assert launch.sweep.env["NCCL_TESTS_SPLIT"] == "DIV 16"
    assert plan.nodes_of_group(launch) == 2
    assert plan.arguments(launch)[-2:] == ["-a", "3"]


def test_a_node_alone_is_one_process_and_several_are_one_a_gpu() -> None:
    asked = "-b 8 -e 8589934592 -f 2 -g {} -n 20 -w 5 -c 1"
    assert plan.arguments(Launch(("a",), Sweep())) == asked.format(8).split()
    assert plan.arguments(Launch(NODES, Sweep())) == asked.format(1).split()


def test_settings_of_nccl_tests_are_passed_on_where_they_differ_from_its_own() -> None:
    sweep = Sweep(iterations=200, warmup=0, check=2, datatype="bfloat16", op="max", per_iteration=True)
    requested = "-b 8 -e 8589934592 -f 2 -g 1 -n 200 -w 0 -c 2 -d bfloat16 -o max -I 1"
    assert plan.arguments(Launch(NODES, sweep)) == requested.split()


def test_mpirun_gets_names_of_variables_and_never_their_values() -> None:
    launch = Launch(("a", "b"), Sweep(env={"MY_TOKEN": "hunter2"}))
    words = plan.command(launch, ["10.0.0.1", "10.0.0.2"])
    assert words[:5] == ["mpirun", "--host", "10.0.0.1:8,10.0.0.2:8", "-n", "16"]
    assert "MY_TOKEN" in words
    assert "hunter2" not in " ".join(words)


def test_a_node_alone_is_started_without_mpirun_and_both_with_a_time_limit() -> None:
    alone = plan.command(Launch(("a",), Sweep(limit_s=60)), ["a"])
    assert alone[:4] == ["timeout", "--kill-after=5", "90", "{program}"]
    words = plan.command(Launch(("a", "b"), Sweep(limit_s=60)), ["a", "b"])
    assert words[words.index("timeout") :][:4] == alone[:4]


def test_a_rank_is_looked_for_by_the_name_that_the_kernel_keeps() -> None:
    assert plan.name_in_kernel(Sweep("reduce_scatter")) == "reduce_scatter_"
    assert plan.name_in_kernel(Sweep("all_reduce")) == plan.program(Sweep("all_reduce")) == "all_reduce_perf"


def test_root_is_allowed_only_where_it_is_asked_for() -> None:
    launch = Launch(("a", "b"), Sweep())
    assert "--allow-run-as-root" not in plan.command(launch, ["a", "b"])
    assert "--allow-run-as-root" in plan.command(launch, ["a", "b"], as_root=True)


@pytest.mark.parametrize(
    ("rail", "name", "value"),
    [
        # Without "=" NCCL would take mlx5_10 to mlx5_19, too.
        ("mlx5_1", "NCCL_IB_HCA", "=mlx5_1"),
        ("rdmap16s27", "FI_EFA_IFACE", "rdmap16s27"),
        ("efa_0", "FI_EFA_IFACE", "efa_0"),
    ],
)
def test_one_adapter_is_named_exactly(rail: str, name: str, value: str) -> None:
    assert plan.environment(Launch(NODES, Sweep(), rail))[name] == value


def test_nccl_is_made_to_say_its_network_unless_the_user_knows_better() -> None:
    assert plan.environment(Launch(NODES, Sweep()))["NCCL_DEBUG"] == "INFO"
    assert plan.environment(Launch(NODES, Sweep(env={"NCCL_DEBUG": "WARN"})))["NCCL_DEBUG"] == "WARN"


def test_what_cannot_be_planned_is_refused() -> None:
    with pytest.raises(InvalidInput, match="only one node"):
        flow.planned("pairs", ["a"], Sweep())
    with pytest.raises(InvalidInput, match="--split is for pairs"):
        flow.planned("quick", NODES, Sweep(), split=True)
    with pytest.raises(InvalidInput, match="begins at 1024 bytes and ends at 8"):
        flow.planned("quick", NODES, Sweep(begin_bytes=1024, end_bytes=8))
