"""A stand-in for OpenShift's build API in front of a real control plane, which keeps the objects.

It serves what no CRD can, as openshift-apiserver does it (pkg/build/apiserver/registry: buildconfiginstantiate,
buildlog), and hands everything else on: `instantiatebinary` makes a Build, lets it run, takes the archive only then,
and answers when it has all of it; `instantiate` answers at once; `log` follows, with times; an ImageStream that is
written says where in the registry it is. It builds nothing: what a build does is said by the Dockerfile, in which
`RUN fail` and `RUN wait` mean something.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import io
import json
import ssl
import tarfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.rig.kube.plane import Plane

API = "/apis/build.openshift.io/v1"
DIGEST = "sha256:" + "ab" * 32
REGISTRY = "image-registry.openshift-image-registry.svc:5000"
OVER = ("Complete", "Failed", "Error", "Cancelled")


@dataclass
class Taken:
    """A build: what was sent for it, and its log."""

    files: dict[str, bytes] = field(default_factory=dict)
    members: dict[str, tarfile.TarInfo] = field(default_factory=dict)
    form: str = ""
    sent: bytes = b""
    log: list[str] = field(default_factory=list)


class StandinBuilds:
    """`holding` keeps new builds from running, as a cluster without room would; `cutting` ends uploads half way.

    `refusing`: the pods of builds cannot be made. `registry`: there is one (a cluster may be without).
    """

    def __init__(self, plane: Plane) -> None:
        self.plane, self.builds = plane, dict[str, Taken]()
        self.holding, self.cutting, self.refusing = threading.Event(), threading.Event(), threading.Event()
        self.registry = True
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trust.load_cert_chain(plane.folder / "server.crt", plane.folder / "server.key")
        self.server = _Server(("127.0.0.1", 0), _Front)
        self.server.builds = self
        self.server.socket = trust.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, args=(0.1,), daemon=True, name="standin-builds").start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()

    # ---- builds -----------------------------------------------------------------------------------------------------

    def make(self, config: dict[str, Any], binary: bool) -> dict[str, Any]:
        """The next build of a BuildConfig, which is new."""
        meta = config["metadata"]
        there = self.plane.api("GET", f"{API}/namespaces/{meta['namespace']}/builds")["items"]
        name = f"{meta['name']}-{len(there) + 1}"
        source = {**config["spec"]["source"], **({"git": None, "binary": {}} if binary else {})}
        labels = {**(meta.get("labels") or {}), "openshift.io/build-config.name": meta["name"]}
        spec = {**config["spec"], "source": source}
        made = {"apiVersion": "build.openshift.io/v1", "kind": "Build", "spec": spec, "status": {"phase": "New"}}
        made["metadata"] = {"name": name, "namespace": meta["namespace"], "labels": labels}
        self.builds[name] = Taken()
        return self.plane.api("POST", f"{API}/namespaces/{meta['namespace']}/builds", made)

    def status(self, build: dict[str, Any], **status: Any) -> dict[str, Any]:
        return self.plane.api("PATCH", _path(build), {"status": status})

    def wait_to_run(self, build: dict[str, Any]) -> dict[str, Any]:
        """Its pod comes; a build that is cancelled meanwhile never runs."""
        if self.refusing.is_set():
            message = "Failed to create build pod."
            return self.status(build, phase="Error", reason="CannotCreateBuildPod", message=message)
        self.status(build, phase="Pending")
        while self.holding.is_set():
            time.sleep(0.05)
            if self._is_cancelled(build):
                return self.status(build, phase="Cancelled", reason="CancelledBuild")
        return self.status(build, phase="Running")

    def run(self, build: dict[str, Any]) -> None:
        """From the archive to the image, by what the Dockerfile says."""
        taken = self.builds[build["metadata"]["name"]]
        inside = build["spec"]["source"].get("contextDir")
        path = f"{inside}/Dockerfile" if inside else "Dockerfile"
        text = build["spec"]["source"].get("dockerfile") or taken.files.get(path, b"FROM a\n").decode()
        for number, step in enumerate(text.splitlines(), 1):
            taken.log.append(f"STEP {number}: {step}")
            while step == "RUN wait" and not self._is_cancelled(build):
                time.sleep(0.05)
            if self._is_cancelled(build):
                self.status(build, phase="Cancelled", reason="CancelledBuild", message="The build was cancelled")
                return
            if step == "RUN fail":
                taken.log.append("fail: command not found")
                self._fail(build, taken)
                return
        taken.log.append("Push successful")
        at = f"{REGISTRY}/{build['metadata']['namespace']}/{build['metadata']['labels']['app.kubernetes.io/instance']}"
        self.status(
            build, phase="Complete", outputDockerImageReference=f"{at}:latest", output={"to": {"imageDigest": DIGEST}}
        )

    def _fail(self, build: dict[str, Any], taken: Taken) -> None:
        message = "Dockerfile build strategy has failed."
        last = "\n".join(taken.log[-2:])
        self.status(build, phase="Failed", reason="DockerBuildFailed", message=message, logSnippet=last)

    def _is_cancelled(self, build: dict[str, Any]) -> bool:
        return bool(self.plane.api("GET", _path(build))["status"].get("cancelled"))

    def log(self, namespace: str, name: str, since: str) -> Iterator[bytes]:
        """Its lines of this second and later as they are written, one a second, until it is over."""
        at, over = 0, False
        while not over:
            over = self.plane.api("GET", f"{API}/namespaces/{namespace}/builds/{name}")["status"]["phase"] in OVER
            for number, line in enumerate(self.builds[name].log[at:], at):
                second = f"2026-01-01T00:00:{number:02}"
                if f"{second}Z" >= since:
                    yield f"{second}.{number:09}Z {line}\n".encode()
                at += 1
            time.sleep(0.05)


def _path(build: dict[str, Any]) -> str:
    return f"{API}/namespaces/{build['metadata']['namespace']}/builds/{build['metadata']['name']}"


# ---- HTTP -----------------------------------------------------------------------------------------------------------


class _Server(http.server.ThreadingHTTPServer):
    builds: StandinBuilds
    daemon_threads = True


class _Front(http.server.BaseHTTPRequestHandler):
    """Serves the part that is the stand-in's own; of all else it is a way through."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        *_, namespace, what, name, sub = f"////{urlsplit(self.path).path}".split("/")[-5:]
        if what == "builds" and sub == "log":
            self._log(namespace, name)
        else:
            self._through()

    def do_POST(self) -> None:
        path, _, sub = urlsplit(self.path).path.rpartition("/")
        if sub in ("instantiate", "instantiatebinary"):
            self._instantiate(path, sub == "instantiatebinary")
        else:
            self._through()

    def do_PATCH(self) -> None:
        *_, namespace, what, name = urlsplit(self.path).path.split("/")
        self._through(f"{REGISTRY}/{namespace}/{name}" if what == "imagestreams" else "")

    def do_DELETE(self) -> None:
        self._through()

    def _instantiate(self, config: str, binary: bool) -> None:
        build = self.server.builds.make(self.server.builds.plane.api("GET", config), binary)
        if binary:
            build = self.server.builds.wait_to_run(build)
            if build["status"]["phase"] != "Running":
                how = "was cancelled" if build["status"]["phase"] == "Cancelled" else "encountered an error"
                message = f"build {build['metadata']['name']} {how}: No logs are available."
                self._answer(400, {"kind": "Status", "message": message})
                return
            taken = self.server.builds.builds[build["metadata"]["name"]]
            if self.server.builds.cutting.is_set():
                taken.files["Dockerfile"] = b"RUN wait\n"  # as its pod does, which has not got all
                threading.Thread(target=self.server.builds.run, args=[build], daemon=True).start()
                self.close_connection = True
                return
            try:
                self._take(taken)
            except (OSError, EOFError, ValueError, tarfile.TarError):
                self.server.builds.status(build, cancelled=True, phase="Cancelled", reason="CancelledBuild")
                return
        else:
            self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(201, build)
        if not binary:
            build = self.server.builds.wait_to_run(build)
        threading.Thread(target=self.server.builds.run, args=[build], daemon=True).start()

    def _take(self, taken: Taken) -> None:
        """The archive, of a length that nobody knows before its end."""
        assert self.headers["Transfer-Encoding"] == "chunked"
        taken.form = self.headers["Content-Type"]
        while size := int(self.rfile.readline(), 16):
            taken.sent += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        with tarfile.open(fileobj=io.BytesIO(taken.sent), mode="r:gz") as archive:
            for each in archive:
                taken.members[each.name] = each
                content = archive.extractfile(each) if each.isfile() else None
                taken.files[each.name] = content.read() if content else b""

    def _log(self, namespace: str, name: str) -> None:
        since = parse_qs(urlsplit(self.path).query).get("sinceTime", [""])[0]
        self._stream(200, "text/plain", self.server.builds.log(namespace, name, since))

    def _stream(self, code: int, form: str, parts: Iterable[bytes]) -> None:
        """As it comes, of a length that nobody knows."""
        self.send_response(code)
        for name, value in (("Content-Type", form), ("Transfer-Encoding", "chunked"), ("Connection", "close")):
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            for part in parts:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")

    def _through(self, place: str = "") -> None:
        """`place`: where in the registry the object is that is answered."""
        plane = self.server.builds.plane
        trust = ssl.create_default_context(cafile=str(plane.folder / "ca.crt"))
        if "Authorization" not in self.headers:
            trust.load_cert_chain(plane.folder / "admin.crt", plane.folder / "admin.key")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        given = {key: value for key, value in self.headers.items() if key.lower() not in ("host", "connection")}
        onward = http.client.HTTPSConnection(plane.address, plane.port, context=trust, timeout=300)
        with contextlib.closing(onward), contextlib.suppress(OSError, http.client.HTTPException):
            onward.request(self.command, self.path, body or None, given)
            answer = onward.getresponse()
            if place and self.server.builds.registry and answer.status < 400:
                self._answer(answer.status, json.load(answer) | {"status": {"dockerImageRepository": place}})
                return
            form = answer.getheader("Content-Type") or "application/json"
            self._stream(answer.status, form, iter(lambda: answer.read1(1 << 16), b""))

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        self._stream(code, "application/json", [json.dumps(body).encode()])

    def log_message(self, *_: object) -> None:
        """Tests have enough to print."""
