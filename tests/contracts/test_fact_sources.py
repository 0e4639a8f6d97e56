"""Every fact source returns None and a reason for what it cannot read, never raises, and stays below its root."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import (
    busy,
    gather,
    machine,
)
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from tests.rig import gpu_user_trees, h100_node

PEERS = [{"name": "b", "address": "10.0.0.2"}]
REQUEST = {"peers": PEERS, "look_up": PEERS}
GARBAGE = b"\xff\xfe{ ]\x00 garbage <\n= :\n-1\n"
PRINT_GARBAGE = "printf '" + "".join(f"\\{byte:03o}" for byte in GARBAGE) + "'"
Source = Callable[[Host], Mapping[str, Any]]


def _subject(name: str) -> Source:
    return lambda host: gather.gather(host, {**REQUEST, "only": [name]})[name]


SOURCES: dict[str, Source] = {
    **{name: _subject(name) for name in gather.SUBJECTS},
    "gpu use": lambda host: gather.gather_use(host, {})["use"],
    "machine": lambda host: machine.read(host).as_dict(),
    "busy": lambda host: {"busy": busy.busy(host)},
}
# Nothing is wrong with these: a file may set nothing, a test may be built without MPI, a process may have any name.
# Where the list of processes is unread, there are no ids whose names could be looked up; and names may be anything.
NAMES = {"pods", "sessions", "users"}
PLAUSIBLE = {
    "empty": {"conf", "test_mpi", "sees_all", *NAMES},
    "garbage": {"conf", "test_mpi", "fabric_manager_runs", "nccl_tests", "slurm_steps", *NAMES},
    "refused": {"sees_all", *NAMES},  # it says that not all processes can be seen
}


class Refusing(Host):
    """A host whose files cannot be read, by a fault of its disk or for want of rights."""

    def read(self, path: str) -> str:
        raise PermissionError(13, "Permission denied", path)


def node(root: Path) -> Path:
    """An H100 node at work: a job step of Slurm, a pod with a GPU, nccl-tests of somebody else."""
    h100_node.build(root)
    put, program = h100_node.put, h100_node.program
    put(root, "/etc/os-release", 'ID=ubuntu\nVERSION_ID="22.04"\n')
    put(root, "/proc/cpuinfo", "flags : fpu\n")
    put(root, "/sys/class/dmi/id/sys_vendor", "Supermicro\n")
    put(root, "/sys/class/dmi/id/board_asset_tag", "i-0123456789abcdef0\n")
    put(root, "/proc/driver/nvidia/gpus/0000:04:00.0/information", "Model: \t\t NVIDIA H100 80GB HBM3\n")
    gpu_user_trees.build(root)
    gpu_user_trees.process(root, 80)
    gpu_user_trees.on_gpus(root, {0: [80]})
    for pid, name in ((77, "slurmstepd"), (78, "all_reduce_perf")):
        put(root, f"/proc/{pid}/comm", f"{name}\n")
    device = {"PodUID": "uid-1", "ResourceName": "nvidia.com/gpu"}
    put(root, busy.KUBELET, json.dumps({"Data": {"PodDeviceEntries": [device]}}))
    put(root, "/sys/fs/cgroup/kubepods.slice/kubepods-poduid_1.slice/cgroup.procs", "1\n")
    program(root, "sinfo", "echo allocated")
    row = {"ifname": "ens1", "addr_info": [{"local": "10.1.0.7", "prefixlen": 16, "scope": "global"}]}
    program(root, "ip", f"echo '{json.dumps([row | {'dst': 'default', 'dev': 'ens1'}])}'")
    return root


def damage(root: Path, text: bytes, program: str) -> None:
    """Replace the content of every file, and what every program does."""
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(f"#!/bin/sh\n{program}\n".encode() if path.stat().st_mode & 0o100 else text)


@pytest.fixture(params=["missing", "empty", "garbage", "refused"])
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Host]:
    kind = str(request.param)
    if kind != "missing":
        node(tmp_path)
    if kind == "empty":
        damage(tmp_path, b"", "exit 1")
    elif kind == "garbage":
        damage(tmp_path, GARBAGE, PRINT_GARBAGE)
    return kind, Refusing(tmp_path) if kind == "refused" else Host(tmp_path)


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> Source:
    return SOURCES[request.param]


@pytest.fixture
def whole(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """The facts of the undamaged node."""
    return source(Host(node(tmp_path_factory.mktemp("whole"))))


def test_a_whole_node_leaves_nothing_unread(whole: Mapping[str, Any]) -> None:
    assert whole.get("unread", {}) == {}


def test_a_damaged_node_gives_the_same_keys_and_types_and_a_reason(
    source: Source, whole: Mapping[str, Any], damaged: tuple[str, Host]
) -> None:
    facts = source(damaged[1])  # and raises nothing
    reasons = facts.get("unread", {})
    assert all(isinstance(reason, str) and reason for reason in reasons.values())
    assert facts.keys() == whole.keys() or set(reasons) == {"*"}
    for name, value in facts.items():
        assert value is None or whole[name] is None or isinstance(value, type(whole[name])), (name, value)
    json.dumps(facts)


def test_a_value_that_cannot_be_read_is_never_taken_for_none_or_zero_or_fine(
    source: Source, whole: Mapping[str, Any], damaged: tuple[str, Host]
) -> None:
    kind, host = damaged
    if kind == "missing":  # of a host without Slurm or Kubernetes it is true that they hold nothing
        return
    facts = source(host)
    empty = {name for name, value in facts.items() if value is not None and not value and whole[name]}
    assert empty - {"unread"} <= PLAUSIBLE.get(kind, set())


def test_a_source_reads_and_starts_nothing_outside_its_root_and_changes_nothing(
    source: Source, damaged: tuple[str, Host]
) -> None:
    kind, host = damaged
    if kind == "refused":
        return
    source(host)  # what Python imports when it is first needed
    before = _content(Path(host.root))
    with _audited() as touched:
        source(host)
    assert {path for path in touched if not path.startswith(host.root)} <= {os.devnull}
    assert _content(Path(host.root)) == before


def _content(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


_recording: list[list[str]] = []


def _record(event: str, args: tuple[Any, ...]) -> None:
    if _recording and event in ("open", "os.listdir", "os.scandir", "subprocess.Popen", "os.remove", "os.mkdir"):
        _recording[-1].append(os.fsdecode(args[0]) if isinstance(args[0], (str, bytes)) else os.devnull)


sys.addaudithook(_record)  # it cannot be removed; without a list to record into it does nothing


@contextmanager
def _audited() -> Iterator[list[str]]:
    """Paths that Python opens, lists and starts within the block, in any thread."""
    _recording.append([])
    try:
        yield _recording[-1]
    finally:
        _recording.pop()
