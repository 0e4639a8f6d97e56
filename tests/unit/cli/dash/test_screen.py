"""The screen of `gpuctl dash`: keys, filter, errors, nodes that hang, a thousand nodes."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from textual.binding import Binding
from textual.pilot import Pilot

from gpuctl.cli.dash.model import NEVER, CommandLine, Detail, Line, PanelKey, Program, View, command_line
from gpuctl.cli.dash.names import NAMES
from gpuctl.cli.dash.panels import PANELS, build
from gpuctl.cli.dash.panels.nodes import NodesPanel
from gpuctl.cli.dash.request import DashRequest
from gpuctl.cli.dash.screen import faults, reader
from gpuctl.cli.dash.screen.app import Dash
from gpuctl.cli.dash.screen.lines_view import LinesView, filtered
from gpuctl.cli.dash.screen.text_screen import TextScreen, wrapped
from gpuctl.cli.nodes.command import nodes
from gpuctl.cli.nodes.reading import NodesRequest
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nodes import facts_file
from gpuctl.nodes.model import Fleet
from gpuctl.workflows.nodes_live import LiveNodes
from tests.rig.gpu_user_facts import NOW, facts, process

SIZE = (80, 24)
Play = Callable[[Dash, "Pilot[int]"], Awaitable[None]]


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))


def request(tmp_path: Path, *sources: Path, inventory: str | None = None) -> DashRequest:
    return DashRequest("nodes", inventory, "", "", sources, 5, 60, "", "", tmp_path / "no-socket")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "facts.json"
    busy = facts(process(7, login_uid=1001), on={3: [7]})
    facts_file.save(path, Fleet({"gpu-1": busy, "gpu-2": facts()}, {"gpu-3": "no route to host"}, NOW))
    return path


class Fixed:
    """A panel with these lines; `error` is raised by each reading."""

    name, title = "fixed", "Fixed"
    command = "gpuctl fixed --all"
    keys: Sequence[PanelKey] = ()

    def __init__(self, lines: Sequence[Line] = (), error: Exception | None = None) -> None:
        self.lines, self.error, self.readings = lines, error, 0

    def read(self) -> float:
        self.readings += 1
        if self.error is not None:
            raise self.error
        return NEVER

    def view(self) -> View:
        return View(self.lines, "", (), "12:00:00")

    def detail(self, subject: str) -> Detail | None:
        return Detail(subject, [Line(f"all of {subject}")], f"gpuctl fixed {subject}")


def play(app: Dash, steps: Play, size: tuple[int, int] = SIZE) -> None:
    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await steps(app, pilot)

    asyncio.run(run())
    for one in app.readers.values():
        one.end()


async def until(pilot: Pilot[int], condition: Callable[[], bool]) -> None:
    for _ in range(400):
        if condition():
            return
        await pilot.pause(0.02)
    raise AssertionError(screen(pilot.app))


def screen(app: object) -> str:
    assert isinstance(app, Dash)
    rows = [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]
    return "\n".join(rows)


def keys_of(bindings: Iterable[object]) -> set[str]:
    return {key for one in bindings if isinstance(one, Binding) for key in one.key.split(",")}


def test_the_names_of_the_option_are_the_panels() -> None:
    assert tuple(PANELS) == NAMES


def test_nodes_are_shown_filtered_and_opened(tmp_path: Path, saved: Path) -> None:
    app = Dash([NodesPanel(request(tmp_path, saved))], "nodes")

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "gpu-3" in screen(app))
        assert "gpu-1  p5.48xlarge  8 GPUs  1 in use, 7 idle" in screen(app)
        assert "UNKNOWN: no route to host" in screen(app)
        await until(pilot, lambda: "1 of 16 GPUs in use" in screen(app))
        await pilot.press("slash", *"route", "enter")
        assert {line.subject for line in app.view.lines if line.subject} == {"gpu-3"}
        assert "filter: route" in screen(app)
        await pilot.press("escape", "home", "enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await until(pilot, lambda: "pid 7  GPU 3" in screen(app))

    play(app, steps)


def test_keys_change_the_command_and_what_is_shown(tmp_path: Path, saved: Path) -> None:
    panel = NodesPanel(request(tmp_path, saved))

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "gpu-3" in screen(app))
        await pilot.press("m", "s", "i")
        await until(pilot, lambda: panel.command == f"gpuctl nodes --mine --sort name --idle 1h --from {saved}")
        await pilot.press("m", "i", "u")
        await until(pilot, lambda: "bob" not in screen(app))
        await pilot.press("t", *"p99", "enter")
        await until(pilot, lambda: "no node is of this type" in screen(app) or "gpu-1" not in screen(app))
        await pilot.press("c")
        await until(pilot, lambda: "--type p99" in screen(app))
        assert app.clipboard == panel.command

    play(Dash([panel], "nodes"), steps)


def test_only_an_error_of_the_first_panel_ends_the_screen(tmp_path: Path) -> None:
    refused = replace(request(tmp_path, tmp_path / "facts.json"), limit="gpu-1")
    with pytest.raises(InvalidInput, match="--from cannot be combined with --limit"):
        build(refused)

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "no run has changed" in screen(app))
        await pilot.press("1")
        await until(pilot, lambda: "--from cannot be combined with --limit" in screen(app))

    play(Dash(build(replace(refused, panel="runs")), "runs"), steps)


def test_options_that_click_refuses_are_an_error_with_the_command() -> None:
    line = CommandLine(("nodes",), {"--sort": "colour"})
    with pytest.raises(InvalidInput, match="cannot use gpuctl nodes --sort colour: Invalid value") as error:
        line.request(nodes, NodesRequest)
    assert error.value.hint == "`gpuctl nodes --help` lists its options"


def test_every_key_of_the_help_is_bound_once_and_does_something(tmp_path: Path, saved: Path) -> None:
    app = Dash(build(request(tmp_path, saved)), "nodes")
    lines, everywhere = keys_of(LinesView.BINDINGS), keys_of(Dash.BINDINGS) | set("1234567890")
    assert not lines & everywhere
    for panel in app._panels.values():
        own = [key.key for key in panel.keys]
        assert len(own) == len(set(own))
        assert not set(own) & (lines | everywhere), panel.name

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        for number, name in enumerate(NAMES, 1):
            await pilot.press(str(number))
            assert app.panel.name == name
            await pilot.press("question_mark")
            await pilot.pause()
            shown = "\n".join(app.help_lines())
            assert all(f"  {key.key:<16}{key.does}" in shown for key in app.panel.keys)
            await pilot.press("escape")
        await pilot.press("tab")
        assert app.panel.name == NAMES[0]
        await pilot.press("shift+tab")
        assert app.panel.name == NAMES[-1]

    play(app, steps)


def test_every_key_for_lines_moves(tmp_path: Path) -> None:
    lines = [Line(f"line {number} {'x' * 200}", str(number)) for number in range(100)]

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "line 0" in screen(app))
        for keys, cursor in (
            ("j", 1), ("down", 2), ("k", 1), ("up", 0), ("pagedown", 20), ("ctrl+f", 40), ("ctrl+b", 20), ("pageup", 0),
            ("G", 99), ("g", 0), ("end", 99), ("home", 0),
        ):  # fmt: skip
            await pilot.press(keys)
            assert abs(app.view.cursor - cursor) <= 4, keys
        assert "…" in screen(app)
        await pilot.press("l", "right")
        assert "line 0" not in screen(app)
        await pilot.press("left", "h")
        assert "line 0" in screen(app)
        await pilot.press("enter")
        await until(pilot, lambda: "all of 0" in screen(app))

    play(Dash([Fixed(lines)], "fixed"), steps)


def test_an_error_is_shown_in_the_words_of_the_command_and_values_stay(tmp_path: Path) -> None:
    panel = Fixed([Line("a value")])

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "a value" in screen(app))
        panel.error = GpuctlError("ask the service", "no route", "start it")
        await pilot.press("r")
        await until(pilot, lambda: "gpuctl: cannot ask the service: no route" in screen(app))
        assert "hint: start it" in screen(app)
        assert "a value" in screen(app)
        panel.error = None
        await pilot.press("r")
        await until(pilot, lambda: "no route" not in screen(app))

    play(Dash([panel], "fixed"), steps)


def test_a_fault_of_gpuctl_names_its_log(tmp_path: Path) -> None:
    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "gpuctl itself failed: nothing to divide" in screen(app))

    play(Dash([Fixed(error=ZeroDivisionError("nothing to divide"))], "fixed"), steps)
    assert list((tmp_path / "state/faults").iterdir())


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Faults that were logged: files are named after their second, so their number proves little."""
    texts: list[str] = []

    def log(error: Exception) -> str:
        texts.append(str(error))
        return str(error)

    monkeypatch.setattr(faults, "fault_text", log)
    return texts


