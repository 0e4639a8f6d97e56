"""The pair matrix, its map on a terminal, and the page."""

from __future__ import annotations

import re
from itertools import combinations

import click
import pytest

from gpuctl.cli.nccl import heat
from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.model import LaunchResult
from gpuctl.nccl.report import matrix
from gpuctl.nccl.report.bars import bars
from gpuctl.nccl.report.page import Content, page
from gpuctl.nccl.report.plots import Bar
from gpuctl.pages.line_chart import in_units
from tests.rig.nccl.builders import GIB, ended

NODES = [f"node-{i}" for i in range(1, 12)]


def fleet(slow: str = "", hung: str = "") -> list[LaunchResult]:
    """Every pair of eleven nodes; those with the slow one at a third, those with the hung one without an end."""
    return [
        ended(a, b, busbw=None if hung in (a, b) else 120.0 if slow in (a, b) else 360.0)
        for a, b in combinations(NODES, 2)
    ]


def plain(found: matrix.Matrix, width: int) -> list[str]:
    return [click.unstyle(line) for line in heat.lines(found, width)]


def test_nodes_stand_in_the_order_of_their_numbers() -> None:
    assert matrix.pair_matrix(fleet()).nodes == tuple(NODES)


def test_the_node_that_failed_stands_before_the_slow_one() -> None:
    found = matrix.node_summaries(matrix.pair_matrix(fleet(slow="node-4", hung="node-7")))
    assert [s.node for s in found[:2]] == ["node-7", "node-4"]
    assert (found[0].failed, found[0].median_gbs) == (10, None)
    assert found[1].median_gbs == pytest.approx(120)


def test_a_run_kept_to_one_adapter_says_nothing_of_the_pair() -> None:
    assert matrix.pair_matrix([ended("a", "b", busbw=50, rail="mlx5_0")]).cells == {}


def test_runs_of_one_pair_are_told_by_their_median_and_the_failed_ones_are_counted() -> None:
    cell = matrix.pair_matrix([ended("a", "b", busbw=b) for b in (100, 300, 310, None)]).cell("b", "a")
    assert cell is not None
    assert (cell.speed, cell.failed) == (300, 1)


def test_a_map_fits_the_width_and_shows_the_worst_nodes() -> None:
    lines = plain(matrix.pair_matrix(fleet(slow="node-10")), width=40)
    assert max(len(line) for line in lines[:-1]) <= 40
    assert any(line.startswith("node-10") and "120.0" in line for line in lines)
    assert "nodes that stand better are not shown" in lines[-1]


def test_a_pair_without_a_number_is_not_shown_as_zero() -> None:
    lines = plain(matrix.pair_matrix([ended("a", "b", busbw=None), ended("a", "c", busbw=300)]), width=80)
    row = next(line for line in lines if line.startswith("a"))
    assert row.split()[1:] == ["·", "?!", "300.0"]
    assert next(line for line in lines if line.startswith("b")).split()[-1] == "-"


def test_a_page_stands_alone_and_holds_what_was_found() -> None:
    finding = Finding("pairs", "node-4", Verdict.FAIL, "slow in 10 of 10 pairs", {"median_gbs": 120.0}, "drain it")
    html = page(Content("pairs of prod", "today", fleet(slow="node-4"), [finding], [Bar(GIB, 365, 350, 320)]))
    assert not re.search(r"(src|href)=|<script|url\(|@import", html)
    assert "slow in 10 of 10 pairs" in html
    assert "baseline: expect" in html
    assert len(html) < 60_000


def test_the_page_draws_the_slow_runs_by_name_and_healthy_ones_alike() -> None:
    html = page(Content("pairs of prod", "today", fleet(slow="node-4"), []))
    assert len(re.findall(r'class="line other thin"', html)) == 55 - 6
    assert set(re.findall(r"</svg>(node-\S+ \+ node-\S+)</li>", html)) <= {
        f"{a} + {b}" for a, b in combinations(NODES, 2) if "node-4" in (a, b)
    }
    healthy = page(Content("pairs of prod", "today", fleet(), []))
    assert "55 other runs" in healthy
    assert 'class="line s1"' not in healthy


def test_the_map_has_each_pair_once_the_slower_the_stronger() -> None:
    html = page(Content("pairs of prod", "today", fleet(slow="node-4", hung="node-7"), []))
    squares = {
        style: path.count("M") for style, path in re.findall(r'<path class="(h\d|failed|none)" d="([^"]*)"/>', html)
    }
    assert squares == {"h0": 36, "h4": 9, "failed": 10}
    assert "<td>?</td>" not in html
    assert 'class="n">?</td>' in html  # a pair without a result is never 0


def test_where_there_are_too_many_nodes_the_map_says_what_it_leaves_out() -> None:
    many = [ended(f"n{i}", f"n{i + 1}", busbw=300.0) for i in range(100)]
    html = page(Content("t", "now", many, []))
    assert "The map has the 64 nodes that stand worst; 37 others are not drawn." in html


def test_what_is_the_same_of_many_stands_on_the_page_once_with_their_names() -> None:
    alike = [Finding("baseline", pair, Verdict.WARN, "not judged, no baseline") for pair in ("a, b", "a, c")]
    html = page(Content("pairs", "now", fleet(), [*alike, Finding("pairs", "b", Verdict.FAIL, "slow")]))
    assert html.count("not judged, no baseline") == 1
    assert "a, b; a, c" in html


def test_a_name_from_a_log_cannot_become_markup() -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    html = page(Content("t", "now", [ended(evil, "b", busbw=300)], []))
    assert "<img src=x" not in html
    assert "</script><img" not in html


@pytest.mark.parametrize(("size", "said"), [(8, "8 B"), (1 << 20, "1 MiB"), (3 << 29, "1536 MiB"), (1000, "1000 B")])
def test_sizes_are_told_in_the_largest_unit_that_fits(size: int, said: str) -> None:
    assert in_units(size) == said


def test_a_page_draws_the_baseline_of_the_machine_type() -> None:
    drawn = bars([ended(*(f"n{i}" for i in range(4)), busbw=360)], "p5en.48xlarge")
    assert [(bar.size_bytes // GIB, bar.expect, bar.fail) for bar in drawn] == [(4, 365, 320), (8, 365, 320)]


def test_where_no_row_fits_nothing_is_drawn() -> None:
    assert bars([ended("a", "b", "c", busbw=360)], "p5en.48xlarge") == []


def test_an_unknown_machine_type_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no machine type has this name"):
        bars([], "p9.huge")
