"""The probe reads programs' output and folders that stand for a host."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.api import visit
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import busy, gpu_xml, limits, rdma
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.launch import mpirun_command

from gpuctl.domain.findings import Verdict
from gpuctl.nccl import preflight
from gpuctl.nccl.preflight import gpus, idle
from tests.rig import h100_node
from tests.rig.h100_node import LIMITS, program, put
from tests.rig.nccl.fleets import DATA
from tests.rig.recordings import recording


def read(name: str) -> str:
    """An excerpt of ours, or a recording: of these the name begins with `recorded/`."""
    path = recording(name.removeprefix("recorded/")) if name.startswith("recorded/") else DATA / name
    return path.read_text()


@pytest.mark.parametrize(
    ("name", "used_mib"),
    [("nvidia-smi/570-h100-8gpu.xml", 4), ("recorded/nvidia-smi/x_h100_8g_driver570.xml", 1)],
)
def test_reads_eight_gpus_of_nvidia_smi(name: str, used_mib: int) -> None:
    told = gpu_xml.parse(read(name))
    assert (told["driver"], told["cuda"], told["attached"], len(told["gpus"])) == ("570.86.15", "12.8", 8, 8)
    first = told["gpus"][0]
    assert first["model"] == "NVIDIA H100 80GB HBM3"
    assert (first["memory_mib"], first["used_mib"], first["max_sm_mhz"]) == (81559, used_mib, 1980)
    assert (first["remap_pending"], first["remap_failure"], first["remapped"]) == (False, False, 0)
    assert first["retire_pending"] is None
    assert first["slowed_by"] == ["gpu_idle"]
    assert (first["fabric_state"], first["fabric_status"]) == ("Completed", "Success")
    assert first["processes"] == []
    assert first["uncorrectable"] == 0


@pytest.mark.parametrize("name", ["nvidia-smi/570-h100-8gpu.xml", "recorded/nvidia-smi/x_h100_8g_driver570.xml"])
def test_an_nvlink_domain_is_one_that_spans_machines(name: str) -> None:
    text = read(name)
    assert {gpu["nvlink_domain"] for gpu in gpu_xml.parse(text)["gpus"]} == {None}
    spans = text.replace("<clusterUuid>0000", "<clusterUuid>5b5e").replace("<cliqueId>0", "<cliqueId>32766")
    assert {gpu["nvlink_domain"] for gpu in gpu_xml.parse(spans)["gpus"]} == {
        "5b5e0000-0000-0000-0000-000000000000.32766"
    }


@pytest.mark.parametrize("name", ["nvidia-smi/510-a100-mig.xml", "recorded/nvidia-smi/x_a100-sxm4-mig.xml"])
def test_what_mig_does_not_tell_is_none(name: str) -> None:
    (gpu,) = gpu_xml.parse(read(name))["gpus"]
    assert gpu["mig"] == "Enabled"
    assert gpu["remap_pending"] is None
    assert gpu["uncorrectable"] is None
    assert gpu["slowed_by"] is not None  # by the name drivers before 535 have for it


@pytest.mark.parametrize(
    ("name", "pid"),
    [("nvidia-smi/516-rtx3070-desktop.xml", 9120), ("recorded/nvidia-smi/x_rtx-2080-win.xml", 7724)],
)
def test_reads_processes_of_both_types(name: str, pid: int) -> None:
    processes = gpu_xml.parse(read(name))["gpus"][0]["processes"]
    assert processes is not None
    assert len(processes) > 1
    assert processes[0]["pid"] == pid
    assert processes[0]["used_mib"] is None


@pytest.mark.parametrize("cut", [0, 1, 60, 5000, 30_000, 40_000])
def test_half_an_answer_is_none(cut: int) -> None:
    with pytest.raises(ValueError, match="no whole XML"):
        gpu_xml.parse(read("nvidia-smi/570-h100-8gpu.xml")[:cut])


@pytest.mark.parametrize("cut", [0, 1, 60, 5000, 150_000, 206_000])
def test_half_a_recorded_answer_is_none(cut: int) -> None:
    with pytest.raises(ValueError, match="no whole XML"):
        gpu_xml.parse(read("recorded/nvidia-smi/x_h100_8g_driver570.xml")[:cut])


@pytest.mark.parametrize("name", ["rdma/fi_info-113-efa.txt", "recorded/host/fi_info_efa_libfabric_docs.txt"])
def test_devices_of_libfabric_are_counted_once(name: str) -> None:
    text = read(name)
    assert rdma.domains(text) == 1
    assert rdma.domains(text + text.replace("provider: efa", "provider: efa-direct")) == 1
    assert rdma.domains(text + text.replace("efa_0", "efa_1")) == 2
    assert rdma.domains("") == 0


def test_reads_soft_limits() -> None:
    assert limits.soft_limit(LIMITS, "Max locked memory") == 8388608
    assert limits.soft_limit(LIMITS, "Max cpu time") == "unlimited"
    assert limits.soft_limit(LIMITS, "Max realtime priority") is None


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return h100_node.build(tmp_path)


def asked(root: Path) -> dict[str, Any]:
    peers = [{"name": "b", "address": "10.0.0.2"}, {"name": "c", "address": "10.0.0.3"}]
    answer = visit({"action": "facts", "subjects": "nccl", "peers": peers, "look_up": peers}, Host(root))
    facts: dict[str, Any] = answer["facts"]
    return facts


def test_one_visit_reads_every_subject(root: Path) -> None:
    facts = asked(root)
    assert len(facts["gpu"]["gpus"]) == 8
    assert (facts["gpu"]["module"], facts["gpu"]["open_module"], facts["gpu"]["switches"]) == ("570.86.15", True, 1)
    assert (facts["gpu"]["fabric_manager"], facts["gpu"]["fabric_manager_runs"]) == ("570.86.15", True)
    first, second = facts["rdma"]["ports"]
    assert (first["device"], first["state"], first["rate_gbps"], first["net"]) == ("mlx5_0", "ACTIVE", 400.0, None)
    assert (second["state"], second["net"], len(second["gids"])) == ("DOWN", "ens1", 1)
    assert facts["rdma"]["efa"] is None
    assert facts["peer_memory"] == {"kernel": "5.15.0-91-generic", "modules": ["nvidia_peermem"], "unread": {}}
    assert facts["limits"]["memlock"] == 8388608
    own = facts["programs"]
    assert (own["test"], own["test_mpi"]) == ("/opt/nccl-tests/build/all_reduce_perf", True)
    assert (own["mpi"], own["nccl"], own["conf"]) == ("Open MPI 4.1.4", "2.27.7", {"NCCL_IB_TC": "106"})
    assert facts["jobs"] == {"slurm_state": "", "slurm_steps": 0, "nccl_tests": 0, "kubernetes_pods": 0, "unread": {}}


@pytest.mark.parametrize("folder", mpirun_command.FOLDERS)
def test_programs_are_looked_for_where_the_runner_looks(root: Path, folder: str) -> None:
    (root / "opt/nccl-tests/build/all_reduce_perf").unlink()
    (root / "usr/bin/mpirun").unlink()
    home = str(Path(folder).expanduser())
    for name in ("all_reduce_perf", "mpirun"):
        put(root, f"{home}/{name}", "#!/bin/sh\necho mpirun 4.1\n")
        (root / home.lstrip("/") / name).chmod(0o755)
    own = asked(root)["programs"]
    assert (own["test"], own["mpirun"]) == (f"{home}/all_reduce_perf", f"{home}/mpirun")


HIDDEN = "other users' processes are hidden here (hidepid); run it as root"


def test_what_other_users_run_is_unknown_where_it_is_hidden(root: Path) -> None:
    program(root, "sinfo", 'echo "n/a"')
    (root / "proc/1/comm").unlink()
    (root / "proc/42/comm").write_text("python3\n")
    facts = asked(root)
    assert facts["gpu"]["fabric_manager_runs"] is None
    assert (facts["jobs"]["slurm_steps"], facts["jobs"]["slurm_state"]) == (None, None)
    assert facts["gpu"]["unread"]["fabric_manager_runs"] == facts["jobs"]["unread"]["slurm_steps"] == HIDDEN
    assert busy.busy(Host(root)) == [f"Slurm's job steps unknown: {HIDDEN}"]
    found = preflight.judge({"a": {**facts, "address": "10.0.0.1"}}, rules=(gpus.fabric_manager, idle.idle))
    assert {f.verdict for f in found} == {Verdict.UNKNOWN}
    assert any("whether the fabric manager runs" in f.message for f in found)


def test_what_is_seen_counts_though_other_processes_are_hidden(root: Path) -> None:
    (root / "proc/1/comm").unlink()
    put(root, "/proc/77/comm", "slurmstepd\n")
    put(root, "/proc/78/comm", "all_reduce_perf\n")
    put(root, "/proc/79/comm", "reduce_scatter_\n")  # as the kernel cuts it
    facts = asked(root)
    assert facts["jobs"]["nccl_tests"] == 2
    assert (facts["gpu"]["fabric_manager_runs"], facts["jobs"]["slurm_steps"]) == (True, 1)


def test_a_resolver_that_cannot_be_asked_is_not_one_that_knows_no_name(root: Path) -> None:
    program(root, "getent", 'echo "getent: broken" >&2; exit 3')
    told = {"forward": None, "reverse": None, "back": None, "error": "getent: broken"}
    assert asked(root)["names"]["peers"]["b"] == told


def test_net_plugins_are_found_where_hpcx_amazon_and_the_linker_have_them(root: Path) -> None:
    assert asked(root)["programs"]["net_plugins"] == []
    put(root, "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so", "")
    put(root, "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so", "")
    program(
        root, "ldconfig", r"printf '\tlibnccl-net.so (libc6,x86-64) => /srv/site/libnccl-net.so\n\tlibm.so (x) => /m\n'"
    )
    own = asked(root)["programs"]
    assert own["net_plugins"] == [
        "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so",
        "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so",
        "/srv/site/libnccl-net.so",
    ]
    assert own["plugin"] == "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so"


def test_peers_are_looked_up_and_logged_in_to(root: Path) -> None:
    facts = asked(root)
    assert facts["names"]["peers"]["b"] == {
        "forward": ["10.0.0.2"],
        "reverse": ["b", "b.x"],
        "back": None,
        "error": None,
    }
    assert facts["names"]["peers"]["c"] == {"forward": [], "reverse": [], "back": None, "error": None}
    assert facts["reach"]["peers"]["b"]["hostname"] == "b"
    assert facts["reach"]["peers"]["c"]["error"] == "Permission denied (publickey)."


def test_a_name_of_the_inventory_alone_is_looked_up_by_the_address(root: Path) -> None:
    peers = [{"name": "first-gpu-node", "address": "10.0.0.2"}]
    program(
        root, "getent", 'case "$2" in b.x) echo "10.0.0.2 STREAM";; 10.0.0.2) echo "10.0.0.2 b.x b";; *) exit 2;; esac'
    )
    facts = visit({"action": "facts", "subjects": "nccl", "look_up": peers}, Host(root))["facts"]
    told = {"forward": [], "reverse": ["b", "b.x"], "back": ["10.0.0.2"], "error": None}
    assert facts["names"]["peers"]["first-gpu-node"] == told


def test_the_address_a_login_came_to_is_told(root: Path) -> None:
    """Behind a cloud's address translation it is the node's own, which the inventory does not know."""
    assert asked(root)["names"]["reached_at"] is None
    put(root, "/proc/self/environ", "HOME=/root\0SSH_CONNECTION=198.51.100.7 50022 10.0.0.1 22\0")
    assert asked(root)["names"]["reached_at"] == "10.0.0.1"
    put(root, "/proc/self/environ", "SSH_CONNECTION=odd\0")
    assert asked(root)["names"]["reached_at"] is None


def chassis(name: str | None, bridge: bool = True) -> dict[str, Any]:
    """What lldpcli 1.0.16 printed of a neighbour (`-f json0`), without its addresses."""
    capability = [{"type": "Bridge", "enabled": bridge}, {"type": "Router", "enabled": True}]
    own = [] if name is None else [{"value": name}]
    return {"id": [{"type": "mac", "value": "5e:f9:ec:65:d0:69"}], "name": own, "capability": capability}


def test_the_switch_at_the_other_end_is_told_by_lldp(root: Path) -> None:
    assert asked(root)["names"]["switches"] == {}  # no lldpd there
    interfaces = [
        {"name": "rail0", "chassis": [chassis("leaf-1")]},
        {"name": "rail1", "chassis": [chassis("leaf-2"), chassis("leaf-3")]},  # a cable has one other end
        {"name": "rail2", "chassis": [chassis("a-host", bridge=False)]},
        {"name": "rail3", "chassis": [chassis(None)]},
        {"name": "rail4", "chassis": [chassis("leaf-4")]},
        {"name": "rail4", "chassis": [chassis("leaf-4")]},  # the same, told once for each protocol
    ]
    program(root, "lldpcli", f"echo '{json.dumps({'lldp': [{'interface': interfaces}]})}'")
    assert asked(root)["names"]["switches"] == {"rail0": "leaf-1", "rail4": "leaf-4"}


@pytest.mark.parametrize("does", ["echo no", "echo '[]'", "echo 'cannot connect' >&2; exit 1"])
def test_what_lldp_did_not_say_is_unknown(root: Path, does: str) -> None:
    program(root, "lldpcli", does)
    told = asked(root)["names"]
    assert told["switches"] is None
    assert told["unread"]["switches"].startswith("lldpcli")
    (root / "usr/bin/lldpcli").chmod(0o644)
    assert asked(root)["names"]["unread"]["switches"] == "lldpcli is for root and the group _lldpd"


def test_ssh_is_called_as_mpirun_calls_it_and_host_keys_are_left_to_its_configuration(root: Path) -> None:
    program(root, "ssh", 'echo "$*"')
    said = asked(root)["reach"]["peers"]["b"]["hostname"]
    assert "BatchMode=yes" in said
    assert "StrictHostKeyChecking" not in said


def test_a_lost_gpu_is_told_in_nvidia_smis_own_words(root: Path) -> None:
    program(root, "nvidia-smi", f"/bin/cat {DATA / 'nvidia-smi/device-lost.txt'}; exit 255")
    facts = asked(root)
    assert facts["gpu"]["gpus"] is None
    assert "Unable to determine the device handle for GPU0000:9A:00.0" in facts["gpu"]["unread"]["gpus"]
    found = preflight.judge({"a": {**facts, "address": "10.0.0.1"}})
    assert [f.verdict for f in found if f.check == "gpu-count"] == [Verdict.UNKNOWN]


def test_an_empty_host_is_unknown_and_never_ok(tmp_path: Path) -> None:
    facts = asked(tmp_path)
    for subject, name in (("gpu", "gpus"), ("limits", "memlock"), ("programs", "test"), ("peer_memory", "modules")):
        assert facts[subject][name] is None
        assert facts[subject]["unread"], subject
    found = preflight.judge({"a": {**facts, "address": "10.0.0.1"}})
    good = {f.check for f in found if f.verdict is Verdict.OK}
    assert good <= {"mpi", "settings", "nccl", "names", "ssh"}, good


@pytest.mark.parametrize(
    ("does", "state", "verdict"),
    [
        ('echo "n/a"; echo "idle*"', "idle*", Verdict.OK),
        ('echo "n/a"', "", Verdict.OK),
        ('echo "reserved"', "reserved", Verdict.FAIL),
        ('echo "allocated*"', "allocated*", Verdict.FAIL),
        ("true", "", Verdict.OK),
        ('echo "slurm_load_partitions: Unable to contact slurm controller" >&2; exit 1', None, Verdict.UNKNOWN),
    ],
)
def test_a_reservation_of_slurm_counts_though_nothing_runs(
    root: Path, does: str, state: str | None, verdict: Verdict
) -> None:
    program(root, "sinfo", does)
    facts = asked(root)
    assert facts["jobs"]["slurm_state"] == state
    found = preflight.judge({"a": {**facts, "address": "10.0.0.1"}})
    assert [f.verdict for f in found if f.check == "idle"] == [verdict]


def test_a_route_is_told_with_its_table_and_its_metric_and_each_next_hop(root: Path) -> None:
    """As `ip -j -4 route show table all` of iproute2 6.1 prints it: the main table has no name there."""
    rows = (
        '[{"dst":"default","gateway":"10.9.0.1","dev":"rail0","table":"100"},'
        '{"dst":"default","gateway":"10.0.0.254","dev":"eth0","metric":100},'
        '{"dst":"10.0.0.0/8","nexthops":[{"gateway":"10.1.0.1","dev":"rail0"},{"gateway":"10.2.0.1","dev":"rail1"}]}]'
    )
    program(root, "ip", f"echo '{rows}'")
    assert asked(root)["names"]["routes"] == [
        {"dst": "default", "dev": "rail0", "gateway": "10.9.0.1", "table": "100", "metric": 0},
        {"dst": "default", "dev": "eth0", "gateway": "10.0.0.254", "table": "main", "metric": 100},
        {"dst": "10.0.0.0/8", "dev": "rail0", "gateway": "10.1.0.1", "table": "main", "metric": 0},
        {"dst": "10.0.0.0/8", "dev": "rail1", "gateway": "10.2.0.1", "table": "main", "metric": 0},
    ]


def test_a_node_that_slurmd_has_another_name_for_is_unknown(root: Path) -> None:
    program(root, "sinfo", 'echo "n/a"')
    put(root, "/proc/77/comm", "slurmd\n")
    facts = asked(root)
    assert facts["jobs"]["slurm_state"] is None
    assert facts["jobs"]["unread"]["slurm_state"] == "slurmd runs here, and sinfo knows no node a"


CGROUP_OF = {
    "version 2, systemd": "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{_}.slice",
    "version 2, guaranteed": "/sys/fs/cgroup/kubepods.slice/kubepods-pod{_}.slice",
    "version 2, cgroupfs": "/sys/fs/cgroup/kubepods/besteffort/pod{}",
    "version 1": "/sys/fs/cgroup/memory/kubepods/burstable/pod{}",
    "below a root of its own": "/sys/fs/cgroup/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{_}.slice",
}
FIRST, SECOND = "0f3c5a1e-6c7d-4f1b-9f6e-1a2b3c4d5e6f", "7d1e2f3a-0b1c-4d5e-8f90-a1b2c3d4e5f6"


def checkpoint(root: Path, *uids: str, resource: str = "nvidia.com/gpu") -> None:
    """The kubelet's own list of devices, as version 2 of it is written."""
    entries = [{"PodUID": uid, "ContainerName": "main", "ResourceName": resource} for uid in uids]
    put(root, busy.KUBELET, json.dumps({"Data": {"PodDeviceEntries": entries}, "Checksum": 1}))


