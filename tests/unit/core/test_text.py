"""Lists of names as people read them."""

from __future__ import annotations

from gpuctl.core.text import named


def test_of_many_names_the_first_are_told_and_how_many_more() -> None:
    assert named([]) == ""
    assert named(f"lab-{number}" for number in range(6)) == "lab-0, lab-1, lab-2, lab-3, lab-4, lab-5"
    assert named(["a", "b", "c"], 2) == "a, b and 1 more"
