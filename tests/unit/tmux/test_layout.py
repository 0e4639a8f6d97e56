"""Layouts as tmux 3.3a writes them, at other sizes."""

from __future__ import annotations

import pytest

from gpuctl.tmux import layout
from gpuctl.tmux.resize import fitting

# window_layout of the shipped window 0 at 240x60, of tmux 3.3a
THREE = "8d2f,240x59,0,0{143x59,0,0[143x38,0,0,0,143x20,0,39,2],96x59,144,0,1}"


def parsed(text: str) -> layout.Cell:
    cell = layout.parse(text)
    assert cell is not None
    return cell


def test_a_layout_is_written_unchanged() -> None:
    assert layout.written(parsed(THREE)).partition(",")[2] == THREE.partition(",")[2]


def test_the_checksum_is_that_of_tmux() -> None:
    assert layout.written(parsed("b25d,80x24,0,0,0")) == "b25d,80x24,0,0,0"


def test_every_pane_keeps_its_proportion() -> None:
    small = layout.scaled(parsed(THREE), 80, 23)
    left, right = small.cells
    assert (left.width, right.width, right.left) == (47, 32, 48)
    assert [cell.height for cell in left.cells] == [14, 8]
    assert right.height == 23


@pytest.mark.parametrize("size", [(1, 1), (3, 3), (80, 23), (241, 60), (1000, 500)])
def test_rows_and_columns_fill_the_window(size: tuple[int, int]) -> None:
    big = layout.scaled(parsed(THREE), *size)
    if size >= (3, 3):
        assert sum(cell.width for cell in big.cells) + 1 == size[0]
        assert sum(cell.height for cell in big.cells[0].cells) + 1 == size[1]
    assert all(cell.width > 0 and cell.height > 0 for cell in big.cells)


@pytest.mark.parametrize(
    "text", ["", "tiled", "main-vertical", "b25d,80x24", "b25d,80x24,0,0,0}", "x,1x1,0,0{1x1,0,0,1"]
)
def test_other_text_is_not_a_layout(text: str) -> None:
    assert layout.parse(text) is None


def test_a_window_whose_panes_changed_is_left_alone() -> None:
    assert fitting(THREE, "b25d,80x24,0,0,0", 80, 23) == ""
    assert fitting("", THREE, 80, 23) == ""
