"""Damaged outputs raise nothing, and are never taken for healthy ones."""

from __future__ import annotations

import pytest

from tests.rig import fuzz_outputs
from tests.rig.recordings import recording

BATCHES = range(15)
EACH = 12


@pytest.mark.parametrize("batch", BATCHES)
def test_damaged_outputs_are_no_healthy_ones(batch: int) -> None:
    recording(".")
    wrong = [fuzz_outputs.check(seed) for seed in range(batch * EACH, (batch + 1) * EACH)]
    assert [one for one in wrong if one] == []


# Each was OK once: the first line of a GPU out of place, a text that ends after it, a list of processes that is cut.
ONCE_OK = (7093, 26718, 33422, 35056, 85230, 88150, 92128)


@pytest.mark.parametrize("seed", ONCE_OK)
def test_what_was_taken_for_healthy_once_stays_found(seed: int) -> None:
    recording(".")
    assert fuzz_outputs.check(seed) == ""


@pytest.mark.parametrize("batch", BATCHES)
def test_an_error_in_place_of_any_value_is_not_ok(batch: int) -> None:
    recording(".")
    wrong = [fuzz_outputs.check_error(seed) for seed in range(batch * EACH, (batch + 1) * EACH)]
    assert [one for one in wrong if one] == []