def test_a_fault_is_logged_once_and_the_reading_repeated(logged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "AFTER_FAULT_S", 0.01)
    panel = Fixed([Line("a value")], ZeroDivisionError("nothing to divide"))

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: panel.readings > 3)
        panel.error = None
        await until(pilot, lambda: not app.readers["fixed"].error)

    play(Dash([panel], "fixed"), steps)
    assert logged == ["nothing to divide"]


def test_a_fault_of_a_view_is_logged_once(logged: list[str]) -> None:
    class Broken(Fixed):
        views = 0

        def view(self) -> View:
            self.views += 1
            raise ZeroDivisionError("nothing to divide")

    panel = Broken()

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        for number in range(1, 4):
            await until(pilot, lambda: "nothing to divide" in screen(app) and panel.views >= number)  # noqa: B023
            await pilot.press("r")

    play(Dash([panel], "fixed"), steps)
    assert logged == ["nothing to divide"]


OSC_52 = "\x1b]52;c;cm0gLXJmIH4=\x07"


def test_no_escape_sequence_reaches_the_terminal() -> None:
    class Sent(Fixed):
        command = f"gpuctl fixed {OSC_52}"

        def view(self) -> View:
            return View(self.lines, OSC_52, [OSC_52], OSC_52)

    panel = Sent([Line(f"a {OSC_52}\nline", OSC_52)], error=GpuctlError("ask", OSC_52, OSC_52))

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "cannot ask: \\x1b]52" in screen(app) and "a \\x1b]52" in screen(app))
        assert not {"\x1b", "\x07"} & set(screen(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen) and "all of" in screen(app))
        assert not {"\x1b", "\x07"} & set(screen(app))

    play(Dash([panel], "fixed"), steps)


