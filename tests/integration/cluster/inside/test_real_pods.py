"""Work in real pods: a shell on a terminal, forwards, VS Code, and a program that is debugged while it is written."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster.inside.debug_client import Debugger
from tests.integration.cluster.inside.lab import LONG, NAMESPACE, PASSWORD, Lab, beside, lab
from tests.rig.kube.forwarding import five_free_ports
from tests.rig.tmux.screen import Terminal, User, user, wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("disks")) as found:
        yield found


@pytest.fixture
def me(tmp_path: Path, cluster: Lab) -> Iterator[User]:
    with user(tmp_path / "home", KUBECONFIG=str(cluster.plane.kubeconfig)) as found:
        (found.home / "bin").mkdir()
        (found.home / "bin/kubectl").symlink_to(cluster.plane.kubectl_program)
        cluster.file(found.home)
        yield found


# Writes down how the terminal is set before and after a command; the window then stays, so that it can be read.
BETWEEN = "stty -g >before; {0}; code=$?; stty -g >after; echo code=$code; sleep 99"


def size_is(size: str) -> str:
    """For a shell: wait until its terminal has so many rows and columns, which it is told beside what is typed."""
    return f'until [ "$(stty size)" = "{size}" ]; do sleep 0.1; done'


# ---- shell ----------------------------------------------------------------------------------------------------------


def test_a_shell_has_the_terminal_and_gives_it_back_as_it_was(me: User, cluster: Lab) -> None:
    program = BETWEEN.format("gpuctl cluster shell ./lab.yaml --rank 1")
    screen = me.terminal("sh", "-c", program, columns=90, rows=30)
    screen.type(f"{size_is('30 90')}; echo $((40+2)) at $PWD in $HOSTNAME")
    sees(screen, "42 at /workspace in lab-1")
    screen.resize(101, 31)
    screen.type(f"{size_is('31 101')}; echo $((41+2)) columns")
    sees(screen, "43 columns")
    screen.type("sleep 1001")
    wait_until(lambda: "sleep 1001" in cluster.runs("lab-1"), "it runs", LONG)
    screen.press("C-c")
    screen.type("exit 5")
    sees(screen, "code=5")
    assert (me.home / "before").read_text() == (me.home / "after").read_text()
    assert cluster.runs("lab-1") == []


def test_a_connection_that_breaks_leaves_nothing_in_the_pod_and_the_terminal_sane(me: User, cluster: Lab) -> None:
    program = BETWEEN.format("gpuctl cluster shell ./lab.yaml")
    screen = me.terminal("sh", "-c", program)
    screen.type("sleep 1002 & sleep 1003")
    wait_until(lambda: "sleep 1003" in cluster.runs("lab-0"), "it runs", LONG)
    os.kill(kubectl_of(me), signal.SIGKILL)
    sees(screen, "lab-0: the command still ran there, and was ended", "code=137")
    assert (me.home / "before").read_text() == (me.home / "after").read_text()
    assert cluster.runs("lab-0") == []


def test_a_command_tells_its_exit_code_and_gets_what_is_piped_to_it(me: User) -> None:
    done = me.gpuctl("cluster", "shell", "./lab.yaml", "--", "sh", "-c", "hostname; exit 7")
    assert (done.returncode, done.stdout) == (7, "lab-0\n")
    done = me.gpuctl("cluster", "shell", "./lab.yaml", "--pod", "lab-1", "--", "no-such-program")
    assert done.returncode == 127
    done = me.gpuctl("cluster", "shell", "./lab.yaml", "--rank", "7")
    assert (done.returncode, "has no pod lab-7" in done.stderr, "lab-0, lab-1" in done.stderr) == (2, True, True)


def test_a_command_in_all_pods_says_which_is_which_and_how_each_ended(me: User) -> None:
    program = 'hostname; echo wrong >&2; [ "$(hostname)" = lab-0 ] || exit 9'
    done = me.gpuctl("cluster", "shell", "./lab.yaml", "--all", "--", "sh", "-c", program)
    assert sorted(done.stdout.splitlines()) == ["lab-0  lab-0", "lab-0  wrong", "lab-1  lab-1", "lab-1  wrong"]
    assert (done.returncode, done.stderr) == (1, "lab-1: ended with exit code 9\n")


def test_ctrl_c_ends_a_command_in_all_pods(me: User, cluster: Lab) -> None:
    program = "trap '' HUP; echo begun; sleep 1004 & sleep 1004"
    with beside(me, "cluster", "shell", "./lab.yaml", "--all", "--", "sh", "-c", program) as running:
        running.says("lab-0  begun", "lab-1  begun")
        assert running.broken_off() == 130
    assert "lab-1: did not run to its end: interrupted" in running.said
    assert cluster.runs("lab-0") == cluster.runs("lab-1") == []


def test_a_command_whose_output_nobody_reads_any_more_is_ended_in_all_pods(me: User, cluster: Lab) -> None:
    program = "while :; do echo a line; sleep 0.1; done"
    argv = [str(me.program_path), "cluster", "shell", "./lab.yaml", "--all", "--", "sh", "-c", program]
    with subprocess.Popen(
        argv, env=me.environment, cwd=me.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout
        assert running.stdout.readline().endswith(b"a line\n")
        running.stdout.close()
        running.wait(LONG)
    assert cluster.runs("lab-0") == cluster.runs("lab-1") == []


def test_who_may_not_exec_is_reported_what_to_ask_for(me: User, cluster: Lab) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    names = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "looks", "namespace": NAMESPACE}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looks"}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    bound = {**names, "kind": "RoleBinding", "subjects": [subject], "roleRef": role}
    cluster.plane.apply({**names, "kind": "Role", "rules": [rule]}, bound)
    asks = ("auth", "can-i", "list", "pods", "-n", NAMESPACE, "--as=system:serviceaccount:default:default")
    wait_until(lambda: cluster.plane.kubectl(*asks, check=False) == "yes\n", "the role counts", LONG)
    me.variables["KUBECONFIG"] = str(cluster.plane.as_account(cluster.plane.folder))
    done = me.gpuctl("cluster", "shell", "./lab.yaml")
    assert (done.returncode, "has no permission to get pods/exec" in done.stderr) == (3, True)
    assert "ask for a role that allows get and create of pods/exec" in done.stderr


# ---- forwards and VS Code -------------------------------------------------------------------------------------------


def test_ports_go_by_name_and_one_that_is_silent_disturbs_none(me: User, cluster: Lab) -> None:
    base = five_free_ports()
    words = (f"{base}:vscode", f"{base + 1}:tensorboard", f"{base + 2}:debug")
    cluster.inside("lab-1", "sh", "-c", "code-server >/dev/null 2>&1 &")
    with beside(me, "cluster", "forward", "./lab.yaml", "--rank", 1, "--probe-every", 0.5, *words) as running:
        running.says(f"vscode: http://127.0.0.1:{base}\n", f"127.0.0.1:{base} -> lab-1:8080: up")
        running.says(f"{base + 1} -> lab-1:6006: retrying", f"{base + 2} -> lab-1:5678: open, not probed")
        wait_until(lambda: answers(base), "it answers", LONG)
        assert running.broken_off() == 130
    assert running.said.count(f"127.0.0.1:{base} -> lab-1:8080: starting") == 1
    cluster.inside("lab-1", "pkill", "-f", "code-server")


LISTENS = "import socket; socket.create_connection(('127.0.0.1', 8080)); print('yes')"


def test_vs_code_is_found_running_or_not_and_its_password_is_printed_alone(me: User, cluster: Lab) -> None:
    done = me.gpuctl("cluster", "vscode", "./lab.yaml")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "VS Code of lab: does not run: code-server does not listen on port 8080 of lab-0\n"
    cluster.inside("lab-0", "sh", "-c", "code-server >/dev/null 2>&1 &")
    asks = ("exec", "lab-0", "-n", NAMESPACE, "--", "/usr/bin/python3", "-ISc", LISTENS)
    wait_until(lambda: "yes" in cluster.plane.kubectl(*asks, check=False), "it listens", LONG)
    told = me.gpuctl("cluster", "vscode", "./lab.yaml", "-o", "json")
    assert (told.returncode, '"verdict": "OK"' in told.stdout, PASSWORD in told.stdout) == (0, True, False)
    assert me.gpuctl("cluster", "vscode", "./lab.yaml", "--password").stdout == f"{PASSWORD}\n"
    with beside(me, "cluster", "vscode", "./lab.yaml", "--local", base := five_free_ports()) as running:
        running.says(f"127.0.0.1:{base} -> lab-0:8080: up")
        wait_until(lambda: answers(base), "it answers", LONG)
    assert PASSWORD not in running.said
    cluster.inside("lab-0", "pkill", "-f", "code-server")


# ---- dev-session ----------------------------------------------------------------------------------------------------

TRAIN = """import time

