"""A cluster that takes questions and does not answer them: a command that is broken off, or fails, ends at once."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest
import yaml

from gpuctl.cluster.deploy.read_snapshot import AT_ONCE
from gpuctl.cluster.manifests import KINDS
from tests.rig.cluster.files import write

SERVED = (*KINDS, ("v1", "Namespace"), ("v1", "Node"), ("v1", "ResourceQuota"), ("storage.k8s.io/v1", "StorageClass"))
SOON_S = 20  # less than what a question waits for its answer
NAMESPACE = "/api/v1/namespaces/team"
GROUP, OBJECT = re.compile(r"/api/(v1)|/apis/([^/]+/[^/]+)"), re.compile(r".*/namespaces/team/[^/]+/[^/]+")


class Silent(ThreadingHTTPServer):
    """Says what it serves, nothing of OpenShift, and that objects and pods are not there; to all else it has no answer.

    `refusing`: to the question for the namespace it says that it does not know who asks, once so many others wait.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refusing, self.refused_at = 0, 0.0
        self.waiting, self.over = threading.Semaphore(0), threading.Event()

    def until_waiting(self, count: int) -> None:
        for _ in range(count):
            assert self.waiting.acquire(timeout=60)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server, path = cast(Silent, self.server), self.path.partition("?")[0]
        if group := GROUP.fullmatch(path):
            served = _served(group[1] or group[2])
            self._answer(200 if served else 404, {"resources": served})
        elif OBJECT.fullmatch(path):
            self._answer(404, {})
        elif path == f"{NAMESPACE}/pods":  # asked before the others: pods may be left without their StatefulSet
            self._answer(200, {"items": [], "metadata": {"resourceVersion": "1"}})
        elif path == NAMESPACE and server.refusing:
            server.until_waiting(server.refusing)
            server.refused_at = time.monotonic()
            self._answer(401, {})
        else:
            server.waiting.release()
            server.over.wait()

    do_POST = do_GET  # noqa: N815 - the library's name

    def _answer(self, status: int, body: object) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


def _served(group: str) -> list[dict[str, object]]:
    kinds = [kind for api, kind in SERVED if api == group and "openshift" not in api]
    one = {"Namespace", "Node", "StorageClass"}
    return [{"kind": kind, "name": f"{kind.lower()}s", "namespaced": kind not in one} for kind in kinds]


@pytest.fixture
def silent() -> Iterator[Silent]:
    with Silent() as server:
        threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        yield server
        server.over.set()
        server.shutdown()


@contextlib.contextmanager
def command(silent: Silent, words: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    at = f"127.0.0.1:{silent.server_address[1]}"
    write(folder, {"cluster": {"api": f"https://{at}"}})
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me", "namespace": "team"}}],
        "clusters": [{"name": "lab", "cluster": {"server": f"http://{at}"}}],
        "users": [{"name": "me", "user": {"token": "x"}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "GPUCTL_STATE_DIR": str(folder / "state")}
    program = [str(Path(sys.executable).with_name("gpuctl")), "cluster", *words.split()]
    running = subprocess.Popen(program, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


# A command, and how many questions it asks at the same time.
COMMANDS = pytest.mark.parametrize(("words", "count"), [("discover", 5), ("doctor lab.yaml start", AT_ONCE)])


@COMMANDS
def test_ctrl_c_waits_for_no_answer(words: str, count: int, silent: Silent, tmp_path: Path) -> None:
    with command(silent, words, tmp_path) as running:
        silent.until_waiting(count)
        running.send_signal(signal.SIGINT)
        complaint = running.communicate(timeout=SOON_S)[1]
    assert (running.returncode, complaint.strip()) == (130, "gpuctl: interrupted")


@COMMANDS
def test_an_error_waits_for_no_other_answer(words: str, count: int, silent: Silent, tmp_path: Path) -> None:
    silent.refusing = count - 1
    with command(silent, words, tmp_path) as running:
        complaint = running.communicate(timeout=60)[1]
    assert time.monotonic() - silent.refused_at < SOON_S
    assert running.returncode == 3
    assert "the cluster rejects the token of the user me" in complaint
