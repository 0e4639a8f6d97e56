"""Bars over time, as SVG: one row each, with a line for now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from markupsafe import Markup

WIDTH, LEFT, RIGHT, ROW, TOP, BOTTOM = 960, 330, 20, 22, 10, 32
LONGEST_LABEL = 46
TICKS = 5
HEAD = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">')
LABEL = Markup('<text x="{}" y="{}" text-anchor="end">{}</text>')
TICK = Markup('<path class="grid" d="M{} {}V{}"/><text x="{}" y="{}" text-anchor="{}">{}</text>')
BAR = Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}"><title>{}</title></rect>')
NOW = Markup('<path class="limit" d="M{} {}V{}"/>')
Drawing: TypeAlias = Markup


@dataclass(frozen=True)
class Bar:
    """A row: `label` is beside the bar, `text` what a pointer shows of it. `style`: class of the page."""

    label: str
    text: str
    style: str
    start: datetime
    end: datetime


def svg(title: str, bars: Sequence[Bar], now: datetime) -> Drawing:
    """Draw at least one bar on one scale of time. `title`: for readers who do not see it."""
    first = min(now, *(bar.start for bar in bars))
    last = max(now, *(bar.end for bar in bars))
    seconds, bottom = max((last - first).total_seconds(), 60.0), TOP + ROW * len(bars)

    def x(instant: datetime) -> float:
        return round(LEFT + (instant - first).total_seconds() / seconds * (WIDTH - LEFT - RIGHT), 1)

    parts = [HEAD.format(WIDTH, bottom + BOTTOM, title)]
    for number in range(TICKS):
        tick = first + timedelta(seconds=seconds * number / (TICKS - 1))
        anchor = {0: "start", TICKS - 1: "end"}.get(number, "middle")
        parts.append(TICK.format(x(tick), TOP, bottom, x(tick), bottom + 18, anchor, f"{tick:%d %b %H:%M}"))
    for number, bar in enumerate(bars):
        y = TOP + ROW * number
        shown = bar.label if len(bar.label) <= LONGEST_LABEL else bar.label[: LONGEST_LABEL - 1] + "…"
        width = max(3.0, round(x(max(bar.start, bar.end)) - x(bar.start), 1))
        parts.append(LABEL.format(LEFT - 10, y + 15, shown))
        parts.append(BAR.format(x(bar.start), y + 4, width, ROW - 8, bar.style, f"{bar.label}, {bar.text}"))
    return Markup("\n").join([*parts, NOW.format(x(now), TOP, bottom), Markup("</svg>")])
