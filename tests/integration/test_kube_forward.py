"""Forwards against a real API, whose pods come and go as a test likes: `kubectl port-forward` is a stand-in here.

The real one is in test_kube_real_forward.py.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuctl.tmux import templates
from tests.rig.kube.forwarding import children, five_free_ports, forwarding, pods, said, who_answers
from tests.rig.kube.kubelet import deployment
from tests.rig.kube.plane import Plane, for_tests
from tests.rig.tmux.screen import User, user, wait_until

# Does what `kubectl port-forward` does as far as gpuctl can see it; everything else is the real kubectl's.
STANDIN = """#!{python} -IS
# standin-kubectl-port-forward: each connection is told the pod's name.
import os, pathlib, signal, socket, sys, threading
if "port-forward" not in sys.argv:
    os.execv({kubectl!r}, ["kubectl", *sys.argv[1:]])
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
at = sys.argv.index("port-forward")
pod, pairs = sys.argv[at + 2].removeprefix("pod/"), sys.argv[at + 3:]
home = pathlib.Path(os.environ["HOME"])
def serve(listener):
    while True:
        found, _ = listener.accept()
        print(f"Handling connection for {{listener.getsockname()[1]}}", flush=True)
        if (home / f"broken-{{pod}}").exists():
            print("error: lost connection to pod", flush=True)
            os._exit(1)
        if not (home / f"silent-{{pod}}").exists():
            found.sendall(pod.encode())
        found.close()
for pair in pairs:
    local, remote = pair.split(":")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(local)))
    listener.listen()
    print(f"Forwarding from 127.0.0.1:{{local}} -> {{remote}}", flush=True)
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
signal.pause()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    for started in for_tests():
        started.apply(deployment("hyperpod", 2), deployment("web", 1))
        started.pods_ready(3)
        yield started


@pytest.fixture
def me(tmp_path: Path, cluster: Plane) -> Iterator[User]:
    with user(tmp_path) as found:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube/config").write_text(json.dumps(cluster.context("dev-eu")))
        found.program("kubectl", STANDIN.format(python=sys.executable, kubectl=cluster.kubectl_program))
        yield found


@pytest.fixture
def base() -> int:
    """The first of five local ports that are free."""
    return five_free_ports()


def test_every_matching_pod_is_on_the_next_port_that_is_free(me: User, cluster: Plane, base: int) -> None:
    first, second = pods(cluster, "hyperpod")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", base))
        taken.listen()
        with forwarding(me, "-l", "app=hyperpod", "--from", base, "--to", 8080):
            wait_until(lambda: said(me).count(": up") == 2, "both forwards are up")
            assert (who_answers(base + 1), who_answers(base + 2)) == (first, second)
            assert f"127.0.0.1:{base + 1} -> {first}:8080: up" in said(me)


def test_a_replaced_pod_is_followed_on_its_port(me: User, cluster: Plane, base: int) -> None:
    first, second = pods(cluster, "hyperpod")
    with forwarding(me, "-l", "app=hyperpod", "--from", base, "--to", 8080):
        wait_until(lambda: who_answers(base) == first, "the first pod answers")
        cluster.kubectl("delete", "pod", first, "--wait=false")
        # Retries pause for up to 30 s each: on a busy machine a few of them may come before the successor listens.
        wait_until(lambda: who_answers(base) not in ("", first, second), "its successor answers on the same port", 180)
        assert who_answers(base) in pods(cluster, "hyperpod")
        assert who_answers(base + 1) == second


def test_pods_that_come_and_go_with_the_scale_are_followed(me: User, cluster: Plane, base: int) -> None:
    with forwarding(me, "-l", "app=web", "--from", base, "--to", 8080):
        wait_until(lambda: who_answers(base), "one pod answers")
        cluster.kubectl("scale", "deployment", "web", "--replicas=2")
        wait_until(lambda: who_answers(base + 1), "the further pod answers on the next port")
        cluster.kubectl("scale", "deployment", "web", "--replicas=1")
        wait_until(lambda: "waiting for a pod" in said(me), "a slot waits")


def test_a_forward_that_breaks_is_begun_anew(me: User, cluster: Plane, base: int) -> None:
    (name,) = pods(cluster, "web")
    with forwarding(me, name, f"{base}:8080"):
        wait_until(lambda: who_answers(base) == name, "the pod answers")
        (me.home / f"broken-{name}").touch()
        wait_until(lambda: "retrying (lost connection to pod)" in said(me), "the break is told")
        (me.home / f"broken-{name}").unlink()
        wait_until(lambda: who_answers(base) == name, "the pod answers again")


def test_many_connections_do_not_end_a_forward(me: User, cluster: Plane, base: int) -> None:
    (name,) = pods(cluster, "web")
    with forwarding(me, name, f"{base}:8080"):
        wait_until(lambda: ": up" in said(me), "the pod answers")
        assert [who_answers(base) for _ in range(25)] == [name] * 25
        time.sleep(1)  # several looks at it
        assert who_answers(base) == name
        assert "retrying" not in said(me)


