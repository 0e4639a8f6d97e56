"""The screen of `gpuctl dash`: panels, their keys, a filter and a status line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding
from textual.css.query import NoMatches
from textual.message import Message
from textual.widgets import Input, Static

from gpuctl.cli.dash.model import Detail, Line, Panel, PanelKey, Program, View
from gpuctl.cli.dash.screen.faults import Faults
from gpuctl.cli.dash.screen.lines_view import LinesView
from gpuctl.cli.dash.screen.reader import Reader
from gpuctl.cli.dash.screen.text_screen import TextScreen
from gpuctl.cli.errors import known_text
from gpuctl.core.errors import InvalidInput
from gpuctl.core.exit_codes import INTERRUPTED
from gpuctl.engine import printable
from gpuctl.workflows import terminal_program

MOST_ERROR_LINES = 6
KEY_NAMES = {
    "escape": "Esc",
    "enter": "Enter",
    "tab": "Tab",
    "shift+tab": "Shift-Tab",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
    "home": "Home",
    "end": "End",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "ctrl+b": "Ctrl-B",
    "ctrl+f": "Ctrl-F",
}
DIGITS = "1234567890"


@dataclass(frozen=True)
class _State:
    """What of a panel is on the screen."""

    view: View = field(default_factory=View)
    error: str = ""


class Dash(App[int]):
    """Panels, one at a time."""

    CSS = """
    #tabs, #status { height: 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    #summary { height: auto; max-height: 4; text-style: bold; display: none; }
    #error { height: auto; max-height: 7; color: $text-error; display: none; }
    #prompt { height: 1; border: none; padding: 0; display: none; }
    LinesView.panel { display: none; }
    LinesView.shown { display: block; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [  # noqa: RUF012 - as Textual declares it
        Binding("question_mark", "help", "list of keys", key_display="?"),
        Binding("slash", "filter", "filter the lines by a text", key_display="/"),
        Binding("escape", "cancel", "end the filter or question"),
        Binding("c", "command", "show and copy the command of this screen"),
        Binding("r", "read", "read again now"),
        Binding("tab", "next(1)", "next panel", priority=True),
        Binding("shift+tab", "next(-1)", "previous panel", priority=True),
        Binding("q", "end", "quit"),
        Binding("ctrl+c", "interrupt", "quit", priority=True, key_display="Ctrl-C"),
    ]

    class Changed(Message):
        """A panel was read; sent by its reader's thread."""

        def __init__(self, panel: Panel) -> None:
            super().__init__()
            self.panel = panel

    def __init__(self, panels: Sequence[Panel], first: str, program_of: Callable[[str], Program] | None = None) -> None:
        """Panels, and the one to show first. `program_of`: runs a command of an open line; None runs none."""
        super().__init__()
        self._program_of = program_of
        self.animation_level = "none"
        self._panels = {panel.name: panel for panel in panels}
        self.panel = self._panels[first]
        self._states = dict.fromkeys(self._panels, _State())
        self.readers = {name: Reader(panel, self._on_read) for name, panel in self._panels.items()}
        self._faults = {name: Faults() for name in self._panels}
        self._question: PanelKey | None = None
        self._acting = asyncio.Lock()
        self._drawing = self._stale = False
        for digit, panel in zip(DIGITS, panels, strict=False):
            self.bind(digit, f"panel('{panel.name}')", description=f"panel {panel.title}", show=False)
        for key in {key.key for panel in panels for key in panel.keys}:
            self.bind(key, f"panel_key('{key}')", show=False)

    # ---- layout ------------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Static(id="tabs")
        for name in self._panels:
            yield LinesView(id=f"lines-{name}", classes="panel")
        yield Static(id="summary", markup=False)
        yield Static(id="error", markup=False)
        yield Input(id="prompt", compact=True)
        yield Static(id="status", markup=False)

    def on_mount(self) -> None:
        self.action_panel(self.panel.name)

    @property
    def view(self) -> LinesView:
        """Lines of the panel that is shown."""
        return self.query_one(f"#lines-{self.panel.name}", LinesView)

    def _on_read(self, panel: Panel) -> None:
        self.post_message(self.Changed(panel))

    def on_dash_changed(self, message: Changed) -> None:
        """Draw a panel that was read."""
        if message.panel is self.panel:
            self._redraw()

    def _redraw(self) -> None:
        """Draw the panel in a thread: a thousand nodes take longer than a key may.

        One drawing at a time is made to its end, so that frequent readings cannot keep all of them from the screen.
        """
        self._stale = True
        if not self._drawing:
            self._drawing = True
            self.run_worker(self._draw(), group="draw")

    async def _draw(self) -> None:
        try:
            while self._stale:
                self._stale = False
                panel = self.panel
                state = self._states[panel.name] = await asyncio.to_thread(self._state_of, panel)
                if panel is self.panel:
                    with contextlib.suppress(NoMatches):  # the screen was taken down meanwhile
                        self._show(state)
        finally:
            self._drawing = False

    def _state_of(self, panel: Panel) -> _State:
        error = self.readers[panel.name].error
        try:
            view = panel.view()
        except Exception as wrong:  # noqa: BLE001 - shown in the panel, and logged
            text = self._faults[panel.name].text(wrong)
            return _State(View(), (error or text) if known_text(wrong) else text)
        return _State(view, error)

    def _show(self, state: _State) -> None:
        self.view.show(state.view.lines or self._empty(state), state.view.head)
        _update(self.query_one("#summary", Static), "\n".join(state.view.summary))
        _update(self.query_one("#error", Static), "\n".join(state.error.splitlines()[:MOST_ERROR_LINES]))
        self._show_status()

    def _empty(self, state: _State) -> Sequence[Line]:
        """Reason for a panel without lines."""
        if state.error:
            return ()
        if state.view.read_at:
            return [Line("nothing to show")]
        since = self.readers[self.panel.name].since
        return [Line(f"reading, since {since}" if since else "reading")]

    def _show_status(self) -> None:
        view, lines = self._states[self.panel.name].view, self.view
        parts = ["? keys  q quit"]
        if view.read_at:
            parts.append(f"read at {view.read_at}")
        if view.waiting:
            parts.append(f"waiting for {view.waiting}")
        if lines.filter:
            parts.append(f"filter: {lines.filter}")
        _update(self.query_one("#status", Static), "  ·  ".join([*parts, self.panel.command]))

    def _show_tabs(self) -> None:
        entries = []
        for digit, (name, panel) in zip(DIGITS, self._panels.items(), strict=False):
            text = f"[@click=app.panel('{name}')] {digit} {panel.title} [/]"
            entries.append(f"[reverse]{text}[/reverse]" if panel is self.panel else text)
        self.query_one("#tabs", Static).update("".join(entries))

    # ---- keys --------------------------------------------------------------------------------------------------------

    def action_panel(self, name: str) -> None:
        """Show a panel."""
        self.action_cancel_prompt()
        self.readers[self.panel.name].set_shown(False)
        self.view.remove_class("shown")
        self.panel = self._panels[name]
        self.view.add_class("shown")
        self.view.focus()
        reader = self.readers[name]
        reader.set_shown(True)
        if reader.ident is None:
            reader.start()
        self._show_tabs()
        self._show(self._states[name])
        self._redraw()  # a reading may have ended while another panel was shown

    def action_next(self, step: int) -> None:
        """Show the next panel; does nothing while a line is open."""
        if len(self.screen_stack) > 1:
            return
        names = list(self._panels)
        self.action_panel(names[(names.index(self.panel.name) + step) % len(names)])

    def action_read(self) -> None:
        """Read the panel now."""
        self.readers[self.panel.name].read_now()

    def action_panel_key(self, key: str) -> None:
        """Do what a key of the panel does."""
        for entry in self.panel.keys:
            if entry.key == key and entry.prompt:
                self._question = entry
                self._ask(f"{entry.prompt} (empty for all)")
            elif entry.key == key:
                self._act(entry, self.view.subject)

    def _act(self, key: PanelKey, text: str) -> None:
        self._open(self.panel, lambda: key.act(text), key)

    def _open(self, panel: Panel, make: Callable[[], Detail | Program | None], key: PanelKey | None = None) -> None:
        """Open what a function returns; it is called in a thread, as it may read files. Without a result, draw."""
        self.run_worker(self._opened(panel, make, key), group="open")

    async def _opened(self, panel: Panel, make: Callable[[], Detail | Program | None], key: PanelKey | None) -> None:
        async with self._acting:  # keys in the order in which they were pressed
            detail = await asyncio.to_thread(_or_error, make, self._faults[panel.name])
            if isinstance(detail, Program):
                detail = self._run_program(panel, detail)
        if detail is not None:
            if len(self.screen_stack) == 1:  # not over another that was opened meanwhile
                self.push_screen(TextScreen(detail))
        elif key is not None:
            if key.reads:
                self.readers[panel.name].read_now()
            if panel is self.panel:  # else it is drawn when it is shown
                self._redraw()

    def on_text_screen_chosen(self, message: TextScreen.Chosen) -> None:
        """Run a command of gpuctl on the terminal, after the question that it needs; show why it is refused."""
        program_of, faults = self._program_of, self._faults[self.panel.name]
        made: Detail | Program | None = None
        if program_of is not None:
            made = _or_error(lambda: program_of(message.command), faults)
        if isinstance(made, Program):
            made = self._run_program(self.panel, made)
        if made is not None:
            self.push_screen(TextScreen(made))

    def _run_program(self, panel: Panel, program: Program) -> Detail | None:
        """Hand the terminal to a program until it ends, then read the panel; returns the error of one that fails."""
        errors = list[Exception]()
        try:
            with self.suspend():
                try:
                    terminal_program.run(program.argv, program.question, pauses=program.pauses)
                except Exception as error:  # noqa: BLE001 - Textual would not take the terminal back
                    errors.append(error)
        except SuspendNotSupported:
            wrong = "this screen has no terminal that a program could take over"
            errors.append(InvalidInput("run it", wrong, "copy the command, and run it in a terminal"))
        self.readers[panel.name].read_now()
        return _error_detail(self._faults[panel.name].text(errors[0])) if errors else None

    def action_filter(self) -> None:
        """Ask for the text of the filter."""
        self._question = None
        self._ask("filter", self.view.filter)

    def _ask(self, title: str, value: str = "") -> None:
        prompt = self.query_one("#prompt", Input)
        prompt.placeholder, prompt.value = title, value
        prompt.styles.display = "block"
        prompt.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while somebody types."""
        if self._question is None and event.input.has_focus:
            self.view.set_filter(event.value)
            self._show_status()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the answer."""
        question = self._question
        self.action_cancel_prompt()
        if question is not None:
            self._act(question, event.value)

    def action_cancel_prompt(self) -> None:
        """Close the question."""
        self._question = None
        self.query_one("#prompt", Input).styles.display = "none"
        self.view.focus()

    def action_cancel(self) -> None:
        """Close the question, or end the filter."""
        question = self._question
        self.action_cancel_prompt()
        if question is None:
            self.view.set_filter("")
            self._show_status()

    def on_lines_view_opened(self, message: LinesView.Opened) -> None:
        """Open a subject in full."""
        panel = self.panel
        self._open(panel, lambda: panel.detail(message.subject))

    def action_command(self) -> None:
        """Show and copy the command of the panel."""
        command = self.panel.command
        self.copy_to_clipboard(command)
        about = "This command prints the panel. It was copied, if the terminal allows that (OSC 52):"
        self.push_screen(
            TextScreen(Detail("command", [Line(about), Line(""), Line(command, command=command)], command))
        )

    def action_help(self) -> None:
        """Show all keys."""
        self.push_screen(TextScreen(Detail("keys", [Line(text) for text in self.help_lines()], "")))

    def help_lines(self) -> Iterator[str]:
        """Keys with their descriptions, as they are bound."""
        own = [(key.key, key.does) for key in self.panel.keys]
        digits = [(one.key, one.description) for one in self._bound(self) if one.action.startswith("panel(")]
        of_app = [(_shown(one), one.description) for one in self.BINDINGS if isinstance(one, Binding)]
        of_lines = [(_shown(one), one.description) for one in LinesView.BINDINGS if isinstance(one, Binding)]
        of_text = [(_shown(one), one.description) for one in TextScreen.BINDINGS if isinstance(one, Binding)]
        sections = {
            f"Panel {self.panel.title}": own,
            "Panels": digits,
            "Everywhere": of_app,
            "Lines": of_lines,
            "In a line that is open": of_text,
        }
        for title, rows in sections.items():
            if rows:
                yield title
                yield from (f"  {keys:<16}{does}" for keys, does in rows)
                yield ""
        yield "Nothing is changed without a question, and in production nothing without --allow-changes."

    @staticmethod
    def _bound(app: App[int]) -> Iterator[Binding]:
        for bindings in app._bindings.key_to_bindings.values():  # noqa: SLF001 - Textual has no other list of them
            yield from bindings

    def action_end(self) -> None:
        """Quit."""
        self.exit(0)

    def action_interrupt(self) -> None:
        """Quit, with the exit code of Ctrl-C."""
        self.exit(INTERRUPTED)


def _or_error(make: Callable[[], Detail | Program | None], faults: Faults) -> Detail | Program | None:
    """Result of a function, or its error in the words of the commands."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - shown, and logged
        return _error_detail(faults.text(error))


def _error_detail(text: str) -> Detail:
    return Detail("error", [Line(line, level="FAIL") for line in text.splitlines()], "")


def _shown(binding: Binding) -> str:
    return binding.key_display or ", ".join(KEY_NAMES.get(key, key) for key in binding.key.split(","))


def _update(widget: Static, text: str) -> None:
    """Update a widget if its text has changed: each update is sent to the terminal."""
    safe = printable(text)
    if widget.content != safe:
        widget.update(safe)
        widget.styles.display = "block" if text else "none"
