"""Credentials that are missing, expired or rejected are reported by name, with the command that renews them."""

from __future__ import annotations

import base64
import datetime
import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.kube_errors import Forbidden, NotLoggedIn, error_of
from gpuctl.edges.kube import cluster, credential_program
from gpuctl.edges.kube.cluster import Cluster, Request
from gpuctl.edges.kube.credential_program import EXTENSION

# A kubeconfig but for a last value.
DEEP = """\
current-context: lab
clusters: [{name: lab, cluster: {server: 'http://127.0.0.1:1'}}]
contexts: [{name: lab, context: {cluster: lab, user: ann}}]
users: [{name: ann, user: {token: a}}]
preferences: """
API = "client.authentication.k8s.io/v1beta1"
LIST = Request("list pods", "GET", "/api/v1/pods")
PAST, FUTURE = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"
NOW = datetime.datetime.now(datetime.UTC)


class Server(ThreadingHTTPServer):
    """Notes the tokens of requests, and answers with a status."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.tokens: list[str | None] = []


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.tokens.append(self.headers.get("Authorization"))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        threading.Thread(target=started.serve_forever, args=[0.05], daemon=True).start()
        yield started
        started.shutdown()


def connected(server: Server, folder: Path, user: Mapping[str, Any], **of_cluster: object) -> Cluster:
    """A client of the server as this user."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": f"http://127.0.0.1:{server.server_port}", **of_cluster}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "ann"}}],
        "users": [{"name": "ann", "user": dict(user)}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(document))
    return cluster.connect(files=[folder / "kubeconfig"])


