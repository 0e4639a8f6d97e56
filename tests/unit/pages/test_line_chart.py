"""Lines over sizes: gaps stay gaps, scales are round, and nothing is drawn of nothing."""

from __future__ import annotations

import re

import pytest

from gpuctl.pages import line_chart
from gpuctl.pages.line_chart import Chart, Line

GIB = 1 << 30


def drawn(*lines: Line) -> str:
    return str(line_chart.svg(Chart("title", "GB/s", lines)))


def test_a_size_without_a_value_interrupts_the_line() -> None:
    text = drawn(Line("a", "s1", [(1, 10.0), (2, 20.0), (4, None), (8, 20.0), (16, 10.0)]))
    (path,) = re.findall(r'<path class="line s1" d="([^"]*)"', text)
    assert path.count("M") == 2
    assert path.count("L") == 2


def test_nothing_is_drawn_without_a_value() -> None:
    assert line_chart.svg(Chart("t", "GB/s", [])) is None
    assert line_chart.svg(Chart("t", "GB/s", [Line("a", "s1", [(GIB, None), (0, 5.0)])])) is None


def test_one_point_and_zero_have_a_place_in_the_drawing() -> None:
    text = drawn(Line("<a>", "s1", [(GIB, 0.0)]))
    assert "nan" not in text
    assert "<title>&lt;a&gt;</title>" in text
    assert "1 GiB" in text


@pytest.mark.parametrize(("highest", "step"), [(365, 100), (480, 100), (12, 2.5), (0.9, 0.2), (0, 1), (1e-9, 2e-10)])
def test_grid_lines_have_round_values(highest: float, step: float) -> None:
    assert line_chart.step_of(highest) == pytest.approx(step)
