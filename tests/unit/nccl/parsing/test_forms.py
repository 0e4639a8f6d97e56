"""Forms of the table and of NCCL's lines that no recorded output has."""

from __future__ import annotations

import json

from gpuctl.nccl import serialize
from gpuctl.nccl.model import Iterations, Timing
from tests.rig.nccl.recorded import runs, text

HEADING = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong\n"
)
# As src/util.cu of nccl-tests prints it with -I (JSON version 2): four more columns in each half, and a time stamp.
PER_ITERATION_HEADING = (
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
    "    i_min    i_max    i_p99    i_cv%"
    "     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv% \n"
)
PER_ITERATION = (
    "# Per-Iteration Report: CUDA event timing; i_* uses max over process rows \n"
    + PER_ITERATION_HEADING
    + "     1048576        262144     float     sum      -1    32.51   32.25   56.44       0"
    "    31.20    39.90    39.10     5.10"
    "    32.10   32.67   57.17       0    31.00    38.80    38.00     4.90  2026-05-02 10:11:12\n"
    "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 56.805 OK\n"
)


def test_the_columns_of_each_iteration_are_read() -> None:
    (run,) = runs(PER_ITERATION)
    (row,) = run.rows
    assert row.out_of_place == Timing(32.51, 32.25, 56.44, 0, Iterations(31.20, None, 39.10, 39.90, 5.10))
    assert row.in_place == Timing(32.10, 32.67, 57.17, 0, Iterations(31.00, None, 38.00, 38.80, 4.90))
    assert (run.outcome, run.avg_busbw_gbs) == ("complete", 56.805)
    assert serialize.run_from_dict(json.loads(json.dumps(serialize.run_as_dict(run)))) == run


def test_a_report_has_the_median_of_the_iterations_too() -> None:
    # The names that src/util.cu of nccl-tests writes with -I -J.
    half = {"min_us": 31.2, "max_us": 39.9, "avg_us": 32.5, "p50_us": 32.1, "p95_us": 38.8, "p99_us": 39.1}
    report = json.loads(text("h100_2n16g_allreduce.json"))
    report["results"][0]["in_place_per_iter"] = {**half, "stdev_us": 1.6, "cv_pct": 5.1, "times_us": [32.1, 39.9]}
    (run,) = runs(json.dumps(report))
    assert run.rows[0].in_place is not None
    assert run.rows[0].in_place.per_iteration == Iterations(31.2, 32.1, 39.1, 39.9, 5.1)
    assert run.rows[0].out_of_place is not None
    assert run.rows[0].out_of_place.per_iteration is None
    told = serialize.run_as_dict(run)["rows"][0]["in_place"]["per_iteration"]
    assert told == {"min_us": 31.2, "median_us": 32.1, "p99_us": 39.1, "max_us": 39.9, "cv_percent": 5.1}
    assert serialize.run_from_dict(serialize.run_as_dict(run)) == run


def test_iterations_that_are_no_numbers_are_not_there() -> None:
    (run,) = runs(PER_ITERATION.replace("39.10", "  nan"))
    assert run.rows[0].out_of_place == Timing(32.51, 32.25, 56.44, 0)


def test_a_row_with_columns_cut_off_is_no_row() -> None:
    lines = PER_ITERATION.splitlines(keepends=True)
    for columns in range(1, 21):
        cut = "  ".join(lines[2].split()[:columns]) + "\n"
        assert not runs("".join([*lines[:2], cut]))[0].rows


def test_a_row_may_have_its_in_place_half_alone() -> None:
    row = "        1024           256     float     sum      -1" + " " * 32 + "    17.94    0.06    0.11      0\n"
    (found,) = runs(HEADING + row)[0].rows
    assert found.out_of_place is None
    assert found.in_place == Timing(17.94, 0.06, 0.11, 0)


def test_wrong_values_in_short_form_are_counted() -> None:
    row = (
        "     4194304       1048576     float     sum      -1    17.94  233.80  409.15"
        " 1.04858e+06    17.94  233.80  409.15    N/A\n"
    )
    (run,) = runs(HEADING + row)
    assert run.outcome == "corrupt"
    assert run.rows[0].out_of_place is not None
    assert run.rows[0].out_of_place.wrong == 1048580


def test_efa_names_its_provider_its_plugin_and_whether_data_goes_straight_to_the_gpu() -> None:
    said = (
        "ip-10-0-0-7:50:90 [3] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.14.0\n"
        "ip-10-0-0-7:50:90 [3] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)\n"
        "ip-10-0-0-7:50:91 [3] NCCL INFO Using network AWS Libfabric\n"
        "ip-10-0-0-7:50:91 [3] NCCL INFO ncclCommInitRank comm 0x387d330 rank 11 nranks 16 cudaDev 3 - Init START\n"
        "ip-10-0-0-7:50:91 [3] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/AWS Libfabric/1/GDRDMA\n"
        "ip-10-0-0-7:50:91 [3] NCCL INFO AllReduce: 1048576 Bytes -> Algo NVLS_TREE proto SIMPLE"
        " channel{Lo..Hi}={0..1}\n"
    )
    (run,) = runs("# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5\n" + said)
    (one,) = run.transports
    assert (one.rank, one.host, one.network, one.provider, one.gdr) == (
        *(11, "ip-10-0-0-7", "AWS Libfabric"),
        *("efa", True),
    )
    assert (run.versions.plugin, run.algorithms) == ("aws-ofi-nccl 1.14.0", ("NVLSTree",))
    assert run.forced_algorithms == ()


def _forced(*said: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    (run,) = runs("# Using devices\n" + "".join(f"n7:50:90 [0] NCCL INFO {one}\n" for one in said))
    return run.forced_algorithms, run.algorithms


def test_an_algorithm_that_was_forced_and_one_that_nccl_chose_are_kept_apart() -> None:
    chosen = "AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}"
    assert _forced(chosen) == ((), ("Ring",))
    assert _forced("NCCL_ALGO set by environment to RING", chosen) == (("Ring",), ("Ring",))
    assert _forced("NCCL_ALGO set by environment to Ring,Tree.", chosen) == (("Ring", "Tree"), ("Ring",))
    assert _forced("NCCL_ALGO set by environment to ^nvls,tree") == (("^NVLS", "^Tree"), ())
    assert _forced("NCCL_ALGO set by environment to allreduce:ring;broadcast:tree") == (
        ("allreduce:Ring", "broadcast:Tree"),
        (),
    )


def test_the_way_of_nccl_2_4_to_force_the_ring_counts() -> None:
    assert _forced("NCCL_TREE_THRESHOLD set by environment to 0.") == (("Ring",), ())
    assert _forced("NCCL_TREE_THRESHOLD set by environment to 4096.") == ((), ())
    assert _forced("Using 256 threads, Min Comp Cap 7, Trees disabled") == ((), ("Ring",))


def test_a_fall_back_to_sockets_is_seen_with_its_interface() -> None:
    said = (
        "n7:50:90 [0] NCCL INFO NET/IB : No device found.\n"
        "n7:50:90 [0] NCCL INFO NET/Socket : Using [0]eth0:172.31.16.64<0> [1]eth1:172.31.17.64<0>\n"
        "n7:50:90 [0] NCCL INFO Using network Socket\n"
    )
    (run,) = runs("# Using devices\n" + said)
    (one,) = run.transports
    assert (one.host, one.network, one.nics, one.gdr) == ("n7", "Socket", ("eth0", "eth1"), None)
