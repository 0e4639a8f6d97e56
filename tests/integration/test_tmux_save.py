"""What runs in the session is there again after its server is gone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import yaml

from gpuctl.edges.kubeconfig import current
from tests.tmux_screen import User, wait_until
from tests.tmux_session import kubeconfig, launched, saves

pytest_plugins = ["tests.tmux_fixtures"]


def test_what_ran_is_there_again_after_the_server_is_killed(me: User) -> None:
    screen = launched(me)
    folder = me.home / "a folder ü #(touch ran)"
    folder.mkdir()
    screen.prefix("1")
    screen.prefix("%")
    me.becomes("window_panes", 2, "tmux-main:1")
    screen.type(f"cd '{folder}'")
    me.becomes("pane_current_path", folder)
    screen.type("less /etc/passwd")
    screen.prefix("c")
    screen.type("yes | cat > /dev/null")  # on no list
    wait_until(lambda: me.told("pane_current_command") in {"yes", "cat"}, "it runs")
    screen.prefix("1")
    before = me.tmux("list-panes", "-s", "-t", "tmux-main", "-F", "#{window_index} #{window_layout} #{pane_active}")
    screen.prefix("d")
    wait_until(lambda: saves(me), "saved on detach")
    me.tmux("kill-server")
    screen = launched(me, prompt=False)
    after = me.tmux("list-panes", "-s", "-t", "tmux-main", "-F", "#{window_index} #{window_layout} #{pane_active}")
    assert shapes(after) == shapes(before)
    assert me.told("window_index") == "1"
    assert me.told("pane_current_path") == str(folder)
    assert not list(me.home.rglob("ran"))
    screen.sees("root:x:0:0")
    assert set(me.panes()) == {"k9s", "kubectl", "claude"}
    wait_until(lambda: me.told("pane_current_command", "tmux-main:0.0") == "k9s", "k9s runs again")
    assert me.told("pane_current_command", "tmux-main:4") not in {"yes", "cat"}


def test_a_pane_has_its_context_and_namespace_again(me: User) -> None:
    inside = {"cluster": "c", "user": "u"}
    contexts = [{"name": name, "context": {**inside, "namespace": "team"}} for name in ("dev-eu", "staging-eu")]
    config = kubeconfig(me.home / ".kube/config", "dev-eu")
    config.write_text(yaml.safe_dump({"contexts": contexts, "current-context": "dev-eu"}))
    screen = launched(me)
    assert "dev-eu" in contexts_of(me)["kubectl"]
    screen.type("kctx staging-eu && kubectl config set-context --current --namespace=night")
    wait_until(lambda: contexts_of(me)["kubectl"] == "staging-eu night", "the pane is switched")
    screen.prefix("d")
    wait_until(lambda: saves(me) and "context: staging-eu" in saves(me)[-1].read_text(), "saved on detach")
    me.tmux("kill-server")
    launched(me)
    wait_until(lambda: contexts_of(me).get("kubectl") == "staging-eu night", "the pane is there again")
    wait_until(lambda: contexts_of(me).get("workspace") == "dev-eu team", "no other pane was moved")
    assert yaml.safe_load(config.read_text())["current-context"] == "dev-eu"


def contexts_of(me: User) -> dict[str, str]:
    """Title of a pane -> context and namespace of its own kubeconfig."""
    told = me.tmux("list-panes", "-s", "-t", "tmux-main", "-F", "#{@gpuctl_title}\t#{@gpuctl_kubeconfig}")
    rows = [line.split("\t") for line in told.splitlines()]
    found = {title: current(Path(path)) for title, path in rows if path}
    return {title: f"{each.name} {each.namespace}" for title, each in found.items() if each}


def shapes(panes: str) -> list[str]:
    """Windows, sizes and places; the numbers that tmux gives its panes are new ones."""
    found = []
    for line in panes.splitlines():
        index, layout, active = line.split()
        cells = [",".join(cell.split(",")[:3]) for cell in layout.partition(",")[2].replace("{", "[").split("[")]
        found.append(f"{index} {cells} {active}")
    return found


def test_it_is_saved_every_so_often_without_a_process_that_waits(me: User) -> None:
    config = me.config / "tmux/current/tmux.conf"
    config.write_text(config.read_text().replace("@gpuctl_save_every 300", "@gpuctl_save_every 1"))
    assert me.gpuctl("tmux", "launch").returncode == 0
    wait_until(lambda: saves(me), "saved")
    me.tmux("rename-window", "-t", "tmux-main:1", "changed")
    wait_until(lambda: "name: changed" in saves(me)[-1].read_text(), "saved again")
    me.tmux("kill-server")
    time.sleep(0.5)
    mine = f"HOME={me.home}\0".encode()
    assert not [p for p in Path("/proc").glob("[0-9]*/environ") if os.access(p, os.R_OK) and mine in readable(p)]


def readable(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_save_that_fails_is_told(me: User) -> None:
    config = me.config / "tmux/current/tmux.conf"
    config.write_text(config.read_text().replace("@gpuctl_save_every 300", "@gpuctl_save_every 1"))
    screen = launched(me)
    (me.config / "tmux/current/session.yml").write_text("windows: [")
    screen.sees("the session could not be saved")


def test_a_bad_save_never_replaces_a_good_one(me: User) -> None:
    assert me.gpuctl("tmux", "launch").returncode == 0
    assert me.gpuctl("tmux", "save").returncode == 0
    assert me.gpuctl("tmux", "save").returncode == 0
    assert len(saves(me)) == 1  # nothing changed
    me.tmux("kill-server")
    refused = me.gpuctl("tmux", "save")
    assert refused.returncode == 3
    assert len(saves(me)) == 1
    (saves(me)[0].parent / "2999-01-01T00-00-00Z.yml").write_text("")
    assert len(me.gpuctl("tmux", "restore", "--list").stdout.splitlines()) == 2
    said = me.gpuctl("tmux", "restore")
    assert said.returncode == 0, said.stderr
    assert len(me.tmux("list-windows", "-t", "tmux-main").splitlines()) == 4
    assert me.gpuctl("tmux", "restore").returncode == 2  # it runs


def test_a_session_that_is_only_half_there_is_not_saved(me: User) -> None:
    assert me.gpuctl("tmux", "launch").returncode == 0
    me.tmux("set-option", "-t", "=tmux-main:", "-u", "@gpuctl_session")
    assert "it is not whole yet" in me.gpuctl("tmux", "save").stderr
    assert saves(me) == []


def test_the_newest_twenty_saves_are_kept(me: User) -> None:
    assert me.gpuctl("tmux", "launch").returncode == 0
    assert me.gpuctl("tmux", "save").returncode == 0
    (good,) = saves(me)
    for day in range(1, 26):
        (good.parent / f"2020-01-{day:02}T00-00-00Z.yml").write_text(good.read_text())
    me.tmux("rename-window", "-t", "tmux-main:1", "changed")
    assert me.gpuctl("tmux", "save").returncode == 0
    assert len(saves(me)) == 20
    assert "name: changed" in saves(me)[-1].read_text()


def test_a_template_is_shown_confirmed_and_built(me: User) -> None:
    (me.home / "ours.yml").write_text("directory: ~/ours\nwindows:\n  - {name: top, panes: [{title: a, run: [k9s]}]}\n")
    screen = me.terminal()
    screen.type(f"{me.program_path} tmux template import ours.yml")
    screen.sees("window top, pane a: k9s", "Keep it as the template ours? [y/N]")
    screen.type("y")
    screen.sees("gpuctl tmux launch --template ours")
    assert me.gpuctl("tmux", "launch", "--template", "ours").returncode == 0
    assert me.tmux("list-windows", "-t", "tmux-main", "-F", "#{window_name}") == "top"


def test_fresh_builds_the_session_as_declared(me: User) -> None:
    assert me.gpuctl("tmux", "launch").returncode == 0
    me.tmux("new-window", "-t", "tmux-main:")
    assert me.gpuctl("tmux", "save").returncode == 0
    me.tmux("kill-session", "-t", "=tmux-main")
    assert me.gpuctl("tmux", "launch", "--fresh").returncode == 0
    assert len(me.tmux("list-windows", "-t", "tmux-main").splitlines()) == 4
