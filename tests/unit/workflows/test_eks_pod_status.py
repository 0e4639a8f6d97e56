"""GPU pods in the status of a cluster: each trouble with its cause; what cannot be read is UNKNOWN, not zero."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain import public_keys
from gpuctl.domain.findings import Finding
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube.cluster import Object, Request
from gpuctl.edges.ssh_keys import pair
from gpuctl.eks.gpu_pod import objects, scripts
from gpuctl.eks.gpu_pod.model import Form, Options
from gpuctl.workflows import eks_pod, eks_pod_status, eks_ssh
from gpuctl.workflows.eks_access import Place
from gpuctl.workflows.eks_pod import PodRequest
from gpuctl.workflows.eks_pod_status import Skipped
from tests.rig.standin_namespace import StandinNamespace

PLACE = Place("lab", "gpu", "lab", "team", [], "123456789012", "us-west-2")
FACTS = "image registry/ml:1; `gpuctl eks connect` writes its name for ssh; 1 key"
NO_GPU = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


@pytest.fixture(autouse=True)
def files_of_each_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries for ssh are of no other test, and not the user's."""
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path / "config"))


class WithoutSecrets(StandinNamespace):
    """The API refuses to read Secrets once `closed`."""

    closed = False

    def once(self, request: Request, silent_s: float = 0) -> Object:
        if self.closed and "/secrets" in request.path:
            raise Forbidden(request.doing, "secrets are forbidden")
        return super().once(request, silent_s)


def with_pod(status: Object, node: str = "") -> WithoutSecrets:
    cluster, keys = WithoutSecrets(), public_keys.parse(pair()[1], "agent", "use it")
    eks_pod.ensure(cluster, PLACE, PodRequest(Options(image="registry/ml:1"), keys), lambda _: None)
    pod: dict[str, Any] = cluster.items[cluster.name("Pod", "gpu")]
    pod["status"] = status
    pod["spec"] = {**pod["spec"], **({"nodeName": node} if node else {})}
    return cluster


def judged(cluster: WithoutSecrets) -> tuple[str, str]:
    (finding,) = eks_pod_status.judge("lab", eks_pod_status.pods(cluster, PLACE), "team")
    assert isinstance(finding, Finding)
    return str(finding.verdict), finding.message


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def test_a_ready_pod_with_its_image_name_for_ssh_and_keys() -> None:
    assert judged(with_pod(READY, "n1")) == ("OK", f"is ready on n1; {FACTS}")


def test_a_pod_that_waits_for_a_gpu_has_the_cause() -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_GPU}
    verdict, message = judged(with_pod({"phase": "Pending", "conditions": [scheduled]}))
    assert verdict == "WARN"
    assert "too little nvidia.com/gpu free" in message
    assert message.endswith(FACTS)


def test_images_that_cannot_be_pulled_or_have_no_sshd_fail() -> None:
    def container(state: Object) -> Object:
        return {"phase": "Pending", "containerStatuses": [{"name": "gpu", "ready": False, "state": state}]}

    bad = container({"waiting": {"reason": "InvalidImageName", "message": "invalid reference"}})
    verdict, message = judged(with_pod(bad, "n1"))
    assert (verdict, "invalid reference" in message) == ("FAIL", True)
    ended = container({"terminated": {"exitCode": scripts.NO_SSHD, "reason": "Error"}})
    verdict, message = judged(with_pod(ended, "n1"))
    assert (verdict, "has no sshd" in message) == ("FAIL", True)


def test_keys_that_cannot_be_read_are_unknown() -> None:
    cluster = with_pod(READY, "n1")
    cluster.closed = True
    verdict, message = judged(cluster)
    assert (verdict, "UNKNOWN keys (secrets are forbidden)" in message) == ("UNKNOWN", True)


def test_a_pod_without_keys_and_one_of_somebody_else() -> None:
    cluster = with_pod(READY, "n1")
    secret: dict[str, Any] = cluster.items[cluster.name("Secret", "gpu-keys")]
    secret["data"] = {}
    other = objects.pod("web", Form("web:1"), "x", "none")
    cluster.add({**other, "metadata": {"name": "web", "labels": {"app": "web"}}})
    verdict, message = judged(cluster)
    assert (verdict, "nobody can log in" in message) == ("WARN", True)


def test_the_name_for_ssh_is_shown_once_it_leads_to_the_pod() -> None:
    cluster = with_pod(READY, "n1")
    eks_ssh.write_entry(cluster, PLACE, cluster.items[cluster.name("Pod", "gpu")])
    assert "; ssh lab.gpu.team.us-west-2, without a load balancer;" in judged(cluster)[1]
    (other,) = eks_pod_status.pods(cluster, replace(PLACE, account="999999999999"))
    assert other.host is None


def test_a_namespace_without_a_gpu_pod_and_one_that_does_not_exist() -> None:
    cluster = StandinNamespace()
    with pytest.raises(InvalidInput, match="the namespace team does not exist"):
        eks_pod_status.pods(cluster, PLACE)
    cluster.items[cluster.path_of(cluster.kind("v1", "Namespace"), "team")] = {"metadata": {"name": "team"}}
    (finding,) = eks_pod_status.judge("lab", eks_pod_status.pods(cluster, PLACE), "team")
    assert (str(finding.verdict), finding.message) == ("OK", "no GPU pod in namespace team")


def test_pods_that_were_not_asked_for_or_not_answered_are_null() -> None:
    assert eks_pod_status.judge("lab", Skipped("--no-pods"), "") == []
    assert eks_pod_status.details(Skipped("--no-pods")) == {
        "pods": None,
        "pods_unknown": "Kubernetes was not asked: --no-pods",
    }
    (finding,) = eks_pod_status.judge("lab", GpuctlError("list pods", "no permission"), "")
    assert (str(finding.verdict), finding.hint) == ("UNKNOWN", eks_pod_status.ACCESS)
