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
from gpuctl.core.errors import InvalidInput
from gpuctl.domain import public_keys
from gpuctl.domain.findings import Finding, fail, ok, unknown
from gpuctl.edges.ssh_keys import pair
from gpuctl.eks.gpu_pod import exposure, objects
from gpuctl.eks.gpu_pod.exposure import Exposure
from gpuctl.eks.gpu_pod.model import Form
from gpuctl.workflows import eks_access, eks_expose, eks_pod, eks_ssh
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


# ---- --expose --------------------------------------------------------------------------------------------------------

OFFICE = ("--expose", "nlb", "--allow-from", "203.0.113.0/24")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--expose", "nlb"), "nothing says who may connect"),
        (("--expose", "nlb", "--allow-from", "0.0.0.0/0"), "only --allow-from-whole-internet opens"),
        (("--expose", "none", "--allow-from", "203.0.113.7"), "--allow-from belongs to --expose nlb"),
    ],
)
def test_ranges_are_checked_before_anything_is_asked(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        invoke("pod", "lab", "--no-agent", *words)


def test_the_plan_comes_before_the_first_write_and_needs_consent(
    cluster: StandinNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="there is no terminal"):
        invoke("pod", "lab", "--no-agent", *OFFICE)
    assert cluster.writes == []
    monkeypatch.setattr("gpuctl.cli.shared.options.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    declined = CliRunner().invoke(app, ["eks", "pod", "lab", "--no-agent", *OFFICE], input="n\n")
    assert "port 22 is open to 203.0.113.0/24" in declined.output
    assert "cost: UNKNOWN USD an hour" in declined.output
    assert (declined.exit_code, cluster.writes) == (1, [])  # click's own runner; gpuctl ends with 130


def test_an_exposed_pod_stays_exposed_and_its_new_sshd_listens_for_that(
    cluster: StandinNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = exposure.service("gpu", Exposure(("203.0.113.0/24",)))
    named = {**service, "status": {"loadBalancer": {"ingress": [{"hostname": "k8s-1.elb.example.com"}]}}}
    cluster.add(named, **service["metadata"], creationTimestamp="2020-01-01T00:00:00Z")
    report = json.loads(make(monkeypatch, READY, "").stdout)
    assert [one["check"] for one in report["findings"]] == ["pod", "expose"]
    config = cluster.items[cluster.name("ConfigMap", "gpu-start")]["data"]["sshd_config"]
    assert "ListenAddress 0.0.0.0:2223" in config
    (entry,) = (eks_ssh.folder()).glob("*.conf")
    assert "ProxyCommand" in entry.read_text()  # this machine has not reached the load balancer yet
    place = eks_access.Place("lab", "gpu", "lab", "team", [])
    pod = cluster.items[cluster.name("Pod", "gpu")]
    unreached = unknown("expose", "Service gpu-ssh", "not reached", "")
    for finding, leads in ((ok("expose", "Service gpu-ssh", "sshd answers"), True), (unreached, False)):
        made = eks_expose.entry_after(cluster, place, pod, [finding])
        assert (made.address, "HostName k8s-1.elb.example.com" in entry.read_text()) == (
            "k8s-1.elb.example.com" if leads else "",
            leads,
        )
        kept = eks_expose.entry(cluster, place, pod)
        assert kept.address == made.address
        assert "ProxyCommand" in Path(eks_ssh._config(kept)).read_text()  # gpuctl's logins go through the API


def test_expose_none_without_a_pod_makes_none_and_removes_its_load_balancer(
    cluster: StandinNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eks_expose, "LOOK_S", 0)
    for state in ("its load balancer is removed", "it has no load balancer"):
        if "removed" in state:
            cluster.add(exposure.service("gpu", Exposure(("203.0.113.0/24",))))
        done = invoke("pod", "lab", "--no-agent", "--expose", "none")
        assert (done.exit_code, state in done.output) == (0, True)
    assert cluster.writes == [("DELETE", "services/gpu-ssh")]


def test_expose_none_removes_nothing_when_another_option_is_refused(
    cluster: StandinNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make(monkeypatch, READY, "n\n").exit_code == 0
    cluster.add(exposure.service("gpu", Exposure(("203.0.113.0/24",))))
    before = list(cluster.writes)
    with pytest.raises(InvalidInput, match="gpus: 1, not 8"):
        invoke("pod", "lab", "--no-agent", "--expose", "none", "--gpus", "8")
    assert cluster.writes == before