number = {number}
while True:
    time.sleep(0.1)  # a breakpoint stands here
"""


def test_a_program_is_debugged_restarted_on_an_edit_and_gone_at_the_end(me: User, cluster: Lab) -> None:
    here = me.home / "project"
    here.mkdir()
    script = here / "train.py"
    script.write_text(TRAIN.format(number=41))
    words = ("--source", here, "--wait-for-client", "--", "train.py")
    with beside(me, "cluster", "dev-session", "./lab.yaml", *words) as running:
        running.says("train.py in lab-0 runs", "debugger: debug: 127.0.0.1:")
        port = int(re.findall(r"debugger: debug: 127\.0\.0\.1:(\d+)", running.said)[0])
        with Debugger(port, here, "/workspace") as debugger:
            frame = debugger.stops_at(script, 5)
            assert (frame["source"]["path"], frame["line"]) == (str(script), 5)
            assert debugger.value("number + 1", frame) == "42"
            script.write_text(TRAIN.format(number=50))  # while it stands at the breakpoint
            wait_until(lambda: running.said.count("train.py in lab-0 runs") == 2, "it is begun anew", LONG)
        with Debugger(port, here, "/workspace") as debugger:
            assert debugger.value("number", debugger.stops_at(script, 5)) == "50"
        assert cluster.inside("lab-1", "cat", "/workspace/train.py") == TRAIN.format(number=50)
        assert running.broken_off() == 130
    assert running.said.endswith("dev-session ended; none of its processes is left in the pods\n")
    assert cluster.runs("lab-0") == cluster.runs("lab-1") == []


def test_a_pod_that_is_replaced_gets_the_program_again_and_one_that_ended_waits_for_a_change(
    me: User, cluster: Lab
) -> None:
    here = me.home / "project"
    here.mkdir()
    (here / "train.py").write_text("import time\nprint('the first', flush=True)\ntime.sleep(1005)\n")
    with beside(me, "cluster", "dev-session", "./lab.yaml", "--source", here, "--", "train.py") as running:
        running.says("the first\n")
        cluster.plane.kubectl("delete", "pod", "lab-0", "-n", NAMESPACE, "--wait=true")
        cluster.start(0)
        wait_until(lambda: running.said.count("the first\n") == 2, "it runs in the new pod", LONG)
        (here / "train.py").write_text("print('the second')\n")
        running.says("the second\n", "train.py in lab-0 ended with exit code 0")
        (here / "train.py").write_text("print('the third')\n")
        running.says("the third\n")
        assert running.broken_off() == 130
    assert cluster.runs("lab-0") == cluster.runs("lab-1") == []


def test_a_session_without_restarts_ends_with_its_program(me: User) -> None:
    (me.home / "project").mkdir()
    (me.home / "project/train.py").write_text("import sys; print(sys.argv[1:]); sys.exit(6)")
    words = ("--source", "project", "--no-restart", "--", "train.py", "--lr", "1")
    done = me.gpuctl("cluster", "dev-session", "./lab.yaml", *words)
    assert (done.returncode, done.stdout) == (6, "['--lr', '1']\n")


# ---- what the tests share -------------------------------------------------------------------------------------------


def sees(screen: Terminal, *words: str) -> None:
    """Wait until all of these stand on the screen, or the program has ended."""
    wait_until(lambda: all(word in screen.text for word in words) or screen.ended, "the screen shows it", LONG)
    assert all(word in screen.text for word in words), screen.text


def kubectl_of(me: User) -> int:
    """The process of this user's kubectl."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            if command.startswith(b"kubectl\0") and f"HOME={me.home}\0".encode() in (folder / "environ").read_bytes():
                return int(folder.name)
    raise AssertionError("no kubectl runs")


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