def of_pod(root: Path, form: str, uid: str) -> None:
    (root / form.format(uid, _=uid.replace("-", "_")).lstrip("/")).mkdir(parents=True)


@pytest.mark.parametrize("where", CGROUP_OF)
def test_only_pods_that_live_hold_gpus(root: Path, where: str) -> None:
    """The kubelet's list keeps pods that are gone until it gives away a device again (kubernetes#137010)."""
    checkpoint(root, FIRST, SECOND)
    (root / "var/lib/kubelet/pods" / SECOND).mkdir(parents=True)  # a job that has ended keeps its folder
    of_pod(root, CGROUP_OF[where], FIRST)
    assert asked(root)["jobs"]["kubernetes_pods"] == 1
    assert busy.busy(Host(root)) == ["Kubernetes has given GPUs to 1 pods"]


def test_a_list_of_pods_that_are_all_gone_holds_nothing(root: Path) -> None:
    checkpoint(root, FIRST, SECOND)
    (root / "sys/fs/cgroup/kubepods.slice").mkdir(parents=True)
    assert asked(root)["jobs"]["kubernetes_pods"] == 0
    assert busy.busy(Host(root)) == []


def test_without_the_kubelets_cgroups_the_folder_of_a_pod_leaves_it_open(root: Path) -> None:
    """As after a reboot, before the kubelet has begun: its pods may come back."""
    checkpoint(root, FIRST, SECOND)
    (root / "var/lib/kubelet/pods" / FIRST).mkdir(parents=True)
    told = asked(root)["jobs"]
    assert told["kubernetes_pods"] is None
    assert told["unread"]["kubernetes_pods"] == "whether 1 pods that got GPUs still run: there are no kubepods cgroups"
    assert busy.busy(Host(root)) == [f"Kubernetes allocations unknown: {told['unread']['kubernetes_pods']}"]
    (root / "var/lib/kubelet/pods" / FIRST).rmdir()
    assert asked(root)["jobs"]["kubernetes_pods"] == 0


