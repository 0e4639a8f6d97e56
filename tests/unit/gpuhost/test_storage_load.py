"""Load of storage read from a folder that stands for a host, and real reads of files that must stay as they are."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import (
    io_counters,
    io_limits,
    read_trial,
    storage_load,
)
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from tests.rig.h100_node import put
from tests.rig.source_files import ROOT

DATA = ROOT / "tests/data/storage"
MIB = 1 << 20
DISKSTATS = " 259       1 nvme1n1 100 0 2048 900 50 0 1024 300 0 700 1200 0 0 0 0 0 0\n   7       0 loop0 0 0 0\n"
MOUNTINFO = """\
22 1 259:0 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw
30 22 0:52 / /mnt/my\\040data rw,relatime shared:9 - nfs4 fs-0f00.efs.us-east-1.amazonaws.com:/ rw,vers=4.1
31 22 259:1 / /scratch rw shared:8 - xfs /dev/nvme1n1 rw
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path, "/proc/self/mountinfo", MOUNTINFO)
    put(tmp_path, "/proc/self/mountstats", (DATA / "mountstats-nfs41.txt").read_text())
    put(tmp_path, "/proc/diskstats", DISKSTATS)
    put(tmp_path, "/proc/self/cgroup", "0::/kubepods/pod1\n")
    put(tmp_path, "/sys/block/nvme1n1/dev", "259:1\n")
    put(tmp_path, "/sys/block/nvme1n1/size", "2048\n")
    put(tmp_path, "/sys/fs/cgroup/kubepods/io.max", "259:1 rbps=52428800 wbps=max riops=max wiops=max\n")
    put(tmp_path, "/sys/fs/cgroup/kubepods/io.stat", "259:1 rbytes=1000 wbytes=20 rios=3 wios=1 dbytes=0 dios=0\n")
    put(tmp_path, "/proc/vmstat", "workingset_refault_file 7\n")
    put(tmp_path, "/proc/pressure/io", "some avg10=12.50 avg60=1.00 avg300=0.00 total=9\nfull avg10=0.00\n")
    return tmp_path


def read(root: Path, path: str = "", **more: float) -> Mapping[str, Any]:
    return storage_load.read(Host(root), {"path": path, "window_s": 0.01, **more})


def test_counters_of_nfs_are_read_for_each_mount_and_summed_over_its_connections() -> None:
    [(mount, values)] = io_counters.nfs_mounts((DATA / "mountstats-nfs41.txt").read_text()).items()
    assert (mount, values["connections"], values["connects"]) == ("/mnt/my data", 2, 3)
    assert (values["reads.ops"], values["reads.transmissions"], values["reads.timeouts"]) == (1000, 1004, 1)
    assert (values["reads.queue_ms"], values["reads.rtt_ms"], values["metadata.ops"]) == (40000, 12000, 280)


def test_counters_of_lustre_have_counts_and_sums() -> None:
    stats = io_counters.lustre_stats((DATA / "llite-stats-2.15.txt").read_text())
    assert stats["read_bytes"] == {"count": 4000, "sum": 4194304000}
    waits = io_counters.lustre_stats((DATA / "osc-stats-2.15.txt").read_text())["req_waittime"]
    assert waits["sum"] / waits["count"] == 30_000


def test_a_counter_that_fell_has_begun_again_and_is_left_out() -> None:
    assert io_counters.change({"a": 5, "b": 9}, {"a": 8, "b": 1, "c": 3}) == {"a": 3}


def test_a_limit_of_a_group_above_counts_in_both_versions(tmp_path: Path) -> None:
    put(tmp_path, "/proc/9/cgroup", "7:cpu:/x\n5:blkio:/jobs/1\n0::/jobs\n")
    put(tmp_path, "/sys/fs/cgroup/blkio/jobs/blkio.throttle.read_bps_device", "254:0 5242880\n8:0 1\n")
    put(
        tmp_path,
        "/sys/fs/cgroup/blkio/jobs/blkio.throttle.io_service_bytes_recursive",
        "254:0 Read 77\n254:0 Total 77\n",
    )
    [limit] = io_limits.read(Host(tmp_path), ["9", "gone"], ["254:0"])
    assert limit == {"group": "/jobs", "device": "254:0", "limits": {"read_bytes": 5242880}, "used": {"read_bytes": 77}}