# ---- storage --------------------------------------------------------------------------------------------------------


def test_the_storage_of_pods_is_measured_and_ctrl_c_leaves_no_program_in_them(me: User, cluster: Lab) -> None:
    context = cluster.plane.kubectl("config", "current-context").strip()
    for name in ("lab-0", "lab-1"):
        make = "mkdir -p /workspace/data && head -c 8388608 /dev/urandom > /workspace/data/shard"
        cluster.inside(name, "sh", "-c", f"{make} && touch -d @1000 /workspace/data/shard")
    words = ["incident", "storage", "--context", context, "--namespace", NAMESPACE, "--path", "/workspace/data"]
    chosen = [*words, "--pods", "lab-0,lab-1", "--read-mib", 16]
    done = me.gpuctl(*chosen, "--window", 0.5, "--output", "json")
    report = json.loads(done.stdout)
    trials = {name: facts["trial"] for name, facts in report["nodes"].items()}
    assert {name: trial["file_bytes"] for name, trial in trials.items()} == {"lab-0": 8 << 20, "lab-1": 8 << 20}
    assert [f["message"] for f in report["findings"] if f["verdict"] == "FAIL"] == []
    with beside(me, *chosen, "--window", 60) as running:
        wait_until(lambda: any("gpuctl-old-python" in args for args in cluster.runs("lab-0")), "it measures", LONG)
        assert running.broken_off() == 130
    wait_until(lambda: not any("gpuctl-old-python" in args for args in cluster.runs("lab-0")), "it ended", LONG)
    assert "no pod gone" in me.gpuctl(*words, "--pods", "gone").stderr


