"""gpuctl-exec runs a program near its GPU, and refuses if the placement is unknown."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import allocators, memory_policy
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import exec as gpuctl_exec
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.affinity import (
    CannotPlace,
    Decision,
    Facts,
    Request,
    decide,
)
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.gpus import Gpu, find, gpus
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.topology import as_list, cpus_of

from tests.rig.machines import write_tree
from tests.rig.trees.hardware import NODE, PCI
from tests.rig.trees.host import put

# The bus addresses and minor numbers of an 8-GPU A100 host: minor numbers do not follow the bus.
MINORS = {"07": 2, "0b": 3, "48": 0, "4c": 1, "88": 6, "8b": 7, "c8": 4, "cb": 5}
INFORMATION = """Model: \t\t NVIDIA A100-SXM4-80GB
IRQ:   \t\t 77
GPU UUID: \t {uuid}
Video BIOS: \t 92.00.45.00.03
Bus Type: \t PCIe
DMA Size: \t 47 bits
DMA Mask: \t 0x7fffffffffff
Bus Location: \t {address}
Device Minor: \t {minor}
GPU Firmware: \t 535.161.08
GPU Excluded:\t {excluded}
"""


def uuid(minor: int) -> str:
    return f"GPU-{minor:08d}-3d4d-596c-da66-b86b0e5db584"


def gpu(root: Path, bus: str, node: int, name: str = "", excluded: str = "No") -> None:
    """One GPU in the files of the driver and the kernel."""
    address, minor = f"0000:{bus}:00.0", MINORS[bus]
    text = INFORMATION.format(uuid=name or uuid(minor), address=address, minor=minor, excluded=excluded)
    put(root, f"/proc/driver/nvidia/gpus/{address}/information", text)
    put(root, f"{PCI}/{address}/numa_node", f"{node}\n")


def a100(root: Path, nodes: Sequence[str] = ("0-31", "32-63")) -> Host:
    """Eight GPUs, the first half of the bus on node 0."""
    for number, cpus in enumerate(nodes):
        put(root, f"{NODE}/node{number}/cpulist", f"{cpus}\n")
    put(root, f"{NODE}/has_memory", f"{as_list(range(len(nodes)))}\n")
    for place, bus in enumerate(MINORS):
        gpu(root, bus, place // 4 if len(nodes) > 1 else -1)
    return Host(root)


def decided(host: Host, *names: str, **request: object) -> Decision:
    ask = replace(Request(names, ("python", "train.py")), **request)  # type: ignore[arg-type]
    return decide(ask, gpuctl_exec.read_facts(host, ask, {}))


def refused(host: Host, *names: str, **request: object) -> CannotPlace:
    with pytest.raises(CannotPlace) as caught:
        decided(host, *names, **request)
    return caught.value


def test_an_index_is_nvidia_smis_place_on_the_bus_and_not_the_minor_number(tmp_path: Path) -> None:
    cards = gpus(a100(tmp_path))
    assert [(g.index, g.address[5:7], g.minor) for g in cards] == [
        (n, bus, minor) for n, (bus, minor) in enumerate(MINORS.items())
    ]


def test_the_program_is_bound_to_its_gpus_node_and_told_the_gpu_by_uuid(tmp_path: Path) -> None:
    decision = decided(a100(tmp_path), "5")
    assert decision.cpus == tuple(range(32, 64))
    assert decision.nodes == (1,)
    assert decision.environment == (("CUDA_VISIBLE_DEVICES", uuid(7)),)


@pytest.mark.parametrize("name", ["5", uuid(7), "GPU-00000007", "0000:8b:00.0", "8b:00.0", "00000000:8B:00.0"])
def test_a_gpu_may_be_named_as_any_tool_names_it(tmp_path: Path, name: str) -> None:
    assert decided(a100(tmp_path), name).gpus[0].address == "0000:8b:00.0"


@pytest.mark.parametrize("name", ["8", "GPU-0000000", "GPU-", "-1", "0000:99:00.0", "GPU-00000007x", "five"])
def test_a_name_that_fits_no_gpu_or_several_is_refused_with_those_there_are(tmp_path: Path, name: str) -> None:
    reason = refused(a100(tmp_path), name)
    assert str(reason) == f"this host has no GPU {name}"
    assert f"5: 0000:8b:00.0 {uuid(7)}" in reason.hint


def test_excluded_gpus_have_no_index(tmp_path: Path) -> None:
    host = a100(tmp_path)
    gpu(tmp_path, "07", 0, excluded="Yes")
    assert [g.address[5:7] for g in gpus(host)][:2] == ["0b", "48"]
    assert find(gpus(host), "0000:07:00.0") is None


def test_several_gpus_of_one_node_are_given_in_the_order_asked_for(tmp_path: Path) -> None:
    decision = decided(a100(tmp_path), "3", "1", "3")
    assert decision.environment == (("CUDA_VISIBLE_DEVICES", f"{uuid(1)},{uuid(3)}"),)
    assert decision.nodes == (0,)


def test_gpus_of_two_nodes_are_refused_unless_that_is_allowed(tmp_path: Path) -> None:
    reason = refused(a100(tmp_path), "3", "4")
    assert str(reason) == "these GPUs are near different NUMA nodes: GPU 3 on node 0, GPU 4 on node 1"
    assert "--several-nodes" in reason.hint
    both = decided(a100(tmp_path), "3", "4", several_nodes=True)
    assert (both.nodes, both.cpus) == ((0, 1), tuple(range(64)))


def test_a_gpu_without_a_node_is_refused_where_there_are_several(tmp_path: Path) -> None:
    host = a100(tmp_path)
    put(tmp_path, f"{PCI}/0000:8b:00.0/numa_node", "-1\n")
    assert "numa_node is -1" in str(refused(host, "5"))


def test_on_a_machine_with_one_node_a_gpu_needs_none(tmp_path: Path) -> None:
    decision = decided(a100(tmp_path, nodes=["0-15"]), "5")
    assert (decision.nodes, decision.only_node) == ((0,), True)


def test_a_node_without_memory_is_refused(tmp_path: Path) -> None:
    host = a100(tmp_path)
    put(tmp_path, f"{NODE}/has_memory", "0\n")
    assert str(refused(host, "5")) == "NUMA node 1 has no memory"


def test_only_processors_that_the_caller_may_use_are_taken(tmp_path: Path) -> None:
    host = a100(tmp_path)
    put(tmp_path, "/proc/self/status", "Name:\tsh\nCpus_allowed_list:\t28-35\nMems_allowed_list:\t0-1\n")
    decision = decided(host, "5")
    assert decision.cpus == (32, 33, 34, 35)
    assert decision.notes == ("only 4 of the 32 processors near it are allowed here",)


@pytest.mark.parametrize(
    ("cpus", "mems", "wrong"),
    [
        ("0-31", "0-1", "none of the processors near it (32-63) is allowed here (Cpus_allowed_list 0-31)"),
        ("0-63", "0", "memory of NUMA node 1 is not allowed here (Mems_allowed_list 0)"),
    ],
)
def test_a_cgroup_that_excludes_the_node_is_named(tmp_path: Path, cpus: str, mems: str, wrong: str) -> None:
    host = a100(tmp_path)
    put(tmp_path, "/proc/self/status", f"Cpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{mems}\n")
    assert str(refused(host, "5")) == wrong


def test_a_gpu_that_the_driver_has_not_started_yet_has_no_uuid_and_is_refused(tmp_path: Path) -> None:
    host = a100(tmp_path)
    gpu(tmp_path, "8b", 1, name="GPU-????????-????-????-????-????????????")
    assert "nvidia-persistenced" in refused(host, "5").hint


def test_a_host_without_a_driver_is_refused(tmp_path: Path) -> None:
    put(tmp_path, f"{NODE}/node0/cpulist", "0-1\n")
    assert "no NVIDIA driver" in str(refused(Host(tmp_path), "0"))


def test_a_mig_instance_is_refused_with_the_way_to_name_it(tmp_path: Path) -> None:
    reason = refused(a100(tmp_path), "MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f")
    assert "-- env CUDA_VISIBLE_DEVICES=MIG-5c89852c" in reason.hint


def test_a_gpu_that_is_split_is_bound_and_says_what_cuda_will_see(tmp_path: Path) -> None:
    host = a100(tmp_path)
    put(tmp_path, "/proc/driver/nvidia/capabilities/gpu7/mig/gi1/access", "DeviceFileMinor: 12\n")
    assert decided(host, "5").notes == ("GPU 5 is split by MIG: CUDA will take its first instance",)


def test_every_gpu_of_a_p5_is_near_one_half_of_its_processors(tmp_path: Path) -> None:
    write_tree("p5", tmp_path)
    host = Host(tmp_path)
    put(tmp_path, "/proc/self/status", "Cpus_allowed_list:\t0-191\nMems_allowed_list:\t0-1\n")
    assert [decided(host, str(n)).nodes for n in range(8)] == [(0,)] * 4 + [(1,)] * 4


def near(**changes: object) -> Facts:
    """Facts of a host with one GPU, for decisions about the environment."""
    facts = Facts(
        gpus=(Gpu(0, "0000:07:00.0", uuid(0), 0, "A100", 0),),
        cpus_of_node={0: [0, 1]},
        nodes_with_memory=frozenset({0}),
        allowed_cpus=frozenset({0, 1}),
        allowed_nodes=frozenset({0}),
        library="/usr/lib/libjemalloc.so.2",
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


JEMALLOC = Request(("0",), ("train",), allocator="jemalloc")


def test_an_allocator_is_preloaded_with_its_settings() -> None:
    assert dict(decide(JEMALLOC, near()).environment)["LD_PRELOAD"] == "/usr/lib/libjemalloc.so.2"
    assert dict(decide(JEMALLOC, near()).environment)["MALLOC_CONF"] == (
        "background_thread:true,dirty_decay_ms:10000,muzzy_decay_ms:30000"
    )


def test_an_existing_preload_stays_behind_the_allocator() -> None:
    decision = decide(JEMALLOC, near(environment={"LD_PRELOAD": "/opt/libprof.so"}))
    assert dict(decision.environment)["LD_PRELOAD"] == "/usr/lib/libjemalloc.so.2:/opt/libprof.so"


@pytest.mark.parametrize("other", ["/usr/lib64/libtcmalloc_minimal.so.4", "/opt/a.so libmimalloc.so.2"])
def test_a_second_allocator_is_refused(other: str) -> None:
    with pytest.raises(CannotPlace, match="holds an allocator already"):
        decide(JEMALLOC, near(environment={"LD_PRELOAD": other}))


def test_the_same_allocator_is_not_preloaded_twice_and_its_settings_are_the_callers() -> None:
    before = {"LD_PRELOAD": "/opt/libjemalloc.so.2", "MALLOC_CONF": "narenas:4"}
    decision = decide(JEMALLOC, near(environment=before))
    assert dict(decision.environment)["LD_PRELOAD"] == "/opt/libjemalloc.so.2"
    assert "MALLOC_CONF" not in dict(decision.environment)
    assert decision.notes == ("MALLOC_CONF is kept as it was set: narenas:4",)


def test_an_allocator_that_is_not_installed_is_refused_with_its_packages() -> None:
    with pytest.raises(CannotPlace) as caught:
        decide(JEMALLOC, near(library=""))
    assert "libjemalloc2" in caught.value.hint


def test_gpus_that_were_visible_before_are_replaced_and_named() -> None:
    decision = decide(Request(("0",), ("train",)), near(environment={"CUDA_VISIBLE_DEVICES": "0,1"}))
    assert decision.notes == ("CUDA_VISIBLE_DEVICES was 0,1 and is replaced",)


@pytest.mark.parametrize(
    "path", [f"/usr/lib/{os.uname().machine}-linux-gnu/libtcmalloc_minimal.so.4", "/usr/lib64/libtcmalloc.so.4"]
)
def test_the_library_is_found_where_each_distribution_keeps_it(tmp_path: Path, path: str) -> None:
    put(tmp_path, path, "")
    assert allocators.library(Host(tmp_path), "tcmalloc") == path
    assert allocators.library(Host(tmp_path), "jemalloc") is None


def test_nodes_become_the_kernels_bit_mask() -> None:
    assert memory_policy.mask_of([0]) == [1]
    assert memory_policy.mask_of([1, 65]) == [2, 2]


def this_machine(root: Path) -> Path:
    """A tree with one GPU on a node and a processor that this process may use."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    node, cpu = cpus_of(status["Mems_allowed_list"])[0], min(os.sched_getaffinity(0))
    put(root, f"{NODE}/node{node}/cpulist", f"{cpu}\n")
    gpu(root, "07", node)
    return root


