"""The session on a real tmux: its layout, its panes, and how one comes to it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.rig.tmux.screen import Terminal, User, user, wait_until
from tests.rig.tmux.session import kubeconfig, launched, saves

pytest_plugins = ["tests.rig.tmux.fixtures"]


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (240, 60)])
def test_window_0_has_k9s_kubectl_and_claude_in_their_places(me: User, columns: int, rows: int) -> None:
    launched(me, columns, rows)
    panes = me.panes()
    assert set(panes) == {"k9s", "kubectl", "claude"}
    left = panes["k9s"][2]
    high = rows - 1  # the status bar
    assert panes["k9s"][:2] == (0, 1)  # a title stands above each
    assert panes["kubectl"][0] == 0
    assert panes["kubectl"][2] == left
    assert panes["kubectl"][1] + panes["kubectl"][3] == high
    assert panes["claude"] == (left + 1, 1, columns - left - 1, high - 1)
    assert abs(panes["claude"][2] / columns - 0.4) < 0.02
    assert panes["kubectl"][3] < panes["k9s"][3]


def test_titles_borders_and_the_four_windows_are_on_the_screen(screen: Terminal, me: User) -> None:
    screen.sees("0 k9s", "1 kubectl", "2 claude", "0 kubernetes", "1 driving", "2 k8s-deploy", "3 k8s")
    assert me.told("@gpuctl_title") == "kubectl"
    bright, dim = screen.colours("1 kubectl")[0], screen.colours("2 claude")[0]
    assert (bright, dim) == ("00d7ff", "585858")


def test_a_missing_program_says_how_to_get_it_and_the_pane_stays_usable(screen: Terminal, me: User) -> None:
    screen.sees("claude is not installed.", "npm install")
    screen.press("M-2")
    screen.type("echo us$((40 + 2))able")
    screen.sees("us42able")
    assert me.told("pane_index") == "2"


def test_the_k9s_pane_has_the_plugin_that_selects_a_pod(me: User) -> None:
    look = 'IFS=:; for at in $XDG_DATA_DIRS; do grep -h "description" "$at"/k9s/plugins/*.yaml; done 2>/dev/null'
    me.program("k9s", f'#!/bin/sh\necho "standin-k9s $*"\n{look}\nread -r line\n')
    screen = launched(me)
    screen.sees("standin-k9s --readonly", "Select for the tmux keys")


def test_a_program_that_ends_leaves_a_shell(screen: Terminal, me: User) -> None:
    screen.sees("standin-k9s --readonly")
    screen.press("M-0")
    screen.press("Enter")
    screen.sees("k9s ended (exit status 3); start it again with: k9s --readonly")
    screen.type("echo sh$((40 + 2))ell")
    screen.sees("sh42ell")


@pytest.mark.parametrize(
    ("program", "said"), [("failing", "could not start (exit status 3)"), ("gone", "not on this PATH")]
)
def test_without_the_smart_shell_there_is_the_user_s_own(me: User, program: str, said: str) -> None:
    assert me.gpuctl("tmux", "launch").returncode == 0
    me.program("failing", "#!/bin/sh\nexit 3\n")
    me.tmux("set-environment", "-g", "GPUCTL_PROGRAM", program)
    screen = me.terminal("tmux", "attach-session", "-t", "tmux-main")
    screen.prefix("c")
    screen.sees(said, "4 bash")
    screen.type("echo own$((40 + 2))shell")
    screen.sees("own42shell")
    screen.type("exit")
    screen.sees_no_more("own42shell")


def test_repository_windows_say_where_the_repository_stands(me: User) -> None:
    folder = me.home / "code/deploy"
    folder.mkdir(parents=True)
    git = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org"]
    for words in (["init", "-q", "-b", "trunk"], ["commit", "-q", "--allow-empty", "-m", "the first commit"]):
        subprocess.run([*git, *words], cwd=folder, env=me.environment, check=True)
    (folder / "new-file").touch()
    screen = launched(me, columns=200)
    screen.prefix("2")
    screen.sees("## trunk", "?? new-file", "the first commit")
    assert me.told("pane_current_path") == str(folder)
    screen.type("git config --get log.date")
    screen.sees("relative")
    screen.prefix("3")
    screen.sees(f"There is no folder {me.home}/code/gone for the repository k8s.")
    assert me.told("pane_current_path") == f"{me.home}/workspace"


def test_launching_twice_attaches_and_closing_the_terminal_ends_nothing(me: User) -> None:
    first, second = launched(me), launched(me, 100, 30)
    assert me.tmux("list-clients", "-F", "#{session_name}").splitlines() == ["tmux-main"] * 2
    first.prefix("1")
    second.sees("0 workspace")
    for terminal in (first, second):
        terminal.close()
    wait_until(lambda: not me.tmux("list-clients"), "the clients go")
    wait_until(lambda: saves(me), "saved")
    assert len(me.tmux("list-windows", "-t", "tmux-main").splitlines()) == 4


def test_two_terminals_that_launch_at_once_share_one_session(me: User) -> None:
    first, second = (me.terminal(str(me.program_path), "tmux", "launch") for _ in range(2))
    for terminal in (first, second):
        terminal.sees("tmux-main", "3 k8s")
    assert len(me.tmux("list-windows", "-t", "tmux-main").splitlines()) == 4


def test_from_another_session_of_that_server_it_switches_there(me: User) -> None:
    screen = me.terminal("tmux", "-f", os.devnull, "new-session", "-s", "mine")
    screen.sees("[mine]")
    screen.type(f"{me.program_path} tmux launch")
    screen.sees("tmux-main", "0 kubernetes", "3 k8s")
    assert me.tmux("list-clients", "-F", "#{session_name}") == "tmux-main"


def test_other_sessions_of_the_server_are_told_and_get_their_keys_and_options_back(me: User) -> None:
    own = me.home / "own.conf"
    own.write_text("set -g status-style bg=red\nset -g base-index 1\nbind-key F9 display-message 'mine; #{pane_id}'\n")
    screen = me.terminal("tmux", "-f", str(own), "new-session", "-s", "mine")
    screen.sees("[mine]")

    def state() -> list[str]:
        asked = (("list-keys",), ("show-options", "-g"), ("show-options", "-gw"), ("show-hooks", "-g"))
        return [me.tmux(*words) for words in asked]

    before = state()
    said = me.gpuctl("tmux", "launch")
    assert "another session of this tmux server has the keys and looks of tmux-main until it ends" in said.stdout
    screen.sees("keys and looks of this server change until tmux-main ends")
    assert me.tmux("show-options", "-gv", "status-style") != "bg=red"
    me.tmux("kill-session", "-t", "tmux-main")
    wait_until(lambda: state() == before, "the server is as it was")


@pytest.mark.parametrize(("command", "doing"), [("fit", "fit the panes"), ("settings", "apply the settings")])
def test_what_tmux_runs_itself_says_so_outside_tmux(me: User, command: str, doing: str) -> None:
    said = me.gpuctl("tmux", command)
    assert said.returncode == 2
    assert f"cannot {doing}: this is not inside tmux" in said.stderr


def test_inside_another_tmux_it_says_to_detach_first(me: User) -> None:
    screen = me.terminal("tmux", "-L", "other", "-f", os.devnull, "new-session", "-s", "mine")
    screen.sees("[mine]")
    screen.type(f"{me.program_path} tmux launch")
    screen.sees("this is inside another tmux", "detach first")


def test_the_first_launch_makes_the_first_version(tmp_path: Path) -> None:
    with user(tmp_path / "home") as fresh:
        said = fresh.gpuctl("tmux", "launch")
        assert said.returncode == 0, said.stderr
        assert (fresh.config / "tmux/current").resolve().name == "v1"
        assert set(fresh.panes()) == {"k9s", "kubectl", "claude"}


def test_without_a_terminal_it_starts_and_says_how_to_attach(me: User) -> None:
    said = me.gpuctl("tmux", "launch")
    assert said.returncode == 0, said.stderr
    assert "tmux-main started" in said.stdout
    assert "tmux-main is running" in me.gpuctl("tmux", "launch").stdout


def test_a_broken_session_file_is_refused_with_its_line_and_nothing_starts(me: User) -> None:
    path = me.config / "tmux/current/session.yml"
    path.write_text(path.read_text().replace("side: right", "side: rihgt"))
    said = me.gpuctl("tmux", "launch")
    assert said.returncode == 2
    assert "side cannot be 'rihgt'; did you mean right?" in said.stderr
    assert not list(me.home.glob("tmux-*/default"))


def test_panes_keep_their_shares_when_a_terminal_of_another_size_comes(me: User) -> None:
    large = launched(me, 240, 60)
    large.prefix("1")
    large.prefix("%")
    me.becomes("window_panes", 2, "tmux-main:1")
    large.prefix("L", "L", "L", "L", "L", "L")
    me.becomes("pane_width", 89)
    large.prefix("0")
    large.prefix("d")
    small = launched(me, 80, 24)

    def width(pane: str) -> int:
        return int(me.told("pane_width", f"tmux-main:{pane}"))

    wait_until(lambda: width("0.2") in {31, 32}, "claude has 40 % again")
    assert int(me.told("pane_height", "tmux-main:0.1")) >= 6
    small.prefix("1")
    wait_until(lambda: width("1.1") in {29, 30}, "the user's own shares stay, too")
    small.prefix("0")
    small.resize(160, 50)
    wait_until(lambda: width("0.2") in range(62, 66), "also while it is attached")


def test_k9s_has_a_kubeconfig_of_its_own_in_the_declared_context_and_guarded_programs(me: User) -> None:
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("prod-eu", "dev-eu")]
    config = kubeconfig(me.home / ".kube/config", "prod-eu")
    config.write_text(yaml.safe_dump({"contexts": contexts, "current-context": "prod-eu"}))
    before = config.read_text()
    me.program("kubectl", "#!/bin/sh\n")
    does = 'cat "$KUBECONFIG" >~/first; sed -i s/dev-eu/new-eu/ "$KUBECONFIG"; type -P kubectl >~/which; read -r x'
    me.program("k9s", f"#!/bin/bash\nexec -a k9s bash -c '{does}'\n")
    file = me.config / "tmux/current/session.yml"
    declared = "run: [k9s]\n        context: dev-eu\n        namespace: team"
    file.write_text(file.read_text().replace("run: [k9s]", declared))
    launched(me, prompt=False)
    wait_until(lambda: (me.home / "which").is_file() and (me.home / "which").read_text(), "k9s runs")
    assert "current-context: dev-eu" in (me.home / "first").read_text()
    assert "namespace: team" in (me.home / "first").read_text()
    assert (me.home / "which").read_text() == f"{me.home}/.local/state/gpuctl/kube-wrappers/kubectl\n"
    assert config.read_text() == before
    own = me.tmux("show-options", "-pqv", "-t", "tmux-main:0.0", "@gpuctl_kubeconfig")
    assert "new-eu" in Path(own).read_text()
    me.becomes("pane_current_command", "k9s", "tmux-main:0.0")
    me.tmux("send-keys", "-t", "tmux-main:0.0", "Enter")
    wait_until(lambda: not Path(own).exists(), "the copy ends with k9s")
