"""A real Kubernetes API for tests: etcd, kube-apiserver, controller-manager and scheduler, and stand-ins for the nodes.

Any version from 1.20 on will do. Where there are only etcd, kube-apiserver and kubectl (as setup-envtest brings them),
stand-ins do the little that pods and namespaces need (tests/rig/kube/controllers.py), and tests of more are skipped.

tests/rig/kube/assets.py says where its programs come from. With

    with plane() as cluster:
        cluster.kubectl("get", "nodes")
        cluster.kubeconfig                      # its user is cluster admin

No container runs (tests/rig/kube/kubelet.py); a real node, for exec or port-forward, is in tests/rig/kube/node.py.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

import urllib3

from tests.rig.kube.assets import CONTROLLERS, assets, lacking, missing, server_version
from tests.rig.kube.controllers import StandinControllers
from tests.rig.kube.follower import Follower
from tests.rig.kube.kubelet import StandinKubelet
from tests.rig.needs import need

READY = 90.0  # seconds
# Programs in Go spend a fifth of their start on collecting garbage, of which a test leaves little.
NO_COLLECTOR = {"GOGC": "off", "GOMEMLIMIT": "1GiB"}
BUSY = 60.0  # seconds that a request may be put off
# Flags that only early versions need, and later ones do not know: program, first version that goes without, flag.
EARLY_FLAGS = (
    ("kube-apiserver", (1, 21), "--feature-gates=BoundServiceAccountTokenVolume=true"),  # pods need no token Secret
    ("kube-controller-manager", (1, 22), "--port=0"),  # no open port
    ("kube-scheduler", (1, 23), "--port=0"),
)


@dataclass
class Plane:
    """A running cluster and what was started for it; without `standins` it has no node of its own."""

    folder: Path
    assets: Path
    address: str = "127.0.0.1"
    standins: bool = True
    port: int = 0
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    kubelet: StandinKubelet | None = None
    controllers: StandinControllers | None = None

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "admin.kubeconfig"

    @cached_property
    def version(self) -> tuple[int, int]:
        """The server's minor version, such as (1, 34)."""
        return server_version(self.assets)

    @property
    def has_controllers(self) -> bool:
        """True where Deployments, Jobs and the like are acted upon: setup-envtest brings no controllers."""
        return not lacking(self.assets, CONTROLLERS)

    def serves(self, group: str, plural: str) -> bool:
        """True if the server has this kind; `group` is such as policy/v1."""
        try:
            listed = self.api("GET", f"/apis/{group}")["resources"]
        except AssertionError:
            return False
        return plural in [resource["name"] for resource in listed]

    @property
    def kubectl_program(self) -> str:
        """The kubectl of this server's own version where it is there: an old server and a new kubectl may differ."""
        own = self.assets / "kubectl"
        return str(own) if own.exists() else "kubectl"

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl as the cluster's admin; what it prints."""
        done = subprocess.run(
            [self.kubectl_program, f"--kubeconfig={self.kubeconfig}", *words],
            input=stdin,
            env={**os.environ, **NO_COLLECTOR, "HOME": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert not check or done.returncode == 0, f"kubectl {words}: {done.stderr}"
        return done.stdout

    def get(self, kind: str, name: str = "", namespace: str = "default") -> dict[str, Any]:
        """An object, or the list of all. Tests ask ten times a second until something is so: a kubectl for each would
        take more of the processors than the cluster does.
        """
        if kind not in SERVED_AT:
            listed: dict[str, Any] = json.loads(self.kubectl("get", kind, *name.split(), "-n", namespace, "-o", "json"))
            return listed
        group, plural = SERVED_AT[kind]
        return self.api("GET", f"{group}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else ""))

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create objects, or change them."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(listed))

    def pods_ready(self, count: int, namespace: str = "default") -> None:
        """Wait until so many pods are ready: `kubectl wait --all` takes only those that exist by then."""

        def ready() -> bool:
            pods = self.get("pods", namespace=namespace)["items"]
            conditions = [condition for pod in pods for condition in pod["status"].get("conditions", [])]
            return [one["status"] for one in conditions if one["type"] == "Ready"] == ["True"] * count

        self._wait(f"{count} pods are ready", ready)

    def status(self, pod: str, status: dict[str, Any], namespace: str = "default") -> None:
        """Say of a pod what its kubelet would."""
        self.api("PATCH", f"/api/v1/namespaces/{namespace}/pods/{pod}/status", {"status": status})

    def as_account(self, folder: Path, namespace: str = "default") -> Path:
        """A kubeconfig in this folder of the namespace's default account: it may do nothing but what a test lets it."""
        url = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
        token = self.api("POST", url, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
        known = json.loads(self.kubeconfig.read_text())
        path = folder / "account.kubeconfig"
        path.write_text(json.dumps({**known, "users": [{"name": "admin", "user": {"token": token}}]}))
        return path

    def as_node(self, node: str) -> Path:
        """A kubeconfig with the credentials of a node's kubelet, as kubeadm makes them."""
        self._issue(node, f"/O=system:nodes/CN=system:node:{node}", "extendedKeyUsage=clientAuth", signed=True)
        known = json.loads(self.kubeconfig.read_text())
        files = {"client-certificate": f"{self.folder}/{node}.crt", "client-key": f"{self.folder}/{node}.key"}
        path = self.folder / f"{node}.kubeconfig"
        path.write_text(json.dumps({**known, "users": [{"name": "admin", "user": files}]}))
        return path

    def api(self, method: str, url: str, body: object = None) -> dict[str, Any]:
        """Ask the API itself, which `kubectl` cannot do for every verb; wait where it has too much to do (429)."""
        end = time.monotonic() + BUSY
        while True:
            status, text, retry_after = self._request(method, url, body)
            if status != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > end:
                break
            time.sleep(retry_after)
        assert status < 400, f"{method} {url}: {text}"
        answer: dict[str, Any] = json.loads(text) if text.startswith("{") else {"text": text}
        return answer

    def follower(self, url: str, act: Callable[[dict[str, Any]], None], selector: str = "") -> Follower:
        """A thread that calls `act` for each object there, and again whenever one changes."""

        def watch(changes: str) -> urllib3.BaseHTTPResponse:
            return self._connections.request("GET", changes, preload_content=False)

        return Follower(self.api, watch, url, act, selector)

    @cached_property
    def _connections(self) -> urllib3.HTTPSConnectionPool:
        """Connections stay open: stand-ins ask several times a second, and a TLS handshake costs both sides more."""
        return urllib3.HTTPSConnectionPool(
            self.address,
            self.port,
            maxsize=8,
            timeout=30,
            retries=False,
            ca_certs=str(self.folder / "ca.crt"),
            cert_file=str(self.folder / "admin.crt"),
            key_file=str(self.folder / "admin.key"),
        )

    def _request(self, method: str, url: str, body: object) -> tuple[int, str, float]:
        """Status, text, and the seconds after which to ask again where the server is busy."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = json.dumps(body) if body else None
        try:
            answer = self._connections.request(method, url, body=content, headers={"Content-Type": kind})
        except urllib3.exceptions.HTTPError as error:  # no connection, or it died in the middle of its answer
            raise ConnectionError(f"{method} {url}: {error!r}") from error
        wait = answer.headers.get("Retry-After", "")
        return answer.status, answer.data.decode(), min(float(wait), 5.0) if wait.isdecimal() else 0.5

    def context(self, name: str, *more: str, namespace: str = "default") -> dict[str, Any]:
        """A kubeconfig of this cluster whose contexts have these names; the first is the current one."""
        known: dict[str, Any] = json.loads(self.kubeconfig.read_text())
        place = {"cluster": "test", "user": "admin", "namespace": namespace}
        contexts = [{"name": each, "context": place} for each in (name, *more)]
        return {**known, "contexts": contexts, "current-context": name}

    def start(self) -> None:
        """Start everything; what is started ends with this process, whatever becomes of it."""
        client, peer, self.port = _free_ports(3)
        self._certificates()
        self._write_kubeconfig()
        at = f"http://127.0.0.1:{client}"
        to_peer = f"http://127.0.0.1:{peer}"
        self._spawn(
            "etcd",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={at}",
            f"--advertise-client-urls={at}",
            f"--listen-peer-urls={to_peer}",
            f"--initial-advertise-peer-urls={to_peer}",
            f"--initial-cluster=default={to_peer}",
            "--log-level=warn",
        )
        self._spawn("kube-apiserver", *self._api_flags(at))
        self._wait("the API", lambda: self.api("GET", "/readyz") == {"text": "ok"})
        if self.has_controllers:
            self._start_controllers()
        else:
            self.controllers = StandinControllers(self.api, (self.folder / "ca.crt").read_text())
            self.controllers.start()
        self._wait("the default account", lambda: self.api("GET", f"{NAMESPACED}/serviceaccounts/default"))
        if self.standins:
            self.kubelet = StandinKubelet(
                self.api, self.follower, self.folder / "server.crt", self.folder / "server.key"
            )
            self.kubelet.start()

    def _start_controllers(self) -> None:
        common = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0")
        accounts = (
            f"--service-account-private-key-file={self.folder}/accounts.key",
            f"--root-ca-file={self.folder}/ca.crt",
        )
        # The stand-in sends no heartbeats: the nodes are to be taken for alive all the same.
        patience = ("--node-monitor-grace-period=24h", "--node-startup-grace-period=24h")
        self._spawn("kube-controller-manager", "--controllers=*", *patience, *common, *accounts)
        self._spawn("kube-scheduler", *common)

    def stop(self) -> None:
        """End everything and remove its files."""
        for standin in (self.kubelet, self.controllers):
            if standin:
                standin.stop()
        self._connections.close()
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _api_flags(self, etcd: str) -> list[str]:
        at = self.folder
        return [
            f"--etcd-servers={etcd}",
            f"--bind-address={self.address}",
            f"--secure-port={self.port}",
            f"--tls-cert-file={at}/server.crt",
            f"--tls-private-key-file={at}/server.key",
            f"--client-ca-file={at}/ca.crt",
            f"--kubelet-client-certificate={at}/admin.crt",
            f"--kubelet-client-key={at}/admin.key",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",  # as clusters do
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={at}/accounts.key",
            f"--service-account-key-file={at}/accounts.crt",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",
            "--profiling=false",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _certificates(self) -> None:
        (self.folder / "openssl.cnf").write_text("[req]\ndistinguished_name=dn\n[dn]\n")
        self._issue(
            "ca", "/CN=test-ca", "basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,digitalSignature"
        )
        self._issue("admin", "/O=system:masters/CN=admin", "extendedKeyUsage=clientAuth", signed=True)
        names = f"subjectAltName=IP:127.0.0.1,IP:{self.address},DNS:localhost"
        self._issue("server", "/CN=server", "extendedKeyUsage=serverAuth", names, signed=True)
        self._issue("accounts", "/CN=accounts")

    def _issue(self, name: str, subject: str, *extensions: str, signed: bool = False) -> None:
        at = self.folder
        argv = ["openssl", "req", "-x509", "-config", f"{at}/openssl.cnf", "-days", "2", "-nodes", "-subj", subject]
        argv += [
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-keyout",
            f"{at}/{name}.key",
            "-out",
            f"{at}/{name}.crt",
        ]
        argv += ["-CA", f"{at}/ca.crt", "-CAkey", f"{at}/ca.key"] if signed else []
        for extension in ("subjectKeyIdentifier=hash", *extensions):
            argv += ["-addext", extension]
        subprocess.run(argv, check=True, capture_output=True)

    def _write_kubeconfig(self) -> None:
        data = {
            n: base64.b64encode((self.folder / n).read_bytes()).decode() for n in ("ca.crt", "admin.crt", "admin.key")
        }
        server = {"server": f"https://{self.address}:{self.port}", "certificate-authority-data": data["ca.crt"]}
        user = {"client-certificate-data": data["admin.crt"], "client-key-data": data["admin.key"]}
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "clusters": [{"name": "test", "cluster": server}],
                    "users": [{"name": "admin", "user": user}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
                }
            )
        )

    def _spawn(self, name: str, *flags: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            argv = ["setpriv", "--pdeathsig", "KILL", str(self.assets / name), *flags, *early_flags(name, self.version)]
            self.processes.append(
                subprocess.Popen(
                    argv,
                    env={**os.environ, **NO_COLLECTOR},
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    cwd=self.folder,
                )
            )

    def _wait(self, what: str, ready: Any) -> None:
        end = time.monotonic() + READY
        while True:
            with contextlib.suppress(OSError, AssertionError):
                if ready():
                    return
            dead = [p for p in self.processes if p.poll() is not None]
            logs = "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log")) if dead else ""
            assert not dead, f"{what}: {dead[0].args!r} ended\n{logs}"
            assert time.monotonic() < end, f"{what}: not within {READY} s"
            time.sleep(0.1)


NAMESPACED = "/api/v1/namespaces/default"
# Kinds that tests ask for often, and where every server has them.
SERVED_AT = {
    kind: (group, plural)
    for group, plural, *kinds in (
        ("/api/v1", "pods", "pod", "pods"),
        ("/api/v1", "persistentvolumeclaims", "pvc"),
        ("/api/v1", "configmaps", "configmap"),
        ("/api/v1", "secrets", "secret"),
        ("/api/v1", "serviceaccounts", "serviceaccounts"),
        ("/api/v1", "resourcequotas", "resourcequota"),
        ("/api/v1", "events", "events"),
        ("/apis/apps/v1", "statefulsets", "statefulset", "statefulsets"),
    )
    for kind in kinds
}


def early_flags(program: str, version: tuple[int, int]) -> list[str]:
    """Flags that just this version of a program needs."""
    return [flag for name, end, flag in EARLY_FLAGS if name == program and version < end]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _remove_left_over() -> None:
    """The files of a run that was killed; its programs have ended with it."""
    for folder in Path(tempfile.gettempdir()).glob("plane-*-*"):
        if not Path(f"/proc/{folder.name.split('-')[1]}").exists():
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def plane(address: str = "127.0.0.1", standins: bool = True) -> Iterator[Plane]:
    """A cluster that ends with the block; its API listens at `address`."""
    found = assets()
    assert found is not None, missing()
    _remove_left_over()
    cluster = Plane(Path(tempfile.mkdtemp(prefix=f"plane-{os.getpid()}-")), found, address, standins)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def for_tests(controllers: bool = True) -> Iterator[Plane]:
    """The body of a fixture: a cluster, or a skipped test; in CI a machine that cannot have one fails.

    Without `controllers` the tests need just the API, pods and namespaces, which stand-ins can look after.
    """
    need(missing(controllers))
    with plane() as started:
        yield started


if __name__ == "__main__":  # a cluster to try things on, until Enter
    with plane() as started:
        sys.stdout.write(f"export KUBECONFIG={started.kubeconfig} PATH={started.assets}:$PATH\n")
        sys.stdout.flush()
        sys.stdin.readline()
