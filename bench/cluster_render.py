"""python -m bench.cluster_render: the objects of 512 nodes as text, by gpuctl, Jinja2, Ansible, kustomize and sed.

The others fill in what gpuctl rendered: their templates are its output with what differs taken out, and all have to
bring the same objects. The floor does nothing but write them as YAML.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.measure import Timing, run
from bench.report import progress
from bench.sides import GPUCTL
from gpuctl.cluster.clusterfile.read import load
from gpuctl.cluster.environment import EnvironmentRequest, environment
from gpuctl.cluster.manifests import as_yaml, everything
from tests.rig.cluster.files import OPENSHIFT

IMAGE, OLDER = "quay.io/team/ml:2", "quay.io/team/ml:1"  # what is deployed, and what a kustomize base was made with
FLOOR = "PyYAML's C dumper, the objects given (the floor)"
ANSIBLE = str(Path(sys.executable).with_name("ansible-playbook"))
DUMP = """
import json, sys, yaml
yaml.dump_all(json.load(open("objects.json")), sys.stdout, yaml.CSafeDumper, sort_keys=False)
"""
JINJA = """
import json, pathlib, sys
from jinja2 import Environment, StrictUndefined
made = Environment(undefined=StrictUndefined).from_string(pathlib.Path("all.j2").read_text())
sys.stdout.write(made.render(json.loads(pathlib.Path("values.json").read_text())))
"""
PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.template: {src: all.j2, dest: out.yaml, mode: "0644"}
"""


@dataclass(frozen=True)
class Side:
    """A command that prints the objects, or writes them to the file `out`."""

    name: str
    argv: Sequence[str]
    out: str = ""


def sides(folder: Path, nodes: int) -> list[Side]:
    """Write what each needs into the folder, and name the commands."""
    path = cluster_file(folder, nodes)
    objects = objects_of(path, nodes)
    text = as_yaml.as_yaml(objects)
    (folder / "objects.json").write_text(json.dumps(objects))
    (folder / "values.json").write_text(json.dumps({"image": IMAGE, "nodes": nodes}))
    (folder / "all.j2").write_text(template(text, nodes))
    (folder / "play.yml").write_text(PLAY)
    (folder / "all.txt").write_text(text.replace(IMAGE, "@IMAGE@").replace(f"replicas: {nodes}\n", "replicas: @N@\n"))
    kustomize(folder, objects, nodes)
    all_sides = [
        Side(FLOOR, [sys.executable, "-c", DUMP]),
        Side("sed, the lists of nodes given", ["sed", f"s|@IMAGE@|{IMAGE}|;s|@N@|{nodes}|", "all.txt"]),
        Side("Jinja2", [sys.executable, "-c", JINJA]),
        Side("kubectl kustomize, the lists of nodes given", ["kubectl", "kustomize", "overlay"]),
        Side("Ansible's template module", [ANSIBLE, "play.yml", "-e", "@values.json"], "out.yaml"),
        Side("gpuctl cluster render", [GPUCTL, "cluster", "render", str(path), "--nodes", str(nodes)]),
    ]
    return [side for side in all_sides if shutil.which(side.argv[0])]


def cluster_file(folder: Path, nodes: int) -> Path:
    """The example with RoCE on OpenShift, its nodes named one by one."""
    content = yaml.safe_load(OPENSHIFT.read_text())
    content["nodes"]["gpu_nodes"] = [f"gpu-node-{number}" for number in range(nodes)]
    content["image"] = {"name": IMAGE}
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def objects_of(path: Path, nodes: int) -> list[dict[str, Any]]:
    return everything(environment(load(path), EnvironmentRequest("rdma", nodes)))


# A text, and where it says something of each node; what stands between is one's own, braces and all.
OF_EACH = r"(?:^ +h100-roce-\d+\..* slots=\d+\n)+|(?:^ +- matchFields:\n(?: +.*\n){3} +- gpu-node-\d+\n)+"
FIRST = r"\A(?: +h100-roce-0\..*\n| +- matchFields:\n(?: +.*\n){3} +- gpu-node-0\n)"


def template(text: str, nodes: int) -> str:
    """The text with loops over the nodes, and variables for what differs."""
    made, at = "", 0
    for block in re.finditer(OF_EACH, text, re.MULTILINE):
        (first,) = re.findall(FIRST, block[0])
        one = re.sub(r"(h100-roce|gpu-node)-0\b", r"\1-{{ n }}", first)
        made += f"{_raw(text[at : block.start()], nodes)}{{% for n in range(nodes) %}}{one}{{% endfor %}}"
        at = block.end()
    return made + _raw(text[at:], nodes)


