"""`gpuctl reserve` and `gpuctl reservations` against the real service over a real socket, on simulated nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.app import app
from gpuctl.cli.reservations.choice import _by_arrows, _by_number, chooser
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.unix_socket import serving
from gpuctl.reservations.demo import Demo
from gpuctl.reservations.rules.model import Caller

ADA, BOB = Caller("ada", "vision"), Caller("bob", "speech")


class Site:
    """The demo's service at a socket; `caller` is whoever connects."""

    def __init__(self, socket: Path) -> None:
        self.demo, self.socket, self.caller = Demo(), socket, ADA

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(app, [*words, "--socket", str(self.socket)])

    def json(self, *words: str) -> Any:
        result = self.run(*words, "--output", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "s")
    with serving(site.socket, lambda _, call: site.demo.service.answer(site.caller, call)):
        yield site


def test_reserve_prints_where_and_until_when(site: Site) -> None:
    result = site.run("reserve", "--gpus", "2", "--hours", "1", "--name", "sweep")
    assert result.exit_code == 0
    assert "gpu-1:0,1" in result.output
    assert "2026-01-05T09:00:00Z" in result.output
    assert "ssh ada@gpu-1" in result.output


def test_a_gang_has_an_entry_of_ssh_for_each_node(site: Site) -> None:
    row = site.json("reserve", "--gpus", "16", "--hours", "1")
    result = site.run("reservations", "ssh-config")
    assert result.output == "\n".join(
        f"Host gpuctl-{row['id']}-{node}\n    HostName {node}\n    User ada\n" for node in ("gpu-1", "gpu-2")
    )
    refused = site.run("reservations", "connect", "--node", "gpu-3")
    assert isinstance(refused.exception, GpuctlError)
    assert "has no node gpu-3" in str(refused.exception)


def test_a_request_that_waits_has_no_login(site: Site) -> None:
    site.run("reserve", "--gpus", "16", "--hours", "1")
    site.caller = BOB
    site.run("reserve", "--gpus", "8", "--hours", "1", "--no-wait")
    refused = site.run("reservations", "connect")
    assert isinstance(refused.exception, GpuctlError)
    assert "is queued" in str(refused.exception)


