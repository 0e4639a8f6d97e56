"""The rig keeps its promises: hosts are real, their fake trees have the kernel's manners, nothing is left behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.conftest import Hosts
from tests.rig import Rig, TestHost, Write, ground, machine_snapshot, machines, numbers
from tests.rig.knobs import Knob

REPOSITORY = Path(__file__).parents[2]
SWAPPINESS, DIRTY_RATIO, DIRTY_BYTES = (f"/proc/sys/vm/{name}" for name in ("swappiness", "dirty_ratio", "dirty_bytes"))
CPU0, THP = "/sys/devices/system/cpu/cpu0", "/sys/kernel/mm/transparent_hugepage/enabled"
# Writes in the host as a careful program does: without creating a file, in one call; prints what the kernel says.
WRITE = """
import os, sys
try:
    os.write(os.open(sys.argv[1], os.O_WRONLY), sys.argv[2].encode())
except OSError as error:
    sys.exit(error.errno)
"""


def write(host: TestHost, path: str, text: str) -> int:
    """0, or the number of the error that the write gives in the host."""
    return host.run("python3", "-c", WRITE, path, text, check=False).returncode


def test_hosts_are_whole_machines_with_systemd_and_an_address(hosts: Hosts) -> None:
    first, second = hosts(2)
    assert first.read("/proc/1/comm") == "systemd\n"
    assert first.run("systemctl", "is-active", "ssh").stdout == "active\n"
    assert first.read("/etc/hostname") == "h1\n"
    assert second.read("/etc/hostname") == "h2\n"
    first.run("python3", "-c", f"import socket; socket.create_connection(('{second.ip}', 22), 2)")


def test_a_host_has_device_nodes_of_its_own_whose_mode_is_not_the_machines(host: TestHost) -> None:
    covered = [path for path in ("/proc/kmsg", "/proc/keys", "/proc/timer_list") if Path(path).exists()]
    before = machine_snapshot.devices()
    modes = [Path(path).stat().st_mode for path in covered]
    assert host.read("/dev/console") == ""
    for path in ("/dev/console", "/dev/null", *covered):
        assert host.run("stat", "--format=%t:%T", path).stdout == "1:3\n"
        host.run("chmod", "620", path)
        host.run("chown", "admin:tty", path)
        assert host.run("stat", "--format=%a %U", path).stdout == "620 admin\n"
    # Only what the host could have changed: other rigs start and end meanwhile.
    assert machine_snapshot.devices() == before
    assert [Path(path).stat().st_mode for path in covered] == modes


def test_users_enter_by_ssh_and_only_admin_may_become_root(host: TestHost) -> None:
    assert host.ssh("id", "-un").stdout == "root\n"
    assert host.ssh("sudo", "-n", "id", "-un", user="admin").stdout == "root\n"
    assert host.ssh("sudo", "-n", "true", user="nosudo", check=False).returncode != 0


def test_a_host_with_another_key_is_not_entered(rig: Rig, hosts: Hosts) -> None:
    first, second = hosts(2)
    known = rig.state / "known_hosts"
    known.write_text(known.read_text().replace(first.ip, "x").replace(second.ip, first.ip))
    refused = first.ssh("true", check=False)
    assert refused.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in refused.stderr


def test_the_inventory_serves_ansible(rig: Rig, hosts: Hosts) -> None:
    hosts(2)
    inventory = rig.inventory({"odd": ["h1"]}, user="admin")
    argv = [str(Path(sys.executable).with_name("ansible")), "--inventory", inventory, "odd", "--become", "-m", "ping"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "h1 | SUCCESS" in done.stdout
    assert "h2" not in done.stdout


def test_a_readonly_host_takes_no_write_anywhere(hosts: Hosts) -> None:
    (host,) = hosts(1, machine="generic", readonly=True)
    for path in ("/etc/hostname", SWAPPINESS, THP):
        assert write(host, path, "1") == errno.EROFS
    assert host.run("touch", "/tmp/x", "/var/tmp/x", check=False).returncode == 1  # noqa: S108 in the host


def test_a_host_may_lack_python(hosts: Hosts) -> None:
    (host,) = hosts(1, python=False)
    assert host.ssh("python3", "--version", check=False).returncode == 127
    assert host.ssh("uname").stdout == "Linux\n"


def test_a_paused_host_is_unreachable_until_it_resumes(hosts: Hosts) -> None:
    (host,) = hosts(1)
    host.pause()
    with pytest.raises(TimeoutError, match="no sshd on h1"):
        host.wait(limit_s=0.2)
    host.resume()
    host.wait()


@pytest.mark.parametrize(
    ("path", "text", "answer", "reads"),
    [
        (THP, "never", 0, "always madvise [never]\n"),
        (THP, "sometimes", errno.EINVAL, "always [madvise] never\n"),
        (SWAPPINESS, "201", errno.EINVAL, "60\n"),
        (DIRTY_BYTES, "0", errno.EINVAL, "0\n"),
        (DIRTY_BYTES, "8191", errno.EINVAL, "0\n"),
        ("/proc/sys/vm/nr_hugepages", "900000000", 0, "257323\n"),
        (f"{CPU0}/power/energy_perf_bias", "performance", 0, "0\n"),
        ("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "schedutil", errno.EINVAL, "powersave\n"),
        ("/proc/irq/41/smp_affinity_list", "0-3,32", 0, "0-3,32\n"),
        ("/proc/irq/41/smp_affinity_list", "64", errno.EINVAL, "0-63\n"),
        ("/proc/irq/54/smp_affinity_list", "0", errno.EIO, "0-15,32-47\n"),
    ],
)
def test_files_answer_as_the_kernel_does(path: str, text: str, answer: int, reads: str) -> None:
    file = machines.tree("generic")[path]
    assert isinstance(file, Knob)
    if answer:
        with pytest.raises(OSError, match=os.strerror(answer)):
            file.write(text)
    else:
        file.write(text)
    assert file.read() == reads


def test_settings_that_say_one_thing_move_together(host: TestHost) -> None:
    assert write(host, DIRTY_BYTES, "1073741824") == 0
    assert (host.read(DIRTY_RATIO), host.read(DIRTY_BYTES)) == ("0\n", "1073741824\n")
    assert write(host, "/proc/irq/41/smp_affinity_list", "0,33") == 0
    assert host.read("/proc/irq/41/smp_affinity") == "00000002,00000001\n"
    assert host.read("/proc/irq/41/effective_affinity_list") == "0\n"
    assert write(host, f"{CPU0}/cpufreq/scaling_governor", "performance") == 0
    assert write(host, f"{CPU0}/cpufreq/energy_performance_preference", "power") == errno.EBUSY
    assert write(host, f"{CPU0}/cpufreq/scaling_governor", "powersave") == 0
    assert host.read(f"{CPU0}/cpufreq/energy_performance_preference") == "balance_performance\n"


def test_every_write_in_a_host_is_listed_also_one_that_is_refused(host: TestHost) -> None:
    assert host.tree.writes() == []
    assert write(host, SWAPPINESS, "10") == 0
    assert write(host, SWAPPINESS, "-1") == errno.EINVAL
    assert write(host, f"{CPU0}/cpufreq/scaling_driver", "x") == errno.EACCES
    assert write(host, "/proc/cpuinfo", "x") == errno.EIO
    host.tree.set(SWAPPINESS, "20")
    assert host.read(SWAPPINESS) == "20\n"
    assert host.tree.writes() == [
        Write(SWAPPINESS, "10", 0, "python3"),
        Write(SWAPPINESS, "-1", errno.EINVAL, "python3"),
        Write("/proc/cpuinfo", "x", errno.EIO, "python3"),
    ]
    host.tree.clear()
    assert host.tree.writes() == []


def test_a_test_may_add_and_remove_files_and_make_writes_fail_or_hang(host: TestHost) -> None:
    host.tree.put("/sys/module/new/parameters/level", "1")
    assert host.read("/sys/module/new/parameters/level") == "1\n"
    host.tree.remove("/sys/class/infiniband/mlx5_0")
    assert host.run("ls", "/sys/class/infiniband").stdout == "mlx5_1\n"
    host.tree.fail(SWAPPINESS, errno.EIO)
    assert [write(host, SWAPPINESS, "1") for _ in range(2)] == [errno.EIO, 0]
    host.tree.hang(SWAPPINESS)
    with ThreadPoolExecutor() as pool:
        hanging = pool.submit(write, host, SWAPPINESS, "2")
        time.sleep(0.3)
        assert not hanging.done()
        assert host.read(SWAPPINESS) == "1\n"
        host.tree.release()
        assert hanging.result(timeout=5) == 0


def test_a_reboot_keeps_what_is_on_disk_and_nothing_else(host: TestHost) -> None:
    before = host.read("/proc/sys/kernel/random/boot_id")
    host.boots_by_grub()
    host.write("/etc/default/grub.d/99-test.cfg", 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt"\n')
    host.run("update-grub")
    host.write("/etc/sysctl.d/99-test.conf", "kernel.numa_balancing = 0\n")
    assert write(host, SWAPPINESS, "1") == 0
    assert "iommu=pt" not in host.read("/proc/cmdline")
    host.reboot()
    assert host.read("/proc/sys/kernel/random/boot_id") != before
    assert host.read("/proc/cmdline").endswith("ttyS0,115200n8 iommu=pt quiet\n")
    assert host.read("/proc/sys/kernel/numa_balancing") == "0\n"
    assert host.read(SWAPPINESS) == "60\n"


def test_swap_can_be_switched_off_and_on_and_comes_back_with_fstab(host: TestHost) -> None:
    host.standin("swapon")
    host.standin("swapoff")
    table = host.read("/proc/swaps")
    host.run("swapoff", "/dev/sda3")
    assert len(host.read("/proc/swaps").splitlines()) == 1
    assert host.run("grep", "SwapTotal", "/proc/meminfo").stdout.split()[1] == "0"
    host.run("swapon", "/dev/sda3")
    assert host.read("/proc/swaps") == table
    host.run("swapoff", "-a")
    host.reboot()
    assert host.read("/proc/swaps") == table
    host.write("/etc/fstab", "#/dev/sda3 none swap sw 0 0\n")
    host.reboot()
    assert len(host.read("/proc/swaps").splitlines()) == 1


def test_grubby_keeps_arguments_for_every_kernel(host: TestHost) -> None:
    host.boots_by_grubby()
    host.run("grubby", "--update-kernel=ALL", "--args=iommu=pt")
    assert host.run("grubby", "--info=ALL").stdout.count(' iommu=pt"\n') == 2
    host.reboot()
    assert host.read("/proc/cmdline").endswith("115200n8 iommu=pt\n")
    host.run("grubby", "--update-kernel=ALL", "--remove-args=iommu=pt")
    assert "iommu" not in host.run("grubby", "--info=ALL").stdout


def test_nvidia_smi_shows_the_gpus_of_the_machine_and_the_processes_of_the_test(hosts: Hosts) -> None:
    (host,) = hosts(1, machine="p5")
    host.standin("nvidia-smi")
    assert host.run("nvidia-smi", "-L").stdout.count("GPU-") == 8
    query = ["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"]
    assert host.run(*query).stdout == ""
    host.write("/var/lib/standins/nvidia-smi/processes.csv", "4711, python, 512 MiB, GPU-1\n")
    assert host.run(*query).stdout == "4711, python\n"


def test_packages_can_be_installed_without_a_network(hosts: Hosts) -> None:
    (host,) = hosts(1)
    assert not host.exists("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")
    host.run("apt-get", "install", "-y", "libjemalloc2")
    assert host.exists("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("generic", {"cpus": 64, "nodes": "0-1", "gpus": 2, "nics": 3}),
        ("p5", {"cpus": 192, "nodes": "0-1", "gpus": 8, "nics": 32}),
        ("g4dn_metal", {"cpus": 96, "nodes": "0-1", "gpus": 8, "nics": 2}),
        ("power9", {"cpus": 176, "nodes": "0,8,250-255", "gpus": 6, "nics": 1}),
    ],
)
def test_each_machine_shows_its_cpus_nodes_gpus_and_adapters(
    tmp_path: Path, name: str, has: dict[str, int | str]
) -> None:
    system, pci = "sys/devices/system", "sys/bus/pci/devices"
    machines.write_tree(name, tmp_path, ["/sys/bus", f"/{system}/cpu/online", f"/{system}/node/online", "/proc/driver"])
    classes = [file.read_text()[:6] for file in tmp_path.glob(f"{pci}/*/class")]
    assert has == {
        "cpus": len(numbers.from_list((tmp_path / system / "cpu/online").read_text().strip())),
        "nodes": (tmp_path / system / "node/online").read_text().strip(),
        "gpus": classes.count("0x0302"),
        "nics": classes.count("0x0200") + classes.count("0x0207"),
    }
    assert len(list(tmp_path.glob("proc/driver/nvidia/gpus/*/information"))) == has["gpus"]


def traces(bridge: str, state: str) -> list[str]:
    """Everything on this machine that carries the name of a rig."""
    places = ("/sys/class/net", "/run/netns", "/run/gpuctl-rig", str(ground.Plot(state, bridge, "").cgroup.parent))
    found = [str(entry) for place in places for entry in Path(place).glob(f"{bridge}*")]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if state in line]
    found += [state] if Path(state).exists() else []
    tables = ground.sh("nft", "list", "tables").stdout.splitlines()
    processes = [
        file.read_bytes().decode() for file in Path("/proc").glob("[0-9]*/cmdline") if os.access(file, os.R_OK)
    ]
    return found + [line for line in [*tables, *processes] if bridge in line or state in line]


@pytest.fixture
def bridge() -> str:
    """A name that no rig takes by itself, so that what carries it is this test's."""
    return f"t{os.getpid()}"


