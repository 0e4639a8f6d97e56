"""Which kubectl commands are asked for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuctl.cli.kube import shell
from gpuctl.core.settings import Settings
from gpuctl.kube import guard, wrappers
from gpuctl.kube.confirm import question

DESTROY = [
    ("delete pod x", "delete"),
    ("-n kube-system delete pod x", "delete"),
    ("-nkube-system delete pod x", "delete"),
    ("--context prod-eu delete -f x.yml", "delete"),
    ("-l app=x delete pods", "delete"),
    ("drain gpu-1 --ignore-daemonsets", "drain"),
    ("cordon gpu-1", "cordon"),
    ("scale deploy x --replicas=0", "scale to 0"),
    ("scale deploy x --replicas 0", "scale to 0"),
    ("scale --replicas 0 deploy x", "scale to 0"),
    ("apply --prune -l app=x -f .", "apply --prune"),
    ("apply -f . --prune=true", "apply --prune"),
    ("replace --force -f x.yml", "replace --force"),
    ("rollout undo deploy/x", "rollout undo"),
    ("-n x rollout restart deploy/x", "rollout restart"),
    ("taint nodes gpu-1 key=value:NoExecute", "taint with NoExecute"),
    ("cnpg delete x", "delete"),
    ("rollout -l app=web restart deployment", "rollout restart"),
    ("rollout --selector app=web undo deployment", "rollout undo"),
    ("-l get delete pods", "delete"),
    ("delete pod x --help=false", "delete"),
    ("delete pod x -h=0", "delete"),
    ("delete pod x --dry-run=f", "delete"),
    ("scale deploy x --replicas=0x0", "scale to 0"),
    ("scale deploy x --replicas=-0", "scale to 0"),
]
KEEP = [
    "get pods",
    "get pods delete",
    "scale deploy x --replicas=3",
    "scale deploy x --replicas 10",
    "apply -f delete.yml",
    "apply --prune=false -f .",
    "delete pod x --dry-run=client",
    "delete --help",
    "delete --help=true",
    "apply --prune=F -f .",
    "scale deploy x --replicas=0x10",
    "exec x -- rm delete",
    "logs delete",
    "rollout status deploy/x",
    "uncordon gpu-1",
    "taint nodes gpu-1 key=value:NoExecute-",
    "-n delete get pods",
    "",
]


@pytest.mark.parametrize(("line", "does"), DESTROY)
def test_destructive_commands_are_recognised(line: str, does: str) -> None:
    assert destroys("kubectl", line) == does


@pytest.mark.parametrize("line", KEEP)
def test_other_commands_need_no_confirmation(line: str) -> None:
    assert destroys("kubectl", line) == ""


OTHERS = [
    ("oc", "adm drain gpu-1", "drain"),
    ("oc", "delete project team", "delete"),
    ("oc", "idle web", "idle"),
    ("oc", "rollback web", "rollback"),
    ("oc", "adm prune builds --confirm", "prune"),
    ("oc", "adm prune builds", ""),
    ("oc", "project delete", ""),
    ("helm", "uninstall web", "uninstall"),
    ("helm", "-n team un web", "uninstall"),
    ("helm", "--kube-context prod-eu delete web", "uninstall"),
    ("helm", "rollback web 3", "rollback"),
    ("helm", "upgrade web . --force", "upgrade --force"),
    ("helm", "upgrade web . --force=false", ""),
    ("helm", "upgrade --install web .", ""),
    ("helm", "uninstall web --dry-run", ""),
    ("helm", "plugin uninstall diff", ""),
    ("helm", "status delete", ""),
]


def destroys(program: str, line: str) -> str:
    return guard.destroys(program, guard.read(program, line.split()))


@pytest.mark.parametrize(("program", "line", "does"), OTHERS)
def test_oc_and_helm_have_destructive_commands_of_their_own(program: str, line: str, does: str) -> None:
    assert destroys(program, line) == does


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A PATH with the wrappers, of programs that print their name and arguments, and a gpuctl that refuses."""
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUCTL_PROGRAM", str(tmp_path / "bin/gpuctl"))
    (tmp_path / "bin").mkdir()
    for name in ("kubectl", "helm"):
        (tmp_path / "bin" / name).write_text('#!/bin/sh\necho "$0 $*"\n')
    (tmp_path / "bin/gpuctl").write_text('#!/bin/sh\necho "asked: $*"\nexit 7\n')
    for program in (tmp_path / "bin").iterdir():
        program.chmod(0o755)
    path = wrappers.place(f"{tmp_path}/bin:{os.defpath}")
    monkeypatch.setenv("PATH", path)
    return path


def ran(script: str, shell: Sequence[str] = ("sh", "-c")) -> tuple[int, list[str]]:
    done = subprocess.run([*shell, script], capture_output=True, text=True, check=False, timeout=30)
    return done.returncode, done.stdout.splitlines()


def test_the_wrapper_passes_every_destructive_command_to_the_guard(installed: str, tmp_path: Path) -> None:
    """It looks for words before it starts gpuctl: every command above must have one of them."""
    lines = [("kubectl", line) for line, _ in DESTROY] + [(name, line) for name, line, does in OTHERS if does]
    lines = [(name, line) for name, line in lines if name != "oc"]
    _, output = ran("\n".join(f"{name} {line}" for name, line in lines))
    assert output == [f"asked: kube guard -- {tmp_path}/bin/{name} {line}" for name, line in lines]


