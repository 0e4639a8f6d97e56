"""Lists of names are shortened."""

from __future__ import annotations

from gpuctl.core.text import named


def test_a_long_list_of_names_is_shortened_with_a_count() -> None:
    assert named([]) == ""
    assert named(f"lab-{number}" for number in range(6)) == "lab-0, lab-1, lab-2, lab-3, lab-4, lab-5"
    assert named(["a", "b", "c"], 2) == "a, b and 1 more"
