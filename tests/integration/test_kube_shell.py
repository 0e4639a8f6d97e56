"""The smart shell as a person has it: a real bash and zsh on a terminal, a real tmux, fzf, and a real cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.kube.kubelet import deployment, pod
from tests.rig.kube.plane import Plane, for_tests
from tests.rig.tmux.screen import Terminal, User, user, wait_until

CONTEXTS = ("dev-eu", "staging-eu", "prod-eu", "lab")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    for started in for_tests():
        started.kubectl("create", "namespace", "training")
        started.apply(deployment("hyperpod", 2), pod("two", "first", "second"))
        started.pods_ready(3)
        yield started


@pytest.fixture
def me(tmp_path: Path, cluster: Plane) -> Iterator[User]:
    """A user whose kubeconfig knows the cluster under four names."""
    with user(tmp_path) as found:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube/config").write_text(json.dumps(cluster.context(*CONTEXTS)))
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/kubectl").symlink_to(cluster.kubectl_program)
        yield found


def smart(me: User, shell: str = "bash") -> Terminal:
    if shutil.which(shell) is None:
        pytest.fail(f"{shell} is not installed: these tests need the packages fzf, zsh and bash-completion")
    (me.home / ".zshrc").write_text("PROMPT='%% '\n")
    (me.home / ".bashrc").write_text("PS1='$ '\n")
    found = me.terminal(str(me.program_path), "kube", "shell", "--shell", shell)
    found.sees("dev-eu default")
    return found


def copies(me: User) -> list[Path]:
    return sorted((me.home / ".local/state/gpuctl/kube").glob("*.yml"))


def current(path: Path) -> str:
    found = re.search(r"current-context\W+([\w-]+)", path.read_text())
    assert found is not None, path.read_text()
    return found[1]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_prompt_shows_context_and_namespace_in_the_colour_of_the_stage(me: User, shell: str) -> None:
    at = smart(me, shell)
    assert at.colours("dev-eu default")[0] == "green"
    at.type("kctx staging-eu")
    at.sees("switched to the context staging-eu", "staging-eu default ")
    wait_until(lambda: "staging-eu default" in at.text, "the prompt follows")
    assert at.colours("staging-eu default")[0] in ("yellow", "brown")
    at.type("kubectl config use-context prod-eu")
    at.sees("prod-eu default")
    assert at.colours("prod-eu default")[1] == "red"
    at.type("kns training")
    at.sees("prod-eu training")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_switching_in_one_shell_moves_no_other(me: User, shell: str) -> None:
    before = (me.home / ".kube/config").read_text()
    one, other = smart(me, shell), smart(me, shell)
    one.type("kctx prod-eu")
    one.sees("prod-eu default")
    other.type("kubectl config current-context; echo the-end")
    other.sees("the-end")
    assert "prod-eu" not in other.text
    assert sorted(map(current, copies(me))) == ["dev-eu", "prod-eu"]
    assert (me.home / ".kube/config").read_text() == before


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_copy_is_private_and_goes_with_its_shell(me: User, shell: str) -> None:
    at = smart(me, shell)
    (copy,) = copies(me)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert copy.parent.stat().st_mode & 0o777 == 0o700
    at.type("exit")
    wait_until(lambda: not list(copy.parent.iterdir()), "everything of the shell is removed")


def test_a_copy_that_a_killed_shell_left_is_removed_by_the_next(me: User) -> None:
    killed = smart(me)
    (left,) = copies(me)
    os.kill(int(left.stem.rpartition("-")[2]), 9)
    wait_until(lambda: killed.ended, "the shell is dead")
    smart(me)
    wait_until(lambda: left not in copies(me), "the stale copy is removed")
    assert len(copies(me)) == 1


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_cluster_that_was_added_is_kept_when_the_shell_ends(me: User, shell: str) -> None:
    at = smart(me, shell)
    at.type("kubectl config set-context new-eu --cluster=x; exit")
    at.sees("your own files lack: context new-eu", "export KUBECONFIG=")
    (kept,) = (me.home / ".local/state/gpuctl/kube/added").iterdir()
    assert "new-eu" in kept.read_text()
    wait_until(lambda: not copies(me), "the copy itself is removed")


def test_the_pane_follows_a_kubeconfig_that_is_named_in_its_shell(me: User) -> None:
    (me.home / ".bashrc").write_text("PS1='$ '\n")
    me.tmux("-f", os.devnull, "new-session", "-d", "-s", "main", "-x", "99", f"{me.program_path} kube shell")

    def option() -> str:
        return me.tmux("show-options", "-pqv", "-t", "main:", "@gpuctl_kubeconfig").strip()

    wait_until(lambda: "dev-eu" in me.tmux("capture-pane", "-p", "-t", "main:"), "the prompt")
    assert option() == str(copies(me)[0])
    me.tmux("send-keys", "-t", "main:", "export KUBECONFIG=~/.kube/config", "Enter")
    wait_until(lambda: option() == f"{me.home}/.kube/config", "the option follows")
    me.tmux("send-keys", "-t", "main:", "export KUBECONFIG=$GPUCTL_KUBECONFIG", "Enter")
    wait_until(lambda: option() == str(copies(me)[0]), "the option is the copy again")


def test_the_files_of_a_kubeconfig_set_in_bashrc_count(me: User, cluster: Plane) -> None:
    (me.home / "other").write_text(json.dumps(cluster.context("dev-other")))
    (me.home / ".bashrc").write_text("PS1='$ '\nexport KUBECONFIG=~/other\n")
    at = me.terminal(str(me.program_path), "kube", "shell")
    at.sees("dev-other default")
    at.type("echo is $KUBECONFIG")
    at.sees("is /")
    assert str(copies(me)[0]) in at.text.replace("\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_what_destroys_is_asked_for_once_in_production_also_by_alias(me: User, cluster: Plane, shell: str) -> None:
    cluster.apply(pod("doomed"), pod("spared"))
    at = smart(me, shell)
    at.type("kctx prod-eu")
    at.sees("prod-eu default")
    at.type("kdel pod spared --wait=false")
    at.sees("kubectl delete in the production context prod-eu (namespace default). Continue? [y/N]")
    at.type("n")
    at.sees("not run")
    at.type("kubectl delete pod doomed --wait=false")
    wait_until(lambda: at.text.count("[y/N]") == 2, "the second question")
    at.type("y")
    at.sees('pod "doomed" deleted')
    assert at.text.count("[y/N]") == 2
    wait_until(lambda: "doomed" not in cluster.kubectl("get", "pods", "-o", "name"), "the pod is deleted")
    assert "pod/spared" in cluster.kubectl("get", "pods", "-o", "name")


def test_the_guard_holds_in_pipes_and_under_timeout(me: User, cluster: Plane) -> None:
    cluster.apply(pod("piped"))
    at = smart(me)
    at.type("kctx prod-eu")
    at.sees("prod-eu default")
    at.type("echo piped | xargs kubectl delete --wait=false pod")
    at.sees("kubectl delete in the production context prod-eu (namespace default). Continue? [y/N]")
    at.type("n")
    at.sees("not run")
    # In a script, timeout starts it as a background job, which would be stopped when it reads the answer.
    me.program("script", "#!/bin/sh\ntimeout 50 kubectl delete --wait=false pod piped\necho status $?\n")
    at.type("clear; script")
    at.sees("no terminal to confirm on", f"hint: {me.home}/bin/kubectl, called by its path", "status 2")
    at.type(f"clear; echo piped | {me.home}/bin/kubectl delete --wait=false pod piped")
    at.sees('pod "piped" deleted')


def test_outside_of_production_nothing_is_asked(me: User, cluster: Plane) -> None:
    cluster.apply(pod("gone-at-once"))
    at = smart(me)
    at.type("kdel pod gone-at-once --wait=false")
    at.sees('pod "gone-at-once" deleted')
    assert "[y/N]" not in at.text


def test_where_nobody_can_be_asked_it_is_not_run_and_says_so(me: User) -> None:
    (me.home / ".kube/config").write_text((me.home / ".kube/config").read_text().replace('"dev-eu"', '"prod-xy"'))
    import subprocess

    words = [str(me.program_path), "kube", "guard", "--", "/usr/bin/kubectl", "delete", "pod", "two"]
    done = subprocess.run(
        words, env=me.environment, capture_output=True, text=True, check=False, start_new_session=True, stdin=-3
    )
    assert done.returncode == 2
    assert "there is no terminal to confirm on: kubectl delete in the production context prod-xy" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_aliases_complete_as_kubectl_does(me: User, shell: str) -> None:
    at = smart(me, shell)
    at.press("kd pod tw", "Tab")
    at.sees("kd pod two")
    at.press("C-u", "k get deployments hyp", "Tab", "Enter")
    at.sees("2/2")
    at.press("ke pod tw", "Tab")
    at.sees("ke pod two")
    at.press("C-u", "kctx stag", "Tab", "Enter")
    at.sees("switched to the context staging-eu")


def test_kctx_chooses_with_fzf_and_goes_back_with_a_dash(me: User) -> None:
    at = smart(me)
    at.type("kctx")
    at.sees("context>", "production")
    at.press("staging")
    at.sees("1/4")
    at.press("Enter")
    at.sees("switched to the context staging-eu")
    at.type("kctx -")
    at.sees("switched to the context dev-eu")


def test_kns_chooses_with_fzf_and_refuses_what_is_not_there(me: User) -> None:
    at = smart(me)
    at.type("kns")
    at.sees("namespace>", "kube-system")
    at.press("train", "Enter")
    at.sees("dev-eu training")
    at.type("kns trainig")
    at.sees("dev-eu has none of that name")
    at.type("clear; kns -")
    at.sees("switched to the namespace default")
    at.type("clear; kns -")
    at.sees("switched to the namespace training")
    at.type("clear; kctx staging-eu && kns -")
    at.sees("default is the first namespace of this shell in staging-eu")


def test_kpod_chooses_a_pod_and_container_and_remembers_them(me: User) -> None:
    at = smart(me)
    at.type("kpod describe")
    at.sees("pod>", "two")
    at.press("two")
    at.sees("1/")
    at.press("Enter")
    at.sees("container>", "second")
    at.press("second", "Enter")
    at.sees("Name:", "two")
    (copy,) = copies(me)
    kept = json.loads(Path(f"{copy}.chosen").read_text())
    assert kept == {
        "context": "dev-eu",
        "namespace": "default",
        "pod": "two",
        "container": "second",
        "current": "dev-eu",
    }


def test_a_chosen_pod_is_asked_for_again_after_the_context_was_switched(me: User) -> None:
    at = smart(me)
    at.type("gpuctl kube pod select two -c first; clear; gpuctl kube pod describe | head -3")
    at.sees("Name:", "two")
    at.type("clear; kctx staging-eu && gpuctl kube pod describe")
    at.sees("pod>")
    at.press("C-g")
    at.type("clear; echo left $((1 + 1))")
    at.sees("left 2")
    assert "Name:" not in at.text


def test_inside_tmux_the_pane_says_where_its_copy_and_its_commands_are(me: User) -> None:
    (me.home / ".bashrc").write_text("PS1='$ '\n")
    me.tmux(
        "-f", os.devnull, "new-session", "-d", "-s", "main", "-x", "100", "-y", "30", f"{me.program_path} kube shell"
    )
    wait_until(lambda: me.tmux("show-options", "-pqv", "-t", "main:", "@gpuctl_kubeconfig"), "the pane's option is set")
    (copy,) = copies(me)
    assert me.tmux("show-options", "-pqv", "-t", "main:", "@gpuctl_kubeconfig") == str(copy)
    wait_until(lambda: "dev-eu" in me.tmux("capture-pane", "-p", "-t", "main:"), "the prompt")
    me.tmux("send-keys", "-t", "main:", "echo first words", "Enter", " echo hidden words", "Enter", "true", "Enter")
    history = Path(me.tmux("show-options", "-pqv", "-t", "main:", "@gpuctl_history"))
    wait_until(lambda: "true" in history.read_text(), "the commands are noted")
    assert history.read_text().splitlines()[0] == "echo first words"


def test_the_palette_runs_what_is_chosen(me: User) -> None:
    at = smart(me)
    at.type("gpuctl kube palette")
    at.sees("command>")
    assert "helm" not in at.text
    at.press("nodes: GPUs per node")
    at.sees("1/")
    at.press("Enter")
    at.sees("gpu-0", "8", "q closes this")
    at.press("q")
    at.sees_no_more("q closes this")


def test_a_long_result_of_the_palette_can_be_scrolled(me: User) -> None:
    me.program("helm", "#!/bin/sh\nseq 1 200\n")
    at = smart(me)
    at.type("gpuctl kube palette")
    at.sees("command>")
    at.press("helm: releases")
    at.sees("1/")
    at.press("Enter")
    at.sees("\n10\n", "q closes this")
    at.press("G")
    at.sees("\n200\n")
    at.press("g")
    at.sees("\n10\n")
    at.press("q")
    at.sees_no_more("q closes this")


def test_the_usage_of_pods_is_drawn_until_ctrl_c(me: User) -> None:
    """`kubectl top` is a stand-in: this cluster has no metrics server."""
    real = (me.home / "bin/kubectl").readlink()
    (me.home / "bin/kubectl").unlink()
    standin = 'echo "$*" >>"$HOME/top"; printf "trainer-0  %sm  2048Mi\\n" "$(wc -l <"$HOME/top")00"'
    me.program("kubectl", f'#!/bin/sh\ncase "$*" in *" top "*) {standin} ;; *) exec {real} "$@" ;; esac\n')
    at = smart(me)
    at.type("kwatch-resources training --every 0.5")
    at.sees("dev-eu training", "trainer-0", "200m", "2048Mi", "▅█", "Ctrl-C ends")
    assert "--namespace=training top pods" in (me.home / "top").read_text()
    at.press("C-c")
    # Ctrl-C discards what was typed and not yet read: the shell has to be back first.
    wait_until(lambda: at.text.rstrip().endswith("dev-eu default $"), "the prompt is back")
    at.type("clear; echo still $((1 + 1))")
    at.sees("still 2")


def test_without_metrics_usage_is_unknown(me: User) -> None:
    done = me.gpuctl("kube", "top")
    assert done.returncode == 3
    assert "cannot measure the pods of the namespace default: Metrics API not available" in done.stderr


def test_ke_edits(me: User) -> None:
    me.variables["KUBE_EDITOR"] = "head -7"
    at = smart(me)
    at.type("ke deployment hyperpod")
    at.sees("Please edit the object", "apiVersion")


def test_the_resources_of_a_namespace_are_drawn_until_ctrl_c(me: User) -> None:
    at = smart(me)
    at.type("gpuctl kube watch default")
    at.sees("dev-eu default", "deployment.apps/hyperpod", "every 2 s, Ctrl-C ends")
    at.press("C-c")
    # Ctrl-C discards what was typed and not yet read: the shell has to be back first.
    wait_until(lambda: at.text.rstrip().endswith("dev-eu default $"), "the prompt is back")
    at.type("clear; echo still $((1 + 1))")
    at.sees("still 2")


def test_switching_is_refused_where_it_would_move_every_other_shell(me: User) -> None:
    done = me.gpuctl("kube", "context", "prod-eu")
    assert done.returncode == 2
    assert "gpuctl kube shell" in done.stderr
    assert current(me.home / ".kube/config") == "dev-eu"


def test_a_shell_without_a_terminal_is_refused_and_leaves_nothing(me: User) -> None:
    done = me.gpuctl("kube", "shell")
    assert done.returncode == 2
    assert "it needs a terminal" in done.stderr
    assert copies(me) == []