def test_a_pod_of_a_statefulset_is_not_left_for_its_sibling(me: User, cluster: Plane, base: int) -> None:
    known = deployment("db", 2)
    known["kind"] = "StatefulSet"
    known["spec"]["serviceName"] = "db"
    cluster.apply(known)
    wait_until(lambda: pods(cluster, "db") == ["db-0", "db-1"], "both pods are there")
    cluster.kubectl("wait", "--for=condition=Ready", "pod", "-l", "app=db", "--timeout=120s")
    with forwarding(me, "db-0", f"{base}:8080"):
        wait_until(lambda: said(me).count("db-0:8080: up") == 1, "it is up, and says so")
        assert who_answers(base) == "db-0"
        cluster.kubectl("scale", "statefulset", "db", "--replicas=0")
        wait_until(lambda: "waiting for a pod" in said(me), "nothing takes its place")
        cluster.kubectl("scale", "statefulset", "db", "--replicas=2")
        wait_until(lambda: said(me).count("db-0:8080: up") == 2, "it is back")
        assert "db-1" not in said(me)
    cluster.kubectl("delete", "statefulset", "db", "--wait=false")


def test_a_pod_that_hangs_up_is_not_called_up(me: User, cluster: Plane, base: int) -> None:
    (name,) = pods(cluster, "web")
    (me.home / f"silent-{name}").touch()
    with forwarding(me, name, f"{base}:8080"):
        wait_until(lambda: "no answer" in said(me), "it is told that the pod does not answer")
        assert ": up" not in said(me)
        (me.home / f"silent-{name}").unlink()
        wait_until(lambda: ": up" in said(me), "it is up once the pod answers")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_child_ends_with_it(me: User, cluster: Plane, base: int, number: signal.Signals) -> None:
    with forwarding(me, "-l", "app=hyperpod", "--from", base, "--to", 8080) as running:
        wait_until(lambda: said(me).count(": up") == 2, "both forwards are up")
        wait_until(lambda: len(children(me)) >= 4, "itself, the watch and two forwards run")
        running.send_signal(number)
        assert running.wait(60) == 130
        wait_until(lambda: not children(me), "nothing is left")
    assert "all forwards stopped" in said(me)


def test_a_command_that_is_killed_leaves_no_kubectl(me: User, cluster: Plane, base: int) -> None:
    with forwarding(me, "-l", "app=hyperpod", "--from", base, "--to", 8080) as running:
        wait_until(lambda: said(me).count(": up") == 2, "both forwards are up")
        assert len(children(me)) >= 4  # itself, the watch and two forwards
        running.kill()
        assert running.wait(60) == -signal.SIGKILL
        wait_until(lambda: not children(me), "nothing is left")


def test_several_ports_of_one_pod_share_one_kubectl(me: User, cluster: Plane, base: int) -> None:
    (name,) = pods(cluster, "web")
    with forwarding(me, name, f"{base}:8080", f"{base + 1}:9090"):
        wait_until(lambda: who_answers(base) == who_answers(base + 1) == name, "both ports answer")
        assert len([line for line in children(me) if "port-forward" in line]) == 1


def test_forwards_are_kept_by_name(me: User, cluster: Plane, base: int) -> None:
    with forwarding(me, "-l", "app=web", "--from", base, "--to", 8080, "--save", "web"):
        wait_until(lambda: who_answers(base), "the pod answers")
    assert "selector: app=web" in (me.config / "forwards/web.yml").read_text()
    with forwarding(me, "--set", "web"):
        wait_until(lambda: who_answers(base), "the pod answers again")
    done = me.gpuctl("kube", "forward", "--set", "wbe")
    assert (done.returncode, "web" in done.stderr) == (2, True)


def test_a_terminal_shows_one_table_that_stays_in_its_place(me: User, cluster: Plane, base: int) -> None:
    first, _ = pods(cluster, "hyperpod")
    at = me.terminal()
    at.type(f"gpuctl kube forward -l app=hyperpod --from {base} --to 8080 --probe-every 0.5")
    at.sees("LOCAL", f"127.0.0.1:{base}", f"127.0.0.1:{base + 1}", "up")
    wait_until(lambda: at.text.count(" up") == 2, "both are up")
    (me.home / f"broken-{first}").touch()
    at.sees("lost connection to pod")
    (me.home / f"broken-{first}").unlink()
    wait_until(lambda: at.text.count(" up") == 2, "both are up again")
    assert at.text.count("LOCAL") == 1
    at.press("C-c")
    at.sees("all forwards stopped")
    wait_until(lambda: not [line for line in children(me) if "port-forward" in line], "nothing is left")


def test_the_wizard_asks_for_pods_port_and_local_port(me: User, cluster: Plane, base: int) -> None:
    at = me.terminal()
    at.type("gpuctl kube forward --wizard --probe-every 0.5")
    at.sees("forward>", "app=hyperpod")
    at.press("label app=hyperpod", "Enter")
    at.sees("port of the pod>", "8080")
    at.press("Enter")
    at.sees("first local port>")
    at.press(str(base), "Enter")
    at.sees(f"127.0.0.1:{base}", " up")
    at.press("C-c")
    at.sees("all forwards stopped")


