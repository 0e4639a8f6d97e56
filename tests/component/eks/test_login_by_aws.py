"""Without a context, AWS names the cluster, and each request carries a token made of the AWS login."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuctl.cli.app import app
from gpuctl.core.errors import GpuctlError, InvalidInput

KINDS = [{"name": "secrets", "kind": "Secret", "namespaced": True, "verbs": []}]


@dataclass
class StandinEks:
    """Stand-in for two servers: EKS's API, which describes a cluster, and its Kubernetes API, which has no object."""

    cluster: dict[str, Any] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)

    def answer(self, path: str, token: str) -> tuple[int, dict[str, Any]]:
        if path == "/clusters/lab":
            return 200, {"cluster": self.cluster}
        if path.startswith("/clusters/"):
            return 404, {"message": "No cluster found for name: none."}
        self.tokens.append(token)
        if path == "/api/v1":
            return 200, {"kind": "APIResourceList", "resources": KINDS}
        return 404, {"kind": "Status", "message": "not found", "code": 404}


@contextmanager
def serving(standin: StandinEks, context: ssl.SSLContext | None) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, plain = standin.answer(self.path.partition("?")[0], self.headers.get("Authorization", ""))
            self.send_response(status)
            if status == 404:
                self.send_header("x-amzn-ErrorType", "ResourceNotFoundException")
            self.end_headers()
            self.wfile.write(json.dumps(plain).encode())

        def log_message(self, *_: object) -> None:
            """Tests print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def eks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandinEks]:
    argv = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=eks", "-newkey", "rsa:2048"]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key", "-out", "certificate"]
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    standin = StandinEks()
    with ExitStack() as stack:
        kubernetes = stack.enter_context(serving(standin, context))
        aws = stack.enter_context(serving(standin, None))
        authority = base64.b64encode((tmp_path / "certificate").read_bytes()).decode()
        standin.cluster = {
            "name": "lab",
            "arn": "arn:aws:eks:us-east-1:123456789012:cluster/lab",
            "status": "ACTIVE",
            "endpoint": f"https://127.0.0.1:{kubernetes}",
            "certificateAuthority": {"data": authority},
        }
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{aws}",
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret-of-a-test",
            "AWS_CONFIG_FILE": str(tmp_path / "none"),
            "GPUCTL_CONFIG_DIR": str(tmp_path / "config"),
            "KUBECONFIG": str(tmp_path / "none"),
        }.items():
            monkeypatch.setenv(name, value)
        yield standin


def test_requests_carry_tokens_and_the_kubeconfig_holds_none(eks: StandinEks, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["eks", "keys", "lab", "--region", "us-east-1"], catch_exceptions=False)
    assert (done.exit_code, done.output) == (0, "no key may log in\n")
    assert eks.tokens
    assert all(token.startswith("Bearer k8s-aws-v1.") for token in eks.tokens)
    path = tmp_path / "config/eks/123456789012.us-east-1.lab.kubeconfig"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "k8s-aws-v1" not in path.read_text()


def test_a_cluster_that_is_being_made_or_does_not_exist_is_named(eks: StandinEks) -> None:
    eks.cluster = {"name": "lab", "status": "CREATING"}
    made = CliRunner().invoke(app, ["eks", "keys", "lab", "--region", "us-east-1"])
    assert isinstance(made.exception, GpuctlError)
    assert "its control plane is being made" in str(made.exception)
    none = CliRunner().invoke(app, ["eks", "keys", "none", "--region", "us-east-1"])
    assert isinstance(none.exception, InvalidInput)
    assert eks.tokens == []
