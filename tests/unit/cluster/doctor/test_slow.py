"""Each check of a slow training, with what trips it and what passes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.deploy.cluster_snapshot import Maybe
from gpuctl.cluster.doctor.diagnose import run_checks
from gpuctl.cluster.doctor.model import Facts, Log
from gpuctl.cluster.doctor.slow import SLOW
from tests.rig.cluster import snapshots as cluster
from tests.rig.cluster.environments import (
    H100,
    ROCE,
    check,
    facts,
    lines,
    machine,
    pod,
    pressure,
    ranks,
    room,
)
from tests.rig.nccl.recorded import text
from tests.rig.storage_facts import limit
from tests.unit.cluster.doctor.test_hang import standin_at_work


def rdma_lines(name: str) -> list[str]:
    return [line for line in text(name).splitlines() if "NET/IB" in line]


BY_RDMA, NO_GDR = rdma_lines("h100_2n8g_sendrecv_roce_info.log"), rdma_lines("h100_2n2g_roce_info.log")
BY_EFA = text("v100_2n8g_allreduce_efa_nccl24.log").splitlines()
# No run by TCP is at hand: a line as NCCL's source has it (src/init.cc, "Using network %s").
STANDIN_BY_TCP = ["lab-1:1:2 [0] NCCL INFO Using network Socket"]
# The machine has its persistence mode off; of its kind most have it on.
PERSISTENT = H100.replace("<persistence_mode>Disabled<", "<persistence_mode>Enabled<")


def told(found: Facts, name: str) -> list[str]:
    return lines(check(SLOW, name).run(found))


def with_gpus(folder: Path, text: str, *others: Any) -> Facts:
    other = others[0] if others else PERSISTENT
    return facts(folder, ROCE, tell={"lab-0": {"gpu": {"xml": text}}, "lab-1": {"gpu": {"xml": other}}})


@pytest.mark.parametrize("each", [each for each in SLOW.checks if not each.optional], ids=lambda each: each.name)
def test_no_check_finds_anything_in_a_training_that_is_well(each: Any, tmp_path: Path) -> None:
    found = with_gpus(tmp_path, PERSISTENT)
    found = facts(tmp_path, ROCE, inside=found.inside, logs={"lab-0": Log(BY_RDMA)})
    assert lines(each.run(found)) == []
    assert each.run(found) != []


def test_a_pod_whose_reads_are_at_a_limit_explains_tasks_that_wait(tmp_path: Path) -> None:
    load, waits = {"limits": [limit(245_000_000)]}, machine(pod_pressure={"io": pressure(60)})
    found = facts(tmp_path, ROCE, tell={"lab-0": {"storage_load": load, "machine": waits}})
    [line] = told(found, "storage load")
    assert "throughput of disk 259:1 is at the limit of the control group /kubepods/pod1: 49.0 of 50.0 MB/s" in line
    diagnosis = run_checks(SLOW, found)
    assert ([f.check for f in diagnosis.cause], [f.check for f in diagnosis.evidence]) == (
        ["storage load"],
        ["storage"],
    )


def test_what_is_not_deployed_is_no_training_that_is_well(tmp_path: Path) -> None:
    found = run_checks(SLOW, facts(tmp_path, pods={}, inside={}, mode=None, owner=None))
    assert lines(found.cause) == ["FAIL Pods lab-0, lab-1: it does not exist"]
    assert found.checked == ["pods"]
    assert not found.clean


def test_a_pod_that_is_missing_is_reported_and_no_check_speaks_for_it(tmp_path: Path) -> None:
    usual = facts(tmp_path)
    found = facts(tmp_path, pods={"lab-0": pod("lab-0")}, inside={"lab-0": usual.inside["lab-0"]})
    assert lines(run_checks(SLOW, found).cause) == ["FAIL Pod lab-1: it does not exist"]


def test_a_gpu_that_is_too_hot_is_reported_with_its_clock(tmp_path: Path) -> None:
    hot = PERSISTENT.replace(
        "<clocks_event_reason_sw_thermal_slowdown>Not Active", "<clocks_event_reason_sw_thermal_slowdown>Active", 1
    )
    (line,) = told(with_gpus(tmp_path, hot), "clocks")
    assert line == "FAIL Pod lab-0: GPU 0 is slowed down by sw_thermal_slowdown at 33 C, 345 of 1980 MHz"


def test_a_lowered_power_limit_and_persistence_are_warnings(tmp_path: Path) -> None:
    capped = PERSISTENT.replace("<current_power_limit>700.00 W", "<current_power_limit>500.00 W", 1)
    (line,) = told(with_gpus(tmp_path, capped), "clocks")
    assert line == "WARN Pod lab-0: the power limit of GPU 0 is 500 W, the default 700 W"
    (line,) = told(with_gpus(tmp_path, H100), "clocks")
    assert line.startswith("WARN Pod lab-0: persistence mode is off")


def test_a_narrow_link_is_reported_and_a_slow_one_only_at_work(tmp_path: Path) -> None:
    narrow = PERSISTENT.replace("<current_link_width>16x", "<current_link_width>8x", 1)
    assert told(with_gpus(tmp_path, narrow), "pcie") == ["FAIL Pod lab-0: GPU 0 has 8 of 16 PCIe lanes"]
    slow = PERSISTENT.replace("<current_link_gen>4", "<current_link_gen>1", 1)
    assert told(with_gpus(tmp_path, slow), "pcie") == []
    at_work = slow.replace("<gpu_util>0 %", "<gpu_util>90 %")
    assert told(with_gpus(tmp_path, at_work), "pcie") == [
        "FAIL Pod lab-0: GPU 0 runs at PCIe generation 1 of 4 while busy"
    ]


def test_a_gpu_that_is_slower_than_the_others_at_work_is_reported(tmp_path: Path) -> None:
    work = PERSISTENT.replace("<gpu_util>0 %", "<gpu_util>90 %").replace("<sm_clock>345 MHz", "<sm_clock>1980 MHz")
    slow = work.replace("<sm_clock>1980 MHz", "<sm_clock>1200 MHz", 1)
    assert told(with_gpus(tmp_path, slow, work), "pace") == [
        "FAIL Pod lab-0: GPU 0 runs at 1200 MHz, the median is 1980"
    ]
    assert told(with_gpus(tmp_path, work, work), "pace") == []


def test_a_pod_that_computes_while_the_others_wait_is_a_straggler(tmp_path: Path) -> None:
    (line,) = told(with_gpus(tmp_path, standin_at_work(650), standin_at_work(130)), "stragglers")
    assert line.startswith("WARN Pod lab-0: it computes while GPUs of lab-1 wait")
    assert told(with_gpus(tmp_path, standin_at_work(650), standin_at_work(650)), "stragglers") == []


def test_tcp_where_rdma_was_asked_for_is_reported_by_log_and_by_settings(tmp_path: Path) -> None:
    (line,) = told(facts(tmp_path, ROCE, logs={"lab-1": Log(STANDIN_BY_TCP)}), "transport")
    assert line.startswith("FAIL Pod lab-1: NCCL uses TCP, although RDMA was requested:")
    off = {"jobs": {"ranks": ranks(8, 8, {"NCCL_IB_DISABLE": "1"})}}
    (line,) = told(facts(tmp_path, ROCE, tell={"lab-1": off}, logs={"lab-0": Log(BY_RDMA)}), "transport")
    assert line == "FAIL Pod lab-1: its job has NCCL_IB_DISABLE=1: TCP instead of RDMA"
    # With EFA, too, sockets are named: for what ranks tell each other beside it.
    assert told(facts(tmp_path, ROCE, logs={"lab-1": Log(BY_EFA)}), "transport") == []
    assert told(facts(tmp_path, ROCE), "transport") == ["UNKNOWN lab: no log says which transport NCCL uses"]
    assert told(facts(tmp_path), "transport") == []


def test_a_detour_through_the_hosts_memory_is_reported_by_log_or_by_what_is_missing(tmp_path: Path) -> None:
    (line,) = told(facts(tmp_path, ROCE, logs={"lab-0": Log(NO_GDR)}), "gpudirect")
    assert line.startswith("FAIL Pod lab-0: NCCL copies data through host memory:")
    assert told(facts(tmp_path, ROCE, logs={"lab-0": Log(BY_RDMA)}), "gpudirect") == []
    none = {"peer_memory": {"modules": []}, "gpu": {"open_module": False}}
    (line,) = told(facts(tmp_path, ROCE, tell={"lab-1": none}), "gpudirect")
    assert line.startswith("FAIL Pod lab-1: neither DMA-BUF nor a peer memory module")
    unknown = {"peer_memory": {"modules": []}, "gpu": {"open_module": None}}
    assert told(facts(tmp_path, ROCE, tell={"lab-1": unknown}), "gpudirect")[0].startswith("UNKNOWN Pod lab-1:")


def test_transport_and_detour_are_read_from_recorded_logs(tmp_path: Path) -> None:
    direct = rdma_lines("moc_h100_roce_2n8g_sendrecv_ncclinfo.log")
    assert told(facts(tmp_path, ROCE, logs={"lab-0": Log(direct)}), "transport") == []
    assert told(facts(tmp_path, ROCE, logs={"lab-0": Log(direct)}), "gpudirect") == []
    detour = rdma_lines("moc_h100_roce_2n2g_sendrecv_ncclinfo.log")
    (line,) = told(facts(tmp_path, ROCE, logs={"lab-0": Log(detour)}), "gpudirect")
    assert line.startswith("FAIL Pod lab-0: NCCL copies data through host memory:")
    by_efa = text("aws_p3dn_v100_efa_2n16g_nccl246.log").splitlines()
    assert told(facts(tmp_path, ROCE, logs={"lab-1": Log(by_efa)}), "transport") == []


def of_machine(folder: Path, **changed: Any) -> Facts:
    return facts(folder, tell={"lab-0": {"machine": machine(**changed)}})


def test_processors_that_are_held_back_are_reported(tmp_path: Path) -> None:
    (line,) = told(of_machine(tmp_path, throttled=4.0, cpu_used=32.0), "processors")
    assert line.startswith("FAIL Pod lab-0: it is throttled at its CPU limit: threads are stopped for 4.00 s of")
    assert line.endswith("while it uses 32.0 processors")
    # Of 32 processors together that is little.
    assert told(of_machine(tmp_path, throttled=0.4, cpu_used=32.0), "processors")[0].startswith("WARN Pod lab-0:")
    assert told(of_machine(tmp_path, throttled=None), "processors")[0].startswith("UNKNOWN Pod lab-0:")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"files": {"memory_limit": "1073741824\n", "memory_used": "1063741824\n"}}, "it uses 1.0 of its 1.0 GiB"),
        ({"swapped": 500}, "its node swaps: 500 pages"),
        ({"pod_pressure": {"memory": pressure(40)}}, "tasks wait for memory 40 % of the time"),
    ],
)
def test_memory_that_is_short_is_reported(tmp_path: Path, changed: Any, words: str) -> None:
    (line,) = told(of_machine(tmp_path, **changed), "memory")
    assert line.startswith(f"FAIL Pod lab-0: {words}")


def test_what_the_kernel_killed_since_a_container_began_is_a_warning(tmp_path: Path) -> None:
    (line,) = told(of_machine(tmp_path, files={"memory_events": "low 0\noom 2\noom_kill 2\n"}), "memory")
    assert line == "WARN Pod lab-0: the kernel killed 2 of its processes for lack of memory since its container started"


def test_memory_that_only_caches_files_is_not_short(tmp_path: Path) -> None:
    files = {
        "memory_limit": "1073741824\n",
        "memory_used": "1063741824\n",
        "memory_stat": "inactive_file 100000000\nactive_file 800000000\n",
        "memory_events": "oom_kill 0\n",
    }
    assert told(of_machine(tmp_path, files=files), "memory") == []
    assert told(of_machine(tmp_path, files={**files, "memory_limit": "max\n"}), "memory") == []


def test_others_that_use_the_nodes_processors_are_named(tmp_path: Path) -> None:
    greedy = cluster.pod("greedy", "gpu-0", 0)
    greedy["metadata"]["namespace"] = "others"
    snapshot = cluster.there(pods=Maybe([greedy]))
    tell = {"lab-0": {"machine": machine(node_busy=63.0, cpu_used=20.0)}}
    (line,) = told(facts(tmp_path, snapshot=snapshot, tell=tell), "neighbours")
    assert line == "FAIL Pod lab-0: others use 43.0 of its node's 64 processors; other pods there: others/greedy"
    some = {"lab-0": {"machine": machine(node_busy=40.0, cpu_used=20.0)}}
    assert told(facts(tmp_path, tell=some), "neighbours")[0].startswith("WARN Pod lab-0: others use 20.0")
    assert told(of_machine(tmp_path, cpu_used=None), "neighbours")[0].startswith("UNKNOWN Pod lab-0:")


def test_ranks_without_data_loaders_are_reported_where_gpus_rest(tmp_path: Path) -> None:
    alone = {"lab-0": {"jobs": {"ranks": ranks(0, 8, helpers=0)}}}
    (line,) = told(facts(tmp_path, tell=alone), "loaders")
    assert line == "WARN Pod lab-0: its GPUs are often idle, and 8 of its ranks have no data loader worker"
    busy = {"lab-0": {**alone["lab-0"], "gpu": {"xml": standin_at_work(600)}}}
    assert told(facts(tmp_path, tell=busy), "loaders") == []


def test_a_pod_that_is_not_guaranteed_or_far_from_its_gpus_is_reported(tmp_path: Path) -> None:
    burst = pod("lab-0")
    burst["status"]["qosClass"] = "Burstable"
    (line,) = told(facts(tmp_path, pods={"lab-0": burst}), "guaranteed")
    assert line == "WARN Pod lab-0: its QoS class is Burstable: other pods may take its cores"
    (line,) = told(of_machine(tmp_path, gpu_nodes=[0, 1]), "numa")
    assert line == "WARN Pod lab-0: none of its processors (0-31) is close to the GPUs of NUMA node 1"


def test_folders_that_are_full_or_slow_are_reported_with_what_they_are_on(tmp_path: Path) -> None:
    full = {"lab-0": {"disk": {"/workspace": room(free=2**20), "/datasets": room(type="nfs4", inodes_free=1)}}}
    assert told(facts(tmp_path, tell=full), "storage") == [
        "FAIL Pod lab-0: /workspace is full: 0.0 of 32.0 GiB are free",
        "FAIL Pod lab-0: /datasets is full: 1 of 1000 inodes are free",
    ]
    slow = {"disk": {"/datasets": room(type="nfs4")}, "machine": machine(pod_pressure={"io": pressure(60)})}
    (line,) = told(facts(tmp_path, tell={"lab-0": slow}), "storage")
    assert line.endswith("tasks wait for I/O 60 % of the time; on network shares: /datasets (nfs4)")
    blocked = {"jobs": {"ranks": ranks(0, 8, state="D", wait="rpc_wait_bit_killable")}}
    (line,) = told(facts(tmp_path, tell={"lab-0": blocked}), "storage")
    assert line == "WARN Pod lab-0: 8 of its ranks wait for a disk or a driver in rpc_wait_bit_killable"


def test_code_on_a_network_share_is_reported_where_somebody_waits_for_it(tmp_path: Path) -> None:
    share = {"disk": {"/workspace": room(type="nfs4")}}
    assert told(facts(tmp_path, tell={"lab-0": share}), "shares") == []
    slow = {**share, "machine": machine(pod_pressure={"io": pressure(15)})}
    (line,) = told(facts(tmp_path, tell={"lab-0": slow}), "shares")
    assert line == "WARN Pod lab-0: /workspace is on a network share (nfs4): imports and small files are slow"


def test_a_hot_gpu_explains_the_pace_and_another_fault_stands_beside(tmp_path: Path) -> None:
    hot = PERSISTENT.replace("_hw_slowdown>Not Active", "_hw_slowdown>Active", 1)
    found = facts(tmp_path, tell={"lab-0": {"gpu": {"xml": hot}, "machine": machine(throttled=0.5)}})
    diagnosis = run_checks(SLOW, found)
    assert [each.check for each in diagnosis.cause] == ["clocks"]
    assert [each.check for each in diagnosis.also] == ["processors"]
