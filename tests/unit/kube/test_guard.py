"""Which kubectl commands are asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuctl.core.settings import Settings
from gpuctl.kube import guard, shell
from gpuctl.kube.confirm import question
from tests.rig.needs import HOSTS, need

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
    assert guard.destroys(guard.read(line.split())) == does


@pytest.mark.parametrize("line", KEEP)
def test_other_commands_need_no_confirmation(line: str) -> None:
    assert guard.destroys(guard.read(line.split())) == ""


@pytest.mark.parametrize("name", ["bash", "zsh"])
@pytest.mark.parametrize("separator", ["unset IFS", "IFS=,", "IFS="])
def test_the_shell_function_passes_every_destructive_verb_to_the_guard(name: str, separator: str) -> None:
    """shell.sh looks for words before it starts gpuctl: every command above must have one of them."""
    if shutil.which(name) is None:
        need(f"{name} is not installed", HOSTS)
    code = (shell.HERE / "shell.sh").read_text()
    function = code[code.index("function kubectl {") : code.index("function kctx")]
    lines = "\n".join(f"kubectl {line}" for line, _ in DESTROY)
    script = f"GPUCTL_PROGRAM=asked; asked() {{ echo asked; return 1; }}\n{function}\n{separator}\n{lines}\n"
    done = subprocess.run([name, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["asked"] * len(DESTROY)


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
    assert where in question(line.split(), Settings())


@pytest.mark.parametrize("line", ["delete pod x --context dev", "get pods", "delete pod x --context=nowhere"])
def test_no_question_outside_production(config: Path, line: str) -> None:
    assert question(line.split(), Settings()) == ""


def test_an_unreadable_context_needs_confirmation(config: Path) -> None:
    config.write_text("{")
    assert "the context is unknown" in question(["delete", "pod", "x"], Settings())
