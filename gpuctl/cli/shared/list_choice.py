"""Choose one of several lines with the arrow keys, below the cursor of the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import OptionList, Static

MOST_LINES = 12
HELP = "Up and Down choose, Enter takes the line, Esc none"


class _ListChoice(App[int]):
    """The lines; its result is the number of the chosen one, from 0 on, and None without a choice."""

    CSS = f"""
    Screen:inline {{ height: auto; border: none; }}
    OptionList {{ height: auto; max-height: {MOST_LINES}; border: none; padding: 0; }}
    Static {{ height: 1; color: $text-muted; }}
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [Binding("escape,q,ctrl+c,ctrl+q", "leave", priority=True)]

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        yield OptionList(*(Text(line, no_wrap=True, overflow="ellipsis") for line in self._lines))
        yield Static(HELP)

    def on_option_list_option_selected(self, chosen: OptionList.OptionSelected) -> None:
        self.exit(chosen.option_index)

    def action_leave(self) -> None:
        self.exit()


def choose(lines: Sequence[str]) -> int | None:
    """Number of the chosen line, from 0 on; None if none was chosen. Needs a terminal as stdin and stderr."""
    return _ListChoice(lines).run(inline=True, inline_no_clear=False, mouse=False)
