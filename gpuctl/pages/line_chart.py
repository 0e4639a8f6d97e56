"""Lines over sizes, as SVG: sizes on a logarithmic scale, values from zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 860, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 48
MOST_TICKS = 12
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
HEAD = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">')
GRID = Markup('<path class="grid" d="M{} {}H{}"/>')
TEXT = Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>')
ON_ITS_SIDE = Markup('<text transform="translate(14 {}) rotate(-90)" text-anchor="middle">{}</text>')
LINE = Markup('<path class="line {}" d="{}"><title>{}</title></path>')


@dataclass(frozen=True)
class Line:
    """A line of points (size in bytes, value); a value of None interrupts it. `style`: classes of the page."""

    name: str
    style: str
    points: Sequence[tuple[int, float | None]]


@dataclass(frozen=True)
class Chart:
    """Lines with a title for readers who do not see them, and the unit of the values."""

    title: str
    unit: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class _Scale:
    """Places of sizes and values in the drawing."""

    least: float
    most: float
    top: float

    def x(self, size: float) -> float:
        span = self.most - self.least
        share = (math.log2(size) - self.least) / span if span else 0.5
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM), 1)


def svg(chart: Chart) -> Markup | None:
    """Draw the chart; None if no line has a point."""
    points = [point for line in chart.lines for point in line.points if point[1] is not None and point[0] > 0]
    if not points:
        return None
    logs = [math.log2(size) for size, _ in points]
    step = step_of(max(value for _, value in points if value is not None))
    highest = max(value for _, value in points if value is not None)
    scale = _Scale(min(logs), max(logs), max(1, math.ceil(highest / step)) * step)
    parts = [*_grid(scale, step, sorted({size for size, _ in points}), chart.unit)]
    parts += [_path(line, scale) for line in chart.lines]
    return HEAD.format(WIDTH, HEIGHT, chart.title) + Markup("\n").join(parts) + Markup("</svg>")


def step_of(highest: float, count: int = 5) -> float:
    """Return the round distance of about `count` grid lines up to the highest value."""
    if highest <= 0:
        return 1.0
    rough = highest / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor for factor in STEPS if factor * power >= rough * 0.999) * power


def in_units(size: int) -> str:
    """1048576 -> "1 MiB", in the largest unit that gives a whole number."""
    for unit, name in UNITS:
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def _grid(scale: _Scale, step: float, sizes: Sequence[int], unit: str) -> list[Markup]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    values = [number * step for number in range(round(scale.top / step) + 1)]
    parts = [GRID.format(LEFT, scale.y(value), right) for value in values]
    parts += [TEXT.format(LEFT - 8, scale.y(value) + 4, "end", f"{value:g}") for value in values]
    ticks = sizes[:: math.ceil(len(sizes) / MOST_TICKS)]
    parts += [TEXT.format(scale.x(size), bottom + 18, "middle", in_units(size)) for size in ticks]
    parts.append(TEXT.format((LEFT + right) / 2, HEIGHT - 8, "middle", "message size"))
    return [*parts, ON_ITS_SIDE.format((TOP + bottom) / 2, unit)]


def _path(line: Line, scale: _Scale) -> Markup:
    commands, begin = [], True
    for size, value in line.points:
        if value is None or size <= 0:
            begin = True
            continue
        commands.append(f"{'M' if begin else 'L'}{scale.x(size)} {scale.y(value)}")
        begin = False
    return LINE.format(line.style, "".join(commands), line.name)