@pytest.fixture
def background(me: User) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """`gpuctl kube forward --background`; what it started is stopped, and nothing is left."""
    yield lambda *words: me.gpuctl("kube", "forward", "--background", "--probe-every", "0.5", *words)
    assert me.gpuctl("kube", "forward", "stop", "--all").returncode == 0
    wait_until(lambda: not children(me), "nothing is left")


def listed(me: User) -> list[dict[str, Any]]:
    done = me.gpuctl("kube", "forward", "list", "-o", "json")
    assert done.returncode == 0, done.stderr
    services: list[dict[str, Any]] = json.loads(done.stdout)
    return services


def status_bar(me: User) -> str:
    script = Path(templates.__file__).with_name("template") / "scripts/forwards.sh"
    return subprocess.run(["sh", script], env=me.environment, capture_output=True, text=True, check=True).stdout


def test_forwards_in_the_background_outlive_the_shell_that_started_them(
    me: User, cluster: Plane, base: int, background: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    own = me.home / "own"  # as the copy of a smart shell, which is removed with it
    (me.home / ".kube/config").rename(own)
    me.variables["KUBECONFIG"] = "own"  # a relative path, and the process runs in another folder
    first, second = pods(cluster, "hyperpod")
    done = background("-l", "app=hyperpod", "--from", base, "--to", 8080)
    assert done.stdout == f"127.0.0.1:{base} -> {first}:8080: up\n127.0.0.1:{base + 1} -> {second}:8080: up\n"
    own.unlink()
    cluster.kubectl("delete", "pod", first, "--wait=false")
    wait_until(lambda: who_answers(base) not in ("", first, second), "the successor answers on the same port")
    wait_until(lambda: "[fg=green]2 forwarded" in status_bar(me), "the status bar counts them")
    (service,) = listed(me)
    assert (service["number"], service["context"], service["namespace"]) == (1, "dev-eu", "default")
    assert [(port["local"], port["state"]) for port in service["ports"]] == [(base, "up"), (base + 1, "up")]
    assert me.gpuctl("kube", "forward", "stop", "7").returncode == 2
    assert f"stopped 1: 127.0.0.1:{base}" in me.gpuctl("kube", "forward", "stop", "1").stdout
    assert (who_answers(base), listed(me), status_bar(me)) == ("", [], "")
    assert not list((me.home / ".local/state/gpuctl/kube").iterdir())


def test_the_wizard_adds_to_the_forwards_in_the_background(
    me: User, cluster: Plane, base: int, background: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (name,) = pods(cluster, "web")
    assert background(name, f"{base}:8080").returncode == 0
    at = me.terminal()
    at.type("gpuctl kube forward --wizard --background --probe-every 0.5")
    at.sees("forward>", "app=hyperpod")
    at.press("label app=hyperpod", "Enter")
    at.sees("port of the pod>", "8080")
    at.press("Enter")
    at.sees("first local port>")
    at.press(str(base + 1), "Enter")
    at.sees(f"127.0.0.1:{base + 2}", "gpuctl kube forward stop 2")
    at.close()
    assert [(service["number"], len(service["ports"])) for service in listed(me)] == [(1, 1), (2, 2)]
    wait_until(lambda: "]3 forwarded" in status_bar(me), "all are up")
    (me.home / f"silent-{name}").touch()
    wait_until(lambda: "2 of 3 forwarded" in status_bar(me), "the status bar tells of the one that does not answer")
    assert listed(me)[0]["ports"][0]["why"]


def test_a_killed_background_process_is_listed_no_more(
    me: User, cluster: Plane, base: int, background: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (name,) = pods(cluster, "web")
    background(name, f"{base}:8080")
    os.kill(listed(me)[0]["pid"], signal.SIGKILL)
    wait_until(lambda: not children(me), "its kubectl ends with it")
    assert listed(me) == []
    assert status_bar(me) == ""
    assert background(name, f"{base}:8080").returncode == 0


def test_what_cannot_begin_in_the_background_says_why(
    me: User, background: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = background("-l", "app=none", "--from", "8081", "--to", "8080")
    assert (done.returncode, "no running pod has the label app=none" in done.stderr) == (3, True)
    assert "no forwards run" in me.gpuctl("kube", "forward", "list").stdout


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("-l", "app=web"), "--from and --to"),
        (("web", "-l", "app=web"), "use exactly one of"),
        (("web", "http"), "is not a port"),
        (("web",), "no ports given"),
        (("-l", "app=web", "--from", "1", "--to", "2", "--context", "nowhere"), "nowhere"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(me: User, words: tuple[str, ...], wrong: str) -> None:
    done = me.gpuctl("kube", "forward", *words)
    assert done.returncode == 2
    assert wrong in done.stderr


def test_a_label_that_no_pod_has_is_said(me: User) -> None:
    done = me.gpuctl("kube", "forward", "-l", "app=none", "--from", "8081", "--to", "8080")
    assert (done.returncode, "no running pod has the label app=none" in done.stderr) == (3, True)