def test_without_a_path_all_file_systems_are_counted_and_nothing_is_read(root: Path) -> None:
    facts = read(root, read_s=5, read_mib=64)
    assert (facts["mount"], facts["trial"], facts["unread"]) == (None, None, {})
    assert (list(facts["nfs"]), list(facts["disks"])) == (["/mnt/my data"], ["nvme1n1"])
    assert facts["limits"][0]["limits"] == {"read_bytes": 52428800}
    assert (facts["pressure"], facts["refaulted_bytes"]) == (12.5, 0)


def test_a_path_selects_its_mount_and_disk(root: Path) -> None:
    (root / "scratch/data").mkdir(parents=True)
    facts = read(root, "/scratch/data")
    assert facts["mount"] == {"mount_point": "/scratch", "type": "xfs", "device": "259:1", "source": "/dev/nvme1n1"}
    assert (facts["nfs"], list(facts["disks"])) == ({}, ["nvme1n1"])


def test_a_path_that_does_not_exist_is_a_reason_and_no_trial(root: Path) -> None:
    facts = read(root, "/scratch/gone", read_s=1, read_mib=8)
    assert (facts["trial"], facts["unread"]) == (None, {"path": "No such file or directory"})


def test_a_path_that_hangs_is_given_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_load, "ANSWER_S", 0.05)
    released = threading.Event()

    def hang(_: str) -> str:
        released.wait(20)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os.path, "realpath", hang)
    try:
        assert read(root, "/mnt/my data")["unread"]["path"] == "no answer within 0.05 s"
    finally:
        released.set()


def test_writers_and_readers_of_the_path_are_named(root: Path) -> None:
    for pid, flags in (("71", "0100001"), ("72", "0100000")):
        put(root, f"/proc/{pid}/comm", "python3\n")
        put(root, f"/proc/{pid}/io", "rchar: 10\nwchar: 20\n")
        put(root, f"/proc/{pid}/fdinfo/5", f"pos:\t0\nflags:\t{flags}\n")
        (root / f"proc/{pid}/fd").mkdir()
        (root / f"proc/{pid}/fd/5").symlink_to("/scratch/ckpt/rank0.pt")
    (root / "scratch/ckpt").mkdir(parents=True)
    assert [(user["pid"], user["is_writer"]) for user in read(root, "/scratch")["users"]] == [(72, False), (71, True)]


# ---- reads of real files ---------------------------------------------------------------------------------------------


def test_a_trial_reads_within_its_bytes_and_leaves_files_as_they_are(tmp_path: Path) -> None:
    files = [tmp_path / f"shard-{number}" for number in range(2)]
    for file in files:
        file.write_bytes(os.urandom(3 * MIB))
        os.utime(file, (1000, 1000))
    small = tmp_path / "label"
    small.write_bytes(b"7" * 100)
    os.utime(small, (1000, 1000))
    before = [file.stat() for file in files]
    trial = read_trial.read(str(tmp_path), 4.0, 16 * MIB)
    assert [phase["name"] for phase in trial["phases"]] == [phase.name for phase in read_trial.PHASES]
    assert all(phase["reads"] for phase in trial["phases"])
    assert sum(phase["bytes"] for phase in trial["phases"]) <= 16 * MIB
    assert trial["small"]["files"] == 1
    assert [(f.stat().st_atime, f.stat().st_mtime_ns) for f in files] == [(b.st_atime, b.st_mtime_ns) for b in before]


