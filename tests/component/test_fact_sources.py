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
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import answer_types
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.api import visit
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.efa.state import RECORD
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import (
    busy,
    gather,
    health,
    machine,
    outputs,
    stack,
    transaction,
)
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import answers

from tests.rig import gpu_user_trees, h100_node, health_files

PEERS = [{"name": "b", "address": "10.0.0.2"}]
REQUEST = {"peers": PEERS, "look_up": PEERS, "window_s": 0.01}
GARBAGE = b"\xff\xfe{ ]\x00 garbage <\n= :\n-1\n"
PRINT_GARBAGE = "printf '" + "".join(f"\\{byte:03o}" for byte in GARBAGE) + "'"
Source = Callable[[Host], Mapping[str, Any]]


def _subject(name: str) -> Source:
    return lambda host: gather.gather(host, {**REQUEST, "only": [name]})[name]


def _health(name: str) -> Source:
    """A subject of a node's audit; the clock is this machine's, whatever the root."""
    read = health.SUBJECTS[name]

    def source(host: Host) -> Mapping[str, Any]:
        facts = gather.gather(host, REQUEST, {name: read})[name]
        reasons = {key: reason for key, reason in facts["unread"].items() if key != "clock"}
        return {**{key: value for key, value in facts.items() if key != "clock"}, "unread": reasons}

    return source


