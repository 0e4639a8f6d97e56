"""python -m bench.cluster_diff: `gpuctl cluster diff` beside kubectl's, in a namespace of 2,000 objects.

The control plane is a real one, whose audit log counts the requests; a forwarder on the way counts the bytes, and puts
the API as far away as a cluster mostly is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.far import Far
from bench.measure import Timing, run
from bench.report import progress
from bench.sides import GPUCTL
from gpuctl.core import run_history as runs
from tests.integration.cluster.deploy import lab as made
from tests.integration.cluster.deploy.lab import Lab, standin_provisioner
from tests.rig.kube.assets import assets, missing
from tests.rig.kube.kubelet import running
from tests.rig.kube.plane import Plane

NODES, NAMESPACE = 8, "team"
# What others have in the namespace: how many of each, and how many bytes of text each holds.
OTHERS = {"ConfigMap": (700, 2000), "Secret": (600, 2000), "PersistentVolumeClaim": (300, 0), "Pod": (380, 0)}
AWAY_S = 0.01  # each way
SAME, CHANGED = "nothing to change", "another image and a node less"
IMAGE = {"image": {"name": "quay.io/team/ml:2"}}
AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]}


class Audited(Plane):
    """A control plane that keeps a line for each request."""

    @property
    def log(self) -> Path:
        return self.folder / "audit.log"

    def _api_flags(self, etcd: str) -> list[str]:
        policy = self.folder / "audit.json"
        policy.write_text(json.dumps({**AUDIT, "rules": [{"level": "Metadata"}]}))
        return [*super()._api_flags(etcd), f"--audit-policy-file={policy}", f"--audit-log-path={self.log}"]

    def requests(self, agents: tuple[str, ...], since: int) -> list[Mapping[str, Any]]:
        """Those of clients with these names, from a place in the log on."""
        time.sleep(1)  # the log is written a moment later
        entries = [json.loads(line) for line in self.log.read_bytes()[since:].splitlines()]
        return [entry for entry in entries if str(entry.get("userAgent")).startswith(agents)]


@dataclass(frozen=True)
class Ground:
    """A deployed environment among what others have, and how one gets there: directly, or from further away."""

    plane: Audited
    folder: Path
    far: Far

    def kubeconfig(self, away: bool) -> Path:
        port = self.far.port if away else self.plane.port
        path = self.folder / f"{port}.kubeconfig"
        path.write_text(self.plane.kubeconfig.read_text().replace(f":{self.plane.port}", f":{port}"))
        return path

    def cluster_file(self, away: bool, case: str) -> Path:
        port = self.far.port if away else self.plane.port
        folder = self.folder / f"{port}-{case.replace(' ', '-')}"
        folder.mkdir(exist_ok=True)
        return _lab(self.plane, folder).path(
            {"cluster": {"api": f"https://127.0.0.1:{port}"}}, IMAGE if case == CHANGED else {}
        )

    def objects(self, case: str) -> Path:
        """The same objects for kubectl, values of the Secret and all."""
        path = self.folder / f"{case.replace(' ', '-')}.json"
        if not path.exists():
            plan = _lab(self.plane, self.folder).plan(IMAGE if case == CHANGED else {}, nodes=_nodes(case))
            items = [state.desired for state in plan.states]
            path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        return path


def _lab(plane: Plane, folder: Path) -> Lab:
    return Lab(plane, folder, NAMESPACE, actor=runs.current_user())


def _nodes(case: str) -> int:
    return NODES - 1 if case == CHANGED else NODES


@dataclass(frozen=True)
class Side:
    """A command; `agent`: what it calls itself; `shows`: whether it says what would change, and not only that."""

    name: str
    arguments: tuple[str, ...]
    agent: str = "kubectl/"
    shows: bool = True

    def argv(self, ground: Ground, away: bool, case: str) -> list[str]:
        if self.agent != "kubectl/":
            return [GPUCTL, *self.arguments, str(ground.cluster_file(away, case)), "--nodes", str(_nodes(case))]
        # That something differs is exit code 1 of `kubectl diff`.
        arguments = [ground.plane.kubectl_program, *self.arguments, "-f", str(ground.objects(case))]
        return ["sh", "-c", '"$@" || [ $? = 1 ]', "kubectl", *arguments]


OURS = ("--server-side", "--field-manager=gpuctl")
SIDES = (
    Side("kubectl diff", ("diff",)),
    Side("kubectl diff --server-side", ("diff", *OURS)),
    Side("kubectl apply --dry-run=server", ("apply", "--dry-run=server"), shows=False),
    Side("kubectl apply --server-side --dry-run=server", ("apply", "--dry-run=server", *OURS), shows=False),
    Side("gpuctl cluster diff", ("cluster", "diff"), "OpenAPI-Generator/"),
)
FLOOR = SIDES[1].name


# ---- what is measured on --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def ground(top: Path) -> Iterator[Ground]:
    """A control plane with GPU nodes, a namespace full of others' objects, and an environment in it."""
    programs = assets()
    if programs is None:
        raise SystemExit(missing())
    (top / "plane").mkdir()
    plane = Audited(top / "plane", programs, standins=False)
    try:
        plane.start()
        for number in range(2):
            made.node(plane, f"gpu-{number}")
        made.prepare(plane, NODES)
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        with standin_provisioner(plane):
            _fill(plane)
            _lab(plane, top).deploy(nodes=NODES, limit_s=0)
            made.wait_for(lambda: _ours_run(plane), 120)
            made.wait_for(lambda: '"Pending"' not in plane.kubectl("get", "pvc", "-n", NAMESPACE, "-o", "json"), 120)
        with Far(plane.address, plane.port, AWAY_S) as far:
            yield Ground(plane, top, far)
    finally:
        plane.stop()


