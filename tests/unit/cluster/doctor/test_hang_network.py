"""The checks of a hang on the ways between pods: adapters, settings, names and ports, limits, and NCCL's own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.doctor.interface_names import takes
from gpuctl.cluster.doctor.model import Facts, Log
from tests.rig.cluster.environments import ROCE, V1, V2, facts, port, ranks, room
from tests.rig.nccl.recorded import text
from tests.unit.cluster.doctor.test_hang import told

# ---- adapters -------------------------------------------------------------------------------------------------------


def rdma(folder: Path, *ports: Any, **variables: str) -> Facts:
    known = facts(folder, ROCE).inside["lab-1"].values["variables"]
    values = {"variables": {**known, **variables}, "jobs": {"ranks": []}, "rdma": {"ports": list(ports)}}
    return facts(folder, ROCE, tell={"lab-1": values})


def test_adapters_that_are_missing_or_down_are_reported(tmp_path: Path) -> None:
    assert told(rdma(tmp_path), "adapters") == ["FAIL Pod lab-1: it sees no RDMA adapter"]
    lines_ = told(rdma(tmp_path, port("mlx5_0"), port("mlx5_10")), "adapters")
    assert lines_ == ["FAIL Pod lab-1: NCCL_IB_HCA names mlx5_1, which do not exist; there are mlx5_0, mlx5_10"]
    down = told(rdma(tmp_path, port("mlx5_0"), port("mlx5_1", state="DOWN")), "adapters")
    assert down == ["FAIL Pod lab-1: mlx5_1:1 is DOWN, not ACTIVE"]
    other = told(rdma(tmp_path, port("irdma0"), NCCL_IB_HCA="mlx5"), "adapters")
    assert other == ["FAIL Pod lab-1: NCCL_IB_HCA=mlx5 matches none of its adapters; there are irdma0"]


def test_an_address_that_is_missing_or_of_version_1_is_reported(tmp_path: Path) -> None:
    both = (port("mlx5_0"), port("mlx5_1", gids=[V1]))
    words = "mlx5_1:1 has no address 3 (NCCL_IB_GID_INDEX); RoCE v2 is at no index"
    assert told(rdma(tmp_path, *both), "addresses") == [f"FAIL Pod lab-1: {words}"]
    (line,) = told(rdma(tmp_path, port("mlx5_0"), port("mlx5_1"), NCCL_IB_GID_INDEX="2"), "addresses")[:1]
    assert "address 2 is IB/RoCE v1, not RoCE v2; RoCE v2 is at 3" in line
    unset = told(rdma(tmp_path, port("mlx5_0", gids=[V2]), port("mlx5_1", gids=[]), NCCL_IB_GID_INDEX=""), "addresses")
    assert unset == ["WARN Pod lab-1: mlx5_1:1 has only a link-local RoCE v2 address: its interface has no IP address"]


@pytest.mark.parametrize(
    ("wanted", "name", "port_", "taken"),
    [
        ("", "mlx5_0", "1", True),
        ("mlx5", "mlx5_10", "1", True),
        ("=mlx5_1", "mlx5_10", "1", False),
        ("=mlx5_1:2", "mlx5_1", "1", False),
        ("=mlx5_1:2", "mlx5_1", "2", True),
        ("^lo,docker0", "eth0", "", True),
        ("^lo,docker0", "docker0", "", False),
        ("^=eth1", "eth10", "", True),
    ],
)
def test_names_are_taken_by_nccls_rules(wanted: str, name: str, port_: str, taken: bool) -> None:
    assert takes(wanted, name, port_) is taken


# ---- settings -------------------------------------------------------------------------------------------------------


def test_variables_that_differ_from_the_file_or_between_jobs_are_reported(tmp_path: Path) -> None:
    old = facts(tmp_path, ROCE, tell={"lab-1": {"variables": {"NCCL_IB_GID_INDEX": "1"}}})
    assert told(old, "settings") == ["FAIL Pod lab-1: NCCL_IB_GID_INDEX is 1, the cluster file has 3"]
    newer: Any = {name: {"variables": {"NCCL_IB_GID_INDEX": "1"}} for name in ("lab-0", "lab-1")}
    (line,) = told(facts(tmp_path, ROCE, tell=newer), "settings")
    assert line == "WARN Pods lab-0, lab-1: NCCL_IB_GID_INDEX is 1, the cluster file has 3"
    values = {"MASTER_ADDR": "lab-1", "NCCL_ALGO": "Ring", "NCCL_DEBUG": "TRACE"}
    jobs = ranks(8, 8, {**facts(tmp_path, ROCE).inside["lab-1"].values["variables"], **values})
    differs = told(facts(tmp_path, ROCE, tell={"lab-1": {"jobs": {"ranks": jobs}}}), "settings")
    assert differs == [
        f"FAIL Pod lab-0, Pod lab-1: its job has {name} not set in lab-0; its job has {name} {values[name]} in lab-1"
        for name in ("MASTER_ADDR", "NCCL_ALGO")
    ]


def test_interfaces_that_are_not_there_or_down_are_reported(tmp_path: Path) -> None:
    net = {"network": {"rdma": {"interfaces": ["net1", "net2"]}}}
    (line,) = told(facts(tmp_path, ROCE, net, tell={"lab-0": NET1}), "interfaces")
    assert (
        line == "FAIL Pod lab-1: NCCL_SOCKET_IFNAME==net1,net2 names net1, net2, which do not exist; there are eth0, lo"
    )
    down = {"network": {"interfaces": {"eth0": {"state": "down", "mtu": 1500}}}}
    (line,) = told(facts(tmp_path, tell={"lab-1": down}), "interfaces")
    assert line.startswith("FAIL Pod lab-1: NCCL_SOCKET_IFNAME=^lo,docker0 selects no interface that is up")


UP = {"state": "up", "mtu": 9000}
NET1 = {"network": {"interfaces": {"net1": UP, "net2": UP}}}


def test_an_mtu_that_differs_is_reported(tmp_path: Path) -> None:
    small = {"network": {"interfaces": {"eth0": {"state": "up", "mtu": 1500}}}}
    (line,) = told(facts(tmp_path, tell={"lab-1": small}), "mtu")
    assert line.endswith("the MTU of eth0 is 9000 in lab-0; the MTU of eth0 is 1500 in lab-1")


# ---- reaching each other --------------------------------------------------------------------------------------------


def test_names_without_an_address_or_with_an_old_one_are_reported(tmp_path: Path) -> None:
    hosts = {"lab-0.lab.team.svc": "Name or service not known", "lab-1.lab.team.svc": ["10.9.9.9"]}
    found = facts(tmp_path, tell={"lab-0": {"network": {"names": hosts}}})
    assert told(found, "names") == [
        "FAIL Pod lab-0: DNS gives 10.9.9.9 for lab-1, whose address is 10.0.0.1",
        "FAIL Pod lab-0: it cannot resolve lab-0: Name or service not known",
    ]


def test_an_old_or_missing_hostfile_is_reported(tmp_path: Path) -> None:
    tell: Any = {"lab-0": {"network": {"hostfile": "lab-0 slots=8\n"}}, "lab-1": {"network": {"hostfile": None}}}
    assert told(facts(tmp_path, tell=tell), "hostfile") == [
        "FAIL Pod lab-0: its hostfile is stale: it lists 1 hosts, the environment has 2",
        "FAIL Pod lab-1: it has no hostfile (/job/hostfile)",
    ]


def test_an_sshd_that_is_not_reached_fails_and_one_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    closed = facts(tmp_path, tell={"lab-0": {"network": {"ssh": {"lab-1": "no answer within 3 s"}}}})
    assert told(closed, "ssh") == ["FAIL Pod lab-1: its sshd is unreachable from lab-0: no answer within 3 s"]
    none = facts(tmp_path, tell={"lab-0": {"network": {"ssh": {"lab-1": "refused"}}}})
    assert told(none, "ssh")[0].startswith("WARN Pod lab-1: no sshd listens (port 2222)")


def test_the_masters_port_fails_where_it_is_closed_and_is_unknown_where_nobody_listens(tmp_path: Path) -> None:
    closed = facts(tmp_path, tell={"lab-1": {"network": {"master": "no answer within 3 s"}}})
    assert told(closed, "master") == ["FAIL Pod lab-1: it cannot reach lab-0:29500: no answer within 3 s"]
    refused: Any = {name: {"network": {"master": "refused"}} for name in ("lab-0", "lab-1")}
    assert told(facts(tmp_path, tell=refused), "master")[0].startswith("UNKNOWN lab: nothing listens on port 29500")
    assert told(facts(tmp_path, tell={"lab-1": refused["lab-1"]}), "master") == [
        "WARN Pod lab-1: port 29500 refuses its connection"
    ]


# ---- limits, and what NCCL log -------------------------------------------------------------------------------------


def test_a_low_memlock_fails_for_rdma_and_no_other(tmp_path: Path) -> None:
    low = {"lab-1": {"jobs": {"ranks": ranks(8, 8, memlock="8388608")}}}
    assert told(facts(tmp_path, ROCE, tell=low), "memlock") == [
        "FAIL Pod lab-1: its user may lock 8 MiB: RDMA fails beyond that"
    ]
    assert told(facts(tmp_path, tell=low), "memlock") == []
    may = {"lab-1": {**low["lab-1"], "machine": {"capabilities": "0000000000004000"}}}
    assert told(facts(tmp_path, ROCE, tell=may), "memlock") == []


def test_shared_memory_that_is_full_or_tiny_is_reported(tmp_path: Path) -> None:
    full = {"lab-0": {"disk": {"/dev/shm": room(free=2**20)}}}  # noqa: S108
    assert told(facts(tmp_path, tell=full), "shared memory") == [
        "FAIL Pod lab-0: /dev/shm is full: 0.0 of 32.0 GiB are free"
    ]
    tiny = {"lab-0": {"disk": {"/dev/shm": room(size=2**26, free=2**26)}}}  # noqa: S108
    assert told(facts(tmp_path, tell=tiny), "shared memory")[0].startswith("WARN Pod lab-0: /dev/shm has 64 MiB")


def written(lines: list[str], **changed: Any) -> dict[str, Any]:
    """A file that a rank writes to."""
    return {"files": [{"live": True, "age_s": 5, "lines": lines, **changed}]}


def test_a_log_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    (line,) = told(facts(tmp_path, logs={"lab-0": Log(why="you may not")}), "NCCL log")
    assert line == "UNKNOWN Pod lab-0: its log cannot be read: you may not"


@pytest.mark.parametrize(
    "logs",
    [("torch_ib_error12.log", "torch_watchdog.log"), ("torch_ib_completion_error12.log", "torch_watchdog_timeout.log")],
    ids=["ours", "recorded"],
)
def test_what_nccl_said_is_reported_with_what_it_means(tmp_path: Path, logs: tuple[str, str]) -> None:
    retries, watchdog = (text(name).splitlines() for name in logs)
    found = told(facts(tmp_path, logs={"lab-0": Log(retries), "lab-1": Log(watchdog)}), "NCCL log")
    assert found[0].startswith("FAIL Pod lab-0: a transfer failed with 12: the peer did not acknowledge packets")
    assert found[1].startswith("WARN Pod lab-1: a collective did not finish within PyTorch's timeout")


@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        ("Bootstrap : no socket interface found", "FAIL", "leaves it no interface"),
        ("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "FAIL", "could not be locked"),
        ("Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_1:1", "FAIL", "cannot reach each"),
        ("Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)", "FAIL", "shared memory"),
        ("Message truncated : received 1024 bytes instead of 256", "FAIL", "different versions of NCCL"),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 2000", "FAIL", "use the same GPU"),
        ("Cuda failure 2 'out of memory'", "FAIL", "the memory of a GPU is full"),
        ("Cuda failure 1 'invalid argument'", "WARN", "a call to CUDA failed"),
        ("NET/OFI aws-ofi-nccl: No eligible providers were found", "WARN", "continues without"),
        ("[Rank 3] proxyConnect transport=0 reconnect failed", "WARN", "reconnect failed"),
    ],
)
def test_known_warnings_have_a_meaning_and_others_are_passed_on(
    tmp_path: Path, text: str, verdict: str, words: str
) -> None:
    said = [f"node-1:1:2 [0] misc/x.cc:1 NCCL WARN {text}"] * 2
    (line,) = told(facts(tmp_path, tell={"lab-1": {"nccl_logs": written(said)}}), "NCCL log")
    assert line.startswith(f"{verdict} Pod lab-1: ")
    assert words in line
    assert "(2 times)" in line
