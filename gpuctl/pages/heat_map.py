"""A map of all pairs, as SVG: each pair once, below the diagonal that carries the names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

MOST_NAMES = 64  # more would have cells that nobody can tell apart
LARGEST_CELL, ROOM = 18, 800
LETTER = 6.5  # width of a letter of the labels, in the drawing's units
HEAD = Markup('<svg viewBox="0 0 {} {}" width="{}" role="img" aria-label="{}">')
SQUARES = Markup('<path class="{}" d="{}"/>')
LABEL = Markup('<text x="{}" y="{}" font-size="{}">{}</text>')


@dataclass(frozen=True)
class HeatMap:
    """`style(one, other)`: the class of a pair's cell. `title`: for readers who do not see the drawing."""

    title: str
    names: Sequence[str]
    style: Callable[[str, str], str]


def svg(heat: HeatMap) -> Markup:
    """Draw the map of at most `MOST_NAMES` names."""
    count = len(heat.names)
    cell = min(LARGEST_CELL, ROOM // max(1, count))
    width = count * cell + int(LETTER * max(map(len, heat.names), default=0)) + 16
    squares: dict[str, list[str]] = {}
    for row, one in enumerate(heat.names):
        for column, other in enumerate(heat.names[:row]):
            square = f"M{column * cell} {row * cell}h{cell - 1}v{cell - 1}h-{cell - 1}z"
            squares.setdefault(heat.style(one, other), []).append(square)
    parts = [HEAD.format(width, count * cell + 2, width, heat.title)]
    parts += [SQUARES.format(style, "".join(ds)) for style, ds in sorted(squares.items())]
    for row, name in enumerate(heat.names):
        parts.append(LABEL.format(row * cell + 3, (row + 1) * cell - 3, min(12, cell), name))
    return Markup("\n").join([*parts, Markup("</svg>")])
