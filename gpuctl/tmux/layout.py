"""tmux layouts as values, to keep the panes' proportions when a window is resized.

tmux itself takes the same number of columns from every pane, which leaves small panes with nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

CELL = re.compile(r"(\d+)x(\d+),(\d+),(\d+)")
ENDS = {"{": "}", "[": "]"}


@dataclass(frozen=True)
class Cell:
    """A pane, or a row ("{") or column ("[") of cells; sizes in characters, with a border of one between neighbours."""

    width: int
    height: int
    left: int
    top: int
    pane: str = ""
    kind: str = ""
    cells: tuple[Cell, ...] = ()

    @property
    def panes(self) -> int:
        return sum(cell.panes for cell in self.cells) if self.cells else 1

    def __str__(self) -> str:
        inside = ",".join(map(str, self.cells)) + ENDS[self.kind] if self.kind else self.pane
        return f"{self.width}x{self.height},{self.left},{self.top}{self.kind or ','}{inside}"


def parse(layout: str) -> Cell | None:
    """Parse tmux's `window_layout`; None for anything else, such as a layout's name."""
    text = layout.partition(",")[2]
    try:
        cell, rest = _cell(text)
    except ValueError:
        return None
    return None if rest else cell


def _cell(text: str) -> tuple[Cell, str]:
    match = CELL.match(text)
    if match is None:
        raise ValueError(text)
    width, height, left, top = map(int, match.groups())
    kind, rest = text[match.end() : match.end() + 1], text[match.end() + 1 :]
    if kind not in ENDS:
        pane = re.match(r"\d*", rest) if kind == "," else None
        if pane is None:
            raise ValueError(text)
        return Cell(width, height, left, top, pane[0]), rest[pane.end() :]
    cells = []
    while True:
        cell, rest = _cell(rest)
        cells.append(cell)
        end, rest = rest[:1], rest[1:]
        if end == ENDS[kind]:
            return Cell(width, height, left, top, "", kind, tuple(cells)), rest
        if end != ",":
            raise ValueError(text)


def scaled(cell: Cell, width: int, height: int, left: int = 0, top: int = 0) -> Cell:
    """Return the layout scaled to another size, with the panes' proportions kept."""
    resized = replace(cell, width=width, height=height, left=left, top=top)
    if cell.kind == "{":
        widths = _shares([child.width for child in cell.cells], width)
        lefts = [left + sum(widths[:n]) + n for n in range(len(widths))]
        pairs = zip(cell.cells, widths, lefts, strict=True)
        return replace(resized, cells=tuple(scaled(child, w, height, x, top) for child, w, x in pairs))
    if cell.kind == "[":
        heights = _shares([child.height for child in cell.cells], height)
        tops = [top + sum(heights[:n]) + n for n in range(len(heights))]
        pairs = zip(cell.cells, heights, tops, strict=True)
        return replace(resized, cells=tuple(scaled(child, width, h, left, y) for child, h, y in pairs))
    return resized


def _shares(sizes: Sequence[int], total: int) -> list[int]:
    """Divide `total` (with one border between each two) in proportion to `sizes`; each part is at least 1."""
    room = max(total - (len(sizes) - 1), len(sizes))
    ends = [round(room * sum(sizes[: n + 1]) / sum(sizes)) for n in range(len(sizes))]
    shares = [max(1, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    while sum(shares) > room:
        shares[shares.index(max(shares))] -= 1
    return shares


def written(cell: Cell) -> str:
    """Format the layout for tmux, with its checksum."""
    check = 0
    for letter in str(cell):
        check = ((check >> 1) + ((check & 1) << 15) + ord(letter)) & 0xFFFF
    return f"{check:04x},{cell}"