def test_a_full_disk_is_no_fault(tmp_path: Path) -> None:
    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "cannot write /v/facts: No space left" in screen(app))

    play(Dash([Fixed(error=OSError(errno.ENOSPC, "No space left on device", "/v/facts"))], "fixed"), steps)
    assert not (tmp_path / "state/faults").exists()


def test_a_node_that_hangs_leaves_only_its_row_waiting(tmp_path: Path) -> None:
    released = threading.Event()

    def ask(hosts: Sequence[Target], on_result: Callable[[HostResult], None]) -> None:
        for host in hosts:
            if host.name != "gpu-2":
                on_result(HostResult(host.name, answer={"use": facts()}))
        if any(host.name == "gpu-2" for host in hosts):
            released.wait(30)

    live = LiveNodes([Target(name) for name in ("gpu-1", "gpu-2", "gpu-3")], ask)

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "gpu-3  p5.48xlarge" in screen(app))
        assert "gpu-2  waiting: asked at" in screen(app)
        assert "waiting for 1" in screen(app)
        await pilot.press("q")

    app = Dash([NodesPanel(request(tmp_path, inventory="prod"), live)], "nodes")
    play(app, steps)
    released.set()
    assert app.return_value == 0


def test_a_thousand_nodes_are_drawn_and_the_last_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    facts_file.save(path, Fleet({f"gpu-{n}": facts() for n in range(1000)}, {}, NOW))

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: len(app.view.lines) >= 1000)
        await pilot.press("end")
        await until(pilot, lambda: "gpu-999" in screen(app))
        assert "1000 \u00d7 p5" in screen(app)

    play(Dash([NodesPanel(request(tmp_path, path))], "nodes"), steps, (300, 80))


def test_ctrl_c_quits_with_its_exit_code(tmp_path: Path) -> None:
    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await pilot.press("question_mark", "ctrl+c")

    app = Dash([Fixed()], "fixed")
    play(app, steps)
    assert app.return_value == 130


def test_the_cursor_stays_on_its_subject(tmp_path: Path) -> None:
    panel = Fixed([Line(name, name) for name in "abc"])

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: len(app.view.lines) == 3)
        await pilot.press("j")
        panel.lines = [Line(name, name) for name in "xyabc"]
        await pilot.press("r")
        await until(pilot, lambda: len(app.view.lines) == 5)
        assert app.view.subject == "b"

    play(Dash([panel], "fixed"), steps)


def test_long_lines_of_a_detail_are_broken() -> None:
    text = "  message: " + "gpu " * 30
    parts = [line.text for line in wrapped([Line(text, level="FAIL"), Line("short")], 40)]
    assert parts[-1] == "short"
    assert all(len(part) <= 40 for part in parts)
    assert " ".join(" ".join(parts[:-1]).split()) == " ".join(text.split())
    assert parts[1].startswith("      gpu")


def test_a_panel_without_lines_says_whether_it_was_read() -> None:
    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "nothing to show" in screen(app))
        assert "reading" not in screen(app)

    play(Dash([Fixed()], "fixed"), steps)