def test_a_rig_leaves_nothing_behind(tmp_path: Path, bridge: str) -> None:
    state = tmp_path / "rig"
    with Rig(state, bridge) as rig:
        rig.up(["a", "b"], machine="generic", nat=True)
        assert len(traces(bridge, str(state))) > 10
    assert traces(bridge, str(state)) == []


def test_what_a_crashed_rig_left_is_removed_by_the_next(tmp_path: Path, bridge: str) -> None:
    state = tmp_path / "rig"
    start = f"from pathlib import Path; from tests.rig import Rig; rig = Rig(Path('{state}'), '{bridge}')"
    crash = f"{start}; rig.up(['a'], machine='generic'); import os; os.kill(os.getpid(), {signal.SIGKILL})"
    died = subprocess.run([sys.executable, "-c", crash], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    with Rig():
        assert traces(bridge, str(state)) == []


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="no rig made"):
        Rig(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_two_rigs_live_side_by_side(rig: Rig) -> None:
    with Rig() as other:
        (ours,), (theirs,) = rig.up(["same"]), other.up(["same"])
        assert ours.ip != theirs.ip
        assert ours.ssh("cat", "/etc/hosts").stdout != theirs.ssh("cat", "/etc/hosts").stdout
    ours.wait()
    ours.stop()