SOURCES: dict[str, Source] = {
    **{name: _subject(name) for name in gather.SUBJECTS},
    **{name: _health(name) for name in health.SUBJECTS if name not in gather.SUBJECTS},
    "outputs": lambda host: outputs.read(host, {}),
    "gpu use": lambda host: gather.gather_use(host, {})["use"],
    "machine": lambda host: machine.read(host).as_dict(),
    "busy": lambda host: {"busy": busy.busy(host)},
    "stack": lambda host: stack.read(host, {"look_up": ["nvlsm"]}),
    "transaction": lambda host: transaction.read(host, {"packages": ["nvlsm=2.0-1"], "pins": ""}),
}
# Nothing is wrong with these: a file may set nothing, a test may be built without MPI, a process may have any name.
# Where the list of processes is unread, there are no ids whose names could be looked up; and names may be anything.
NAMES = {"pods", "sessions", "users"}
PLAUSIBLE = {
    "empty": {"conf", "test_mpi", "pins", "repositories", "sees_all", *NAMES},
    "garbage": {
        *("conf", "test_mpi", "fabric_manager_runs", "nccl_tests", "slurm_steps"),
        *("pins", "repositories", "running_open", "infiniband_vpd"),
        *NAMES,
    },
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
    put(root, "/sys/module/nvidia/version", "570.86.15\n")
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
    health_files.build(root)
    return root


def stack_node(root: Path) -> Path:
    """The same node, with a driver from NVIDIA's repository and what else decides the stack."""
    node(root)
    put, program = h100_node.put, h100_node.program
    ids = {"gpu": "10de:2330:0x030200", "switch": "10de:22a3:0x068000", "efa": "1d0f:efa2:0x020000"}
    for number, text in enumerate([*ids.values(), "15b3:1021:0x020700"]):
        for name, value in zip(("vendor", "device", "class"), text.split(":"), strict=True):
            put(root, f"{stack.PCI}/0000:0{number}:00.0/{name}", f"0x{value.removeprefix('0x')}\n")
    put(root, f"{stack.PCI}/0000:03:00.0/vpd", "Board SW_MNG")
    put(root, "/lib/modules/5.15.0-91-generic/build/Makefile", "")
    put(root, stack.SECURE_BOOT, "\x06\x00\x00\x00\x01")
    put(root, stack.MOK_KEYS[0], "der")
    for device in [path.name for path in (root / stack.INFINIBAND[1:]).iterdir()]:
        put(root, f"{stack.INFINIBAND}/{device}/device/uevent", "DRIVER=mlx5_core\n")
    put(root, "/etc/apt/preferences.d/nvidia", "Package: *nvidia*\n")
    put(root, "/etc/apt/sources.list.d/cuda.list", "deb [signed-by=/usr/share/keyrings/cuda.gpg] http://m/cuda /\n")
    put(root, "/usr/share/keyrings/cuda.gpg", "key")
    put(root, "/dev/null", "")
    put(root, "/var/lib/apt/lists/m_InRelease", "")
    put(root, RECORD, "# EFA installer version: 1.48.0\n")
    (root / "tmp").mkdir(exist_ok=True)
    program(root, "mokutil", "echo is already enrolled")
    program(root, "modinfo", 'case $4 in version) echo 570.86.15;; license) echo "Dual MIT/GPL";; esac')
    row = r"nvidia-dkms-570-open\tamd64\t570.86.15-1\tinstall\tok\tinstalled\n"
    short = "echo nvidia-dkms-570-open 570.86.15-1 installed"
    program(root, "dpkg-query", f"""case "$3" in *Want*) printf '{row}';; *) {short};; esac""")
    program(root, "apt-mark", "echo nvidia-dkms-570-open")
    program(root, "apt-cache", "echo 'nvlsm | 2.0-1 | http://m/cuda Packages'")
    program(root, "apt-get", "echo '0 upgraded, 0 newly installed, 0 to remove and 0 not upgraded.'")
    program(root, "gpg", f"printf 'pub:-:\\nfpr:::::::::{'A' * 40}:\\n'")
    return root


def printing_node(root: Path) -> Path:
    """The same node, with every program whose output is saved."""
    node(root)
    for name in ("dcgmi", "dmesg", "ibstat", "lfs", "mount"):
        h100_node.program(root, name, f"echo {name}")
    return root


NODES = {"stack": stack_node, "transaction": stack_node, "outputs": printing_node}


def damage(root: Path, text: bytes, program: str) -> None:
    """Replace the content of every file, and what every program does."""
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(f"#!/bin/sh\n{program}\n".encode() if path.stat().st_mode & 0o100 else text)


KINDS = ["missing", "empty", "garbage", "refused"]


def damaged_host(kind: str, build: Callable[[Path], Path], root: Path) -> Host:
    """A host whose files are missing, empty, nonsense or not readable."""
    if kind != "missing":
        build(root)
    if kind == "empty":
        damage(root, b"", "exit 1")
    elif kind == "garbage":
        damage(root, GARBAGE, PRINT_GARBAGE)
    return Refusing(root) if kind == "refused" else Host(root)


@pytest.fixture(scope="module", params=SOURCES)
def source_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def source(source_name: str) -> Source:
    return SOURCES[source_name]


@pytest.fixture(params=KINDS)
def damaged(request: pytest.FixtureRequest, source_name: str, tmp_path: Path) -> tuple[str, Host]:
    kind = str(request.param)
    return kind, damaged_host(kind, NODES.get(source_name, node), tmp_path)


@pytest.fixture(scope="module")
def whole(source_name: str, source: Source, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """The facts of the undamaged node."""
    return source(Host(NODES.get(source_name, node)(tmp_path_factory.mktemp("whole"))))


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


@pytest.mark.parametrize("subjects", answer_types.FACTS)
@pytest.mark.parametrize("kind", [*KINDS, "whole"])
@pytest.mark.parametrize("build", [node, stack_node])
def test_an_answer_has_its_declared_type_whatever_could_be_read(
    build: Callable[[Path], Path], kind: str, subjects: str, tmp_path: Path
) -> None:
    request = {**REQUEST, "action": "facts", "subjects": subjects}
    answer = json.loads(json.dumps(visit(request, damaged_host(kind, build, tmp_path))))
    assert "error" not in answers.checked(answer, request)


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
    # A relative name is one inside a folder that was opened by its path, when a temporary folder is removed.
    outside = {path for path in touched if Path(path).is_absolute() or Path(path).exists()}
    assert {path for path in outside if not path.startswith(host.root)} <= {os.devnull}
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
