"""gpuctl kube pods, and the panel of dash, on a real control plane; kubelets and k9s are stand-ins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.kube.kubelet import pod
from tests.rig.kube.plane import Plane, for_tests
from tests.rig.tmux.screen import GPUCTL, Terminal, User, user, wait_until

K9S = """\
#!/bin/bash
echo "standin-k9s $*"
read -r line
"""


def with_gpus(made: dict[str, Any], count: int, namespace: str) -> dict[str, Any]:
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(count)}}
    made["metadata"]["namespace"] = namespace
    return made


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    for started in for_tests():
        started.kubectl("create", "namespace", "train")
        started.apply(with_gpus(pod("rank-0"), 4, "train"), with_gpus(pod("huge"), 64, "train"), pod("web"))
        started.pods_ready(1)
        started.kubectl("wait", "--for=condition=PodScheduled=False", "pod/huge", "-n", "train", "--timeout=60s")
        yield started


@pytest.fixture
def me(cluster: Plane, tmp_path: Path) -> Iterator[User]:
    with user(tmp_path) as made:
        config = made.home / "config"
        config.write_text(json.dumps(cluster.context("prod-eu", "dev-eu", namespace="train")))
        made.variables["KUBECONFIG"] = str(config)
        made.program("k9s", K9S)
        yield made


def dash(me: User, *words: object) -> Terminal:
    command = f"{GPUCTL} dash {' '.join(map(str, words))}; echo exit code $?; exec sleep 300"
    return me.terminal("sh", "-c", command, columns=160, rows=30)


def test_pods_are_listed_with_the_reason_and_one_with_its_events(me: User) -> None:
    listed = me.gpuctl("kube", "pods", "-A", "-o", "json")
    assert listed.returncode == 1, listed.stderr
    pods = json.loads(listed.stdout)["pods"]
    assert [(one["pod"], one["gpus"], one["verdict"]) for one in pods] == [
        ("huge", 64, "FAIL"), ("rank-0", 4, "OK"), ("web", 0, "OK"),
    ]  # fmt: skip
    assert "Insufficient nvidia.com/gpu" in pods[0]["why"]
    own = me.gpuctl("kube", "pods")
    assert "web" not in own.stdout
    assert "2 pods, 1 FAIL, 4 GPUs on nodes, 64 GPUs waiting for a node" in own.stdout
    one = me.gpuctl("kube", "pods", "huge", "-n", "train")
    assert "Warning FailedScheduling" in one.stdout
    assert me.gpuctl("kube", "pods", "rank-0").returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--context", "gone"), 2, "known: dev-eu, prod-eu"),
        (("-A", "-n", "train"), 2, "cannot be combined"),
        (("-A", "huge"), 2, "add --namespace NAME"),
        (("gone",), 3, "the namespace train has none of that name"),
    ],
)
def test_wrong_input_is_refused(me: User, words: tuple[str, ...], code: int, message: str) -> None:
    done = me.gpuctl("kube", "pods", *words)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


def test_the_panel_shows_events_filters_and_opens_k9s_and_comes_back(me: User) -> None:
    screen = dash(me, "--context", "prod-eu", "--panel", "pods")
    screen.sees("huge", "rank-0", "web", "3 pods, 1 FAIL", "production; k9s opens read-only")
    screen.press("Enter")
    screen.sees("Warning FailedScheduling", "kube pod logs huge --namespace train --context prod-eu")
    screen.press("Escape")
    screen.sees("3 pods, 1 FAIL")
    screen.press("/", "rank", "Enter")
    screen.sees_no_more("huge")
    screen.press("o")
    screen.sees("standin-k9s --context prod-eu --namespace train --command pods --readonly")
    screen.press("Enter")
    screen.sees("filter: rank")
    screen.press("Escape")
    screen.sees("huge")
    screen.press("q")
    screen.sees("exit code 0")


def run_shell_command(screen: Terminal) -> None:
    """Open the first pod, and press `x` on its command that may change something."""
    screen.sees("huge")
    screen.press("Enter")
    screen.sees("kube pod shell huge")
    row = next(number for number, line in enumerate(screen.lines) if "kube pod shell huge" in line)
    screen.press(*["j"] * (row - 1), "x")


def test_a_command_that_may_change_something_is_refused_in_production(me: User) -> None:
    screen = dash(me, "--context", "prod-eu", "--panel", "pods")
    run_shell_command(screen)
    screen.sees("prod-eu is production", "gpuctl dash --allow-changes")


def test_elsewhere_it_asks_and_ctrl_c_declines(me: User) -> None:
    # Without a shell around it, which Ctrl-C would end.
    screen = me.terminal(str(GPUCTL), "dash", "--context", "dev-eu", "--panel", "pods", columns=160, rows=30)
    run_shell_command(screen)
    screen.sees("Run `gpuctl kube pod shell huge")
    screen.press("C-c")

    def copied() -> bool:
        screen.press("c")
        return "copied: gpuctl kube pod shell huge" in screen.text

    wait_until(copied, "the screen is back")
    screen.press("C-c")
    wait_until(lambda: screen.ended, "the end of gpuctl")