def program(folder: Path, text: str, name: str = "aws", **more: Any) -> dict[str, Any]:
    """A user who logs in with this shell program."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return {"exec": {"apiVersion": API, "command": str(path), **more}}


def token(value: str, until: str = FUTURE) -> str:
    """A shell command that prints a credential with this token."""
    return credential({"token": value, "expirationTimestamp": until})


def credential(status: Mapping[str, str | None]) -> str:
    """A shell command that prints a credential."""
    return f"echo '{json.dumps({'apiVersion': API, 'kind': 'ExecCredential', 'status': status})}'"


def rejection(server: Server, folder: Path, user: Mapping[str, Any]) -> NotLoggedIn:
    """What is reported if the server rejects this user."""
    server.status = 401
    with pytest.raises(NotLoggedIn) as refused:
        connected(server, folder, user).once(LIST)
    return refused.value


def test_an_expired_login_is_the_error_with_the_programs_message_and_the_command_that_renews_it(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fails = "echo 'Token has expired and refresh failed, token=abcdefgh' >&2; exit 255"
    with pytest.raises(NotLoggedIn) as refused:
        connected(server, tmp_path, program(tmp_path, fails, args=["--profile", "prod", "eks", "get-token"]))
    assert f"{tmp_path}/aws, which logs in the user ann, failed: exit code 255: Token has expired" in str(refused.value)
    assert "abcdefgh" not in str(refused.value)
    assert refused.value.hint == "log in again: `aws sso login --profile prod`"
    assert (server.tokens, caplog.records) == ([], [])  # nothing was sent as nobody, and no library logged


def test_a_program_that_is_not_installed_is_named_with_the_kubeconfigs_hint(server: Server, tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": API, "command": "no-such-login", "installHint": "see the wiki\npage 7"}}
    with pytest.raises(
        NotLoggedIn, match="no-such-login, which logs in the user ann, cannot be started: No such"
    ) as no:
        connected(server, tmp_path, user)
    assert no.value.hint == "see the wiki page 7"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo hello", "failed to decode process output"),
        ("yes", "it prints more than 1 MiB"),
        ("yes >&2", "it prints more than 1 MiB"),
        ("echo 1", "malformed response"),
        ("printf '%010000d' 0 | tr 0 '['", "failed to decode process output"),
        (credential({}).replace("{}", "[1]"), "its status is no credential"),
        (credential({}), "it printed neither a token nor a certificate"),
        (credential({"clientCertificateData": "x"}), "it printed neither a token nor a certificate"),
    ],
)
def test_output_that_is_no_credential_is_refused(server: Server, tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(NotLoggedIn, match=why):
        connected(server, tmp_path, program(tmp_path, text))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())


def ended(pid: int) -> bool:
    """True once a process has ended, if within ten seconds; it is ended otherwise."""
    for _ in range(100):
        if not Path(f"/proc/{pid}/stat").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            return True
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    return False


def test_at_the_limit_what_a_program_started_ends_with_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_program, "LIMIT_S", 0.5)
    with pytest.raises(NotLoggedIn, match="it did not end within"):
        connected(server, tmp_path, program(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; wait"))
    assert ended(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize("terminal", [True, False])
def test_a_program_that_leaves_a_helper_on_its_output_has_answered_with_its_end(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(credential_program, "GRACE_S", 0.1)
    if terminal:
        on_a_terminal(monkeypatch)
    text = f"sleep 600 & echo $! > {tmp_path}/child; " + token("one")
    connected(server, tmp_path, program(tmp_path, text)).once(LIST)
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert server.tokens == ["Bearer one"]


def test_null_in_a_credential_is_no_value(server: Server, tmp_path: Path) -> None:
    text = credential({"token": "one", "expirationTimestamp": None, "clientCertificateData": None})
    connected(server, tmp_path, program(tmp_path, text)).once(LIST)
    assert server.tokens == ["Bearer one"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"args": 5}, "args of the credential program .* is no list"),
        ({"env": ["A=B"]}, "env of the credential program .* is no list of names and values"),
        ({"env": [{"value": "B"}]}, "env of the credential program .* is no list of names and values"),
    ],
)
def test_a_malformed_credential_program_is_invalid_input(
    server: Server, tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        connected(server, tmp_path, program(tmp_path, token("one"), **more))


@pytest.mark.parametrize(
    ("extensions", "why"),
    [
        ([{"name": EXTENSION}], f"the extension {EXTENSION} of the cluster has no key 'extension'"),
        ({"name": EXTENSION}, "extensions of the cluster is no list"),
        ([{"name": "x", "extension": b"x"}], "cannot be passed to it: it has a bytes"),
    ],
)
def test_malformed_extensions_of_a_cluster_are_invalid_input(
    server: Server, tmp_path: Path, extensions: object, why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        connected(server, tmp_path, program(tmp_path, token("one"), provideClusterInfo=True), extensions=extensions)


def test_an_exec_that_names_no_program_is_invalid_input(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="exec of the user ann names no program"):
        connected(server, tmp_path, {"exec": 5})


def test_a_program_gets_a_timestamp_of_its_cluster_as_text(server: Server, tmp_path: Path) -> None:
    text = f'printf "%s" "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; ' + token("one")
    extensions = [
        {"name": EXTENSION, "extension": {"since": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)}}
    ]
    connected(server, tmp_path, program(tmp_path, text, provideClusterInfo=True), extensions=extensions)
    info = json.loads((tmp_path / "info").read_text())
    assert info["spec"]["cluster"]["config"] == {"since": "2026-01-02T03:04:05Z"}


@pytest.mark.parametrize(
    ("text", "why"),
    [("echo expired >&2; exit 4", "exit code 4: its message is above"), ("exec yes", "it prints more than 1 MiB")],
)
def test_a_program_that_fails_on_a_terminal_is_reported_as_elsewhere(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    on_a_terminal(monkeypatch)
    with pytest.raises(NotLoggedIn, match=why):
        connected(server, tmp_path, program(tmp_path, text))
    answering = 'test -n "$KUBERNETES_EXEC_INFO" && ' + token("one")
    connected(server, tmp_path, program(tmp_path, answering)).once(LIST)
    assert server.tokens == ["Bearer one"]


def test_a_program_gets_the_cluster_that_it_asks_for(server: Server, tmp_path: Path) -> None:
    text = f'printf "%s" "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; ' + token("one")
    connected(server, tmp_path, program(tmp_path, text, provideClusterInfo=True))
    info = json.loads((tmp_path / "info").read_text())
    assert (info["apiVersion"], info["kind"]) == (API, "ExecCredential")
    assert info["spec"]["cluster"]["server"] == f"http://127.0.0.1:{server.server_port}"


def test_a_program_runs_again_only_once_its_credential_has_expired(server: Server, tmp_path: Path) -> None:
    text = f"echo x >> {tmp_path}/runs; " + token("one", PAST)
    short = connected(server, tmp_path, program(tmp_path, text))
    short.once(LIST)
    short.once(LIST)
    assert (tmp_path / "runs").read_text() == "x\n" * 3
    lasting = connected(server, tmp_path, program(tmp_path, text.replace(PAST, FUTURE)))
    lasting.once(LIST)
    lasting.once(LIST)
    assert (tmp_path / "runs").read_text() == "x\n" * 4
    assert server.tokens == ["Bearer one"] * 4


def test_a_program_that_fails_later_ends_the_request_with_its_message(server: Server, tmp_path: Path) -> None:
    text = f"test -e {tmp_path}/late && exit 3; " + token("one", PAST)
    found = connected(server, tmp_path, program(tmp_path, text))
    (tmp_path / "late").touch()
    with pytest.raises(NotLoggedIn, match="exit code 3: it printed no message"):
        found.once(LIST)


def test_a_certificate_of_a_program_is_used(server: Server, tmp_path: Path) -> None:
    text = credential({"clientCertificateData": "CERTIFICATE", "clientKeyData": "KEY"})
    settings = connected(server, tmp_path, program(tmp_path, text)).client.configuration
    assert Path(str(settings.cert_file)).read_text() == "CERTIFICATE"
    assert Path(str(settings.key_file)).read_text() == "KEY"


def test_a_rejected_program_token_names_the_program(server: Server, tmp_path: Path) -> None:
    refused = rejection(server, tmp_path, program(tmp_path, token("t"), "tsh"))
    assert refused.wrong == f"the cluster rejects the credentials from {tmp_path}/tsh of the user ann"
    assert refused.hint == "log in again: `tsh login`"
    refused = rejection(server, tmp_path, program(tmp_path, token("t"), "own-login"))
    assert "own-login" in refused.hint


def test_an_expired_token_is_named_with_its_date_and_any_other_is_only_rejected(server: Server, tmp_path: Path) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1_700_000_000}).encode()).decode().rstrip("=")
    refused = rejection(server, tmp_path, {"token": f"e30.{claims}.c2ln"})
    assert refused.wrong == "the token of the user ann expired on 2023-11-14 22:13 UTC"
    for other in ("opaque", "a.b.c"):
        refused = rejection(server, tmp_path, {"token": other})
        assert refused.wrong == "the cluster rejects the token of the user ann"
    refused = rejection(server, tmp_path, {"token": "sha256~abc"})
    assert refused.hint == f"renew it: `oc login http://127.0.0.1:{server.server_port}`"


def test_a_kubeconfig_without_credentials_is_reported(server: Server, tmp_path: Path) -> None:
    assert rejection(server, tmp_path, {}).wrong == "the kubeconfig has no credentials for the user ann"
    assert "the password of the user ann" in rejection(server, tmp_path, {"username": "a", "password": "b"}).wrong


def test_an_expired_certificate_is_named_with_its_date(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ann")])
    end = NOW - datetime.timedelta(days=2)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 7)
        .not_valid_before(end - datetime.timedelta(days=1))
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    user = {
        "client-certificate-data": base64.b64encode(certificate.public_bytes(Encoding.PEM)).decode(),
        "client-key-data": base64.b64encode(private).decode(),
    }
    document = {
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:6443"}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "ann"}}],
        "users": [{"name": "ann", "user": user}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
    refused = cluster.connect(files=[tmp_path / "kubeconfig"]).refusal("list pods", 401, "")
    assert refused.wrong == f"the client certificate of the user ann expired on {end:%Y-%m-%d %H:%M} UTC"


def test_a_403_for_nobody_is_a_missing_login_and_one_for_a_user_a_missing_right() -> None:
    def answer(user: str) -> Exception:
        message = (
            f'pods is forbidden: User "{user}" cannot list resource "pods" in API group "" in the namespace "team"'
        )
        return error_of("list pods", 403, json.dumps({"message": message}))

    assert isinstance(answer("system:anonymous"), NotLoggedIn)
    assert isinstance(answer("ann"), Forbidden)


def test_a_kubeconfig_that_is_nested_too_deeply_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(DEEP + "[" * 900 + "]" * 900 + "\n")
    with pytest.raises(InvalidInput, match=rf"the kubeconfig {path} is nested too deeply"):
        cluster.connect(files=[path])
