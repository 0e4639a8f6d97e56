"""Which of Slurm's nodes a test uses: lines of a real sinfo (22.05) and what is decided from them."""

from __future__ import annotations

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.slurm import gpus, leaves, read_nodes
from gpuctl.nccl.runners.slurm.node_selection import NodeRequest, choose

SINFO = """h1|main*|idle|gpu:h200:8|none
h1|night|idle|gpu:h200:8|none
h2|main*|allocated|gpu:h200:8|none
h3|main*|drained|gpu:h200:8|bad DIMM | ticket 7
h4|main*|down*|gpu:h200:8|Not responding
h5|main*|idle~|gpu:h200:8|none
h6|main*|idle|gpu:h200:4|none
h7|main*|idle|(null)|none
h8|main*|reserved|gpu:h200:8|none
h9|main*|idle|gpu:h200:8(S:0-1)|none
"""
FOUND = read_nodes(SINFO)


def test_a_line_of_sinfo_is_a_node_in_a_partition() -> None:
    drained = FOUND[3]
    assert (drained.name, drained.partition, drained.is_default) == ("h3", "main", True)
    assert (drained.state, drained.gpus, drained.reason) == ("drained", 8, "bad DIMM | ticket 7")
    assert not FOUND[1].is_default
    assert FOUND[0].reason == ""


@pytest.mark.parametrize(
    ("gres", "number"),
    [
        ("gpu:8", 8),
        ("gpu:h100:8(S:0-1)", 8),
        ("nic:2,gpu:a100:4(S:0,1),gpu:h100:4(S:0,1)", 8),
        ("nic:2", 0),
        ("(null)", None),
    ],
)
def test_gpus_are_counted_and_unsaid_is_not_none_of_them(gres: str, number: int | None) -> None:
    assert gpus(gres) == number


def test_racks_are_the_switches_that_nodes_hang_on() -> None:
    text = (
        "SwitchName=r0 Level=0 LinkSpeed=1 Nodes=h[1-2]\nSwitchName=r1 Level=0 LinkSpeed=1 Nodes=h3\n"
        "SwitchName=spine Level=1 LinkSpeed=1 Nodes=h[1-3] Switches=r[0-1]\n"
    )
    assert leaves(text) == [("r0", "h[1-2]"), ("r1", "h3")]


def test_only_idle_nodes_with_enough_gpus_are_used_and_the_others_are_named() -> None:
    choice = choose(FOUND, NodeRequest(gpus=8))
    assert (choice.partition, choice.names) == ("main", ("h1", "h9"))
    assert choice.left_out == {
        "h2": "it is allocated",
        "h3": "it is drained (bad DIMM | ticket 7)",
        "h4": "it is down, and it does not respond (Not responding)",
        "h5": "it is powered down",
        "h6": "it has 4 GPUs, not 8",
        "h7": "Slurm knows of no GPU there (no Gres)",
        "h8": "it is reserved",
    }


def test_named_nodes_may_be_busy_but_not_broken() -> None:
    choice = choose(FOUND, NodeRequest(names=("h5", "h3", "h2"), gpus=8))
    assert choice.names == ("h5", "h2")
    assert list(choice.left_out) == ["h3"]


def test_nodes_of_our_reservation_are_free_for_us() -> None:
    assert choose(FOUND, NodeRequest(reserved=frozenset({"h8"}))).names == ("h8",)


def test_so_many_and_no_more() -> None:
    assert choose(FOUND, NodeRequest(number=1, gpus=8)).names == ("h1",)
    with pytest.raises(GpuctlError, match="only 2 of 3 nodes of the partition main can be used") as e:
        choose(FOUND, NodeRequest(number=3, gpus=8))
    assert e.value.exit_code == 3


def test_so_many_of_named_ones_are_those_that_are_not_broken() -> None:
    names = ("h3", "h2", "h1", "h9")
    assert choose(FOUND, NodeRequest(names=names, number=2, gpus=8)).names == ("h2", "h1")
    with pytest.raises(GpuctlError, match=r"only 3 of 4 nodes .*\(h3: it is drained"):
        choose(FOUND, NodeRequest(names=names, number=4, gpus=8))
    with pytest.raises(GpuctlError, match=r"only 2 of 4 nodes .*\(there are no others\)"):
        choose(FOUND, NodeRequest(names=("h1", "h2"), number=4, gpus=8))


def test_a_partition_must_be_there() -> None:
    assert choose(FOUND, NodeRequest("night")).names == ("h1",)
    with pytest.raises(InvalidInput, match="there is no partition day"):
        choose(FOUND, NodeRequest("day"))
    with pytest.raises(InvalidInput, match="no partition is the default one"):
        choose(FOUND[1:2], NodeRequest())


def test_a_node_must_be_there_and_be_named_once() -> None:
    with pytest.raises(InvalidInput, match="h77: not in the partition main"):
        choose(FOUND, NodeRequest(names=("h1", "h77")))
    with pytest.raises(InvalidInput, match="named twice"):
        choose(FOUND, NodeRequest(names=("h1", "h1")))
