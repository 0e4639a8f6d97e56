"""eks pod and eks keys on the command line: the report comes before the question, and UNKNOWN lines end with 1."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.app import app
from gpuctl.domain import public_keys
from gpuctl.domain.findings import Finding, fail, ok
from gpuctl.edges.ssh_keys import pair
from gpuctl.eks.gpu_pod import objects
from gpuctl.eks.gpu_pod.model import Form
from gpuctl.workflows import eks_access, eks_pod, eks_ssh
from tests.rig.standin_namespace import StandinNamespace

KEYS = public_keys.parse(pair()[1], "agent", "use it")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandinNamespace:
    cluster = StandinNamespace()
    cluster.add(objects.keys("gpu", KEYS, Form("registry/ml:1")))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path / "config"))
    place = eks_access.Place("lab", "gpu", "lab", "team", [Path("/etc/kubeconfig")])
    monkeypatch.setattr(eks_access, "place", lambda _: place)
    monkeypatch.setattr(eks_access.Place, "connect", lambda _: cluster)
    return cluster


def invoke(*words: str, answer: str = "") -> Result:
    return CliRunner().invoke(app, ["eks", *words], input=answer, catch_exceptions=False)


def make(monkeypatch: pytest.MonkeyPatch, findings: Sequence[Finding], answer: str, *words: str) -> Result:
    """Run `eks pod` as on a terminal, with these findings about the pod."""
    monkeypatch.setattr("gpuctl.cli.eks.pod.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(eks_pod, "wait", lambda *_: list(findings))
    return invoke("pod", "lab", "--no-agent", "-o", "json", *words, answer=answer)


READY = [ok("pod", "Pod gpu", "is ready")]


@pytest.mark.parametrize(("answer", "included"), [("y\n", True), ("n\n", False)])
def test_the_report_comes_before_the_question(
    answer: str, included: bool, cluster: StandinNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = make(monkeypatch, READY, answer)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["verdict"] == "OK"
    assert done.output.index('"verdict"') < done.output.index("Add `Include")
    assert (eks_ssh.is_included(), eks_ssh.was_refused()) == (included, not included)
    assert "Add `Include" not in make(monkeypatch, READY, "").output


def test_an_interrupted_question_loses_no_report(cluster: StandinNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    done = make(monkeypatch, READY, "")  # the input ends, as with Ctrl-D
    assert json.loads(done.stdout)["verdict"] == "OK"
    assert not eks_ssh.was_refused()


@pytest.mark.parametrize(
    ("findings", "words"),
    [([fail("pod", "Pod gpu", "waits")], ()), (READY, ("--no-include",)), (READY, ("--include",))],
)
def test_nothing_is_asked_about_a_pod_that_is_not_ready_or_with_an_option(
    findings: list[Finding], words: tuple[str, ...], cluster: StandinNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Add `Include" not in make(monkeypatch, findings, "", *words).output
    assert eks_ssh.is_included() is ("--include" in words)


def test_a_line_that_gpuctl_does_not_understand_is_unknown(cluster: StandinNamespace) -> None:
    assert invoke("keys", "lab").exit_code == 0
    secret = cluster.items[cluster.name("Secret", "gpu-keys")]
    content = public_keys.text(KEYS) + 'command="sh" ssh-ed25519 SECRETWORD\n'
    secret["data"]["authorized_keys"] = base64.b64encode(content.encode()).decode()
    listed = invoke("keys", "lab")
    assert listed.exit_code == 1
    assert "UNKNOWN" in listed.stdout
    assert "line 2: it does not begin with a type" in listed.stdout
    assert KEYS[0].fingerprint in listed.stdout
    assert "SECRETWORD" not in listed.output
