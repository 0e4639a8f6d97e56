"""What a log tells of the fabric, and what it leaves open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.nccl import context
from gpuctl.nccl.context import RunContext
from tests.rig.nccl.judged import GIB, HEALTHY, found, recorded, run


def test_a_whole_device_list_tells_nodes_gpus_and_processes() -> None:
    told = context.infer(HEALTHY)
    assert (told.nodes, told.gpus_per_node, told.processes_per_node, told.ranks) == (4, 8, 8, 32)
    assert told.gpu == "NVIDIA H200"


@pytest.mark.parametrize("name", ["h100_2n8g_sendrecv_roce_info.log", "moc_h100_roce_2n8g_sendrecv_ncclinfo.log"])
def test_one_process_for_all_gpus_of_a_node_is_one_process(name: str) -> None:
    told = context.infer(recorded(name))
    assert (told.nodes, told.gpus_per_node, told.processes_per_node) == (2, 4, 1)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("oci_a100_2n16g_2179_noavg.log", 16),
        ("oci_a100_manyn_allreduce_ellipsis.log", 16),
        ("oci_mi300x_2n16g_rccl.log", 16),
        ("rocm_mi350x_8g_excerpt.log", 8),  # it lists ranks 0 and 1, as if these were all
        ("aws_p5en_slurm_excerpt.log", 128),
        ("a100_2n16g_elided_noavg.log", 16),
        ("a100_2n16g_elided_dots.log", 16),
        ("mi300x_2n16g_rccl_elided.log", 16),
        ("mi350x_8g_excerpt.log", 8),
        ("h200_16n128g_excerpt.log", 128),
    ],
)
def test_a_list_with_devices_left_out_tells_no_number_of_nodes(name: str, ranks: int) -> None:
    told = context.infer(recorded(name))
    assert told.nodes is None
    assert told.gpus_per_node is None
    assert told.ranks == ranks


@pytest.mark.parametrize("name", ["h200_16n128g_excerpt.log", "aws_p5en_slurm_excerpt.log"])
def test_nodes_that_are_given_make_gpus_of_the_ranks_that_the_rows_prove(name: str) -> None:
    told = context.infer(recorded(name), RunContext(nodes=16))
    assert (told.nodes, told.gpus_per_node, told.collective) == (16, 8, "all_reduce")


@pytest.mark.parametrize("name", ["a100_8g_{}_old_unchecked.log", "sb_a100_8gpu_{}.log"])
def test_a_collective_that_nobody_named_is_an_all_reduce_only_where_busbw_proves_it(name: str) -> None:
    assert recorded(name.format("allreduce")).collective is None
    assert context.infer(recorded(name.format("allreduce"))).collective == "all_reduce"
    assert context.infer(recorded(name.format("broadcast"))).collective is None


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("h100_2n2g_roce_info.log", "Ring"),
        ("v100_2n8g_allreduce_efa_nccl24.log", "Ring"),  # NCCL_TREE_THRESHOLD=0
        ("h100_1n8g_allreduce.log", None),
        ("moc_h100_roce_2n2g_allreduce_ncclinfo.log", "Ring"),
        ("aws_p3dn_v100_efa_2n16g_nccl246.log", "Ring"),  # NCCL_TREE_THRESHOLD=0
        ("dgxh100_1n8g_allreduce_full.log", None),
    ],
)
def test_only_an_algorithm_that_a_log_calls_forced_is_that_of_its_run(name: str, algorithm: str | None) -> None:
    assert context.infer(recorded(name)).algorithm == algorithm


def test_only_what_was_forced_is_the_algorithm_of_a_run() -> None:
    assert context.infer(HEALTHY).algorithm == "default", "where NCCL used several it chose among them"
    assert context.infer(HEALTHY, RunContext(algorithm="nvlstree")).algorithm == "NVLSTree"


def test_the_one_that_nccl_chose_itself_was_not_forced() -> None:
    told = context.infer(replace(HEALTHY, algorithms=("Ring",)))
    assert (told.algorithm, told.chosen) == (None, ("Ring",))


def test_what_the_log_says_was_forced_counts_before_a_default_that_somebody_took_for_granted() -> None:
    forced = replace(HEALTHY, forced_algorithms=("Ring",))
    assert context.infer(forced, RunContext(algorithm="default")).algorithm == "Ring"
    assert context.infer(forced, RunContext(algorithm="Tree")).algorithm == "Tree"


@pytest.mark.parametrize(
    ("forced", "algorithm"),
    [
        (("Ring", "Tree"), "Ring,Tree"),
        (("^NVLS",), "^NVLS"),
        (("allreduce:Ring",), "Ring"),
        (("broadcast:Ring",), None),
    ],
)
def test_several_that_were_forced_or_forbidden_are_neither_one_nor_nccls_choice(
    forced: tuple[str, ...], algorithm: str | None
) -> None:
    assert context.infer(replace(HEALTHY, algorithms=(), forced_algorithms=forced)).algorithm == algorithm


@pytest.mark.parametrize(
    ("given", "algorithm"),
    [
        ("allreduce:Ring", "Ring"),
        ("allreduce:ring;broadcast:Tree", "Ring"),
        ("ring,nvls_tree", "Ring,NVLSTree"),
        ("NVLS_TREE", "NVLSTree"),
        ("^nvls", "^NVLS"),
        ("broadcast:Tree", "default"),
    ],
)
def test_what_nccl_algo_was_set_to_is_read_as_nccl_reads_it(given: str, algorithm: str) -> None:
    assert context.infer(replace(HEALTHY, algorithms=()), RunContext(algorithm=given)).algorithm == algorithm


def test_a_ring_that_was_forced_for_this_collective_alone_is_one() -> None:
    two = run({GIB: 180.0}, nodes=2)
    assert found(two, "two-nodes", RunContext("p5en.48xlarge", algorithm="allreduce:Ring")) == []
    assert found(two, "two-nodes", RunContext("p5en.48xlarge", algorithm="broadcast:Ring")) != []
