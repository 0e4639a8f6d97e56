"""Two real pods of an environment, and a user with gpuctl who works in them."""

from __future__ import annotations

import base64
import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import debugpy

from tests.integration.cluster.sync.pods import pod, real_node, start
from tests.rig.cluster.files import write
from tests.rig.kube.forwarding import children
from tests.rig.kube.plane import Plane
from tests.rig.tmux.screen import User, wait_until

NAMESPACE = "team"
LABELS = {
    "app.kubernetes.io/managed-by": "gpuctl",
    "app.kubernetes.io/name": "ml-environment",
    "app.kubernetes.io/instance": "lab",
    "gpuctl/cluster": "lab",
}
PASSWORD = "a word that only its Secret has"  # noqa: S105
LONG = 90.0  # seconds of patience, for a machine that has other things to do

# A stand-in for the editor of that name: it answers on its port, as the real one does.
CODE_SERVER = """#!/usr/bin/python3
import http.server
http.server.HTTPServer(("127.0.0.1", 8080), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@dataclass(frozen=True)
class Lab:
    """A cluster with the pods lab-0 and lab-1. `site`: a folder of programs that pods have at /opt/site."""

    plane: Plane
    site: Path

    def start(self, *numbers: int) -> None:
        """Make pods and wait until they run."""
        site: dict[str, Any] = {"hostPath": {"path": str(self.site)}}
        found = [pod(f"lab-{n}", "lab", {"/workspace": {"emptyDir": {}}, "/opt/site": site}) for n in numbers]
        for each in found:
            each["metadata"]["namespace"] = NAMESPACE
            env = {"PYTHONPATH": "/opt/site", "PATH": "/usr/bin:/opt/site/bin"}
            each["spec"]["containers"][0]["env"] = [{"name": name, "value": value} for name, value in env.items()]
        start(self.plane, *found)

    def inside(self, name: str, *argv: str) -> str:
        """What a program prints in a pod."""
        return self.plane.kubectl("exec", name, "-n", NAMESPACE, "--", *argv)

    def runs(self, name: str) -> list[str]:
        """What runs in a pod besides its first process; what has ended and waits for that to notice is gone."""
        told = self.inside(name, "ps", "-eo", "stat=,ppid=,args=").splitlines()
        rows = [line.split(None, 2) for line in told]
        return [args for state, _, args in rows if not state.startswith("Z") and args not in IDLE]

    def file(self, folder: Path) -> Path:
        """The cluster file."""
        about = {"api": f"https://{self.plane.address}:{self.plane.port}", "namespace": NAMESPACE}
        return write(folder, {"cluster": about})


IDLE = ("/usr/bin/sleep infinity", "ps -eo stat=,ppid=,args=")


@contextlib.contextmanager
def lab(folder: Path) -> Iterator[Lab]:
    """A real node with the two pods."""
    with real_node(folder) as plane:
        site = folder / "site"
        shutil.copytree(Path(debugpy.__file__).parent, site / "debugpy")
        (site / "bin").mkdir()
        (site / "bin/code-server").write_text(CODE_SERVER)
        (site / "bin/code-server").chmod(0o755)
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        wait_until(lambda: plane.get("serviceaccounts", namespace=NAMESPACE)["items"], "the namespace has its account")
        held = {"vscode-password": base64.b64encode(PASSWORD.encode()).decode()}
        meta = {"name": "lab", "namespace": NAMESPACE, "labels": LABELS}
        plane.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": held})
        found = Lab(plane, site)
        found.start(0, 1)
        yield found


@dataclass
class Beside:
    """A command that runs beside the test; `said`: all that it printed by now."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def says(self, *words: str) -> None:
        """Wait until it has said all of these."""
        over = self.process.poll
        wait_until(lambda: all(word in self.said for word in words) or over() is not None, str(words), LONG)
        assert all(word in self.said for word in words), self.said

    def broken_off(self) -> int:
        """Press Ctrl-C: its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(LONG)


@contextlib.contextmanager
def beside(me: User, *words: object) -> Iterator[Beside]:
    """Start gpuctl; it must leave nothing behind here, however it ends."""
    path = me.home / "output"
    with path.open("wb") as output:
        argv = [str(me.program_path), *map(str, words)]
        process = subprocess.Popen(
            argv, env=me.environment, cwd=me.home, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield Beside(process, path)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(LONG)
    wait_until(lambda: not children(me), "every child has ended", LONG)