def _fill(plane: Plane) -> None:
    made.wait_for(lambda: "default" in plane.kubectl("get", "sa", "-n", NAMESPACE, "-o", "name"))
    manifests = [other(kind, n, size) for kind, (count, size) in OTHERS.items() for n in range(count)]
    progress(f"{len(manifests)} objects of others")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda manifest: _make(plane, manifest), manifests))


def _make(plane: Plane, manifest: dict[str, Any]) -> None:
    plane.api("POST", f"/api/v1/namespaces/{NAMESPACE}/{manifest['kind'].lower()}s", manifest)
    if manifest["kind"] == "Pod":
        plane.status(manifest["metadata"]["name"], running(manifest, "10.0.0.1"), NAMESPACE)


def other(kind: str, number: int, size: int) -> dict[str, Any]:
    """Something that is not ours."""
    meta = {
        "name": f"theirs-{kind.lower()}-{number}",
        "labels": {"app.kubernetes.io/instance": f"theirs-{number % 20}"},
    }
    manifest: dict[str, Any] = {"apiVersion": "v1", "kind": kind, "metadata": meta}
    if size:
        return {**manifest, ("stringData" if kind == "Secret" else "data"): {"text": "a line of it\n" * (size // 13)}}
    if kind == "PersistentVolumeClaim":
        request = {"requests": {"storage": "1Gi"}}
        return {**manifest, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "rbd", "resources": request}}
    container = {"name": "main", "image": "example/main:1", "env": [{"name": f"V{n}", "value": "x"} for n in range(9)]}
    return {**manifest, "spec": {"nodeName": f"gpu-{number % NODES}", "containers": [container]}}


def _ours_run(plane: Plane) -> bool:
    """Do the kubelet's part for our pods."""
    pods = json.loads(plane.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
    ours = [pod for pod in pods if pod["metadata"]["name"].startswith("lab-")]
    for pod in ours:
        if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
            plane.status(pod["metadata"]["name"], running(pod, "10.0.0.1"), NAMESPACE)
    return len(ours) == NODES and all(pod["status"]["phase"] == "Running" for pod in ours)


# ---- measuring ------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """What a side took in a case: directly, from further away, and how much it asked for."""

    near: list[Timing]
    away: list[Timing]
    requests: int = 0
    received: int = 0
    pss: float = 0


def once(ground: Ground, side: Side, case: str, away: bool, watch: bool = False) -> Timing:
    """An end where it did not see what it has to see."""
    environment = {"KUBECONFIG": str(ground.kubeconfig(away)), "HOME": str(ground.folder)}
    took = run(side.argv(ground, away, case), ground.folder, environment, watch)
    if side.shows and ("quay.io/team/ml:2" in took.output) != (case == CHANGED):
        raise SystemExit(f"{side.name}, {case}: {took.output}")
    return took


def measure(ground: Ground, runs: int) -> dict[tuple[str, str], Row]:
    rows = {(side.name, case): Row([], []) for case in (SAME, CHANGED) for side in SIDES}
    for number in range(runs):
        for case in (SAME, CHANGED):
            for side in SIDES[number % len(SIDES) :] + SIDES[: number % len(SIDES)]:  # none is always the last
                progress(f"{side.name}, {case}, run {number + 1}")
                row = rows[side.name, case]
                row.near.append(once(ground, side, case, away=False))
                row.away.append(once(ground, side, case, away=True))
    for case in (SAME, CHANGED):
        for side in SIDES:
            _count(ground, side, case, rows[side.name, case])
    return rows


def _count(ground: Ground, side: Side, case: str, row: Row) -> None:
    """One more run, for the requests, the bytes and the memory."""
    since, before = ground.plane.log.stat().st_size, ground.far.received
    row.pss = once(ground, side, case, away=True, watch=True).pss
    requests = ground.plane.requests((side.agent,), since)
    row.requests, row.received = len(requests), ground.far.received - before


def table(rows: Mapping[tuple[str, str], Row]) -> str:
    """Markdown: medians, and ratios to `kubectl diff --server-side`."""
    head = "times | wall s, 20 ms away | min to max | times | CPU s | peak MiB | requests | KiB read |"
    lines = [f"| | | wall s | min to max | {head}", "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for (name, case), row in rows.items():
        floor = rows[FLOOR, case]
        parts = [_times(took, of) for took, of in ((row.near, floor.near), (row.away, floor.away))]
        cpu = statistics.median(timing.cpu for timing in row.near)
        cells = f"{cpu:.2f} | {row.pss:.0f} | {row.requests} | {row.received / 1024:.0f}"
        lines.append(f"| {name} | {case} | {' | '.join(parts)} | {cells} |")
    return "\n".join(lines)


def _times(took: Sequence[Timing], floor: Sequence[Timing]) -> str:
    walls = [timing.wall for timing in took]
    wall, base = statistics.median(walls), statistics.median(timing.wall for timing in floor)
    return f"{wall:.2f} | {min(walls):.2f} to {max(walls):.2f} | {wall / base:.2f}"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="bench-diff-") as top, ground(Path(top)) as fleet:
        count = sum(count for count, _ in OTHERS.values())
        text = table(measure(fleet, options.runs))
        sys.stdout.write(f"{count} objects of others, {NODES} nodes, medians of {options.runs}.\n\n{text}\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}\n{error.output}")
