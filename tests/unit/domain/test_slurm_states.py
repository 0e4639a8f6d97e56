"""States of Slurm's nodes, as every part of gpuctl reads them."""

from __future__ import annotations

import pytest

from gpuctl.domain import slurm_states
from gpuctl.edges.slurm import read_nodes
from gpuctl.nccl.preflight.idle import idle
from gpuctl.nccl.runners.slurm.node_selection import NodeRequest, why_not
from tests.rig.nccl.fleets import fleet


@pytest.mark.parametrize(
    ("state", "name", "suffixes"),
    [
        ("idle", "idle", ""),
        ("IDLE*", "idle", "*"),
        ("down*~", "down", "*~"),
        ("allocated+", "allocated", "+"),
        ("", "", ""),
    ],
)
def test_a_state_is_a_name_and_suffixes(state: str, name: str, suffixes: str) -> None:
    assert slurm_states.split(state) == (name, suffixes)


def test_every_suffix_is_either_in_use_or_leaving_or_about_power_and_contact() -> None:
    other = {"*", "~", "#"}
    assert (
        slurm_states.SUFFIXES.keys() == other | slurm_states.SUFFIX_IN_USE.keys() | slurm_states.SUFFIX_LEAVING.keys()
    )


@pytest.mark.parametrize("state", ["down", "drained*", "drng", "idle*", "fail", "powering_down"])
def test_an_unusable_node_is_never_selected(state: str) -> None:
    assert slurm_states.is_unusable(state)
    [node] = read_nodes(f"h1|main*|{state}|gpu:8|none\n")
    assert why_not(node, NodeRequest(names=("h1",))) != ""


@pytest.mark.parametrize("suffix", slurm_states.SUFFIXES)
def test_selection_and_preflight_know_the_same_suffixes(suffix: str) -> None:
    """A suffix that one of them does not know would be taken for a part of the name."""
    [node] = read_nodes(f"h1|main*|idle{suffix}|gpu:8|none\n")
    assert f"idle{suffix}" not in why_not(node, NodeRequest())
    assert why_not(node, NodeRequest()) != ""
    [finding, *_] = idle(fleet(1, node_1=lambda facts: facts["jobs"].update(slurm_state=f"idle{suffix}")))
    assert "does not mean that it is free" not in finding.message