def test_another_devices_pods_are_none_of_ours(root: Path) -> None:
    checkpoint(root, FIRST, resource="vpc.amazonaws.com/efa")
    assert asked(root)["jobs"]["kubernetes_pods"] == 0


def test_an_address_whose_type_the_kernel_refuses_is_kept(root: Path) -> None:
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    put(root, f"{port}/gids/7", "0000:0000:0000:0000:0000:ffff:0a01:0007\n")
    (root / f"{port.lstrip('/')}/gid_attrs/types/7").mkdir(parents=True)  # reading it fails, also for root
    gids = {gid["index"]: gid for gid in asked(root)["rdma"]["ports"][0]["gids"]}
    assert (gids[7]["type"], gids[7]["net"]) == (None, None)


def test_processes_that_could_not_be_listed_leave_it_open_who_works(root: Path) -> None:
    text = read("nvidia-smi/570-h100-8gpu.xml")
    (root / "smi.xml").write_text(re.sub(r"<processes>\s*</processes>", "<processes>ERR!</processes>", text, count=1))
    program(root, "nvidia-smi", f"exec /bin/cat {root / 'smi.xml'}")
    found = preflight.judge({"a": {**asked(root), "address": "10.0.0.1"}})
    assert [f.verdict for f in found if f.check == "idle"] == [Verdict.UNKNOWN]


def test_a_subject_that_breaks_takes_no_other_along(root: Path) -> None:
    put(root, "/sys/class/infiniband/mlx5_0/ports/1/rate", "fast\n")
    put(root, "/proc/self/limits", "Max locked memory  much  more  bytes\n")
    facts = asked(root)
    assert "not understood" in facts["limits"]["unread"]["*"]
    assert facts["rdma"]["ports"][0]["rate_gbps"] is None
    assert len(facts["gpu"]["gpus"]) == 8