@pytest.mark.parametrize(
    "script",
    [
        "echo x | xargs kubectl delete pod",
        "timeout 20 kubectl delete pod x",
        "env kubectl delete pod x",
        "command kubectl delete pod x",
        "PATH=$PATH:/nowhere kubectl delete pod x",
    ],
)
def test_the_guard_holds_in_pipes_scripts_and_other_programs(installed: str, script: str) -> None:
    code, output = ran(script)
    assert (code == 0, [line[:5] for line in output]) == (False, ["asked"])


def test_the_guard_holds_in_login_shells_of_bash_whose_profile_sets_the_path(
    installed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".bash_profile").write_text(f"PATH={tmp_path}/bin:{os.defpath}\n")
    for variable, value in wrappers.bash_functions(installed).items():
        monkeypatch.setenv(variable, value)
    script = tmp_path / "script"
    script.write_text("#!/bin/bash -l\nkubectl delete pod x; kubectl get 'a  b'; command -v oc\n")
    script.chmod(0o755)
    asked = f"asked: kube guard -- {tmp_path}/bin/kubectl delete pod x"
    assert ran("kubectl delete pod x", ("bash", "-lc")) == (7, [asked])
    assert ran(str(script), ()) == (1, [asked, f"{tmp_path}/bin/kubectl get a  b"])
    shutil.rmtree(wrappers.folder())
    assert ran("kubectl get pods", ("bash", "-lc")) == (0, [f"{tmp_path}/bin/kubectl get pods"])


def test_other_commands_run_the_program_with_its_arguments(installed: str, tmp_path: Path) -> None:
    assert ran("kubectl get 'a  b'; kubectl __complete delete ''; helm list") == (
        0,
        [
            f"{tmp_path}/bin/kubectl get a  b",
            f"{tmp_path}/bin/kubectl __complete delete ",
            f"{tmp_path}/bin/helm list",
        ],
    )


def test_programs_that_are_not_installed_have_no_wrapper(installed: str, tmp_path: Path) -> None:
    assert shutil.which("oc") is None
    (tmp_path / "bin/helm").unlink()
    assert ran("helm list") == (127, [])
    assert wrappers.place(installed) == installed
    assert shutil.which("helm") is None
    assert wrappers.wrapped("kubectl") == tmp_path / "bin/kubectl"


def test_wrappers_of_two_installations_do_not_call_each_other_for_ever(installed: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/kubectl").write_text(wrappers.WRAPPER.read_text())
    (tmp_path / "other/kubectl").chmod(0o755)
    for path in (f"{tmp_path}/other:{installed}", installed.replace(":", f":{tmp_path}/other:", 1)):
        assert ran(f"PATH={path} kubectl get pods") == (0, [f"{tmp_path}/bin/kubectl get pods"])


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    contexts = [{"name": n, "context": {"cluster": "c", "user": "u", "namespace": "web"}} for n in ("prod-eu", "dev")]
    path = tmp_path / "config"
    path.write_text(json.dumps({"current-context": "prod-eu", "contexts": contexts}))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("delete pod x", "production context prod-eu (namespace web)"),
        ("delete pod x -n db", "production context prod-eu (namespace db)"),
        ("delete pod --all -A", "production context prod-eu (all namespaces)"),
        ("delete pod x -s https://10.0.0.1", "its stage is unknown"),
        ("delete pod x -shttps://10.0.0.1", "its stage is unknown"),
        ("delete pod x --cluster other", "its stage is unknown"),
    ],
)
def test_the_question_names_context_and_namespace(config: Path, line: str, where: str) -> None:
    assert where in question("kubectl", line.split(), Settings())


@pytest.mark.parametrize("line", ["delete pod x --context dev", "get pods", "delete pod x --context=nowhere"])
def test_no_question_outside_production(config: Path, line: str) -> None:
    assert question("kubectl", line.split(), Settings()) == ""


def test_helm_reads_its_context_from_options_and_environment(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ["uninstall", "x"]
    assert "helm uninstall in the production context prod-eu (namespace web)" in question("helm", line, Settings())
    assert question("helm", [*line, "--kube-context", "dev"], Settings()) == ""
    monkeypatch.setenv("HELM_KUBECONTEXT", "dev")
    monkeypatch.setenv("HELM_NAMESPACE", "db")
    assert question("helm", line, Settings()) == ""
    assert "prod-eu (namespace db)" in question("helm", [*line, "--kube-context=prod-eu"], Settings())
    monkeypatch.setenv("HELM_KUBEAPISERVER", "https://10.0.0.1")
    assert "its stage is unknown" in question("helm", line, Settings())


def test_an_unreadable_context_needs_confirmation(config: Path) -> None:
    config.write_text("{")
    assert "the context is unknown" in question("kubectl", ["delete", "pod", "x"], Settings())


@pytest.mark.parametrize("name", ["guard", "run"])
def test_the_commands_of_the_start_up_files_explain_themselves(name: str) -> None:
    done = CliRunner().invoke(getattr(shell, name), ["--help"])
    assert (done.exit_code, done.output.startswith(f"Usage: {name} ")) == (0, True)
