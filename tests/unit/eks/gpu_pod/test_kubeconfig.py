"""The kubeconfig of an EKS cluster, its credential program, and public keys of GitHub."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput, Unreachable
from gpuctl.edges import public_keys
from gpuctl.edges.aws import Aws
from gpuctl.edges.kube.login import Credentials
from gpuctl.eks.gpu_pod import kubeconfig

CLUSTER = {"endpoint": "https://127.0.0.1:1", "certificateAuthority": {"data": base64.b64encode(b"ca").decode()}}


def test_the_client_gets_its_token_from_the_program(tmp_path: Path) -> None:
    text = kubeconfig.credential("k8s-aws-v1.abc", datetime(2100, 1, 1, tzinfo=UTC))
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig.kubeconfig("lab", CLUSTER, ["printf", "%s", text]))
    credentials = Credentials("test", [path], "lab")
    assert credentials.settings.api_key["BearerToken"] == "Bearer k8s-aws-v1.abc"
    assert credentials.login.expires_at == datetime(2100, 1, 1, tzinfo=UTC).timestamp()
    assert credentials.settings.host == "https://127.0.0.1:1"


def test_a_cluster_without_endpoint_is_no_kubeconfig() -> None:
    with pytest.raises(KeyError):
        kubeconfig.kubeconfig("lab", {"name": "lab"}, ["gpuctl"])


def test_a_token_is_a_signed_request_that_names_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-a-test")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    token = Aws("us-west-2").cluster_token("lab")
    encoded = token.removeprefix("k8s-aws-v1.")
    url = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    assert url.startswith("https://sts.us-west-2.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15&")
    assert "X-Amz-SignedHeaders=host%3Bx-k8s-aws-id" in url
    assert "X-Amz-Expires=60" in url
    assert "secret-of-a-test" not in url


class Server(http.server.BaseHTTPRequestHandler):
    """Answers as GitHub does for NAME.keys."""

    def do_GET(self) -> None:
        status = {"/me.keys": 200, "/busy.keys": 429, "/moved.keys": 302, "/cut.keys": 200}.get(self.path, 404)
        if self.path == "/odd.keys":
            self.wfile.write(b"no HTTP\r\n")
            return
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"http://{self.headers['Host'].replace('127.0.0.1', 'localhost')}/me.keys")
        if self.path == "/cut.keys":
            self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"ssh-ed25519 AAAA\n")

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


@pytest.fixture
def github() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_keys_of_github_are_read_and_errors_are_named(github: str) -> None:
    assert public_keys.of_github("me", github) == "ssh-ed25519 AAAA\n"
    with pytest.raises(InvalidInput, match="GitHub has no such user"):
        public_keys.of_github("nobody", github)
    with pytest.raises(Unreachable, match="GitHub's rate limit is reached; it answers again in 1 min"):
        public_keys.of_github("busy", github)
    with pytest.raises(Unreachable, match=r"GitHub does not answer as it should: .*refused"):
        public_keys.of_github("me", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ("moved", "redirects to another server"),
        ("cut", "is cut off: 983 bytes are missing"),
        ("odd", "as it should: no HTTP"),
    ],
)
def test_an_answer_that_is_no_list_of_keys_is_an_error(user: str, message: str, github: str) -> None:
    with pytest.raises(Unreachable, match=message):
        public_keys.of_github(user, github)


def test_a_kubeconfig_is_json_without_a_secret() -> None:
    plain = json.loads(kubeconfig.kubeconfig("lab", CLUSTER, ["gpuctl", "eks", "token", "lab"]))
    assert plain["users"][0]["user"]["exec"]["args"] == ["eks", "token", "lab"]
