"""What runs in the session is there again after its server is gone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from gpuctl.edges.kube.config import current
from tests.rig.tmux.screen import User, wait_until
from tests.rig.tmux.session import kubeconfig, launched, saves, shell_is_ready

pytest_plugins = ["tests.rig.tmux.fixtures"]


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
    wait_until(lambda: contexts_of(me).get("kubectl") == "staging-eu night", "the pane is switched")
    screen.prefix("d")
    wait_until(lambda: saves(me) and "context: staging-eu" in saves(me)[-1].read_text(), "saved on detach")
    me.tmux("kill-server")
    launched(me)
    wait_until(lambda: contexts_of(me).get("kubectl") == "staging-eu night", "the pane is there again")
    wait_until(lambda: contexts_of(me).get("workspace") == "dev-eu team", "no other pane was moved")
    assert yaml.safe_load(config.read_text())["current-context"] == "dev-eu"


def test_a_pane_whose_context_is_gone_has_none_and_stays_that_pane(me: User) -> None:
    inside = {"cluster": "c", "user": "u"}
    contexts = [{"name": name, "context": inside} for name in ("prod-eu", "dev-eu")]
    config = kubeconfig(me.home / ".kube/config", "prod-eu")
    config.write_text(yaml.safe_dump({"contexts": contexts, "current-context": "prod-eu"}))
    screen = launched(me)
    screen.type("kctx dev-eu")
    wait_until(lambda: contexts_of(me).get("kubectl") == "dev-eu default", "the pane is switched")
    assert "saved" in me.gpuctl("tmux", "save").stdout
    me.tmux("kill-session", "-t", "tmux-main")
    config.write_text(yaml.safe_dump({"contexts": contexts[:1], "current-context": "prod-eu"}))
    screen = launched(me, prompt=False)
    screen.sees("this pane belongs to the context dev-eu", "no context is selected")
    wait_until(lambda: "no context" in screen.status_bar, "the status bar shows it")
    assert me.gpuctl("tmux", "save").returncode == 0
    assert "context: dev-eu" in saves(me)[-1].read_text()


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


def test_names_that_end_in_a_semicolon_are_there_again(me: User) -> None:
    assert me.gpuctl("tmux", "launch").returncode == 0
    names = ["build;", ";", "\\;", "a;b"]
    for index, name in enumerate(names):
        me.tmux("rename-window", "-t", f"tmux-main:{index}", f"{name[:-1]}\\;" if name.endswith(";") else name)
    form = ("list-windows", "-t", "tmux-main", "-F", "#{window_name}")
    before = me.tmux(*form)
    assert before.splitlines()[:2] == names[:2]
    assert me.gpuctl("tmux", "save").returncode == 0
    me.tmux("kill-server")
    said = me.gpuctl("tmux", "launch")
    assert "restored" in said.stdout, said.stderr
    assert me.tmux(*form) == before


def test_repository_panes_come_back_in_the_folder_where_they_were(me: User) -> None:
    deep = me.home / "code/deploy/charts/deep"
    deep.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "trunk", "."], cwd=me.home / "code/deploy", check=True)
    (me.home / "code/elsewhere").mkdir()
    (me.home / "code/gone").mkdir()
    screen = launched(me)
    for window, folder in (("2", deep), ("3", me.home / "code/elsewhere")):
        screen.prefix(window)
        screen.sees(f"code/{'deploy' if window == '2' else 'gone'}")
        shell_is_ready(me, f"tmux-main:{window}")
        screen.type(f"cd {folder}")
        me.becomes("pane_current_path", folder)
    assert me.gpuctl("tmux", "save").returncode == 0
    me.tmux("kill-server")
    screen = launched(me, prompt=False)
    for window, folder in (("2", deep), ("3", me.home / "code/elsewhere")):
        shell_is_ready(me, f"tmux-main:{window}")
        assert me.told("pane_current_path", f"tmux-main:{window}") == str(folder)
    screen.prefix("3")
    screen.sees("3 k8s ")
    assert "not a git repository" not in screen.text
    screen.prefix("2")
    screen.sees("## No commits yet on trunk", "no commits yet")


def test_a_repository_that_was_missing_is_opened_once_it_is_there(me: User) -> None:
    assert me.gpuctl("tmux", "launch").returncode == 0
    shell_is_ready(me, "tmux-main:3")
    assert me.gpuctl("tmux", "save").returncode == 0
    me.tmux("kill-server")
    (me.home / "code/gone").mkdir(parents=True)
    assert me.gpuctl("tmux", "launch").returncode == 0
    me.becomes("pane_current_path", me.home / "code/gone", "tmux-main:3")


def test_it_is_saved_every_so_often_without_a_process_that_waits(me: User) -> None:
    config = me.config / "tmux/current/tmux.conf"
    config.write_text(config.read_text().replace("@gpuctl_save_every 300", "@gpuctl_save_every 1"))
    assert me.gpuctl("tmux", "launch").returncode == 0
    wait_until(lambda: saves(me), "saved")
    me.tmux("rename-window", "-t", "tmux-main:1", "changed")
    wait_until(lambda: "name: changed" in saves(me)[-1].read_text(), "saved again")
    me.tmux("kill-server")
    mine = f"HOME={me.home}\0".encode()
    processes = Path("/proc").glob
    wait_until(lambda: not [p for p in processes("[0-9]*/environ") if mine in readable(p)], "every process ended")


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
    assert "it is still being built" in me.gpuctl("tmux", "save").stderr
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
    screen.sees("window top, pane a: k9s", "Import it as the template ours? [y/N]")
    screen.type("y")
    screen.sees("gpuctl tmux launch --template ours")
    assert me.gpuctl("tmux", "launch", "--template", "ours").returncode == 0
    assert me.tmux("list-windows", "-t", "tmux-main", "-F", "#{window_name}") == "top"


def test_a_session_of_a_template_keeps_the_template_s_settings(me: User) -> None:
    top = "{name: top, panes: [{title: a}, {title: r, repository: k8s-deploy}]}"
    ours = f"directory: ~/ours\nrestore: [sleepy]\ngit: {{log.date: iso}}\nwindows:\n  - {top}\n"
    (me.home / "ours.yml").write_text(ours)
    me.program("sleepy", "#!/bin/bash\nexec -a sleepy sleep 600\n")
    assert me.gpuctl("tmux", "template", "import", "ours.yml", "--yes").returncode == 0
    assert me.gpuctl("tmux", "launch", "--template", "ours").returncode == 0
    shell_is_ready(me, "tmux-main:0.0")
    me.tmux("send-keys", "-t", "tmux-main:0.0", "sleepy", "Enter")
    me.becomes("pane_current_command", "sleepy", "tmux-main:0.0")
    for _ in range(2):  # once as it was built, once as it was restored
        assert me.gpuctl("tmux", "save").returncode == 0
        saved = yaml.safe_load(saves(me)[-1].read_text())
        assert (saved["directory"], saved["restore"], saved["git"]) == ("~/ours", ["sleepy"], {"log.date": "iso"})
        me.tmux("kill-server")
        (me.config / "tmux/templates/ours.yml").unlink(missing_ok=True)
        assert "restored" in me.gpuctl("tmux", "launch").stdout
        me.becomes("pane_current_command", "sleepy", "tmux-main:0.0")
    me.tmux("set-option", "-t", "tmux-main:", "@gpuctl_frame", "{")
    assert "cannot be read" in me.gpuctl("tmux", "save").stderr


def test_another_session_is_not_launched_over_one_that_runs(me: User) -> None:
    me.variables["GPUCTL_TMUX_SOCKET"] = "own"
    assert me.gpuctl("tmux", "launch").returncode == 0
    (me.home / "ours.yml").write_text("directory: ~/ours\nwindows:\n  - {name: top, panes: [{title: a}]}\n")
    assert me.gpuctl("tmux", "template", "import", "ours.yml", "--yes").returncode == 0
    for words in (["--fresh"], ["--template", "ours"]):
        said = me.gpuctl("tmux", "launch", *words)
        assert said.returncode == 2
        assert "tmux-main is running" in said.stderr
        assert "`tmux -L own kill-session -t tmux-main`" in said.stderr
    me.tmux("kill-session", "-t", "tmux-main", socket="own")
    assert me.gpuctl("tmux", "launch", "--template", "ours").returncode == 0


def test_fresh_builds_the_session_as_declared(me: User) -> None:
    assert me.gpuctl("tmux", "launch").returncode == 0
    me.tmux("new-window", "-t", "tmux-main:")
    assert me.gpuctl("tmux", "save").returncode == 0
    me.tmux("kill-session", "-t", "=tmux-main")
    assert me.gpuctl("tmux", "launch", "--fresh").returncode == 0
    assert len(me.tmux("list-windows", "-t", "tmux-main").splitlines()) == 4


def test_saving_where_no_session_runs_says_how_to_start_one(me: User) -> None:
    done = me.gpuctl("tmux", "save")
    assert done.returncode == 3
    assert "tmux-main does not run" in done.stderr
    assert "gpuctl tmux launch" in done.stderr