# ---- editors --------------------------------------------------------------------------------------------------------

STANDIN_CODE = """#!/bin/sh
# stands in for VS Code
if [ "$1" = --list-extensions ]; then cat ~/extensions; else printf 'stand-in code got: %s\\n' "$*"; fi
"""
STANDIN_SSH = """#!/bin/sh
# stands in for ssh, with an entry of its configuration for each pod that leads into the pod of ~/leads-to
if [ "$1" = -G ]; then echo hostname 10.0.0.9; exit; fi
for last; do :; done
exec kubectl exec "$(cat ~/leads-to)" -n team -- sh -c "$last"
"""
STANDIN_NVIM = "#!/usr/bin/python3\n# stands in for Neovim\nimport sys\nprint('stand-in nvim got:', *sys.argv[1:])\n"


def test_an_editor_opens_a_pod_by_the_first_method_that_leads_into_it(me: User, cluster: Lab) -> None:
    me.program("code", STANDIN_CODE)
    words = ["kube", "edit-in", "lab-0", "--namespace", NAMESPACE, "--path", "/workspace", "--with"]
    (me.home / "extensions").write_text("ms-python.python\n")
    none = me.gpuctl(*words, "code", "--port", 8099)
    assert (none.returncode, "code-server does not listen on port 8099" in none.stderr) == (3, True)
    (me.home / "extensions").write_text("ms-vscode-remote.remote-containers\n")
    attach = me.gpuctl(*words, "code")
    assert "not by ssh: ~/.ssh/config has no entry lab-0" in attach.stderr
    assert "stand-in code got: --folder-uri vscode-remote://k8s-container+context=" in attach.stdout
    me.program("ssh", STANDIN_SSH)
    (me.home / "leads-to").write_text("lab-1")
    assert "leads to another container or host" in me.gpuctl(*words, "code").stderr
    (me.home / "leads-to").write_text("lab-0")
    assert "stand-in code got: --remote ssh-remote+lab-0 /workspace" in me.gpuctl(*words, "code").stdout
    assert "stand-in code got" not in me.gpuctl(*words, "code", "--plan").stdout
    (cluster.site / "bin/nvim").write_text(STANDIN_NVIM)
    (cluster.site / "bin/nvim").chmod(0o755)
    assert "stand-in nvim got: /workspace" in me.gpuctl(*words, "nvim").stdout
    me.settings("contexts:\n  production: ['*']\n")
    refused = me.gpuctl(*words, "nvim")
    assert (refused.returncode, "stand-in nvim got" in refused.stdout) == (2, False)
    assert "stand-in nvim got: /workspace" in me.gpuctl(*words, "nvim", "--yes").stdout


def test_without_an_editor_the_port_of_code_server_is_forwarded_until_ctrl_c(me: User, cluster: Lab) -> None:
    cluster.inside("lab-0", "sh", "-c", "code-server >/dev/null 2>&1 &")
    wait_until(lambda: any("code-server" in args for args in cluster.runs("lab-0")), "code-server runs", LONG)
    with beside(me, "kube", "edit-in", "lab-0", "--namespace", NAMESPACE, "--with", "cursor") as running:
        running.says("`cursor` is not installed", "something listens, is forwarded", "127.0.0.1:")
        assert running.broken_off() == 130
    cluster.inside("lab-0", "pkill", "-f", "code-server")
