"""The status bar of a real tmux says where the active pane's kubectl would act."""

from __future__ import annotations

import subprocess
import time

import pytest
import yaml

from tests.rig.tmux.screen import Terminal, User, wait_until
from tests.rig.tmux.session import kubeconfig, launched, shell_is_ready

pytest_plugins = ["tests.rig.tmux.fixtures"]


def status_is(screen: Terminal, text: str) -> None:
    wait_until(lambda: text in screen.status_bar, f"the status bar says {text!r}, not {screen.status_bar!r}")


@pytest.mark.parametrize(
    ("context", "colours"),
    [
        ("prod-east", ("white", "red")),
        ("staging-1", ("brown", "262626")),
        ("dev-me", ("green", "262626")),
    ],
)
def test_the_status_bar_shows_the_context_in_the_colour_of_its_stage(
    me: User, context: str, colours: tuple[str, str]
) -> None:
    kubeconfig(me.home / ".kube/config", context)
    screen = launched(me)
    status_is(screen, f"{context} team")
    assert screen.colours(context) == colours


def test_each_pane_has_its_own_context_in_the_status_bar(screen: Terminal, me: User) -> None:
    for pane, context in (("1", "prod-east"), ("2", "dev-me")):
        shell_is_ready(me, f"tmux-main:0.{pane}")
        own = kubeconfig(me.home / f"kubeconfig of {pane}", context)
        me.tmux("set-option", "-p", "-t", f"tmux-main:0.{pane}", "@gpuctl_kubeconfig", own)
    status_is(screen, "prod-east team")
    screen.press("M-2")
    status_is(screen, "dev-me team")
    kubeconfig(me.home / "kubeconfig of 2", "dev-you", "other")
    status_is(screen, "dev-you other")
    screen.prefix("1")
    status_is(screen, "no context")


def test_switching_the_context_in_a_pane_moves_no_other_and_its_commands_can_be_run_again(me: User) -> None:
    both = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("prod-east", "staging-1")]
    (me.home / ".kube").mkdir()
    (me.home / ".kube/config").write_text(yaml.safe_dump({"contexts": both, "current-context": "prod-east"}))
    screen = launched(me)
    status_is(screen, "prod-east default")
    screen.type("kubectl config use-context staging-1")
    status_is(screen, "staging-1 default")
    screen.press("M-2")
    status_is(screen, "prod-east default")
    screen.press("M-1")
    screen.type("clear")
    screen.prefix("C-h")
    screen.sees("┌", "kubectl config use-context staging-1")
    screen.press("Escape")


def test_k9s_switches_inside_itself_so_its_context_is_unknown(screen: Terminal, me: User) -> None:
    own = kubeconfig(me.home / "own", "dev-me")
    me.tmux("set-option", "-p", "-t", "tmux-main:0.0", "@gpuctl_kubeconfig", own)
    screen.press("M-0")
    me.becomes("pane_current_command", "k9s")
    status_is(screen, "unknown")
    screen.press("Enter")
    shell_is_ready(me, "tmux-main:0.0")
    me.tmux("set-option", "-p", "-t", "tmux-main:0.0", "@gpuctl_kubeconfig", own)
    status_is(screen, "dev-me team")


def test_a_broken_kubeconfig_is_unknown(me: User) -> None:
    (me.home / ".kube").mkdir()
    (me.home / ".kube/config").write_text("contexts: [")
    status_is(launched(me), "unknown")


def test_a_refresh_starts_gpuctl_only_when_the_kubeconfig_changed(me: User) -> None:
    path = kubeconfig(me.home / ".kube/config", "dev-me")
    me.program("counted-gpuctl", f'#!/bin/sh\necho >> "$HOME/calls"\nexec {me.program_path} "$@"\n')
    script = me.config / "tmux/current/scripts/context.sh"
    me.variables["GPUCTL_PROGRAM"] = "counted-gpuctl"

    def told() -> str:
        words = ["sh", str(script), "1", "%1", "c=bash"]
        return subprocess.run(words, env=me.environment, capture_output=True, text=True, check=True).stdout

    def tells(text: str) -> None:
        wait_until(lambda: text in told(), f"the script says {text}")

    calls = me.home / "calls"
    tells("dev-me")
    wait_until(lambda: not list((me.home / ".cache/gpuctl/tmux-status").glob("*.busy")), "nothing is being asked")
    before = calls.read_text()
    assert [told() for _ in range(5)] == [told()] * 5
    assert calls.read_text() == before
    kubeconfig(path, "dev-ma")  # the same size, perhaps within the same second
    assert "dev-me" not in told()  # it never says what was
    tells("dev-ma")
    me.settings("contexts: {production: ['dev-ma']}")
    tells("bg=red")
    path.unlink()
    tells("no context")


def test_a_context_s_name_runs_nothing(me: User) -> None:
    kubeconfig(me.home / ".kube/config", "x#(touch $HOME/ran)y")
    screen = launched(me)
    status_is(screen, "x#(touch")
    time.sleep(1)
    assert not (me.home / "ran").exists()
