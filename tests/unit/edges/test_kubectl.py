"""What kubectl cannot do, in words that say why."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges import processes
from gpuctl.edges.kube import kubectl, kubectl_watch
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.edges.programs import gist
from gpuctl.kube.watch import Pods


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for kubectl that finds no cluster; returns where a kubeconfig may be put."""
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\necho 'The connection to the server localhost:8080 was refused' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return tmp_path / "config"


def test_a_missing_kubeconfig_is_not_told_as_a_dead_server(refused: Path) -> None:
    with pytest.raises(InvalidInput, match=f"there is no kubeconfig {refused}"):
        Kubectl().ask("explain the pod x", "get", "pod", "x")


def test_with_a_kubeconfig_it_is_the_server_that_does_not_answer(refused: Path) -> None:
    refused.write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(GpuctlError, match="was refused") as told:
        Kubectl().ask("explain the pod x", "get", "pod", "x")
    assert not isinstance(told.value, InvalidInput)


# As kubectl 1.31 prints a proxy's answer, with its line ends escaped or not.
PAGE = """\
<html>\r
<head><title>502 Bad Gateway</title></head>\r
<body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx</center></body>\r
</html>"""


@pytest.mark.parametrize("page", [PAGE, repr(PAGE)[1:-1]], ids=["lines", "escaped"])
def test_of_a_servers_error_page_the_title_is_told(page: str) -> None:
    failure = (
        f'E1127 memcache.go:265] "Unhandled"\nError from server (InternalError): an error on the server ("{page}")'
    )
    assert gist(f"{failure} has prevented the request from succeeding\n") == "502 Bad Gateway"


