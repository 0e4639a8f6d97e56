"""A real registry of images on loopback (Debian's docker-registry), buildah with a storage of its own, and a stand-in
for ECR's API, which gives the login to that registry.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3

PROGRAMS = ("buildah", "docker-registry", "busybox", "perl")
USER, PASSWORD = "AWS", "a-password-of-ecr"
MANIFESTS = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"


def missing() -> str:
    """Reason why no image can be built and pushed on this machine; "" where one can."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if os.geteuid() != 0:
        return "building images in a chroot needs root"
    return f"building and pushing images needs {', '.join(lacking)}; see tests/rig/packages.txt" if lacking else ""


@dataclass
class Registry:
    """A registry that runs. `host`: with its port."""

    host: str
    process: subprocess.Popen[bytes]
    password: str = ""

    def digest(self, repository: str, tag: str) -> str:
        """Digest of an image by the registry itself; "" if it does not have it."""
        url = f"http://{self.host}/v2/{repository}/manifests/{tag}"
        headers = {"Accept": MANIFESTS}
        if self.password:
            headers |= urllib3.make_headers(basic_auth=f"{USER}:{self.password}")
        answer = urllib3.request("HEAD", url, headers=headers, retries=False, timeout=10)
        assert answer.status in (200, 404), answer.status
        return str(answer.headers["Docker-Content-Digest"]) if answer.status == 200 else ""


@contextmanager
def registry(folder: Path, password: str = "") -> Iterator[Registry]:
    """A registry on loopback with its files in a folder; with a password, it lets in only its user."""
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    config: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": host},
    }
    if password:
        crypt = "print crypt($ARGV[0], q{$2b$05$abcdefghijklmnopqrstuu})"
        hashed = subprocess.run(["perl", "-e", crypt, password], capture_output=True, text=True, check=True).stdout
        (folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
        config["auth"] = {"htpasswd": {"realm": "ecr", "path": str(folder / "htpasswd")}}
    (folder / "config.yml").write_text(json.dumps(config))
    with (folder / "log").open("wb") as log:
        argv = ["docker-registry", "serve", str(folder / "config.yml")]
        process = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, "OTEL_TRACES_EXPORTER": "none"})
    try:
        _await(host, process, folder / "log")
        yield Registry(host, process, password)
    finally:
        process.kill()  # also one that a test has stopped
        process.wait()


def _await(host: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 30
    while True:
        with contextlib.suppress(OSError, urllib3.exceptions.HTTPError):
            urllib3.request("GET", f"http://{host}/v2/", retries=False, timeout=2)
            return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


def storage(folder: Path) -> dict[str, str]:
    """Variables that give buildah a storage of its own in a folder, and steps without namespaces."""
    folder.mkdir()
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    return {"CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"), "BUILDAH_ISOLATION": "chroot"}


def push_base(folder: Path, environment: dict[str, str], target: str) -> None:
    """A nearly empty image (busybox) in a registry without a password."""
    (folder / "bin").mkdir(parents=True)
    (folder / "etc").mkdir()
    shutil.copy(shutil.which("busybox") or "", folder / "bin/busybox")
    for name in ("sh", "sleep"):
        (folder / "bin" / name).symlink_to("busybox")

    def buildah(*words: str) -> str:
        done = subprocess.run(
            ["buildah", *words], env={**os.environ, **environment}, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    container = buildah("from", "scratch")
    buildah("copy", "-q", container, str(folder), "/")
    buildah("commit", "-q", container, "localhost/base:1")
    buildah("rm", container)
    buildah("push", "-q", "--tls-verify=false", "localhost/base:1", f"docker://{target}")
    buildah("rmi", "localhost/base:1")


@dataclass
class StandinEcr:
    """Stand-in for ECR's API: repositories whose images are in a registry of this machine, and the login to it."""

    host: str
    password: str = PASSWORD
    repositories: set[str] = field(default_factory=set)
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    refuse: dict[str, str] = field(default_factory=dict)  # operation -> code of an error
    url: str = ""

    def answer(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and answer of a request."""
        if code := self.refuse.get(operation):
            return 400, {"__type": code, "message": "User is not authorized to perform it"}
        if operation == "GetAuthorizationToken":
            token = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
            return 200, {"authorizationData": [{"authorizationToken": token, "proxyEndpoint": f"https://{self.host}"}]}
        if operation == "CreateRepository":
            self.repositories.add(request["repositoryName"])
            self.tags[request["repositoryName"]] = {one["Key"]: one["Value"] for one in request.get("tags", ())}
            return 200, {"repository": {"repositoryUri": f"{self.host}/{request['repositoryName']}"}}
        names = request["repositoryNames"]
        if not set(names) <= self.repositories:
            return 400, {"__type": "RepositoryNotFoundException", "message": f"The repository '{names[0]}' is missing"}
        return 200, {"repositories": [{"repositoryUri": f"{self.host}/{name}"} for name in names]}


@contextmanager
def standin_ecr(host: str) -> Iterator[StandinEcr]:
    """The API on loopback, at its `url`."""
    ecr = StandinEcr(host)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            status, plain = ecr.answer(operation, json.loads(body))
            content = json.dumps(plain).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Tests print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        ecr.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield ecr
        finally:
            server.shutdown()
