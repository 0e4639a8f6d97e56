"""Who is paired with whom in the first round, and in further ones."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gpuctl.nccl.isolate import pairing

RACKS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def fleet(sizes: list[int]) -> tuple[list[str], dict[str, str]]:
    racks = {f"n{rack}.{number}": f"r{rack}" for rack, size in enumerate(sizes) for number in range(size)}
    return list(racks), racks


@given(RACKS, st.integers(0, 6))
def test_every_node_is_in_one_pair_but_for_an_odd_one(sizes: list[int], turn: int) -> None:
    nodes, racks = fleet(sizes)
    pairs = pairing.pairs(nodes, racks, turn)
    assert len(pairs) == len(nodes) // 2
    assert len({node for pair in pairs for node in pair}) == 2 * len(pairs)


@given(st.lists(st.integers(3, 9), min_size=3, max_size=12), st.integers(0, 6))
def test_no_uplink_carries_more_than_two_pairs_and_most_carry_one(sizes: list[int], turn: int) -> None:
    nodes, racks = fleet(sizes)
    across = [pair for pair in pairing.pairs(nodes, racks, turn) if racks[pair[0]] != racks[pair[1]]]
    carried = Counter(racks[node] for pair in across for node in pair)
    assert max(carried.values(), default=0) <= 2
    assert len(carried) >= len(sizes) - 2  # one even or one odd rack alone finds no other of its kind


def test_racks_of_even_size_are_each_in_two_pairs_that_have_only_the_rack_in_common() -> None:
    nodes, racks = fleet([4, 4, 4, 4])
    across = [{racks[n] for n in pair} for pair in pairing.pairs(nodes, racks) if racks[pair[0]] != racks[pair[1]]]
    assert len(across) == 4
    assert all(sum(rack in pair for pair in across) == 2 for rack in racks.values())
    assert len({frozenset(pair) for pair in across}) == 4


def test_a_further_turn_gives_other_partners() -> None:
    nodes, racks = fleet([16, 16, 16])
    met = Counter(frozenset(pair) for turn in range(4) for pair in pairing.pairs(nodes, racks, turn))
    again = sum(count - 1 for count in met.values())
    assert again <= 4
    plain = Counter(frozenset(pair) for turn in range(4) for pair in pairing.pairs(nodes, {}, turn))
    assert max(plain.values()) == 1


def test_without_racks_neighbours_are_paired() -> None:
    assert pairing.pairs(["a", "b", "c", "d", "e"], {}) == [("a", "b"), ("c", "d")]
