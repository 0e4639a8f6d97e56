"""Network file systems, read from a folder that stands for a host: one that does not answer holds up nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import lustre, storage
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from tests.rig.h100_node import program, put
from tests.rig.recordings import recording

MOUNTS = """\
/dev/vda1 / ext4 rw 0 0
10.0.0.9@tcp:/fs /fsx lustre rw,flock 0 0
nas:/home /home nfs4 rw,hard 0 0
nas:/old /mnt/old\\040data nfs rw,soft 0 0
"""
STATE = (
    "current_state: {}\nstate_history:\n - [ 1700000000, CONNECTING ]\n - [ 1700000001, {} ]\n - [ 1700000002, FULL ]\n"
)
RPCS = """\
snapshot_time:         1351788034.999999 (secs.usecs)
read RPCs in flight:  0

\t\t\tread\t\t\twrite
pages per rpc         rpcs   % cum % |       rpcs   % cum %
1:                    9000  90  90   |          0   0   0
256:                  1000  10 100   |      18346 100 100

\t\t\tread\t\t\twrite
rpcs in flight        rpcs   % cum % |       rpcs   % cum %
1:                    8000  80  80   |          0   0   0
"""
OSC = "/proc/fs/lustre/osc/fs-OST0000-osc-ffff8c01"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path, "/proc/mounts", MOUNTS)
    program(tmp_path, "stat", "echo lustre")
    program(tmp_path, "cat", f'exec {shutil.which("cat")} "$@"')
    lines = recording("host/lfs_df_unbalanced.txt").read_text()
    put(tmp_path, "/lfs.txt", lines)
    program(tmp_path, "lfs", f"exec cat {tmp_path}/lfs.txt")
    put(tmp_path, f"{OSC}/state", STATE.format("FULL", "CONNECTING"))
    put(tmp_path, f"{OSC}/rpc_stats", RPCS)
    return tmp_path


def test_mounts_targets_connections_and_reads(root: Path) -> None:
    facts = storage.read(Host(root), {})
    assert facts["unread"] == {}
    assert [(m["path"], m["type"], m["error"]) for m in facts["mounts"] or ()] == [
        ("/fsx", "lustre", None), ("/home", "nfs4", None), ("/mnt/old data", "nfs", None),
    ]  # fmt: skip
    assert len(facts["targets"] or ()) == 16  # space and inodes of 8
    assert facts["imports"] == [{"target": "fs-OST0000", "state": "FULL", "evicted": False}]
    assert facts["reads"] == [{"filesystem": "fs", "rpcs_by_pages": {"1": 9000, "256": 1000}}]


def test_a_server_that_does_not_answer_is_an_error_of_its_mount_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "ANSWER_S", 0.2)
    sleep = shutil.which("sleep")
    program(root, "stat", f'case "$*" in *home) exec {sleep} 9;; *old*) echo "Stale file handle" >&2; exit 1;; esac')
    facts = storage.read(Host(root), {})
    assert [m["error"] for m in facts["mounts"] or ()] == [
        None,
        "stat gave no answer within 0.2 s",
        "Stale file handle",
    ]


def test_a_host_without_lustre_asks_nothing_of_it(root: Path) -> None:
    put(root, "/proc/mounts", "/dev/vda1 / ext4 rw 0 0\n")
    (root / "usr/bin/lfs").unlink()
    facts = storage.read(Host(root), {})
    assert facts == {"mounts": [], "targets": [], "imports": [], "reads": [], "unread": {}}


def test_what_lustre_does_not_show_is_unread(root: Path) -> None:
    shutil.rmtree(root / "proc/fs")
    program(root, "lfs", "echo 'lfs df: cannot access /fsx' >&2; exit 1")
    facts = storage.read(Host(root), {})
    assert set(facts["unread"]) == {"lfs df /fsx", "lfs df -i /fsx", "states of its Lustre targets"}
    assert facts["targets"] == []


def test_an_eviction_is_read_from_the_history() -> None:
    state = lustre.parse_state("fs-OST001a-osc-ffff9", STATE.format("DISCONN", "EVICTED"))
    assert state == {"target": "fs-OST001a", "state": "DISCONN", "evicted": True}
    assert lustre.parse_state("fs-MDT0000-mdc-ffff9", "import:\n") is None
    assert lustre.parse_rpc_stats("read RPCs in flight:  0\n") is None
