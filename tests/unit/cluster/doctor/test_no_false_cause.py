"""What is usual on clusters that are well, or of a job of before, is called no cause; what nobody read is no OK."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.doctor import read
from gpuctl.cluster.doctor.diagnose import run_checks
from gpuctl.cluster.doctor.hang import HANG
from gpuctl.cluster.doctor.model import Facts, Log, PodFacts
from gpuctl.cluster.doctor.slow import SLOW
from gpuctl.cluster.doctor.start import START
from tests.rig.cluster.environments import DATA, H100, ROCE, check, facts, inside, lines, pod, port, ranks, room
from tests.unit.cluster.doctor.test_hang import standin_at_work
from tests.unit.cluster.doctor.test_hang_network import NET1, UP, written

NOW = 1_800_000_000.0
RETRIES = (DATA / "nccl/torch_ib_error12.log").read_text().splitlines()
PERSISTENT = H100.replace("<persistence_mode>Disabled<", "<persistence_mode>Enabled<")
EFA = {
    "network": {"rdma": {"enabled": True, "fabric": "efa", "resources": {"vpc.amazonaws.com/efa": 2}}},
    "cluster": {"flavour": "eks"},
}
# As newer plugins of AWS say it (aws-ofi-nccl 1.15); sockets are named for what ranks tell each other beside it.
BY_LIBFABRIC = [
    "lab-0:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
    "lab-0:1:2 [0] NCCL INFO Using network Libfabric",
    "lab-0:1:2 [0] NCCL INFO Channel 00/0 : 3[0] -> 0[0] [receive] via NET/Libfabric/0/GDRDMA",
]


def told(trouble: Any, found: Facts, name: str) -> list[str]:
    return lines(check(trouble, name).run(found))


def both(**changed: Any) -> dict[str, Any]:
    return {"lab-0": changed, "lab-1": changed}


@pytest.mark.parametrize("trouble", [HANG, SLOW], ids=lambda each: each.name)
def test_a_job_on_efa_that_is_well_has_no_cause(trouble: Any, tmp_path: Path) -> None:
    ports = [port(f"rdmap{n}s0", efa=True, link="Unknown", gids=[]) for n in range(2)]
    told = both(rdma={"ports": ports}, gpu={"xml": PERSISTENT}, nccl_logs=written(BY_LIBFABRIC))
    diagnosis = run_checks(trouble, facts(tmp_path, EFA, tell=told))
    assert [*diagnosis.cause, *diagnosis.warnings, *diagnosis.unknown] == []


# ---- words of a job of before ---------------------------------------------------------------------------------------


def with_log(folder: Path, age_s: float, **changed: Any) -> Facts:
    log = Log(RETRIES, times=[NOW - age_s] * len(RETRIES))
    return facts(folder, ROCE, logs={"lab-0": log}, now=NOW, **changed)


def test_what_was_said_before_the_job_began_is_no_cause_and_is_reported_with_its_time(tmp_path: Path) -> None:
    (line,) = told(HANG, with_log(tmp_path, 90000), "NCCL log")
    assert line.startswith("WARN Pod lab-0: a transfer failed with 12")
    assert line.endswith("; written at 2027-01-14 07:00Z, before the current job started")
    (line,) = told(HANG, with_log(tmp_path, 60), "NCCL log")
    assert line.startswith("FAIL Pod lab-0: a transfer failed with 12")
    assert line.endswith("; written at 2027-01-15 07:59Z")


def test_without_a_job_only_what_was_said_within_the_hour_is_a_cause(tmp_path: Path) -> None:
    none = both(jobs={"ranks": []})
    assert told(HANG, with_log(tmp_path, 60, tell=none), "NCCL log")[0].startswith("FAIL")
    (line,) = told(HANG, with_log(tmp_path, 7200, tell=none), "NCCL log")
    assert line.startswith("WARN")
    assert line.endswith("and no job runs now")


def test_a_file_that_no_rank_writes_to_is_as_old_as_its_last_line(tmp_path: Path) -> None:
    old = {"lab-1": {"nccl_logs": written(RETRIES, live=False, age_s=90000)}}
    (line,) = told(HANG, facts(tmp_path, ROCE, now=NOW, tell=old), "NCCL log")
    assert line.startswith("WARN")
    assert line.endswith("; in a file that ends at 2027-01-14 07:00Z, before the current job started")
    new = {"lab-1": {"nccl_logs": written(RETRIES, live=False, age_s=60)}}
    assert told(HANG, facts(tmp_path, ROCE, now=NOW, tell=new), "NCCL log")[0].startswith("FAIL")
    by_tcp = ["lab-1:1:2 [0] NCCL INFO Using network Socket"]
    before = {"lab-1": {"nccl_logs": written(by_tcp, live=False, age_s=90000)}}
    assert told(SLOW, facts(tmp_path, ROCE, now=NOW, tell=before), "transport")[0].startswith("UNKNOWN")


def test_lines_have_the_times_that_the_kubelet_puts_in_front_of_them() -> None:
    found = read.parse_log(
        [
            "2027-01-15T08:00:00.123456789Z PASSWORD: hunter2",
            "2027-01-15T16:00:01.5+08:00  12%\r 13%",
            "unable to retrieve container logs",
        ]
    )
    assert found.lines == ["PASSWORD: <removed>", " 13%", "unable to retrieve container logs"]
    assert found.times == [NOW + 0.123456, NOW + 1.5, None]
    key = ["-----BEGIN RSA PRIVATE KEY-----", "abc", "-----END RSA PRIVATE KEY-----", "after"]
    several = read.parse_log([f"2027-01-15T08:00:00Z {line}" for line in key])
    assert "abc" not in str(several.lines)
    assert several.times == [None] * len(several.lines)


def test_an_sshd_that_stays_up_by_now_is_no_cause(tmp_path: Path) -> None:
    again = ["Bind to port 2222 failed", "gpuctl: /usr/sbin/sshd ended with 255, once more in 5 s"] * 3
    old = facts(tmp_path, now=NOW, logs={"lab-0": Log(again, times=[NOW - 9000] * 6)})
    assert told(START, old, "ssh")[0].startswith("WARN Pod lab-0: sshd exited 3 times, and has stayed up since")
    new = facts(tmp_path, now=NOW, logs={"lab-0": Log(again, times=[NOW - 9] * 6)})
    assert told(START, new, "ssh")[0].startswith("FAIL")


# ---- what nobody read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["jobs", "network", "disk", "machine", "nccl_logs", "variables"])
def test_a_subject_that_was_not_told_is_unknown_and_no_check_of_it_says_ok(subject: str, tmp_path: Path) -> None:
    usual = facts(tmp_path, ROCE)
    late = {"unread": {"*": "no answer within 30 s"}}
    silent = {name: PodFacts({**each.values, subject: late}) for name, each in usual.inside.items()}
    found = facts(tmp_path, ROCE, inside=silent)
    assert all("no answer within 30 s" in line for line in told(HANG, found, "probe"))
    diagnosis = run_checks(HANG, found)
    assert (diagnosis.cause, diagnosis.clean) == ([], False)
    of = {
        "jobs": {"ranks", "stopped", "waits", "restarted"},
        "network": {"hostfile", "names", "ssh", "master", "interfaces", "mtu"},
        "disk": {"shared memory", "folders"},
        "variables": {"settings"},
    }
    assert of.get(subject, set()) <= {*diagnosis.skipped}
    slow = {"machine": {"processors", "memory", "neighbours", "numa"}, "disk": {"storage", "shares", "folders"}}
    assert slow.get(subject, set()) <= {*run_checks(SLOW, found).skipped}


def test_a_folder_that_gives_no_answer_is_the_cause_of_ranks_that_stand_still(tmp_path: Path) -> None:
    gone = {"late": 5.0, "type": "nfs4", "source": "server:/x"}
    blocked = ranks(8, 8, state="D", still=True, wait="rpc_wait_bit_killable")
    found = facts(tmp_path, tell={"lab-1": {"disk": {"/datasets": gone}, "jobs": {"ranks": blocked}}})
    diagnosis = run_checks(HANG, found)
    (cause,) = diagnosis.cause
    assert cause.message == "/datasets (server:/x, nfs4) does not answer within 5 s"
    assert {"stopped", "waits"} <= {each.check for each in diagnosis.evidence}


# ---- jobs and their settings ----------------------------------------------------------------------------------------


def test_a_whole_job_may_have_more_ranks_in_one_pod_than_in_another(tmp_path: Path) -> None:
    uneven = {"lab-0": {"jobs": {"ranks": ranks(0, 8, world=12)}}, "lab-1": {"jobs": {"ranks": ranks(8, 4, world=12)}}}
    found = facts(tmp_path, tell=uneven)
    assert [told(HANG, found, name) for name in ("ranks", "waits")] == [[], []]


def test_a_job_that_does_not_say_its_size_may_have_no_part_in_a_pod(tmp_path: Path) -> None:
    alone = {"lab-0": {"jobs": {"ranks": ranks(0, 8, world=None)}}, "lab-1": {"jobs": {"ranks": [], "age_s": 5}}}
    found = facts(tmp_path, tell=alone)
    assert told(HANG, found, "ranks")[0].startswith("UNKNOWN Pod lab-1: it has no rank")
    assert told(HANG, found, "waits") == []
    assert told(HANG, found, "restarted")[0].startswith("WARN")


def of_four(folder: Path, **given: Any) -> Facts:
    """Four pods, of which those that are not given have no rank. lab-3 began a minute ago."""
    env = replace(facts(folder).env, nodes=4)
    pods = {name: pod(name) for name in ("lab-0", "lab-1", "lab-2", "lab-3")}
    told = {name: {"ranks": given.get(name.replace("-", "_"), [])} for name in pods}
    told["lab-3"]["age_s"] = 60
    return facts(
        folder,
        env=env,
        pods=pods,
        inside={name: inside(env, rank % 2, {"jobs": told[name]}) for rank, name in enumerate(pods)},
    )


@pytest.mark.parametrize("size", ["8", ""], ids=["the job says how many ranks a pod has", "it does not"])
def test_pods_without_part_in_a_job_that_lost_a_rank_are_not_accused(size: str, tmp_path: Path) -> None:
    one = [each for each in ranks(0, 8, world=16) if each["rank"] != 7]
    two = ranks(8, 8, world=16)
    for each in [*one, *two]:
        each["variables"]["LOCAL_WORLD_SIZE"] = size
    found = of_four(tmp_path, lab_0=one, lab_1=two)
    assert told(HANG, found, "restarted") == []
    assert told(HANG, found, "ranks") == [
        "FAIL Pod lab-0: 7 of its 8 ranks run (rank 0, 1, 2, 3, 4, 5 and 1 more)",
        "FAIL lab: no process is rank 7 of the job",
    ]
    waits = "FAIL Pod lab-0: lab-0 has only 7 of its 8 ranks left; lab-1 waits for it"
    assert told(HANG, found, "waits") == [waits]
    assert [each.subject for each in run_checks(HANG, found).cause] == ["Pod lab-0", "lab"]


def test_a_pod_that_has_no_part_is_not_waited_for_when_it_says_nothing(tmp_path: Path) -> None:
    found = of_four(tmp_path, lab_0=ranks(0, 8, world=16)[:7], lab_1=ranks(8, 8, world=16))
    found = replace(found, inside={**found.inside, "lab-3": PodFacts(why="no answer")})
    assert told(HANG, found, "ranks")[-1] == "FAIL lab: no process is rank 7 of the job"


def test_a_pod_that_lost_all_its_ranks_is_accused_and_those_behind_it_are_not(tmp_path: Path) -> None:
    found = of_four(tmp_path, lab_0=ranks(0, 8, world=16))
    assert told(HANG, found, "restarted") == []
    assert told(HANG, found, "ranks")[0] == "FAIL Pod lab-1: none of its 8 ranks run"
    last = of_four(tmp_path, lab_0=ranks(0, 8, world=32), lab_1=ranks(8, 8, world=32), lab_2=ranks(16, 8, world=32))
    assert told(HANG, last, "restarted")[0].startswith("FAIL Pod lab-3: it started 60 s ago")
    assert told(HANG, last, "ranks")[0] == "FAIL Pod lab-3: none of its 8 ranks run"


def test_where_ranks_are_numbered_otherwise_each_pod_without_one_may_have_lost_them(tmp_path: Path) -> None:
    found = of_four(tmp_path, lab_2=ranks(0, 8, world=16))
    assert told(HANG, found, "ranks")[0] == "FAIL Pods lab-0, lab-1, lab-3: none of its 8 ranks run"


def test_pods_of_different_sizes_have_room_for_what_each_says(tmp_path: Path) -> None:
    uneven = {"lab_0": ranks(0, 8, world=16), "lab_1": ranks(8, 4, world=16)}
    lost = of_four(tmp_path, **uneven)
    assert "FAIL Pods lab-2, lab-3: none of its 8 ranks run" in told(HANG, lost, "ranks")
    third = of_four(tmp_path, **uneven, lab_2=ranks(12, 4, world=16)[:3])
    assert not any("lab-3" in line for name in ("restarted", "ranks", "waits") for line in told(HANG, third, name))


def test_two_jobs_that_meet_at_different_ports_are_no_failure(tmp_path: Path) -> None:
    other = ranks(0, 8, {"MASTER_ADDR": "lab-1", "MASTER_PORT": "29501"}, world=8)
    found = facts(tmp_path, tell={"lab-1": {"jobs": {"ranks": other}}})
    assert told(HANG, found, "ranks")[0].startswith("WARN lab: ranks disagree about their number: 8, 16")


def test_gpus_of_a_pod_without_part_in_the_job_may_rest(tmp_path: Path) -> None:
    alone: Any = {
        "lab-0": {"jobs": {"ranks": ranks(0, 8, world=8)}, "gpu": {"xml": standin_at_work(130)}},
        "lab-1": {"jobs": {"ranks": []}},
    }
    assert not [line for line in told(HANG, facts(tmp_path, tell=alone), "gpu use") if line.startswith("FAIL")]


def test_names_that_differ_by_node_and_how_much_is_logged_are_no_cause(tmp_path: Path) -> None:
    usual = facts(tmp_path, ROCE).inside["lab-1"].values["variables"]
    jobs = ranks(8, 8, {**usual, "NCCL_IB_HCA": "=mlx5_0", "OMPI_MCA_ess_base_vpid": "1", "NCCL_DEBUG": "INFO"})
    values = {"jobs": {"ranks": jobs}, "variables": {"NCCL_DEBUG": "VERSION"}}
    found = told(HANG, facts(tmp_path, ROCE, tell={"lab-1": values}), "settings")
    assert len(found) == 2
    assert all(line.startswith("WARN") for line in found)


def test_an_mtu_that_differs_is_to_be_looked_at_and_no_cause(tmp_path: Path) -> None:
    small = {"network": {"interfaces": {"eth0": {**UP, "mtu": 1500}}}}
    assert told(HANG, facts(tmp_path, tell={"lab-1": small}), "mtu")[0].startswith("WARN")
    down = {"network": {"interfaces": {"eth0": UP, "eth9": {**UP, "state": "down", "mtu": 1500}}}}
    other = {"network": {"interfaces": {"eth9": {**UP, "state": "down", "mtu": 9000}}}}
    assert told(HANG, facts(tmp_path, tell={"lab-0": other, "lab-1": down}), "mtu") == []


def test_of_several_interfaces_one_is_enough(tmp_path: Path) -> None:
    net = {"network": {"rdma": {"interfaces": ["net1", "net2"]}}}
    one = {"network": {"interfaces": {"net1": UP}}}
    (line,) = told(HANG, facts(tmp_path, ROCE, net, tell={"lab-0": NET1, "lab-1": one}), "interfaces")
    assert line.startswith("WARN Pod lab-1: NCCL_SOCKET_IFNAME==net1,net2 names net2, which do not exist")


def test_a_list_of_adapters_may_name_those_of_other_nodes_and_a_prefix_some_that_are_down(tmp_path: Path) -> None:
    rest = both(rdma={"ports": [port("mlx5_0")]})
    (line,) = told(HANG, facts(tmp_path, ROCE, tell=rest), "adapters")
    assert line.startswith("WARN Pods lab-0, lab-1: NCCL_IB_HCA names mlx5_1, which do not exist")
    prefix = {"variables": {"NCCL_IB_HCA": "mlx5"}, "jobs": {"ranks": []}}
    down = {**prefix, "rdma": {"ports": [port("mlx5_0"), port("mlx5_4", state="DOWN")]}}
    assert told(HANG, facts(tmp_path, ROCE, tell={"lab-1": down}), "adapters") == []
    second = [port("mlx5_0"), port("mlx5_0", port=2, state="DOWN"), port("mlx5_1")]
    assert told(HANG, facts(tmp_path, ROCE, tell=both(rdma={"ports": second})), "adapters") == []
    unread = both(rdma={"ports": [port("mlx5_0", state=None), port("mlx5_1")]})
    assert told(HANG, facts(tmp_path, ROCE, tell=unread), "adapters")[0].startswith("UNKNOWN")


def test_a_large_limit_of_locked_memory_is_no_cause(tmp_path: Path) -> None:
    large = both(jobs={"ranks": ranks(0, 8, memlock=str(64 * 2**30))})
    assert told(HANG, facts(tmp_path, ROCE, tell=large), "memlock")[0].startswith("WARN")


def test_a_hostfile_with_the_right_hosts_and_other_slots_is_no_cause(tmp_path: Path) -> None:
    text = inside(facts(tmp_path).env).values["network"]["hostfile"].replace("slots=8", "slots=4")
    (line,) = told(HANG, facts(tmp_path, tell=both(network={"hostfile": text})), "hostfile")
    assert line.startswith("WARN Pods lab-0, lab-1: its hostfile lists the right hosts")


def test_the_same_image_from_two_mirrors_is_the_same(tmp_path: Path) -> None:
    pods = {"lab-0": pod("lab-0"), "lab-1": pod("lab-1", {"imageID": "mirror.example/ml@sha256:a"})}
    assert told(HANG, facts(tmp_path, pods=pods), "same") == []


# ---- GPUs, and what is slow -----------------------------------------------------------------------------------------


def test_parts_of_gpus_are_not_counted_as_gpus(tmp_path: Path) -> None:
    mig = {"gpus": {"resource": "nvidia.com/mig-1g.10gb", "per_node": 7}}
    one = (DATA / "nvidia-smi/510-a100-mig.xml").read_text()
    assert told(HANG, facts(tmp_path, mig, tell=both(gpu={"xml": one})), "gpus") == []
    logs = {"lab-0": Log(["gpuctl: gpus 1 of 7"])}
    assert told(START, facts(tmp_path, mig, logs=logs), "gpus") == []


def test_a_complaint_beside_all_gpus_and_a_driver_that_may_only_be_loading_are_no_failures(tmp_path: Path) -> None:
    rom = both(gpu={"error": "WARNING: infoROM is corrupted at gpu 0000:1B:00.0"})
    assert told(HANG, facts(tmp_path, tell=rom), "gpus")[0].startswith("WARN")
    slow = both(gpu={"xml": "", "error": "nvidia-smi gave no answer within 5 s", "late": True}, jobs={"ranks": []})
    assert told(HANG, facts(tmp_path, tell=slow), "gpus")[0].startswith("UNKNOWN")


def test_a_gpu_at_its_power_is_slower_than_those_that_wait_for_it_and_that_is_no_fault(tmp_path: Path) -> None:
    work = PERSISTENT.replace("<gpu_util>0 %", "<gpu_util>90 %").replace("<sm_clock>345 MHz", "<sm_clock>1980 MHz")
    capped = work.replace("<sm_clock>1980 MHz", "<sm_clock>1400 MHz", 1).replace(
        "<clocks_event_reason_sw_power_cap>Not Active", "<clocks_event_reason_sw_power_cap>Active", 1
    )
    tell = {"lab-0": {"gpu": {"xml": capped}}, "lab-1": {"gpu": {"xml": work}}}
    assert told(SLOW, facts(tmp_path, tell=tell), "pace") == []


def test_a_repair_that_waits_makes_nothing_slow(tmp_path: Path) -> None:
    ill = PERSISTENT.replace("<remapped_row_pending>No<", "<remapped_row_pending>Yes<", 1)
    assert told(SLOW, facts(tmp_path, tell={"lab-0": {"gpu": {"xml": ill}}}), "gpu memory")[0].startswith("WARN")


def test_a_data_set_that_almost_fills_its_disk_is_a_warning(tmp_path: Path) -> None:
    tell = {"lab-0": {"disk": {"/datasets": room(size=500 * 2**30, free=9 * 2**30)}}}
    (line,) = told(SLOW, facts(tmp_path, tell=tell), "storage")
    assert line == "WARN Pod lab-0: /datasets is almost full: 9.0 of 500.0 GiB are free"