def test_links_pipes_and_files_of_holes_are_not_read(tmp_path: Path) -> None:
    outside, data = tmp_path / "outside", tmp_path / "data"
    data.mkdir()
    outside.write_bytes(b"x" * 4 * MIB)
    (data / "link").symlink_to(outside)
    os.mkfifo(data / "pipe")
    with (data / "holes").open("wb") as stream:
        stream.truncate(64 * MIB)
    os.utime(data / "holes", (1000, 1000))
    assert read_trial.read(str(data / "holes"), 1.0, MIB)["phases"] == []
    trial = read_trial.read(str(data), 1.0, 16 * MIB)
    assert (trial["entries"], trial["phases"], trial["small"], trial["is_direct"]) == (3, [], None, None)
    with pytest.raises(OSError, match="neither a folder nor a regular file"):
        read_trial.read(str(data / "pipe"), 1.0, MIB)


def test_a_single_file_is_enough_for_all_streams(tmp_path: Path) -> None:
    file = tmp_path / "one"
    file.write_bytes(os.urandom(16 * MIB))
    os.utime(file, (1000, 1000))
    trial = read_trial.read(str(file), 2.0, 64 * MIB)
    assert trial["file_bytes"] == 16 * MIB
    assert trial["phases"][1]["reads"] == 16  # each part once, by its stream


def test_a_file_that_may_still_be_written_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(os.urandom(2 * MIB))
    (tmp_path / "label").write_bytes(b"7")
    for path in (tmp_path, tmp_path / "checkpoint"):
        trial = read_trial.read(str(path), 1.0, 8 * MIB)
        assert (trial["phases"], trial["small"]) == ([], None)


def test_a_file_that_cannot_be_opened_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(os.urandom(2 * MIB))
        os.utime(tmp_path / name, (1000, 1000))
    real = os.open
    refused = [str(tmp_path / "a")]

    def refuse(path: str, *more: int) -> int:
        if path in refused:
            raise PermissionError(13, "Permission denied", path)
        return real(path, *more)

    monkeypatch.setattr(os, "open", refuse)
    assert read_trial.read(str(tmp_path), 0.4, 8 * MIB)["file_bytes"] == 2 * MIB
    refused.append(str(tmp_path / "b"))
    with pytest.raises(PermissionError):
        read_trial.read(str(tmp_path), 0.4, 8 * MIB)


def test_each_phase_has_what_was_used_of_limits_meanwhile(root: Path) -> None:
    (root / "scratch").mkdir()
    (root / "scratch/one").write_bytes(os.urandom(2 * MIB))
    os.utime(root / "scratch/one", (1000, 1000))
    phases = read(root, "/scratch", read_s=0.4, read_mib=8)["trial"]["phases"]
    assert [phase["limits"][0]["used"]["read_bytes"] for phase in phases] == [0] * len(read_trial.PHASES)
    assert all(phase["counted_s"] >= phase["seconds"] for phase in phases)


def test_lustre_whose_counters_are_hidden_is_a_reason(root: Path) -> None:
    put(root, "/proc/self/mountinfo", MOUNTINFO + "32 22 0:60 / /fsx rw - lustre 10.0.0.1@tcp:/fs rw\n")
    assert read(root)["unread"] == {"lustre": "its stats are not readable, or missing"}


def test_nothing_is_read_from_a_server_that_does_not_answer(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "mnt/my data").mkdir(parents=True)
    values = io_counters.nfs_mounts((DATA / "mountstats-nfs41.txt").read_text())
    later = {point: {**rise, "reads.timeouts": rise["reads.timeouts"] + 2} for point, rise in values.items()}
    readings = iter([values, later])
    monkeypatch.setattr(io_counters, "nfs_mounts", lambda _: next(readings))
    facts = read(root, "/mnt/my data", read_s=1, read_mib=8)
    assert (facts["trial"], facts["unread"]["trial"][:24]) == (None, "not tried: 2 NFS request")