def test_a_key_reads_its_panel_though_another_is_shown_meanwhile() -> None:
    released = threading.Event()

    def act(_: str) -> None:
        released.wait(30)

    panel, other = Fixed([Line("a value")]), Fixed([Line("other")])
    panel.keys, other.name = [PanelKey("v", "only some", act, reads=True)], "other"

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "a value" in screen(app))
        await pilot.press("v", "2")
        await until(pilot, lambda: "other" in screen(app).splitlines()[1])
        assert (panel.readings, other.readings) == (1, 1)
        released.set()
        await pilot.pause(0.2)
        assert (panel.readings, other.readings) == (1, 1)
        await pilot.press("1")
        await until(pilot, lambda: panel.readings == 2)

    play(Dash([panel, other], "fixed"), steps)


def test_a_filter_that_leaves_no_line_is_named() -> None:
    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "a value" in screen(app))
        await pilot.press("slash", "x", "enter")
        await until(pilot, lambda: "no line matches" in screen(app))

    play(Dash([Fixed([Line("a value", "a")])], "fixed"), steps)


def test_readings_that_are_more_frequent_than_drawings_are_drawn() -> None:
    class Slow(Fixed):
        def view(self) -> View:
            time.sleep(0.3)
            return super().view()

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        for _ in range(40):
            app.post_message(Dash.Changed(app.panel))
            await pilot.pause(0.05)
            if "a value" in screen(app):
                return
        raise AssertionError(screen(app))

    play(Dash([Slow([Line("a value")])], "fixed"), steps)


def test_a_reading_that_ends_while_another_panel_is_shown_is_drawn_later() -> None:
    other = Fixed([Line("other")])
    other.name = "other"
    panel = Fixed()

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "nothing to show" in screen(app))
        app.action_panel("other")
        panel.lines = [Line("a value")]
        app.action_panel("fixed")
        await until(pilot, lambda: "a value" in screen(app))

    play(Dash([panel, other], "fixed"), steps)


def test_the_command_under_the_cursor_is_drawn_whole_and_copied() -> None:
    act = "gpuctl nodes kill --inventory 'a  folder/hosts.yml' gpu-1 pid:7 " + "x" * 80

    class Acts(Fixed):
        def detail(self, subject: str) -> Detail | None:
            return Detail(subject, [Line(subject), command_line(act, "no act")], "gpuctl fixed a")

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "a value" in screen(app))
        await pilot.press("enter")
        await until(pilot, lambda: "'a  folder/hosts.yml' gpu-1" in screen(app))
        await pilot.press("c")
        assert app.clipboard == "gpuctl fixed a"
        await pilot.press("j", "c")
        assert app.clipboard == act
        await until(pilot, lambda: "copied: gpuctl nodes kill" in screen(app))

    play(Dash([Acts([Line("a value", "a")])], "fixed"), steps)
    assert list(wrapped([command_line(act)], 40)) == [command_line(act)]


class Acts(Fixed):
    """A panel whose open lines have a command, and whose key opens a program."""

    keys: Sequence[PanelKey] = (PanelKey("o", "a program", lambda _: Program(["true"], pauses=False)),)

    def detail(self, subject: str) -> Detail | None:
        return Detail(subject, [command_line(f"gpuctl kill {subject}")], "gpuctl fixed")


def refuse(command: str) -> Program:
    raise InvalidInput("run it", f"{command} is refused", "copy it")


@pytest.mark.parametrize(
    ("program_of", "shown"),
    [(refuse, "cannot run it: gpuctl kill a is refused"), (lambda _: Program(["true"]), "no terminal that a program")],
)
def test_a_command_that_cannot_be_run_from_an_open_line_has_a_reason(
    program_of: Callable[[str], Program], shown: str
) -> None:
    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "a value" in screen(app))
        await pilot.press("enter")
        await until(pilot, lambda: "x run" in screen(app))
        await pilot.press("x")
        await until(pilot, lambda: shown in screen(app))
        await pilot.press("escape")
        await until(pilot, lambda: "gpuctl kill a" in screen(app))

    play(Dash([Acts([Line("a value", "a")])], "fixed", program_of), steps)


def test_a_program_of_a_key_needs_a_terminal_and_the_panel_is_read_after_it() -> None:
    panel = Acts([Line("a value", "a")])

    async def steps(app: Dash, pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "a value" in screen(app))
        await pilot.press("o")
        await until(pilot, lambda: "no terminal that a program" in screen(app))
        await until(pilot, lambda: panel.readings == 2)

    play(Dash([panel], "fixed"), steps)


def test_a_filter_keeps_all_lines_of_a_subject() -> None:
    lines = [Line("gpu-1", "gpu-1"), Line("  alice", "gpu-1"), Line("gpu-2", "gpu-2"), Line("note: alice")]
    assert [line.text for line in filtered(lines, "ALICE")] == ["gpu-1", "  alice", "note: alice"]
    assert list(filtered(lines, "")) == lines
