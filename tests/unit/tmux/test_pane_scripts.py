"""Panes whose gpuctl cannot start: a declared context never becomes the current one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuctl.tmux import templates

SCRIPTS = Path(templates.__file__).with_name("template") / "scripts"
NO_GPUCTL = "/no-such-gpuctl"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A gpuctl that fails at once, as after a mistake in settings.yml."""
    return program(tmp_path / "gpuctl", "exit 2")


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def output(folder: Path, gpuctl: str, context: str, script: str, *words: str) -> list[str]:
    """Return what a script prints, with a shell and a tmux that do nothing else."""
    program(folder / "bin/tmux", "")
    shell = program(folder / "bash", 'echo "shell with $KUBECONFIG"')
    environment = {
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "TMUX_PANE": "%0",
        "SHELL": str(shell),
        "KUBECONFIG": "/home/me/production",
        "GPUCTL_PROGRAM": gpuctl,
        "GPUCTL_RUN": "[]",
        "GPUCTL_KUBE_CONTEXT": context,
    }
    argv = ["sh", str(SCRIPTS / script), *words]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_users_own_shell_has_no_kubeconfig_in_a_pane_of_a_declared_context(tmp_path: Path, broken: Path) -> None:
    for gpuctl in (NO_GPUCTL, str(broken)):
        *_, why, shell = output(tmp_path, gpuctl, "dev-eu", "shell.sh")
        assert shell == "shell with /dev/null"
        assert "no kubeconfig" in why
        assert "dev-eu" in why
        assert output(tmp_path, gpuctl, "", "shell.sh")[-1] == "shell with /home/me/production"


def test_a_program_has_no_kubeconfig_in_a_pane_of_a_declared_context(tmp_path: Path) -> None:
    why, printed, _, *rest = output(tmp_path, NO_GPUCTL, "dev-eu", "pane.sh", "", "printenv", "KUBECONFIG")
    assert printed == "/dev/null"
    assert "printenv has no kubeconfig" in why
    assert "dev-eu" in why
    assert rest[-1] == "shell with /dev/null"
    assert output(tmp_path, NO_GPUCTL, "", "pane.sh", "", "printenv", "KUBECONFIG")[0] == "/home/me/production"


def test_a_program_does_not_start_if_gpuctl_fails_to_prepare_its_kubeconfig(tmp_path: Path, broken: Path) -> None:
    first, *rest = output(tmp_path, str(broken), "dev-eu", "pane.sh", "", "printenv", "KUBECONFIG")
    assert first.startswith("printenv ended (exit status 2)")
    assert rest[-1] == "shell with /dev/null"


EXPORT = "export KUBECONFIG=/home/me/production\nMINE=mine\n"
START_UP_FILES = {
    "bash": {".bashrc": EXPORT},
    "zsh": {".zshenv": EXPORT, ".zshrc": EXPORT},
    "fish": {".config/fish/config.fish": "set -gx KUBECONFIG /home/me/production; set MINE mine"},
    "dash": {".profile": EXPORT, "env": "export KUBECONFIG=/home/me/production\n"},
}


@pytest.mark.parametrize("name", START_UP_FILES)
def test_no_start_up_file_of_the_users_shell_brings_a_kubeconfig_back(tmp_path: Path, name: str) -> None:
    shell = shutil.which(name)
    if shell is None:
        pytest.skip(f"{name} is not installed")
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    temporary.mkdir()
    for file, text in START_UP_FILES[name].items():
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(text)
    environment = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "ENV": str(home / "env"),
        "TMPDIR": str(temporary),
        "SHELL": shell,
        "KUBECONFIG": "/home/me/production",
        "GPUCTL_PROGRAM": NO_GPUCTL,
        "GPUCTL_KUBE_CONTEXT": "dev-eu",
    }
    argv, typed = ["sh", str(SCRIPTS / "shell.sh")], 'echo "[$KUBECONFIG $MINE]"\nexit\n'
    done = subprocess.run(argv, env=environment, input=typed, capture_output=True, text=True, check=False)
    mine = "" if name == "dash" else "mine"
    assert f"[/dev/null {mine}]" in done.stdout
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "zshenv", ["ZDOTDIR=$HOME/dot; export ZDOTDIR", "ZDOTDIR=$HOME/dot KUBECONFIG=/prod; export ZDOTDIR KUBECONFIG"]
)
def test_a_system_wide_zshenv_that_names_another_folder_brings_no_kubeconfig_back(tmp_path: Path, zshenv: str) -> None:
    """The program sets what such a file would, as that of this machine is not changed for a test."""
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("zsh is not installed")
    (tmp_path / "dot").mkdir()
    (tmp_path / "dot/.zshrc").write_text(EXPORT)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    shell = program(tmp_path / "zsh", f'{zshenv}; exec {zsh} "$@"')
    environment = {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "TMPDIR": str(temporary),
        "SHELL": str(shell),
        "GPUCTL_PROGRAM": NO_GPUCTL,
        "GPUCTL_KUBE_CONTEXT": "dev-eu",
    }
    argv, typed = ["sh", str(SCRIPTS / "shell.sh")], 'echo "[$KUBECONFIG $MINE]"\nexit\n'
    done = subprocess.run(argv, env=environment, input=typed, capture_output=True, text=True, check=False)
    assert "[/dev/null ]" in done.stdout
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("name", ["mksh", "sh"])
def test_a_shell_with_a_file_of_env_gets_an_empty_one(tmp_path: Path, name: str) -> None:
    """mksh reads ~/.mkshrc if ENV is empty."""
    shell = program(tmp_path / name, 'echo "ENV is $ENV"')
    environment = {
        "PATH": "/usr/bin:/bin",
        "SHELL": str(shell),
        "GPUCTL_PROGRAM": NO_GPUCTL,
        "GPUCTL_KUBE_CONTEXT": "x",
    }
    argv = ["sh", str(SCRIPTS / "shell.sh")]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert "ENV is /dev/null" in done.stdout


def test_an_unknown_shell_is_replaced_in_a_pane_without_a_context(tmp_path: Path) -> None:
    odd = program(tmp_path / "nu", "echo started")
    environment = {"PATH": "/usr/bin:/bin", "SHELL": str(odd), "GPUCTL_PROGRAM": NO_GPUCTL, "GPUCTL_KUBE_CONTEXT": "x"}
    argv = ["sh", str(SCRIPTS / "shell.sh")]
    typed = 'echo "[$KUBECONFIG]"\n'
    done = subprocess.run(argv, env=environment, input=typed, capture_output=True, text=True, check=False)
    assert "started" not in done.stdout
    assert "[/dev/null]" in done.stdout
    assert f"it is /bin/sh, as the start-up files of {odd}" in done.stdout
