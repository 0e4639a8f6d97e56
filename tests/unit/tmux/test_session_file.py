"""session.yml is refused whole, with every mistake and its line, and what is written reads as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.core.settings import Settings
from gpuctl.tmux import render, session_file
from gpuctl.tmux.build import command_of
from gpuctl.tmux.session import Pane, Session, Window


def shipped(folder: Path, settings: Settings | None = None) -> Session:
    path = folder / "session.yml"
    path.write_text(render.files(settings or Settings())["session.yml"])
    return session_file.read(path)


def test_the_shipped_session_has_the_four_windows(tmp_path: Path) -> None:
    session = shipped(tmp_path)
    assert [window.name for window in session.windows] == ["kubernetes", "driving", "k8s-deploy", "k8s"]
    assert [pane.title for pane in session.windows[0].panes] == ["k9s", "claude", "kubectl"]
    assert session.directory == "~/workspace"


def test_k9s_is_read_only_by_default(tmp_path: Path) -> None:
    run = shipped(tmp_path).windows[0].panes[0].run
    assert command_of(run, Settings()) == ("k9s", "--readonly")
    assert command_of(run, Settings(k9s_readonly=False)) == ("k9s",)
    assert command_of(("k9s", "--write"), Settings()) == ("k9s", "--write")
    assert command_of(("htop",), Settings()) == ("htop",)


@pytest.mark.parametrize(
    ("run", "context"),
    [(("k9s",), "prod-eu"), (("k9s", "--context", "prod-eu"), ""), (("k9s", "--context=prod-eu"), "dev")],
)
def test_k9s_is_read_only_in_a_context_of_production(run: tuple[str, ...], context: str) -> None:
    allowed = Settings(k9s_readonly=False)
    assert command_of(run, allowed, context) == (*run, "--readonly")
    assert command_of((*run, "--write"), allowed, context) == (*run, "--write")
    assert command_of(("k9s",), allowed, "dev") == ("k9s",)


def test_a_written_session_reads_back_unchanged(tmp_path: Path) -> None:
    panes = (
        Pane(title="a: #{x} ü", run=("sh", "-c", "echo 'two  blanks' # no comment"), install="apt install x"),
        Pane(of="a: #{x} ü", side="right", size=33, active=True, directory="/a b", context="prod", namespace="x"),
    )
    windows = (Window("true", panes, layout="b25d,80x24,0,0,0", index=7, active=True), Window("5", (Pane(),)))
    session = Session("~/w", windows, git={"log.date": "relative"}, restore=("k9s",))
    path = tmp_path / "session.yml"
    path.write_text(session_file.text(session))
    assert session_file.read(path) == session


def test_every_mistake_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "session.yml"
    path.write_text(
        "directory: ~/w\n"
        "windws: []\n"
        "windows:\n"
        "  - name: one\n"
        "    panes:\n"
        "      - title: a\n"
        "        size: 4\n"
        "        side: left\n"
        "        run: k9s\n"
        "      - of: b\n"
        "  - panes: []\n"
    )
    with pytest.raises(InvalidInput) as refused:
        session_file.read(path)
    message = str(refused.value)
    for line, wrong in [
        (2, "windws is not known; did you mean windows?"),
        (7, "windows[0].panes[0].size is '4', not a whole number from 5% to 95%"),
        (8, "windows[0].panes[0].side cannot be 'left'"),
        (9, "windows[0].panes[0].run is not a list of words, such as [k9s, --readonly]"),
        (10, "windows[0].panes[1] splits 'b', but no earlier pane has that title"),
        (11, "windows[1].name is missing"),
        (11, "windows[1].panes is not a list of panes"),
    ]:
        assert f"{path}:{line}: {wrong}" in message


@pytest.mark.parametrize("text", ["", "\n", "windows", "directory: ~/w\nwindows: []\n", "\0", "a: *b"])
def test_a_file_that_is_not_a_session_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "session.yml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="cannot use the session file"):
        session_file.read(path)


def test_a_file_of_comments_is_an_empty_session_file(tmp_path: Path) -> None:
    path = tmp_path / "session.yml"
    path.write_text("# directory: ~/w\n")
    with pytest.raises(InvalidInput, match="is an empty session file; add `directory:` and `windows:`"):
        session_file.read(path)
