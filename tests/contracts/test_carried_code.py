"""What we carry into pods and hosts needs only their Python: 3.8 in pods, 3.9 on hosts, and the standard library."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path
from typing import cast

import pytest
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.payload import script

from gpuctl.cluster.doctor import probe_pods, program
from gpuctl.cluster.probe import flow as probe
from gpuctl.cluster.probe.model import ProbeRequest
from gpuctl.cluster.sync import excludes, stream
from gpuctl.cluster.sync.local import Local
from gpuctl.cluster.sync.push import PodSync, SyncRequest
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.pod_exec import Command, Program
from gpuctl.engine import launch_answers
from gpuctl.remote import attached, connection, packing, payload
from gpuctl.remote.model import PodTarget
from gpuctl.remote.model import Program as PodProgram
from gpuctl.workflows.incident import storage
from tests.rig.cluster.receiver import Process, open_stream
from tests.rig.cluster.snapshots import env_of
from tests.rig.old_python import old_python
from tests.rig.source_files import PLUGINS, ROOT, python_files

PAYLOADS = {
    "doctor": program.MODULES,
    "probe": probe.MODULES,
    "storage": storage.MODULES,
    "supervisor": connection.MODULES,
    "sync": stream.RECEIVER,
}
MARK = "marked "
CHECKING = "TYPE_CHECKING"


def file_of(module: str) -> Path:
    ours = module.removeprefix("ansible_collections.gpuctl.fleet.")
    return ROOT / f"{ours.replace('.', '/')}.py"


def imported(module: str) -> Iterator[str]:
    """Modules that a module imports when it runs; `from package import name` counts as `package.name` if that is a file
    of ours.
    """
    whole = ast.parse(file_of(module).read_text(), feature_version=packing.OLDEST)
    whole.body = [node for node in whole.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == CHECKING)]
    for node in ast.walk(whole):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = resolve_name("." * node.level + (node.module or ""), module.rpartition(".")[0])
            names = [f"{package}.{alias.name}" for alias in node.names]
            yield from (name if file_of(name).exists() else package for name in names)


@pytest.mark.parametrize("modules", PAYLOADS.values(), ids=list(PAYLOADS))
def test_a_module_for_pods_imports_the_standard_library_and_what_is_carried_before_it(modules: tuple[str, ...]) -> None:
    for number, module in enumerate(modules):
        foreign = {
            name
            for name in imported(module)
            if name.partition(".")[0] not in sys.stdlib_module_names and name not in modules[:number]
        }
        assert foreign == set(), module


def test_every_file_for_pods_is_carried() -> None:
    folders = [*(ROOT / "gpuctl").rglob("pod/"), ROOT / "gpuctl/remote/supervisor"]
    files = {path for folder in folders for path in python_files(folder) if path.name != "__init__.py"}
    assert files - {file_of(module) for modules in PAYLOADS.values() for module in modules} == set()


def test_the_linter_checks_these_files_for_old_versions_of_python() -> None:
    done = subprocess.run(["make", "-n", "lint"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    [paths] = [line.split() for line in done.stdout.splitlines() if line.startswith("vermin ") and "=3.8-" in line]
    checked = [ROOT / path for path in paths[1:] if not path.startswith("-")]
    carried = {file_of(module) for modules in PAYLOADS.values() for module in modules}
    assert [file for file in carried if not any(file.is_relative_to(path) for path in checked)] == []


# ---- run by the oldest Python of this machine ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def python() -> str:
    return old_python(packing.OLDEST[1])


@pytest.fixture
def target(python: str, tmp_path: Path) -> PodTarget:
    """A pod that is this machine, with an old Python."""

    def start(_: Cluster, __: str, ___: Command) -> Program:
        return cast(Program, Process(python=python))

    return PodTarget(cast(Cluster, None), "lab-0", "ml", python=python, runs=str(tmp_path / "runs"), start=start)


def test_an_old_python_runs_a_program_under_the_supervisor(target: PodTarget) -> None:
    output: list[bytes] = []
    ended = attached.run(target, PodProgram([target.python, "-c", "print(1)"], grace_s=1.0), output.append)
    assert (ended.code, b"".join(output)) == (0, b"1\n")


def test_an_old_python_probes_a_pod(target: PodTarget) -> None:
    [facts], _ = probe.probe([target], ProbeRequest(["localhost"], "", ("sh",)))
    assert (facts.unread, facts.answer["programs"]["sh"] is not None) == ("", True)


def test_an_old_python_receives_a_folder(python: str, tmp_path: Path) -> None:
    source, received = tmp_path / "source", tmp_path / "received"
    source.mkdir()
    (source / "train.py").write_text("train")
    with contextlib.closing(open_stream(python=python)) as opened:
        sync = PodSync(opened, Local(source, excludes.read_patterns(source, [])), SyncRequest(str(received), False))
        sync.begin()
        sync.carry_out(sync.plan())
    assert (received / "train.py").read_text() == "train"


def test_an_old_python_looks_at_a_pod_for_the_doctor(python: str, tmp_path: Path) -> None:
    request = probe_pods.request(env_of(tmp_path), ["lab-0", "lab-1"], "lab-1")
    request |= {"names": ["localhost"], "ssh": [], "master": None, "token": "tok ", "limit_s": 20.0, "sample_s": 0.1}
    with subprocess.Popen(packing.command(python), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin
        assert running.stdout
        running.stdin.write(program.encode(request))
        running.stdin.flush()  # it ends when its input does
        answer = program.decode(running.stdout.read(), "tok ")
    assert answer is not None
    assert answer["machine"]["cpus"] > 0
    assert not any("*" in part.get("unread", {}) for part in answer.values())


def test_an_old_python_measures_the_storage_of_a_pod(target: PodTarget, tmp_path: Path) -> None:
    (tmp_path / "shard").write_bytes(bytes(range(256)) * 16384)
    os.utime(tmp_path / "shard", (1000, 1000))
    options = storage.StorageOptions(str(tmp_path), window_s=0.1, read_s=1.0, read_mib=8)
    answers = storage.ask_pods([target], options)
    facts = answers.fleet["lab-0"]
    assert (answers.missing, facts["unread"], facts["trial"]["file_bytes"]) == ({}, {}, 4 << 20)


def test_an_old_python_starts_a_launch_on_a_node() -> None:
    argv = ["env", "{program}", "-c", "echo out"]
    request = {"mark": MARK, "argv": argv, "env": {}, "program": "sh", "folders": [], "usual": []}
    text = payload.program("start", request)
    done = subprocess.run([old_python(9), "-IS", "-"], input=text, capture_output=True, check=True, timeout=60)
    assert done.stdout.startswith(b"out\n")
    assert payload.answer(done.stdout, MARK, launch_answers.Start) == {"code": 0}


def test_an_old_python_gathers_the_facts_of_a_host() -> None:
    request = {"action": "facts", "subjects": "nccl", "resolve": [], "login": [], "folders": [], "ssh_args": []}
    text = script(json.dumps(request), "tok ")
    done = subprocess.run([old_python(9), "-IS", "-"], input=text, capture_output=True, check=True, timeout=120)
    answer = json.loads(done.stdout.decode().rpartition("\ntok ")[2])
    assert "facts" in answer, answer


def test_an_old_python_loads_every_module_of_the_engine() -> None:
    names = [
        ".".join(["plugins", *path.relative_to(PLUGINS).with_suffix("").parts]).removesuffix(".__init__")
        for path in python_files(PLUGINS / "module_utils")
    ]
    collection = ROOT / "build" / "collections"
    loads = f"import sys, importlib; sys.path.insert(0, {str(collection)!r})\n" + "".join(
        f"importlib.import_module('ansible_collections.gpuctl.fleet.{name}')\n" for name in names
    )
    done = subprocess.run([old_python(9), "-ISBc", loads], capture_output=True, text=True, check=False, timeout=120)
    assert done.stderr == ""