def test_a_unit_names_its_inventory_by_an_absolute_path(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab.ini").touch()
    words = ["reservations", "serve", "--inventory", "lab.ini", "--admin", "ada", "--print-unit"]
    monkeypatch.setattr("sys.argv", ["/usr/bin/gpuctl", *words])
    result = site.run(*words)
    assert f"ExecStart=/usr/bin/gpuctl reservations serve --admin ada --inventory {tmp_path}/lab.ini\n" in result.output
    refused = site.run("reservations", "serve", "--inventory", "lab2.ini", "--print-unit")
    assert isinstance(refused.exception, GpuctlError)
    assert refused.exception.exit_code == 2


def test_serve_refuses_a_limit_without_an_inventory(site: Site) -> None:
    refused = site.run("reservations", "serve", "--limit", "gpu-1")
    assert isinstance(refused.exception, GpuctlError)
    assert refused.exception.exit_code == 2


def test_a_typo_is_refused_before_anything_is_sent(site: Site) -> None:
    result = site.run("reserve", "--type", "h10")
    assert isinstance(result.exception, GpuctlError)
    assert "did you mean h100?" in result.exception.hint
    assert result.exception.exit_code == 2
    assert site.demo.store.history(None, 9) == []


def test_the_life_of_a_reservation(site: Site) -> None:
    id_ = site.json("reserve", "--gpus", "16", "--hours", "2")["id"]
    site.caller = BOB
    waiting = site.json("reserve", "--type", "P5", "--no-wait", "--name", "later")
    assert waiting["state"] == "queued"
    assert waiting["promised_start"] is not None
    queue = site.run("reservations", "queue").output
    assert "first in line; 1 GPU of type h100 must become free" in queue
    assert "(promised)" in queue
    assert [row["free"] for row in site.json("reservations", "availability")] == [0, 0]
    assert site.json("reservations", "edit", "later", "--hours", "3")["hours"] == 3
    site.caller = ADA
    refused = site.run("reservations", "extend", id_, "--hours", "1")
    assert "was promised these GPUs" in str(refused.exception)
    assert site.json("reservations", "cancel", id_)["state"] == "cancelled"
    assert [row["id"] for row in site.json("reservations", "history")] == [id_]
    site.caller = BOB
    assert site.json("reservations", "show")["state"] == "active"
    assert [row["id"] for row in site.json("reservations", "list", "--mine")] == [waiting["id"]]
    actions = [entry["action"] for entry in site.json("reservations", "history", id_)]
    assert actions == ["cleared, cancelled", "cancel", "refuse extend", "ready", "start", "accept"]


def test_without_an_id_and_several_reservations_all_are_named(site: Site) -> None:
    ids = sorted([site.json("reserve")["id"], site.json("reserve")["id"]])
    error = site.run("reservations", "cancel").exception
    assert isinstance(error, GpuctlError)
    assert error.hint == f"name one: {ids[0]}, {ids[1]}"


def test_on_a_terminal_one_of_several_is_chosen_by_its_number(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.json("reserve", "--name", "first")
    site.json("reserve", "--name", "second")
    monkeypatch.setattr("gpuctl.cli.reservations.commands.chooser", lambda: _by_number)
    words = ["reservations", "cancel", "--output", "json", "--socket", str(site.socket)]
    nothing = CliRunner().invoke(app, words, input="")
    assert nothing.exit_code != 0
    assert [row["state"] for row in site.json("reservations", "list")] == ["active", "active"]
    rows = site.json("reservations", "list")
    result = CliRunner().invoke(app, words, input="3\n0\nx\n2\n")
    assert json.loads(result.stdout)["id"] == rows[1]["id"]
    assert f"  1  {rows[0]['id']}  {rows[0]['name']}  active  1 x h100  gpu-1:" in result.stderr
    assert [row["id"] for row in site.json("reservations", "list")] == [rows[0]["id"]]
    assert CliRunner().invoke(app, words).exit_code == 0  # the only one: no question


def test_nobody_picks_from_other_peoples_reservations_by_a_number(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = sorted([site.json("reserve", "--name", "same")["id"], site.json("reserve", "--name", "same")["id"]])
    monkeypatch.setattr("gpuctl.cli.reservations.commands.chooser", lambda: _by_number)
    site.caller = BOB
    error = site.run("reservations", "cancel", "same").exception
    assert isinstance(error, GpuctlError)
    assert (error.exit_code, error.hint) == (2, f"name one by its id: {ids[0]} of ada, {ids[1]} of ada")
    assert len(site.json("reservations", "list")) == 2


def test_on_a_terminal_one_of_several_is_chosen_with_the_arrow_keys(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [site.json("reserve")["id"], site.json("reserve")["id"]]
    asked: list[list[str]] = []
    answers = iter([None, 1])

    def choose(lines: list[str]) -> int | None:
        asked.append(lines)
        return next(answers)

    monkeypatch.setattr("gpuctl.cli.shared.list_choice.choose", choose)
    monkeypatch.setattr("gpuctl.cli.reservations.commands.chooser", lambda: _by_arrows)
    words = ["reservations", "cancel", "--output", "json", "--socket", str(site.socket)]
    assert CliRunner().invoke(app, words).exit_code == 1
    assert len(site.json("reservations", "list")) == 2
    result = CliRunner().invoke(app, words)
    assert json.loads(result.stdout)["id"] == asked[1][1].split()[0]
    assert {line.split()[0] for line in asked[0]} == set(ids)


@pytest.mark.parametrize(("kind", "function"), [("xterm-256color", _by_arrows), ("dumb", _by_number), ("", _by_number)])
def test_a_terminal_without_a_cursor_asks_for_a_number(
    kind: str, function: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", kind)
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: True)
    assert chooser() is function


def test_a_session_is_kept_although_nobody_uses_it(site: Site) -> None:
    site.json("reserve")
    kept = site.json("reservations", "keep", "--hours", "2")
    assert kept["kept_until"] == "2026-01-05T10:00:00Z"
    refused = site.run("reservations", "keep", "--hours", "11")
    assert isinstance(refused.exception, GpuctlError)
    assert (refused.exception.exit_code, refused.exception.hint) == (2, "600 minutes are left for it")


def test_nobody_is_asked_without_a_terminal() -> None:
    assert chooser() is None


def test_variables_are_for_this_host_only(site: Site) -> None:
    site.json("reserve")
    assert "has no session on this host" in str(site.run("reservations", "env").exception)


def test_without_a_service_the_exit_code_is_3(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reservations", "list", "--socket", str(tmp_path / "none")])
    assert isinstance(result.exception, GpuctlError)
    assert result.exception.exit_code == 3
    assert "gpuctl reservations serve" in result.exception.hint


def test_the_unit_repeats_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["reservations", "serve", "--type", "h100", "--admin", "ada", "--print-unit"]
    monkeypatch.setattr("sys.argv", ["/opt/gpuctl/bin/gpuctl", *words])
    unit = CliRunner().invoke(app, words).output
    assert "ExecStart=/opt/gpuctl/bin/gpuctl reservations serve --type h100 --admin ada\n" in unit


def test_the_demo_plays_a_day() -> None:
    output = CliRunner().invoke(app, ["reservations", "demo"]).output
    assert output.startswith("day 1 08:00  ada reserves 8 GPUs")
    assert output.endswith("nobody waits\n")


def test_an_added_person_sees_the_session_and_logs_in_as_themselves(site: Site) -> None:
    shown = site.run("reserve", "--gpus", "2", "--hours", "1", "--add-user", "bob")
    assert "access for: bob" in shown.output
    id_ = site.json("reservations", "show")["id"]
    site.caller = BOB
    assert "ssh bob@gpu-1" in site.run("reservations", "show").output
    assert "User bob" in site.run("reservations", "ssh-config").output
    site.caller = Caller("cy", "speech")
    assert isinstance(site.run("reservations", "show").exception, GpuctlError)
    site.caller = BOB
    for words in (("extend", id_, "--hours", "1"), ("cancel", id_), ("add-user", id_, "cy")):
        refused = site.run("reservations", *words)
        assert "it belongs to ada, and you are bob" in str(refused.exception)
    own = site.run("reservations", "cancel")  # without an id: only what is bob's own
    assert "you have no reservation" in str(own.exception)


def test_the_owner_adds_somebody_to_a_session_that_runs(site: Site) -> None:
    id_ = site.json("reserve", "--gpus", "2", "--hours", "1", "--name", "sweep")["id"]
    added = site.run("reservations", "add-user", "sweep", "bob")
    assert added.output.splitlines()[0] == "bob gets access"
    assert site.json("reservations", "show", id_)["users"] == ["bob"]
    refused = site.run("reservations", "add-user", id_, "ada")
    assert "it is the reservation of ada" in str(refused.exception)
    twice = site.run("reserve", "--gpus", "1", "--add-user", "bob cy")
    assert "is not NAME or NAME=GITHUB" in str(twice.exception)


def test_who_is_added_reaches_their_sessions_as_before_and_can_leave(site: Site) -> None:
    id_ = site.json("reserve", "--gpus", "2", "--hours", "1", "--add-user", "bob")["id"]
    site.caller = BOB
    assert site.json("reservations", "show")["id"] == id_  # the only one that bob can reach
    mine = site.json("reserve", "--gpus", "1", "--hours", "1")["id"]
    assert site.json("reservations", "show")["id"] == mine
    assert site.json("reservations", "show", id_)["id"] == id_
    left = site.run("reservations", "leave", id_)
    assert left.output.splitlines()[0] == "bob has no access any more"
    again = site.run("reservations", "leave", id_)
    assert "bob was not added to it" in str(again.exception)
    site.caller = ADA
    assert site.json("reservations", "show", id_)["users"] == []
    site.run("reservations", "add-user", id_, "cy")
    assert site.run("reservations", "remove-user", id_, "cy").output.splitlines()[0] == "cy has no access any more"
    assert [one["reason"] for one in site.json("reservations", "history", id_) if one["action"] == "remove user"] == [
        "cy",
        "bob",
    ]


@pytest.mark.parametrize(("text", "mode", "wrong"), [("abc", 0o644, "other accounts"), ("a b", 0o600, "one word")])
def test_a_token_that_others_read_or_that_is_none_is_refused(
    site: Site, tmp_path: Path, text: str, mode: int, wrong: str
) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    refused = site.run("reservations", "serve", "--github-token", str(path))
    assert wrong in str(refused.exception)
    assert text not in str(refused.exception)
