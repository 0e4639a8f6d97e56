"""What the smart shell does in a real bash, without a terminal and without a cluster."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuctl.kube import shell


def typed(home: Path, bashrc: str, *lines: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Type lines into a smart bash whose copy is `own.yml`, and whose prompt has been written already."""
    (home / ".bashrc").write_text(bashrc)
    user_config = home / "own.yml"
    user_config.touch()
    Path(f"{user_config}.from").touch()
    Path(f"{user_config}.prompt").write_text("staging\nstaging-eu\nweb\n")
    variables = {
        "HOME": str(home),
        "PATH": f"{home}:{os.environ['PATH']}",
        "KUBECONFIG": str(user_config),
        "GPUCTL_KUBECONFIG": str(user_config),
        "GPUCTL_KUBE_FROM": "",
        "GPUCTL_KUBE_FOLDER": str(shell.FOLDER),
        "GPUCTL_KUBE_WRAPPERS": str(home / "wrappers"),
        "GPUCTL_KUBE_SETTINGS": str(home / "none"),
        "GPUCTL_KUBE_COMPLETION": str(home / "none"),
        "GPUCTL_PROGRAM": str(home / "gpuctl"),
        **environment,
    }
    argv = ["bash", "--noprofile", "--rcfile", str(shell.FOLDER / "bash.sh"), "-i"]
    text = "\n".join([*lines, "exit", ""])
    return subprocess.run(
        argv, env=variables, cwd=home, input=text, capture_output=True, text=True, check=False, timeout=30
    )


@pytest.mark.parametrize(
    "bashrc",
    [
        'PROMPT_COMMAND="history -a; $PROMPT_COMMAND"',
        'PROMPT_COMMAND="history -a;"',
        "PROMPT_COMMAND='history -a  # keep it'",
        "PROMPT_COMMAND=('history -a' 'PS1=\"mine \"')",
        "",
    ],
)
def test_the_prompt_shows_the_context_whatever_else_bash_runs_before_it(tmp_path: Path, bashrc: str) -> None:
    done = typed(tmp_path, bashrc, 'echo "seen ${PS1@P}"')
    assert "seen " in done.stdout
    assert "staging-eu web" in done.stdout
    assert "syntax error" not in done.stderr


def test_the_pane_option_names_the_kubeconfig_that_the_user_switched_to(tmp_path: Path) -> None:
    (tmp_path / "tmux").write_text('#!/bin/sh\necho "$*" >>"$HOME/told"\n')
    (tmp_path / "tmux").chmod(0o755)
    lines = ["export KUBECONFIG=/x/prod", "true", "export KUBECONFIG=a:b", "unset KUBECONFIG", ": back"]
    lines.append("export KUBECONFIG=$GPUCTL_KUBECONFIG")
    typed(tmp_path, "", *lines, "true", TMUX_PANE="%7")
    told = [line.split("@gpuctl_kubeconfig ") for line in (tmp_path / "told").read_text().splitlines()]
    assert {before for before, _ in told} == {"set-option -p -t %7 "}
    places = ["/x/prod", f"{tmp_path}/a:{tmp_path}/b", f"{tmp_path}/.kube/config", f"{tmp_path}/own.yml"]
    assert [after for _, after in told] == places


@pytest.mark.parametrize(("typing", "asked"), [("true", ""), ("sleep 0.01; echo x >>$KUBECONFIG", "kube leave ")])
def test_a_changed_copy_is_checked_for_new_entries_when_the_shell_ends(tmp_path: Path, typing: str, asked: str) -> None:
    (tmp_path / "gpuctl").write_text('#!/bin/sh\n[ "$2" = prompt ] || echo "$*" >>"$HOME/asked"\n')
    (tmp_path / "gpuctl").chmod(0o755)
    typed(tmp_path, "", typing)
    found = tmp_path / "asked"
    assert (found.read_text() if found.exists() else "").startswith(asked)
    assert found.exists() is bool(asked)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("own.yml")]


def test_the_wrappers_stay_first_on_the_path_whatever_changes_it(tmp_path: Path) -> None:
    lines = ['echo "start $PATH"', "PATH=/x/bin:$PATH", 'echo "then $PATH"']
    output = typed(tmp_path, "PATH=$HOME/bin:$PATH", *lines).stdout
    start = f"{tmp_path}/wrappers:{tmp_path}/bin:{tmp_path}:"
    assert f"start {start}" in output
    assert f"then {tmp_path}/wrappers:/x/bin:{start.removeprefix(f'{tmp_path}/wrappers:')}" in output
    assert output.splitlines()[-1].count("/wrappers:") <= 1


def test_a_missing_context_of_a_pane_is_reported(tmp_path: Path) -> None:
    (tmp_path / "gpuctl").write_text("#!/bin/sh\nprintf 'none\\nno context\\n\\n' >\"$HOME/own.yml.prompt\"\n")
    (tmp_path / "gpuctl").chmod(0o755)
    bashrc = "export KUBECONFIG=$HOME/other"
    message = "this pane belongs to the context gone, which the kubeconfig does not have: no context is selected"
    assert message in typed(tmp_path, bashrc, GPUCTL_KUBE_CONTEXT="gone").stdout
    assert message not in typed(tmp_path, bashrc).stdout
    assert message not in typed(tmp_path, "", GPUCTL_KUBE_CONTEXT="staging-eu").stdout
