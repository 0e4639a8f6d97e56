"""Panes whose gpuctl cannot start: a declared context never becomes the current one."""

from __future__ import annotations

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
    shell = program(folder / "shell", 'echo "shell with $KUBECONFIG"')
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
