"""gpuctl dash on a real terminal: keys, sizes, Ctrl-C, a closed window, and what is refused."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from gpuctl.core.run_history import RunRecord
from gpuctl.nodes import facts_file
from gpuctl.nodes.model import Fleet
from tests.rig.gpu_user_facts import NOW, facts, process
from tests.rig.tmux.screen import GPUCTL, Terminal, User, user, wait_until

HANGS = """
all:
  hosts:
    gpu-hang: {ansible_host: 192.0.2.1, ansible_ssh_common_args: "-o ProxyCommand='sleep 300'"}
    gpu-lost: {ansible_host: 127.0.0.1, ansible_port: 9}
"""


@pytest.fixture
def me(tmp_path: Path) -> Iterator[User]:
    with user(tmp_path) as made:
        yield made


@pytest.fixture
def saved(me: User) -> Path:
    path = me.home / "facts.json"
    busy = facts(process(7, login_uid=1001), on={3: [7]})
    facts_file.save(
        path, Fleet({f"gpu-{n}": busy if n % 2 else facts() for n in range(40)}, {"gpu-x": "no route"}, NOW)
    )
    return path


def dash(me: User, *words: object, columns: int = 80, rows: int = 24) -> Terminal:
    """The screen, below which a shell prints the exit code."""
    command = f"{GPUCTL} dash {' '.join(map(str, words))}; echo exit code $?; exec sleep 300"
    return me.terminal("sh", "-c", command, columns=columns, rows=rows)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 60)])
def test_panels_lines_filter_and_commands_by_keys(me: User, saved: Path, columns: int, rows: int) -> None:
    screen = dash(me, "--from", saved, columns=columns, rows=rows)
    screen.sees("gpu-1   p5.48xlarge", "20 of 320 GPUs in use", "1 Nodes  2 Checks")
    screen.press("G")
    screen.sees("nothing is known of it: no route")
    screen.press("/", "gpu-33", "Enter")
    screen.sees("filter: gpu-33")
    screen.sees_no_more("gpu-1 ")
    screen.press("g", "Enter")
    screen.sees("pid 7  GPU 3")
    screen.press("Escape")  # a key right behind it would be Alt and that key
    screen.sees_no_more("pid 7  GPU 3")
    screen.press("?")
    screen.sees("only your own processes", "show and copy the command")
    screen.press("q")
    screen.sees("filter: gpu-33")
    screen.press("c")
    screen.sees("It was copied", "gpuctl nodes --from")
    screen.press("q")
    screen.sees("filter: gpu-33")
    screen.press("4")
    screen.sees("no run has changed a host from here")
    screen.press("5")
    screen.sees("cannot ask the reservation service")
    screen.resize(columns + 20, rows + 4)
    screen.press("1")
    screen.sees("20 of 320 GPUs in use")
    screen.press("q")
    screen.sees("exit code 0")


def test_a_host_that_hangs_holds_up_neither_keys_nor_the_end(me: User) -> None:
    (me.home / "hosts.yml").write_text(HANGS)
    screen = dash(me, "-i", "hosts.yml")
    screen.sees("gpu-hang  waiting: asked at", "gpu-lost  -  ? GPUs  UNKNOWN: it cannot be reached", "waiting for 1")
    screen.press("?")
    screen.sees("list of keys")
    screen.press("C-c")
    screen.sees("exit code 130")


@pytest.fixture
def undo(me: User) -> str:
    """Command that undoes the only recorded run; its inventory does not exist."""
    words = ["tune-nodes", "--inventory", str(me.home / "gone.yml")]
    record = RunRecord("20260101-000000-1", "2026-01-01T00:00:00Z", "ann@desk", words, 0, {"gpu-1": {}})
    path = me.home / f".local/state/gpuctl/runs/{record.name}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(asdict(record)))
    return f"gpuctl rollback --inventory {words[-1]} --limit gpu-1"


def test_sigterm_at_the_question_of_undo_ends_it(me: User, undo: str) -> None:
    screen = me.terminal(str(GPUCTL), "dash", "--panel", "runs", columns=200)
    screen.sees("ann@desk")
    screen.press("u")
    screen.sees(f"Run `{undo}`? [y/N]")
    screen._process.send_signal(signal.SIGTERM)
    wait_until(lambda: screen.ended, "the end of gpuctl")
    assert screen._process.returncode == 130


def test_undo_asks_and_shows_the_refusal_of_rollback(me: User, undo: str) -> None:
    screen = dash(me, "--panel", "runs", columns=200)
    screen.sees("ann@desk")
    screen.press("u")
    screen.sees(f"Run `{undo}`? [y/N]")
    screen.press("y", "Enter")
    screen.sees("gone.yml", "ended with exit code 2; Enter goes back")
    screen.press("Enter")
    screen.sees("read at")
    screen.press("q")
    screen.sees("exit code 0")


def test_a_closed_window_ends_it(me: User, saved: Path) -> None:
    screen = me.terminal(str(GPUCTL), "dash", "--from", str(saved), columns=80, rows=24)
    screen.sees("20 of 320 GPUs in use")
    screen.close()
    wait_until(lambda: screen.ended, "the end of gpuctl")


def test_without_a_terminal_or_with_a_wrong_inventory_nothing_is_drawn(me: User, saved: Path) -> None:
    piped = me.gpuctl("dash", "--from", saved)
    assert (piped.returncode, piped.stdout) == (2, "")
    assert "input and output are not a terminal" in piped.stderr
    screen = dash(me, "-i", "no-such-inventory")
    screen.sees("exit code 2", "no-such-inventory")
    plain = me.terminal("sh", "-c", f"TERM=dumb {GPUCTL} dash; echo exit code $?; exec sleep 300")
    plain.sees("cannot move its cursor", "exit code 2")