def _raw(text: str, nodes: int) -> str:
    out, back = "{% endraw %}", "{% raw %}"
    text = text.replace(IMAGE, f"{out}{{{{ image }}}}{back}")
    return back + text.replace(f"replicas: {nodes}\n", f"replicas: {out}{{{{ nodes }}}}{back}\n") + out


def kustomize(folder: Path, objects: list[dict[str, Any]], nodes: int) -> None:
    """A base for one node with another image, and what makes of it what is wanted."""
    (folder / "base").mkdir()
    (folder / "overlay").mkdir()
    small = folder / "base/cluster.yaml"
    small.write_text((folder / "cluster.yaml").read_text().replace(IMAGE, OLDER))
    (folder / "base/all.yaml").write_text(as_yaml.as_yaml(objects_of(small, 1)))
    (folder / "base/kustomization.yaml").write_text(yaml.safe_dump({"resources": ["all.yaml"]}))
    hosts, pods = (one(objects, *what) for what in (("ConfigMap", "h100-roce-hosts"), ("StatefulSet", "h100-roce")))
    affinity = {"affinity": {"nodeAffinity": pods["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]}}
    patches = [{**_head(hosts), "data": hosts["data"]}, {**_head(pods), "spec": {"template": {"spec": affinity}}}]
    overlay = {
        "resources": ["../base"],
        "images": [{"name": IMAGE.partition(":")[0], "newTag": IMAGE.partition(":")[2]}],
        "replicas": [{"name": "h100-roce", "count": nodes}],
        "patches": [{"patch": yaml.safe_dump(patch)} for patch in patches],
    }
    (folder / "overlay/kustomization.yaml").write_text(yaml.safe_dump(overlay))


def one(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return next(manifest for manifest in objects if (manifest["kind"], manifest["metadata"]["name"]) == (kind, name))


def _head(manifest: dict[str, Any]) -> dict[str, Any]:
    meta = {name: manifest["metadata"][name] for name in ("name", "namespace")}
    return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": meta}


def once(folder: Path, side: Side, watch: bool = False) -> Timing:
    """What it took; an end where it did not bring the objects."""
    took = run(side.argv, folder, {"HOME": str(folder)}, watch)
    text = (folder / side.out).read_text() if side.out else took.output
    if by_name(yaml.load_all(text, yaml.CSafeLoader)) != by_name(json.loads((folder / "objects.json").read_text())):
        raise SystemExit(f"{side.name} brings other objects")
    return took


def by_name(objects: Any) -> dict[tuple[str, str], Any]:
    return {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in objects}


def measure(folder: Path, nodes: int, runs: int) -> dict[str, list[Timing]]:
    """All sides in turn, each time another one first; and last a run each whose memory is watched."""
    all_sides = sides(folder, nodes)
    timings: dict[str, list[Timing]] = {side.name: [] for side in all_sides}
    for number in range(runs):
        for side in all_sides[number % len(all_sides) :] + all_sides[: number % len(all_sides)]:
            progress(f"{side.name}, {nodes} nodes, run {number + 1}")
            timings[side.name].append(once(folder, side))
    for side in all_sides:
        timings[side.name].append(once(folder, side, watch=True))
    return timings


def table(timings: dict[str, list[Timing]], nodes: int) -> str:
    """Markdown: medians, and ratios to the floor in processor time, which other work on the machine changes least."""
    floor = statistics.median(timed.cpu for timed in timings[FLOOR][:-1])
    lines = [f"| {nodes} nodes | wall ms | min to max | CPU ms | times the floor | peak MiB | runs |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    for name, (*timed, watched) in timings.items():
        walls, cpu = [one.wall for one in timed], statistics.median(one.cpu for one in timed)
        wall, spread = statistics.median(walls), f"{min(walls) * 1000:.0f} to {max(walls) * 1000:.0f}"
        row = f"{wall * 1000:.0f} | {spread} | {cpu * 1000:.0f} | {cpu / floor:.2f} | {watched.pss:.0f} | {len(timed)}"
        lines.append(f"| {name} | {row} |")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[2, 512])
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args(argv)
    for nodes in options.nodes:
        with tempfile.TemporaryDirectory(prefix="bench-render-") as top:
            sys.stdout.write(table(measure(Path(top), nodes, options.runs), nodes) + "\n\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}\n{error.output}")
