"""Which runs are over: only our own, only by the cluster's clock, and only all of a run."""

from __future__ import annotations

from typing import Any

from gpuctl.nccl.runners.kube.leftovers import runs_over
from gpuctl.nccl.runners.kube.model import BY, LASTS, RUN

MADE = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def left(run: str, by: str = "ann@desk", lasts: str = "100", made: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    notes = {BY: by, LASTS: lasts}
    return {"metadata": {"labels": {RUN: run}, "annotations": notes, "creationTimestamp": made}}


def test_a_run_is_over_when_its_time_is_and_not_before() -> None:
    assert runs_over([left("a")], "ann@desk", MADE + 99) == set()
    assert runs_over([left("a")], "ann@desk", MADE + 101) == {"a"}


def test_somebody_elses_run_is_never_ours_to_end() -> None:
    assert runs_over([left("a", by="bob@desk")], "ann@desk", MADE + 10_000) == set()


def test_a_run_with_one_object_that_is_not_over_goes_on() -> None:
    young = left("a", made="2026-01-01T00:10:00Z")
    assert runs_over([left("a"), young, left("b")], "ann@desk", MADE + 200) == {"b"}


def test_what_does_not_say_how_long_it_lasts_is_left_alone() -> None:
    nothing = {"metadata": {"labels": {RUN: "a"}, "annotations": {BY: "ann@desk"}, "creationTimestamp": "x"}}
    assert runs_over([nothing, left("b", lasts="soon")], "ann@desk", MADE + 10_000) == set()


def test_without_the_clusters_time_nothing_is_over() -> None:
    assert runs_over([left("a")], "ann@desk", None) == set()
