"""In fleets of middle size a node that comes and goes does not hide another that is always a little slow."""

from __future__ import annotations

import pytest

from bench.nccl_scorecard import flapping, play

BESIDE = {case.name: case for case in flapping() if "beside" in case.name}


@pytest.mark.parametrize("name", BESIDE)
def test_a_flapping_node_does_not_widen_the_noise_by_which_others_are_judged(name: str) -> None:
    named = sum(play((BESIDE[name], f"final {seed}")).named for seed in range(8))
    assert named >= 5
