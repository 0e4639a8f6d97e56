"""Findings on the load of a node's storage, over facts."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.domain import storage_load
from gpuctl.domain.findings import Verdict
from tests.rig.storage_facts import facts, limit, nfs, trial

FAIL, WARN, UNKNOWN = Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN
EFS = "/data"
SLOW_DISK = {"reads": 2000, "read_bytes": 2000 << 17, "read_ms": 80_000, "busy_ms": 5000, "queue_ms": 80_000}
SMALL = {"reads": 100_000, "read_bytes": 100_000 << 12, "read_ms": 10_000, "busy_ms": 3000, "queue_ms": 10_000}
FULL = {"rise": {"rx_bytes": 6 * 10**9}, "speed_mbps": 10_000}
PPS = {"rise": {"pps_allowance_exceeded": 1}, "speed_mbps": None}
SMALL_FILES = {"files": 100, "bytes": 10**6, "seconds": 0.8, "limits": [], "counted_s": 0.8}
OST = {"req_waittime": {"count": 1000, "sum": 2_000_000}}
SLOW_OST = {"req_waittime": {"count": 1000, "sum": 90_000_000}}
USER = {"pid": 9, "name": "python3", "is_writer": True, "read_bytes": 0, "written_bytes": 10**9}


def target(name: str, used: int) -> dict[str, Any]:
    return {"target": name, "inodes": False, "used_percent": used, "available": "1T", "mount": "/data", "error": None}


def limited(used: int, seconds: float) -> dict[str, Any]:
    """A trial whose first phase used a limited disk."""
    first, *others = trial()["phases"]
    return trial(phases=[{**first, "limits": [limit(used)], "counted_s": seconds}, *others])


def lustre(**changed: Any) -> dict[str, Any]:
    usual = {
        "clients": {"fs": {}},
        "osts": {"a": {}},
        "targets": [target("fs-OST0000", 50), target("fs-OST0001", 51)],
        "stripes": 4,
    }
    return {**usual, **changed}


def test_a_healthy_node_has_no_finding() -> None:
    assert storage_load.findings("n1", facts()) == []
    assert storage_load.findings("n1", facts("nfs4", nfs={EFS: nfs()})) == []
    assert storage_load.findings("n1", facts("lustre", lustre=lustre())) == []


@pytest.mark.parametrize(
    ("values", "check", "verdict", "message"),
    [
        (facts(mount=None, trial=None, unread={"path": "no answer within 5 s"}), "path", FAIL, "no answer within 5 s"),
        (facts(mount=None, trial=None, unread={"path": "No such file or directory"}), "path", UNKNOWN, "No such file"),
        (facts(trial=None, unread={"trial": "Permission denied"}), "path", UNKNOWN, "Permission denied"),
        (facts(trial=None, unread={"trial": "not tried: 2 NFS"}), "path", UNKNOWN, "reading was not tried: 2 NFS"),
        (facts(trial=None, unread={"trial": "reading took longer than 18 s"}), "path", FAIL, "longer than 18 s"),
        (facts(trial=trial(phases=[])), "path", UNKNOWN, "no file to read"),
        (facts(trial=trial(is_direct=False)), "path", WARN, "may be too good"),
        (facts(limits=[limit(249_000_000)]), "io-limit", FAIL, "49.8 of 50.0 MB/s"),
        (facts(trial=limited(100_000_000, 2.0)), "io-limit", FAIL, "50.0 of 50.0 MB/s"),
        (facts("nfs4", nfs={EFS: nfs(reads__transmissions=1030)}), "nfs", FAIL, "30 of 1000 requests were sent again"),
        (facts("nfs4", nfs={EFS: nfs(reads__timeouts=2)}), "nfs", FAIL, "2 major timeouts"),
        (facts("nfs4", nfs={EFS: nfs(connects=1)}), "nfs", WARN, "1 new connection to the server within the window"),
        (facts("nfs4", nfs={EFS: nfs(reads__rtt_ms=80_000)}), "nfs", FAIL, "the server takes 80.0 ms for a read"),
        (facts("nfs4", nfs={EFS: nfs(reads__rtt_ms=12_000)}), "nfs", WARN, "the server takes 12.0 ms"),
        (facts("nfs4", nfs={EFS: nfs(reads__queue_ms=40_000)}), "nfs", FAIL, "waits 40.0 ms on the client (1 conn"),
        (facts("nfs4", nfs={EFS: nfs(metadata__ops=9000)}), "nfs", FAIL, "1800 requests a second for names"),
        (facts("nfs4", nfs={EFS: nfs(reads__received_bytes=2500 << 20)}), "io-limit", FAIL, "client of EFS is 500"),
        (facts("lustre", lustre=lustre(osts={"a": OST, "b": OST, "c": SLOW_OST})), "lustre", FAIL, "c answers in 90"),
        (facts("lustre", lustre=lustre(targets=[target("fs-OST0000", 97)])), "lustre", FAIL, "97 % of its space"),
        (facts("lustre", lustre=lustre(stripes=1)), "stripes", WARN, "1 stripe on 2 OSTs"),
        (facts("lustre", lustre=lustre(stripes=1), users=[USER, USER]), "stripes", WARN, "1 stripe on 2 OSTs"),
        (facts("lustre", lustre=lustre(clients={})), "counters", UNKNOWN, "llite stats"),
        (facts("lustre", lustre=lustre(osts={})), "counters", UNKNOWN, "osc stats"),
        (facts("lustre", lustre=lustre(stripes=None)), "counters", UNKNOWN, "lfs getstripe"),
        (facts("nfs4", nfs={}), "counters", UNKNOWN, "mountstats: no counters of this mount"),
        (facts(disks={}, unread={"/proc/diskstats": "Permission denied"}), "counters", UNKNOWN, "Permission denied"),
        (facts("overlay"), "counters", UNKNOWN, "(overlay) is known"),
        (facts("beegfs"), "counters", UNKNOWN, "no counters of this type"),
        (facts(mount=None, trial=None, unread={"lustre": "not readable"}), "counters", UNKNOWN, "not readable"),
        (facts(mount=None, trial=None, unread={"path": "Stale file handle"}), "path", FAIL, "Stale"),
        (facts(mount=None, trial=None, unread={"path": "File name too long"}), "path", UNKNOWN, "too long"),
        (facts(disks={"nvme1n1": SLOW_DISK}), "disk", FAIL, "busy 100% of the time at 400 requests a second"),
        (facts(disks={"nvme1n1": SMALL}), "small-reads", FAIL, "20000 reads a second of 4 KiB"),
        (facts(disks={"nvme1n1": SMALL}, trial=None), "small-reads", WARN, "20000 reads a second of 4 KiB"),
        (facts(trial=trial(small=SMALL_FILES)), "small-files", WARN, "takes 8.0 ms"),
        (facts("nfs4", network={"ens5": FULL}), "storage-network", FAIL, "full"),
        (facts("nfs4", network={"ens5": FULL, "ens6": {**FULL, "rise": {}}}), "storage-network", WARN, "full"),
        (facts("nfs4", network={"ens5": PPS}), "storage-network", WARN, "pps_allowance_exceeded rises by 1"),
        (facts("nfs4", tcp={"sent": 1000, "retransmitted": 40}), "storage-network", WARN, "40 of 1000 TCP segments"),
        (facts(refaulted_bytes=10**9), "page-cache", WARN, "200.0 MB/s of file pages"),
        (facts(pressure=43.0), "io-pressure", WARN, "43 % of the last 10 s"),
        ({"unread": {"*": "not understood"}}, "path", UNKNOWN, "not understood"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_numbers(values: dict[str, Any], check: str, verdict: Verdict, message: str) -> None:
    [finding] = storage_load.findings("n1", values)
    assert (finding.check, finding.subject, finding.verdict) == (check, "n1", verdict)
    assert message in finding.message


def test_a_limit_of_the_trial_is_compared_within_its_phase() -> None:
    assert storage_load.findings("n1", facts(trial=limited(30_000_000, 2.0))) == []
    assert storage_load.findings("n1", facts(trial=limited(30_000_000, 0.1))) == []  # too short
    small = {**SMALL_FILES, "seconds": 0.2, "limits": [limit(50_000_000)], "counted_s": 1.0}
    assert [f.check for f in storage_load.findings("n1", facts(trial=trial(small=small)))] == ["io-limit"]


def test_times_of_the_reads_of_the_trial_are_not_those_of_the_server() -> None:
    own = nfs(reads__rtt_ms=80_000, reads__queue_ms=90_000)
    assert storage_load.findings("n1", facts("nfs4", trial=trial(nfs={EFS: own}))) == []
    [lost] = storage_load.findings("n1", facts("nfs4", trial=trial(nfs={EFS: nfs(reads__timeouts=1)})))
    assert (lost.check, lost.verdict) == ("nfs", FAIL)


def test_the_network_is_no_finding_of_a_local_disk_nor_are_other_allowances() -> None:
    rise = {"linklocal_allowance_exceeded": 9, "conntrack_allowance_exceeded": 9}
    assert storage_load.findings("n1", facts(network={"ens5": FULL})) == []
    other = {"rise": rise, "speed_mbps": None}
    assert storage_load.findings("n1", facts("nfs4", network={"ens5": other})) == []


def test_a_connection_that_the_trial_opened_is_no_finding() -> None:
    assert storage_load.findings("n1", facts("nfs4", nfs={EFS: nfs()}, trial=trial(nfs={EFS: nfs(connects=1)}))) == []


def test_a_mean_of_few_requests_proves_nothing() -> None:
    rise = {"reads.ops": 5, "reads.rtt_ms": 5000, "reads.queue_ms": 0, "reads.execute_ms": 5000, "connections": 1}
    assert storage_load.findings("n1", facts("nfs4", nfs={EFS: rise})) == []
    assert storage_load.rate(facts(trial=trial(speed=0.001)), "sequential", "reads") == 0.5  # 1 read in 2 s is slow
    few = trial(phases=[{**trial()["phases"][0], "reads": 3, "seconds": 0.01}])
    assert storage_load.rate(facts(trial=few), "sequential", "reads") is None
