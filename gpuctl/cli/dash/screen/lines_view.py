"""Scrollable lines with a cursor; only those on the screen are drawn, so that a large fleet answers keys at once."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpuctl.cli.dash.model import Line
from gpuctl.engine import printable

COLOURS = {"FAIL": Style(color="red", bold=True), "UNKNOWN": Style(color="magenta"), "WARN": Style(color="yellow")}
PLAIN = Style()
HEAD = Style(bold=True, underline=True)
CURSOR = Style(reverse=True)
STEP = 10  # columns of a step to the right


class LinesView(ScrollView, can_focus=True, inherit_bindings=False):
    """Lines, of which one is under the cursor; a filter leaves out the subjects that do not contain its text."""

    DEFAULT_CSS = """
    LinesView { overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    """
    BINDINGS = [  # noqa: RUF012 - as Textual declares it
        Binding("up,k", "move(-1)", "line up"),
        Binding("down,j", "move(1)", "line down"),
        Binding("pageup,ctrl+b", "page(-1)", "page up"),
        Binding("pagedown,ctrl+f", "page(1)", "page down"),
        Binding("home,g", "move(-1000000000)", "first line"),
        Binding("end,G", "move(1000000000)", "last line"),
        Binding("left,h", "shift(-1)", "to the left"),
        Binding("right,l", "shift(1)", "to the right, for long lines"),
        Binding("enter", "open", "open the line in full"),
    ]

    class Opened(Message):
        """Enter on a line with this subject."""

        def __init__(self, subject: str) -> None:
            super().__init__()
            self.subject = subject

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.cursor = 0
        self.filter = ""
        self._all: Sequence[Line] = ()
        self._lines: Sequence[Line] = ()
        self._head = ""
        self._left = 0

    @property
    def lines(self) -> Sequence[Line]:
        """Lines that pass the filter; one without a subject if none does."""
        return self._lines

    @property
    def subject(self) -> str:
        """Subject of the line under the cursor; "" if it has none."""
        return self._lines[self.cursor].subject if self._lines else ""

    @property
    def command(self) -> str:
        """Command in the line under the cursor; "" if it has none."""
        return self._lines[self.cursor].command if self._lines else ""

    def show(self, lines: Sequence[Line], head: str = "") -> None:
        """Replace the lines; the cursor stays on its subject."""
        self._all = lines
        self._replace(self._filtered(), head)

    def set_filter(self, text: str) -> None:
        """Show only subjects whose lines contain a text, in any case."""
        self.filter = text
        self._replace(self._filtered(), self._head)

    def _filtered(self) -> Sequence[Line]:
        lines = filtered(self._all, self.filter)
        return [Line("no line matches the filter")] if self._all and not lines else lines

    def _replace(self, lines: Sequence[Line], head: str) -> None:
        before, old_cursor, old_head = self._lines, self.cursor, self._head
        subject = self.subject
        self._lines, self._head = lines, head
        self.cursor = self._cursor_on(subject, old_cursor, before)
        height = len(lines) + bool(head)
        if height != self.virtual_size.height or bool(head) != bool(old_head):
            self.virtual_size = Size(1, height)
            self._keep_in_sight()
            self.refresh()
            return
        top = self.scroll_offset.y
        for row in range(min(self.size.height, height)):
            at = top + row - bool(head)
            is_head = bool(head) and row == 0
            changed = head != old_head if is_head else at < len(lines) and lines[at] != before[at]
            if changed or (not is_head and at in {self.cursor, old_cursor} and self.cursor != old_cursor):
                self.refresh(Region(0, row, self.size.width, 1))
        self._keep_in_sight()

    def _cursor_on(self, subject: str, cursor: int, before: Sequence[Line]) -> int:
        """Index of the line that the cursor was on: in its subject's lines as far down as before."""
        last = max(0, len(self._lines) - 1)
        if not subject:
            return min(cursor, last)
        first_before = next(at for at, line in enumerate(before) if line.subject == subject)
        places = [at for at, line in enumerate(self._lines) if line.subject == subject]
        return places[min(cursor - first_before, len(places) - 1)] if places else min(cursor, last)

    @property
    def _columns(self) -> int:
        """Columns beside the scroll bar."""
        return self.scrollable_content_region.width

    @property
    def _rows(self) -> int:
        """Rows for lines."""
        return max(1, self.size.height - bool(self._head))

    def _keep_in_sight(self) -> None:
        top = self.scroll_offset.y
        wished = min(max(top, self.cursor - self._rows + 1), self.cursor)
        if wished != top:
            self.scroll_to(y=wished, animate=False)

    def on_resize(self, _: events.Resize) -> None:
        self._keep_in_sight()

    def action_move(self, lines: int) -> None:
        """Move the cursor."""
        before = self.cursor
        self.cursor = min(max(0, before + lines), max(0, len(self._lines) - 1))
        for at in {before, self.cursor}:
            self.refresh(Region(0, at - self.scroll_offset.y + bool(self._head), self.size.width, 1))
        self._keep_in_sight()

    def action_page(self, pages: int) -> None:
        """Move the cursor by what the screen shows."""
        self.action_move(pages * max(1, self._rows - 1))

    def action_shift(self, steps: int) -> None:
        """Show more of the right ends of the lines, or less."""
        longest = max((cell_len(line.text) for line in self._lines), default=0)
        most = max(0, longest - self._columns + STEP)
        self._left = min(max(0, self._left + steps * STEP), most)
        self.refresh()

    def action_open(self) -> None:
        """Open the subject under the cursor."""
        if self.subject:
            self.post_message(self.Opened(self.subject))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the line; a second click opens it."""
        at = self.scroll_offset.y + event.y - bool(self._head)
        if 0 <= at < len(self._lines):
            self.action_move(at - self.cursor)
            if event.chain > 1:
                self.action_open()

    def render_line(self, y: int) -> Strip:
        """Draw a row of the screen."""
        base = self.rich_style
        if self._head and y == 0:
            return self._strip(self._head, base + HEAD)
        at = self.scroll_offset.y + y - bool(self._head)
        if not 0 <= at < len(self._lines):
            return Strip.blank(self._columns, base)
        line = self._lines[at]
        style = base + COLOURS.get(line.level, PLAIN)
        return self._strip(line.text, style + CURSOR if at == self.cursor and self.has_focus else style)

    def _strip(self, text: str, style: Style) -> Strip:
        width = self._columns
        shown = one_line(text)[self._left :]
        if cell_len(shown) > width:
            shown = set_cell_size(shown, width - 1) + "…"
        return Strip([Segment(set_cell_size(shown, width), style)], width)


def one_line(text: str) -> str:
    """A text that draws nothing but itself on a terminal: without control characters and line feeds."""
    return printable(text).replace("\n", " ").expandtabs()


def filtered(lines: Sequence[Line], text: str) -> Sequence[Line]:
    """Lines of the subjects that contain a text, in any case; lines without a subject count alone."""
    if not text:
        return lines
    plain = text.casefold()
    subjects = {line.subject for line in lines if line.subject and plain in line.text.casefold()}
    return [line for line in lines if line.subject in subjects or (not line.subject and plain in line.text.casefold())]
