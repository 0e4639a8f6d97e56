"""Damaged outputs raise nothing, and are never taken for healthy ones."""

from __future__ import annotations

import pytest

from tests.rig import fuzz_formats, fuzz_outputs
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


@pytest.mark.parametrize("name", fuzz_formats.sources())
def test_no_damage_makes_an_ill_output_healthy_and_no_error_is_ok(name: str) -> None:
    """The first of the cases of `python -m tests.rig.fuzz_formats`, which has the promises."""
    wrong = [fuzz_formats.check(name, seed) for seed in range(30)]
    assert [one for one in wrong if one] == []


@pytest.mark.parametrize("name", fuzz_formats.sources())
def test_a_check_is_not_ok_without_the_value_that_decides_it(name: str) -> None:
    wrong = [fuzz_formats.check_value(name, seed) for seed in range(60)]
    assert [one for one in wrong if one] == []


# Each broke a promise once: an output glued to another one, columns or rows in disorder, an error word that no reader
# expected, a counter with a damaged name.
BROKEN_ONCE = {
    "dcgmi": (21, 44), "dcgmi diag": (4, 675, 730, 5771, 8566, 17405), "dcgmi diag -j": (77520,),
    "dcgmi health": (104, 563), "dcgmi nvlink -e": (1219, 302196, 1000659, 1003683),
    "ethtool -S": (3, 29), "ibstat": (0, 6, 806, 100933), "kernel log": (36, 83, 129), "lfs df": (18, 60, 305861),
    "mount": (5, 17), "nvidia-smi": (35, 151, 100857), "nvidia-smi --query-gpu": (72, 89),
    "nvidia-smi -q": (4, 14, 5782, 80364, 304409), "nvidia-smi -q -x": (77974, 303713, 506095),
    "nvidia-smi dmon": (11,), "nvidia-smi nvlink -c": (2,), "nvidia-smi nvlink -e": (250, 355, 28448, 500273),
    "nvidia-smi nvlink -s": (42,), "nvidia-smi topo -m": (45, 156, 244, 1196, 33531),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_ONCE)
def test_what_broke_a_promise_once_keeps_it(name: str) -> None:
    assert [one for seed in BROKEN_ONCE[name] if (one := fuzz_formats.check(name, seed))] == []
