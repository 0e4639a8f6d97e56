"""One of several lines is chosen with the arrow keys."""

from __future__ import annotations

import asyncio

import pytest

from gpuctl.cli.shared.list_choice import _ListChoice

LINES = ["r-1  [bold]first", "r-2  second", "r-3  third"]


def chosen(*keys: str) -> int | None:
    app = _ListChoice(LINES)

    async def play() -> None:
        async with app.run_test() as pilot:
            rows = [strip.text.strip() for strip in app.screen._compositor.render_strips()]
            assert rows[:3] == LINES
            await pilot.press(*keys)

    asyncio.run(play())
    return app.return_value


@pytest.mark.parametrize(
    ("keys", "number"),
    [
        (("enter",), 0),
        (("down", "down", "enter"), 2),
        (("down", "down", "up", "enter"), 1),
        (("down", "escape"), None),
        (("q",), None),
        (("ctrl+c",), None),
    ],
)
def test_the_line_under_the_cursor_is_taken_with_enter(keys: tuple[str, ...], number: int | None) -> None:
    assert chosen(*keys) == number
