"""python -m bench.cluster_sync: 5,000 files to real pods by gpuctl, kubectl cp, and tar and rsync through kubectl exec.

All pods are containers on one real node of a real control plane on this machine; everybody shares its processors.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shlex
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Timing, run
from bench.report import progress
from gpuctl.cluster.sync import excludes, flow, pods, watch
from gpuctl.cluster.sync.local import Local
from gpuctl.cluster.sync.push import SyncRequest
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.pod_exec import Command
from tests.integration.cluster.sync.pods import files_in, hashes, inside, pod, real_node, start
from tests.integration.cluster.sync.watching import AWAIT, Heard, until
from tests.rig.kube.plane import Plane

FILES, EDITS = 5000, 20
FIRST, AGAIN, ONE = "first time", "nothing changed", "one file changed"
# The command itself, as `gpuctl cluster sync` runs it.
GPUCTL = (
    sys.executable,
    "-c",
    "from gpuctl.cli.cluster.sync import sync; from gpuctl.cli.errors import guarded; guarded(sync.main)",
)


@dataclass(frozen=True)
class Rig:
    """What is measured on."""

    cluster: Plane
    source: Path
    names: tuple[str, ...]
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.cluster.kubeconfig), "HOME": str(self.folder)}

    @property
    def kubectl(self) -> str:
        return self.cluster.kubectl_program

    def shell(self, script: str) -> Timing:
        return run(["bash", "-euo", "pipefail", "-c", script], self.source, self.environment)

    def everywhere(self, script: str) -> Timing:
        """A shell script for each pod ($pod), all at the same time."""
        parts = "\n".join(f"(pod={name}; {script}) & ids+=($!)" for name in self.names)
        return self.shell(f"ids=()\n{parts}\nfor id in ${{ids[@]}}; do wait $id; done")

    def in_turn(self, script: str) -> Timing:
        return self.shell("\n".join(f"pod={name}; {script}" for name in self.names))


Side = Callable[[Rig, str], Timing]


def gpuctl(rig: Rig, target: str) -> Timing:
    return run([*GPUCTL, "--pods", ",".join(rig.names), "--target", target], rig.source, rig.environment)


def tar(rig: Rig, target: str) -> Timing:
    made = "import os, sys; os.makedirs(sys.argv[1], exist_ok=True)"
    for name in rig.names:
        inside(rig.cluster, name, made, target)
    return rig.everywhere(f"tar cf - . | {rig.kubectl} exec -i $pod -- tar xf - -C {target}")


def copy(rig: Rig, target: str) -> Timing:
    return rig.everywhere(f"{rig.kubectl} cp . $pod:{target} >/dev/null")


def copy_in_turn(rig: Rig, target: str) -> Timing:
    return rig.in_turn(f"{rig.kubectl} cp . $pod:{target} >/dev/null")


def rsync(rig: Rig, target: str) -> Timing:
    shell = rig.folder / "through"
    shell.write_text(f'#!/bin/sh\npod=$1; shift; exec {shlex.quote(rig.kubectl)} exec -i "$pod" -- "$@"\n')
    shell.chmod(0o755)
    return rig.everywhere(f"rsync -a --delete --mkpath --blocking-io -e {shell} ./ $pod:{target}/")


SIDES: dict[str, Side] = {
    "tar, all pods at the same time": tar,
    "kubectl cp, all pods at the same time": copy,
    "kubectl cp, one pod after the other": copy_in_turn,
    "rsync --delete, all pods at the same time": rsync,
    "gpuctl cluster sync": gpuctl,
}
KNOWS_WHAT_IS_THERE = (rsync, gpuctl)  # the others send all of it again


def write_tree(source: Path) -> None:
    """Files as a project has them: a few KiB of text each, in folders of a hundred."""
    names = [f"{first}{second}" for first in ("load", "step", "grad", "rank", "node") for second in ("er", "_of", "s")]
    numbers = random.Random(7)  # noqa: S311 - the same files every time
    for number in range(FILES):
        path = source / f"pkg{number // 500}/part{number // 100}/mod{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (" ".join(numbers.choices(names, k=9)) for _ in range(numbers.randint(5, 90)))
        path.write_text("\n".join(lines))


def measure(rig: Rig, runs: int) -> dict[tuple[str, str], list[Timing]]:
    timings: dict[tuple[str, str], list[Timing]] = {}
    for number in range(runs):
        sides = list(SIDES.items())
        for name, side in sides[number % len(sides) :] + sides[: number % len(sides)]:  # none is always the last
            target = f"/workspace/{side.__name__}-{number}"
            for case in (FIRST, AGAIN, ONE) if side in KNOWS_WHAT_IS_THERE else (FIRST,):
                if case == ONE:
                    (rig.source / "pkg0/part0/mod1.py").write_text(f"{name} {number}\n")
                progress(f"{name}: {case}, run {number + 1}")
                timings.setdefault((name, case), []).append(side(rig, target))
            check(rig, target)
    return timings


def check(rig: Rig, target: str) -> None:
    """Work that was not done is no measurement."""
    expected = hashes(rig.source)
    for name in rig.names:
        if files_in(rig.cluster, name, target) != expected:
            raise SystemExit(f"{name} has something else in {target}")


def latencies(rig: Rig) -> list[float]:
    """Seconds from the end of a write here until a program in the last pod reads it, with a watch that is open."""
    connection, heard, stop = kube.connect(files=[rig.cluster.kubeconfig]), Heard(), Stop()
    target, path = "/workspace/watched", rig.source / "pkg0/part0/mod1.py"
    local = Local(rig.source, excludes.read_patterns(rig.source, []))
    settings = watch.Settings(flow.PodConnector(connection, stop=stop), local, SyncRequest(target), heard)
    targets = pods.named(connection, rig.names, target)
    thread = threading.Thread(target=watch.watch, args=(settings, targets))
    thread.start()
    try:
        until(lambda: set(heard.versions) == set(rig.names))
        return [_latency(connection, rig, path, target, f"edit {number}") for number in range(EDITS)]
    finally:
        stop.set()
        thread.join()


def _latency(connection: kube.Cluster, rig: Rig, path: Path, target: str, text: str) -> float:
    command = Command(["python3", "-ISc", AWAIT, f"{target}/{path.relative_to(rig.source)}", text])
    with contextlib.closing(pod_exec.start(connection, rig.names[-1], command)) as waiting:
        waiting.read()
        path.write_text(text)
        written = time.monotonic()
        waiting.read()
        return time.monotonic() - written


def table(timings: dict[tuple[str, str], list[Timing]], count: int, took: Sequence[float], size: int) -> str:
    """Markdown: medians, and ratios to a first copy by tar."""
    floor = statistics.median(timed.wall for timed in timings[next(iter(SIDES)), FIRST])
    lines = [
        f"{FILES} files, {size / 2**20:.1f} MiB, {count} pods on one node of this machine; {os.cpu_count()} cores.\n"
    ]
    lines += ["| | | wall s | min to max | CPU s here | runs | times tar |", "|---|---|---:|---:|---:|---:|---:|"]
    for (name, case), timed in timings.items():
        walls, cpu = [one.wall for one in timed], statistics.median(one.cpu for one in timed)
        wall = statistics.median(walls)
        spread = f"{min(walls):.2f} to {max(walls):.2f}"
        lines.append(f"| {name} | {case} | {wall:.2f} | {spread} | {cpu:.2f} | {len(timed)} | {wall / floor:.2f} |")
    middle, worst = statistics.median(took), max(took)
    lines.append(
        f"\nFrom an edit to the last of {count} pods, watching {FILES} files: median {middle:.2f} s, "
        f"longest {worst:.2f} s of {len(took)} edits."
    )
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(argv)
    top = Path(tempfile.mkdtemp(prefix="bench-sync-"))
    top.chmod(0o755)
    try:
        with real_node(top) as cluster:
            rig = Rig(cluster, top / "source", tuple(f"lab-{number}" for number in range(options.pods)), top)
            write_tree(rig.source)
            start(
                cluster,
                *(pod(name, "lab", {"/workspace": {"emptyDir": {}}}, f"{1600 // options.pods}m") for name in rig.names),
            )
            timings, took = measure(rig, options.runs), latencies(rig)
            size = sum(path.stat().st_size for path in rig.source.rglob("*.py"))
            sys.stdout.write(table(timings, options.pods, took, size) + "\n")
    finally:
        shutil.rmtree(top, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