RUN = """
import sys
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.exec import main
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
sys.exit(main(sys.argv[2:], Host(sys.argv[1])))
"""


def run(root: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run it for real, with the tree's GPUs and this machine's kernel."""
    return subprocess.run(
        [sys.executable, "-c", RUN, str(root), *argv], capture_output=True, text=True, timeout=60, check=False
    )


def test_child_processes_inherit_processors_memory_and_gpu(tmp_path: Path) -> None:
    root = this_machine(tmp_path)
    script = (
        'sh -c "grep ^Cpus_allowed_list /proc/self/status; head -1 /proc/self/numa_maps; echo $CUDA_VISIBLE_DEVICES"'
    )
    done = run(root, "--gpu", "0", "--", "sh", "-c", script)
    cpus, memory, visible = done.stdout.splitlines()
    node = next(root.glob("sys/devices/system/node/node*")).name[4:]
    assert cpus.split() == ["Cpus_allowed_list:", str(min(os.sched_getaffinity(0)))]
    assert f"bind:{node}" in memory
    assert visible == uuid(MINORS["07"])
    assert f"GPU 0 (0000:07:00.0): processors {cpus.split()[1]}, memory of node {node}" in done.stderr


def test_a_real_time_priority_is_set_or_refused_with_the_reason(tmp_path: Path) -> None:
    root = this_machine(tmp_path)
    done = run(root, "--gpu", "0", "--schedule", "rr:7", "--", "sh", "-c", "cut -d' ' -f40,41 /proc/self/stat")
    if done.returncode == 0:
        assert done.stdout.split() == ["7", str(os.SCHED_RR)]
    else:
        assert (done.returncode, done.stdout) == (2, "")
        assert "refuses priority rr:7" in done.stderr


def test_an_allocator_reaches_the_program_through_its_environment(tmp_path: Path) -> None:
    root = this_machine(tmp_path)
    library = f"/usr/lib/{os.uname().machine}-linux-gnu/libjemalloc.so.2"
    put(root, library, "")
    done = run(root, "--gpu", "0", "--allocator", "jemalloc", "--", "sh", "-c", "echo $LD_PRELOAD; echo $MALLOC_CONF")
    assert done.stdout.splitlines() == [library, "background_thread:true,dirty_decay_ms:10000,muzzy_decay_ms:30000"]


def test_print_shows_an_equivalent_command_line_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--gpu", "5", "--schedule", "fifo:50", "--print", "--", "touch", str(tmp_path / "a file")]
    assert gpuctl_exec.main(argv, a100(tmp_path), {}) == 0
    printed = capsys.readouterr()
    assert "processors 32-63, memory of node 1" in printed.err
    assert printed.out == (
        f"env CUDA_VISIBLE_DEVICES={uuid(7)} numactl --physcpubind=32-63 --membind=1 "
        f"chrt --fifo 50 touch '{tmp_path}/a file'\n"
    )
    assert not (tmp_path / "a file").exists()


@pytest.mark.parametrize("schedule", ["fifo", "fifo:0", "rr:100", "other:1"])
def test_an_invalid_priority_is_refused(tmp_path: Path, schedule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpuctl_exec.main(["--gpu", "5", "--schedule", schedule, "--", "true"], a100(tmp_path), {}) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"gpuctl-exec: cannot run true: --schedule {schedule} is no priority\n  try: ")


def test_a_program_that_is_missing_or_cannot_run_ends_as_with_env(tmp_path: Path) -> None:
    root = this_machine(tmp_path)
    notes = tmp_path / "notes.txt"
    notes.write_text("no program")
    notes.chmod(notes.stat().st_mode & ~stat.S_IXUSR)
    assert run(root, "--gpu", "0", "--", "no-such-program").returncode == 127
    assert run(root, "--gpu", "0", "--", str(notes)).returncode == 126


def test_the_programs_own_exit_status_and_arguments_pass_through(tmp_path: Path) -> None:
    done = run(this_machine(tmp_path), "--gpu", "0", "--", "sh", "-c", 'echo "$1"; exit 7', "sh", "--gpu")
    assert (done.returncode, done.stdout) == (7, "--gpu\n")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--gpu", "0"],
        ["--gpu", "0", "--"],
        ["--gpu", "0", "true"],
        ["--", "true"],
        ["--gpu", "0", "--allocator", "hoard", "--", "true"],
    ],
)
def test_a_wrong_command_line_ends_with_2(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        gpuctl_exec.main(argv)
    assert exit_info.value.code == 2