def test_a_file_system_that_accepts_o_direct_and_has_its_cache_is_not_direct(root: Path) -> None:
    put(root, "/proc/self/mountinfo", MOUNTINFO + "33 22 0:61 / /pool rw - zfs tank/data rw\n")
    (root / "pool").mkdir()
    (root / "pool/one").write_bytes(os.urandom(2 * MIB))
    os.utime(root / "pool/one", (1000, 1000))
    assert read(root, "/pool", read_s=0.4, read_mib=8)["trial"]["is_direct"] is False


def test_nothing_is_read_from_a_server_that_answers_late_already(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "mnt/my data").mkdir(parents=True)
    values = io_counters.nfs_mounts((DATA / "mountstats-nfs41.txt").read_text())
    later = {
        point: {**row, "reads.ops": row["reads.ops"] + 100, "reads.rtt_ms": row["reads.rtt_ms"] + 8000}
        for point, row in values.items()
    }
    readings = iter([values, later])
    monkeypatch.setattr(io_counters, "nfs_mounts", lambda _: next(readings))
    facts = read(root, "/mnt/my data", read_s=1, read_mib=8)
    assert facts["trial"] is None
    assert "/mnt/my data takes 80 ms for a request already" in facts["unread"]["trial"]


def test_a_file_that_somebody_has_open_for_writing_is_not_read(root: Path) -> None:
    (root / "scratch").mkdir()
    for name in ("mapped", "shard"):
        (root / "scratch" / name).write_bytes(os.urandom(2 * MIB))
        os.utime(root / "scratch" / name, (1000, 1000))
    put(root, "/proc/71/fdinfo/5", "pos:\t0\nflags:\t0100002\n")
    (root / "proc/71/fd").mkdir()
    (root / "proc/71/fd/5").symlink_to("/scratch/mapped")
    trial = read(root, "/scratch", read_s=0.4, read_mib=8)["trial"]
    assert (trial["entries"], trial["file_bytes"]) == (2, 2 * MIB)


def test_a_file_that_vanishes_after_the_listing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("a", 3), ("b", 2)):
        (tmp_path / name).write_bytes(os.urandom(size * MIB))
        os.utime(tmp_path / name, (1000, 1000))
    real, opened = os.open, list[str]()

    def vanish(path: str, *more: int) -> int:
        """The first open of a file is the last one that it survives."""
        descriptor = real(path, *more)
        if str(path).startswith(str(tmp_path)):
            opened.append(path)
            Path(path).unlink()
        return descriptor

    monkeypatch.setattr(os, "open", vanish)
    trial = read_trial.read(str(tmp_path), 0.4, 8 * MIB)
    assert (trial["file_bytes"], len(opened), len(trial["phases"])) == (5 * MIB, 2, len(read_trial.PHASES))


def test_a_read_that_hangs_is_left_behind_in_a_child_without_our_output() -> None:
    """A child in state D survives SIGKILL, and would hold the pipes of this program open; here it only waits."""
    module = "ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts"
    program = f"""import os, signal
from {module} import storage_load
os.kill = lambda pid, _: print(pid)
print(storage_load._within(0.2, signal.pause))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    child, result = done.stdout.split()
    os.kill(int(child), signal.SIGKILL)
    assert result == "None"


def test_programs_end_with_the_connection_of_a_pod() -> None:
    program = """import subprocess
from gpuctl.incident.pod import storage
print(subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL).pid, flush=True)
storage._leave()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    with contextlib.suppress(ProcessLookupError):  # it has ended
        ended, _, _ = select.select([os.pidfd_open(int(done.stdout))], [], [], 60)
        assert ended


def test_an_error_and_a_fault_of_the_child_reach_the_parent(tmp_path: Path) -> None:
    assert storage_load._within(9, lambda: [str(file) for file in tmp_path.iterdir()]) == []
    error = storage_load._within(9, lambda: list((tmp_path / "gone").iterdir()))
    assert (type(error), error.strerror) == (FileNotFoundError, "No such file or directory")
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        storage_load._within(9, lambda: 1 // 0)
    assert "was killed" in str(storage_load._within(9, lambda: os._exit(3)))
