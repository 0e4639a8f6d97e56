"""Lines over the panels: a subject in full, the command of a screen, or the list of keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import wrap

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from gpuctl.cli.dash.model import Detail, Line
from gpuctl.cli.dash.screen.lines_view import LinesView, one_line


def wrapped(lines: Sequence[Line], width: int) -> Iterator[Line]:
    """Lines of at most this width; the rest of a long one stands below it, further to the right.

    Lines with a command stay as they are: a broken one would be another command.
    """
    for line in lines:
        text = line.text
        if len(text) <= width or line.command:
            yield line
            continue
        indent = " " * min(len(text) - len(text.lstrip()) + 4, width // 2)
        for part in wrap(text, width, subsequent_indent=indent, break_on_hyphens=False):
            yield replace(line, text=part)


class TextScreen(ModalScreen[None]):
    """A detail over the whole screen."""

    CSS = """
    TextScreen { background: $background; }
    TextScreen > .title { height: 1; text-style: bold; background: $panel; }
    TextScreen > .status { height: 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    """
    BINDINGS = [  # noqa: RUF012 - as Textual declares it
        Binding("escape,q", "dismiss", "back"),
        Binding("c", "copy", "copy the command under the cursor, else that of the screen"),
        Binding("x", "run", "run the command under the cursor; one that may change something asks first"),
    ]

    class Chosen(Message):
        """`x` on a line with this command."""

        def __init__(self, command: str) -> None:
            super().__init__()
            self.command = command

    def __init__(self, detail: Detail) -> None:
        super().__init__()
        self._detail = detail
        self._view = LinesView()

    def compose(self) -> ComposeResult:
        yield Static(one_line(self._detail.title), markup=False, classes="title")
        yield self._view
        keys = "Esc back" + ("   c copy" if self._detail.command else "")
        keys += "   on a command: c copy, x run" if any(line.command for line in self._detail.lines) else ""
        yield Static(one_line(f"{keys}   {self._detail.command}".strip()), markup=False, classes="status")

    def on_mount(self) -> None:
        self._view.focus()

    def on_resize(self, event: events.Resize) -> None:
        """Break long lines at the width of the screen."""
        self._view.show(list(wrapped(self._detail.lines, event.size.width - 1)))

    def action_run(self) -> None:
        """Run the command under the cursor, if it has one."""
        if self._view.command:
            self.post_message(self.Chosen(self._view.command))

    def action_copy(self) -> None:
        """Copy a command through the terminal: that under the cursor, else that of the screen."""
        command = self._view.command or self._detail.command
        if command:
            self.app.copy_to_clipboard(command)
            self.query_one(".status", Static).update(one_line("copied: " + command))