def test_of_other_errors_the_last_line_is_told() -> None:
    assert gist("a warning\nerror: the <pod> is gone\n\n") == "the <pod> is gone"
    assert gist("\n") == "it failed without a message"
    assert gist("<html></html>") == "the server answered with an empty page"


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for kubectl that prints the beginning of an object for ever."""
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\nprintf '{\\n'\nexec yes '  \"x\": 1,'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.mark.usefixtures("endless")
def test_kubectl_that_prints_for_ever_is_stopped_and_none_of_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubectl, "MOST_OF_A_LIST", 1 << 20)
    assert Kubectl().try_to("get", "pods") == (125, "", "kubectl printed more than 1 MiB and was stopped")
    with pytest.raises(GpuctlError, match="printed more than 1 MiB"):
        Kubectl("lab").json("list pods", "get", "pods")
    monkeypatch.setattr(processes, "MOST_OUTPUT", 1 << 20)
    assert kubectl.output_of(["kubectl", "get", "pods"]) is None


@pytest.mark.usefixtures("endless")
def test_a_watch_that_prints_for_ever_is_lost_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubectl_watch, "MOST_OF_A_LIST", 1 << 20)
    losses: queue.Queue[str] = queue.Queue()
    events = kubectl_watch.Events(Kubectl(), kubectl_watch.WatchTarget("pods"), lambda *_: None, losses.put)
    events.start()
    try:
        assert losses.get(timeout=20) == "kubectl printed more than 1 MiB"
    finally:
        events.stop()


# Lists one pod at version 7; whoever watches from there hears that it is deleted, and from elsewhere nothing.
DELETED_BETWEEN = """#!/bin/sh
pod='{"metadata": {"uid": "a", "name": "web-1", "namespace": "x", "resourceVersion": "5"}, "spec": {"containers": []}}'
case "$*" in
*resourceVersion=7*) echo '{"type": "DELETED", "object": '"$pod"'}'; exec sleep 60;;
*watch=1*) exec sleep 60;;
*) echo '{"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": ['"$pod"']}';;
esac
"""


def test_what_is_deleted_before_the_watch_has_begun_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubectl").write_text(DELETED_BETWEEN)
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    pods = Pods()
    received: queue.Queue[str] = queue.Queue()

    def on_event(kind: str, item: dict[str, Any]) -> None:
        pods.apply(kind, item)
        received.put(f"{kind}: {[pod.name for pod in pods.all]}")

    events = kubectl_watch.Events(Kubectl(), kubectl_watch.WatchTarget("pods", "lab"), on_event, received.put)
    events.start()
    try:
        assert [received.get(timeout=20), received.get(timeout=20)] == ["LIST: ['web-1']", "DELETED: []"]
    finally:
        events.stop()


def test_a_watch_is_of_a_kind_in_one_namespace_or_all() -> None:
    watched = kubectl_watch.WatchTarget("pods", "lab", labels="app in (a, b)", fields="metadata.name=x")
    assert watched.path() == (
        "/api/v1/namespaces/lab/pods?labelSelector=app+in+%28a%2C+b%29&fieldSelector=metadata.name%3Dx"
    )
    assert kubectl_watch.WatchTarget("deployments").path(watch="1") == "/apis/apps/v1/deployments?watch=1"


def test_an_answer_that_is_no_list_is_refused() -> None:
    answers: list[dict[str, Any]] = [{}, {"metadata": {}}, {"metadata": {"resourceVersion": 7}}]
    for answer in answers:
        with pytest.raises(GpuctlError, match="it has no resourceVersion"):
            kubectl_watch.version_of(answer)


def test_an_object_without_end_is_an_error_and_so_is_nonsense() -> None:
    with pytest.raises(GpuctlError, match="an object of more than 16 MiB"):
        list(kubectl_watch.events(["{\n", *["x" * (1 << 20)] * 17]))
    for text in ("{]}", "[" * 100_000, "7"):
        with pytest.raises(ValueError, match=r"Expecting|nested|not an object"):
            list(kubectl_watch.events(["{\n", text, "}\n"]))


@pytest.mark.parametrize("text", ["{", "[]", "7", "[" * 100_000])
def test_what_is_no_object_is_an_error(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answer").write_text(text)
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\nexec cat {tmp_path}/answer\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(GpuctlError, match="kubectl did not print a JSON object"):
        Kubectl("lab").json("list pods", "get", "pods")


# As kubectl 1.32 prints it for a credential program of the kubeconfig.
EXPIRED = """\
The SSO session of corp has expired
E1128 09:16:00.000000 1 memcache.go:265] "Unhandled Error" err="getting credentials: exec: executable aws failed"
Unable to connect to the server: getting credentials: exec: executable aws failed with exit code 255
"""
MISSING = """\
Unable to connect to the server: getting credentials: exec: executable nope-login not found

It looks like you are trying to use a client-go credential plugin that is not installed.

To learn more about this feature, consult the documentation available at:
      https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins

install nope from the portal
"""
REJECTED = "error: You must be logged in to the server (Unauthorized)\n"
FORBIDDEN = 'Error from server (Forbidden): pods is forbidden: User "alice" cannot list resource "pods"\n'


@pytest.mark.parametrize(
    ("stderr", "wrong", "hint"),
    [
        (
            EXPIRED,
            "aws, which logs in the user me, failed: exit code 255: The SSO session of corp has expired",
            "log in again: `aws sso login --profile corp`",
        ),
        (
            MISSING,
            "nope-login, which logs in the user me, cannot be started: it is not installed",
            "install nope from the portal",
        ),
        (REJECTED, "the cluster rejects the credentials of the user me", "log in as you do for kubectl"),
        (FORBIDDEN, FORBIDDEN.strip(), "ask for a role that allows it"),
    ],
    ids=["expired", "missing", "rejected", "forbidden"],
)
def test_a_login_that_failed_in_kubectl_is_told_with_what_renews_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: str, wrong: str, hint: str
) -> None:
    (tmp_path / "config").write_text("contexts: [{name: lab, context: {user: me}}, {name: x, context: {user: y}}]\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "corp")
    error = kubectl.failure("list the pods", stderr, "lab")
    assert " ".join(error.wrong.split()) == wrong
    assert error.hint.startswith(hint)
