"""The shell's own copy, its prompt, and what it remembers."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.core.settings import Settings
from gpuctl.edges.kube import config as kubeconfig
from gpuctl.kube import private_kubeconfig, prompt, selected_pod, shell, shell_options
from gpuctl.kube.selected_pod import SelectedPod

CONFIG = "current-context: {0}\ncontexts: [{{name: '{0}', context: {{namespace: web}}}}]\n"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def config(tmp_path: Path, context: str) -> Path:
    path = tmp_path / "config"
    path.write_text(CONFIG.format(context))
    return path


def test_a_copy_is_named_after_its_shell_and_private(tmp_path: Path) -> None:
    made = private_kubeconfig.make([config(tmp_path, "dev")], os.getpid(), "here")
    assert made.name == f"here-{os.getpid()}.yml"
    assert made.stat().st_mode & 0o777 == 0o600
    assert private_kubeconfig.is_private([made])


def test_copies_of_ended_shells_are_removed_and_those_of_other_machines_stay(state: Path) -> None:
    folder = private_kubeconfig.folder()
    names = ("here-999999.yml", "here-999999.yml.prompt", "other-999999.yml", f"here-{os.getpid()}.yml", "keep.json")
    for name in names:
        (folder / name).touch()
    assert private_kubeconfig.remove_stale("here") == []
    assert sorted(path.name for path in folder.iterdir()) == sorted(names[2:])


NEW = "\ncontexts: [{name: dev, context: {}}, {name: new-eu, context: {cluster: new}}]\nusers: [{name: me}]\n"


def test_entries_added_to_a_copy_are_saved_when_its_shell_ends(tmp_path: Path, state: Path) -> None:
    made = private_kubeconfig.make([config(tmp_path, "dev")], os.getpid(), "here")
    assert shell.leave(made) is None
    made.write_text(NEW)
    kept = shell.leave(made)
    assert kept is not None
    assert kept.path.parent == state / "kube/added"
    assert kept.path.stat().st_mode & 0o777 == 0o600
    assert [c.name for c in kubeconfig.contexts(kept.path)] == ["new-eu"]
    assert "context new-eu, user me" in str(kept)
    assert f"export KUBECONFIG={tmp_path}/config:{kept.path}" in str(kept)
    assert not private_kubeconfig.is_private([kept.path])


def test_entries_added_to_the_copy_of_a_killed_shell_are_saved(tmp_path: Path, state: Path) -> None:
    made = private_kubeconfig.make([config(tmp_path, "dev")], 999999, "here")
    made.write_text(NEW)
    (kept,) = private_kubeconfig.remove_stale("here")
    assert kept.path.is_file()
    assert [path.name for path in private_kubeconfig.folder().iterdir()] == ["added"]
    private_kubeconfig.make([config(tmp_path, "dev")], 999999, "here").write_text("{")
    assert private_kubeconfig.remove_stale("here") == []
    assert [path.name for path in private_kubeconfig.folder().iterdir()] == ["added"]


def test_the_users_files_are_never_mistaken_for_a_copy(tmp_path: Path) -> None:
    assert not private_kubeconfig.is_private([config(tmp_path, "dev")])
    assert not private_kubeconfig.is_private([])


@pytest.mark.parametrize(
    ("context", "shown"),
    [
        ("prod-eu", ("production", "prod-eu", "web")),
        ("arn:aws:eks:us-east-1:1:cluster/stag", ("staging", "arn:aws:eks:us-east-1:1:cluster/stag", "web")),
        ("lab", ("other", "lab", "web")),
        (
            "dev-$(reboot)`x`\\n%F{red}!",
            ("development", "dev-?(reboot)?x??n?F?red??".replace("(", "?").replace(")", "?"), "web"),
        ),
    ],
)
def test_the_prompt_shows_stage_context_and_namespace(tmp_path: Path, context: str, shown: tuple[str, ...]) -> None:
    assert prompt.lines([config(tmp_path, context)], Settings()) == shown


def test_no_context_differs_from_an_unreadable_file(tmp_path: Path) -> None:
    assert prompt.lines([], Settings())[:2] == ("none", "no context")
    broken = tmp_path / "broken"
    broken.write_text("{")
    assert prompt.lines([broken], Settings())[:2] == ("unknown", "unknown")


def test_the_selected_pod_is_forgotten_after_a_context_switch(tmp_path: Path) -> None:
    paths = [config(tmp_path, "dev")]
    selected_pod.remember(paths, SelectedPod("dev", "web", "p", "main", "dev"))
    recalled = selected_pod.recall(paths, "dev")
    assert recalled is not None
    assert recalled.pod == "p"
    assert selected_pod.recall(paths, "prod-eu") is None


def test_each_copy_remembers_its_selected_pod(tmp_path: Path) -> None:
    one = private_kubeconfig.make([config(tmp_path, "dev")], os.getpid(), "here")
    other = private_kubeconfig.make([config(tmp_path, "dev")], os.getppid(), "here")
    selected_pod.remember([one], SelectedPod("dev", "web", "p", "", "dev"))
    assert selected_pod.recall([other], "dev") is None


def test_a_shell_that_is_neither_bash_nor_zsh_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="fish"):
        shell.which("/usr/bin/fish", "/bin/bash")
    assert shell.which("", "/usr/bin/fish").name in shell.SHELLS


@pytest.mark.parametrize(
    ("declared", "current", "warned"), [("gone", "", True), ("dev", "dev", False), ("", "prod", False)]
)
def test_a_program_never_gets_the_current_context_instead_of_the_declared_one(
    tmp_path: Path, state: Path, declared: str, current: str, warned: bool
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("current-context: prod\ncontexts: [{name: prod, context: {}}, {name: dev, context: {}}]\n")
    argv = [str(Path(sys.executable).with_name("gpuctl")), "kube", "run", "--", "sh", "-c", 'cat "$KUBECONFIG"']
    variables = {"KUBECONFIG": str(path), "GPUCTL_KUBE_CONTEXT": declared, "GPUCTL_STATE_DIR": str(state)}
    done = subprocess.run(argv, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    assert f"current-context: {current or chr(39) * 2}\n" in done.stdout
    assert ("the kubeconfig has no context gone: sh starts without a context" in done.stderr) is warned


EXPORT = {
    "bash": (".bashrc", "export KUBECONFIG={0}\n"),
    "zsh": (".zshrc", "export KUBECONFIG={0}\n"),
    "fish": (".config/fish/config.fish", "set -gx KUBECONFIG {0}\n"),
}


WORDS = [*EXPORT, "bash -il", "bash -li", "zsh -il"]


def typed_in_a_pane(home: Path, state: Path, words: str, typed: str) -> str:
    """The output of `kube run` of these words on a terminal, in a pane with a context that is gone."""
    gpuctl = shlex.join([str(Path(sys.executable).with_name("gpuctl")), "kube", "run", "--", *shlex.split(words)])
    variables = {"GPUCTL_KUBE_CONTEXT": "gone", "GPUCTL_STATE_DIR": str(state), "HOME": str(home), "TERM": "dumb"}
    variables = {**os.environ, **variables, "KUBECONFIG": "", "TMUX": "", "TMUX_PANE": "", "ENV": f"{home}/env"}
    argv = ["script", "-qec", gpuctl, "/dev/null"]
    done = subprocess.run(argv, env=variables, input=typed, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout


@pytest.mark.parametrize("words", WORDS)
def test_no_start_up_file_of_a_panes_shell_brings_the_current_context_back(
    tmp_path: Path, state: Path, words: str
) -> None:
    name = words.split(maxsplit=1)[0]
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    path = tmp_path / "kubeconfig"
    path.write_text("current-context: prod\ncontexts: [{name: prod, context: {}}]\n")
    file, text = EXPORT[name]
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text.format(path))
    (tmp_path / ".bash_profile").write_text(f"export KUBECONFIG={path}\n")
    typed_in_a_pane(tmp_path, state, words, 'cp "$KUBECONFIG" "$HOME/effective"\nexit\n')
    assert "current-context: ''" in (tmp_path / "effective").read_text()


@pytest.mark.parametrize(("words", "file"), [("bash -l", ".bash_profile"), ("zsh -l", ".zprofile")])
def test_a_login_shell_reads_its_files_also_without_a_readable_kubeconfig(
    tmp_path: Path, state: Path, words: str, file: str
) -> None:
    if shutil.which(words.split(maxsplit=1)[0]) is None:
        pytest.skip(f"{words} is not installed")
    (tmp_path / file).write_text("MINE=mine\n")
    (tmp_path / ".zshrc").touch()
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube/config").write_bytes(b"\xff")
    output = typed_in_a_pane(tmp_path, state, words, 'echo "[$MINE]"; cp "$KUBECONFIG" "$HOME/effective"\nexit\n')
    assert "[mine]" in output
    assert f"{words.split(maxsplit=1)[0]} starts without a context" in output
    assert "kind: Config" in (tmp_path / "effective").read_text()


def test_a_zsh_that_would_not_read_the_files_of_gpuctl_is_refused(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program sets what a system-wide zshenv would, as that of this machine is not changed for a test."""
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("zsh is not installed")
    program = tmp_path / "zsh"
    program.write_text(f'#!/bin/sh\nZDOTDIR=$HOME exec {zsh} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(InvalidInput, match="the system's zshenv sets ZDOTDIR"):
        shell.run([str(program), "-i"], print)
    assert not state.exists()


def test_a_shell_that_reads_only_the_file_of_env_gets_none_in_a_pane_with_a_context(
    tmp_path: Path, state: Path
) -> None:
    (tmp_path / "env").write_text("export KUBECONFIG=/home/me/production\n")
    typed_in_a_pane(tmp_path, state, "dash", 'cp "$KUBECONFIG" "$HOME/effective"\nexit\n')
    assert "current-context" in (tmp_path / "effective").read_text()


@pytest.mark.parametrize("words", ["bash --noprofile -i", "bash -lo vi", "zsh -o vi", "dash -l", "tcsh", "nu -e true"])
def test_a_shell_with_other_start_up_files_is_refused_in_a_pane_with_a_context(
    state: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("GPUCTL_KUBE_CONTEXT", "gone")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(InvalidInput, match=f"cannot start {words}: its start-up files could select another cluster"):
        shell.run(words.split(), print)
    assert not state.exists()


@pytest.mark.parametrize(
    ("words", "interactive"),
    [
        ("bash", True),
        ("bash -c ls", False),
        ("bash -ic ls", True),
        ("bash -e script", False),
        ("bash -lo vi", True),
        ("bash --rcfile x", True),
        ("bash -- script", False),
        ("bash -s", True),
        ("sh script -i", False),
        ("nu --commands ls", False),
        ("nu -e ls", True),
        ("tcsh -", True),
    ],
)
def test_a_shell_is_interactive_without_a_command_or_a_script(words: str, interactive: bool) -> None:
    name, *rest = words.split()
    assert shell_options.is_interactive(name, rest) is interactive
