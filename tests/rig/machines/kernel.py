"""The files in which a machine's kernel keeps its settings: /proc/sys, memory, swap, block queues."""

from __future__ import annotations

import platform
import uuid
from pathlib import Path

from tests.rig import disk
from tests.rig.knobs import Choice, Enum, HugePages, Int, Knob, ReadOnly, State, View, rivals
from tests.rig.machines.model import Machine

VM, KERNEL, FS, CORE = (f"/proc/sys/{name}" for name in ("vm", "kernel", "fs", "net/core"))
THP = "/sys/kernel/mm/transparent_hugepage"
PAGE_SIZES_KIB = (2048, 1048576)
ON_OFF = (0, 1)

# name: (value after a start, least, most)
RANGES = {
    VM: {
        "compaction_proactiveness": (20, 0, 100),
        "dirty_expire_centisecs": (3000, 0, 2**31 - 1),
        "dirty_writeback_centisecs": (500, 0, 2**31 - 1),
        "max_map_count": (65530, 0, 2**31 - 1),
        "min_free_kbytes": (90112, 0, 2**31 - 1),
        "numa_stat": (1, 0, 1),
        "oom_kill_allocating_task": (0, 0, 2**31 - 1),
        "overcommit_memory": (0, 0, 2),
        "page-cluster": (3, 0, 31),
        "panic_on_oom": (0, 0, 2),
        "stat_interval": (1, 0, 2**31 - 1),
        "swappiness": (60, 0, 200),
        "vfs_cache_pressure": (100, 0, 2**31 - 1),
        "watermark_scale_factor": (10, 1, 3000),
        "zone_reclaim_mode": (0, 0, 7),
    },
    KERNEL: {
        "hung_task_timeout_secs": (120, 0, 2**31 - 1),
        "nmi_watchdog": (1, *ON_OFF),
        "numa_balancing": (1, 0, 4),
        "panic": (0, -(2**31), 2**31 - 1),
        "perf_event_paranoid": (2, -1, 4),
        "pid_max": (4194304, 301, 4194304),
        "randomize_va_space": (2, 0, 2),
        "sched_autogroup_enabled": (0, *ON_OFF),
        "sched_rt_period_us": (1000000, 1, 2**31 - 1),
        "sched_rt_runtime_us": (950000, -1, 2**31 - 1),
        "sysrq": (438, 0, 511),
        "threads-max": (4194304, 20, 2**31 - 1),
        "timer_migration": (1, *ON_OFF),
        "watchdog": (1, *ON_OFF),
        "yama/ptrace_scope": (1, 0, 3),
    },
    FS: {
        "aio-max-nr": (65536, 0, 2**63 - 1),
        "file-max": (2**63 - 1, 0, 2**63 - 1),
        "inotify/max_user_instances": (128, 0, 2**31 - 1),
        "inotify/max_user_watches": (524288, 0, 2**31 - 1),
        "nr_open": (1048576, 8, 2147483584),
        "pipe-max-size": (1048576, 4096, 2**31 - 1),
        "protected_hardlinks": (1, *ON_OFF),
        "protected_symlinks": (1, *ON_OFF),
    },
    CORE: {
        "busy_poll": (0, 0, 2**31 - 1),
        "busy_read": (0, 0, 2**31 - 1),
        "dev_weight": (64, 1, 2**31 - 1),
        "netdev_budget": (300, 0, 2**31 - 1),
        "netdev_budget_usecs": (2000, 0, 2**31 - 1),
        "netdev_max_backlog": (1000, 0, 2**31 - 1),
        "optmem_max": (131072, 0, 2**31 - 1),
        "rmem_default": (212992, 2304, 2**31 - 1),
        "rmem_max": (212992, 2304, 2**31 - 1),
        "rps_sock_flow_entries": (0, 0, 2**29),
        "somaxconn": (4096, 0, 2**31 - 1),
        "wmem_default": (212992, 4608, 2**31 - 1),
        "wmem_max": (212992, 4608, 2**31 - 1),
    },
}
QDISCS = ("pfifo_fast", "fq_codel", "fq", "cake", "mq", "noqueue")
# What the rig binds over the fake from the host's own /proc/sys/kernel, as it belongs to the host's namespaces.
OF_NAMESPACES = (
    "hostname",
    "domainname",
    "ns_last_pid",
    "sem",
    "shmmax",
    "shmall",
    "shmmni",
    "msgmax",
    "msgmnb",
    "msgmni",
)
# What programs of the host ask the kernel that really runs.
OF_REAL_KERNEL = ("cap_last_cap", "ngroups_max", "osrelease", "ostype", "overflowgid", "overflowuid", "version")


def files(machine: Machine, root: Path | None) -> dict[str, Knob]:
    """Every file but those of processors and devices; `root` is the disk the machine starts from."""
    values = {f"{folder}/{name}": Int(*limits) for folder, names in RANGES.items() for name, limits in names.items()}
    return {
        **values,
        **_dirty(),
        **_memory(machine, root),
        **_kernel(),
        **_thp(machine),
        **_queues(machine),
        **_parameters(machine),
        f"{CORE}/default_qdisc": Enum("fq_codel", QDISCS),
        "/proc/cmdline": ReadOnly(disk.kernel_line(root) or machine.cmdline),
        "/sys/class/dmi/id/sys_vendor": ReadOnly(machine.vendor),
        "/sys/class/dmi/id/product_name": ReadOnly(machine.product),
    }


def _dirty() -> dict[str, Knob]:
    two_pages = 8192
    ratio, size = rivals(Int(20, 0, 100), Int(0, two_pages))
    background_ratio, background_size = rivals(Int(10, 0, 100), Int(0, 1))
    overcommit, overcommit_kib = rivals(Int(50), Int(0))
    return {
        f"{VM}/dirty_ratio": ratio,
        f"{VM}/dirty_bytes": size,
        f"{VM}/dirty_background_ratio": background_ratio,
        f"{VM}/dirty_background_bytes": background_size,
        f"{VM}/overcommit_ratio": overcommit,
        f"{VM}/overcommit_kbytes": overcommit_kib,
    }


def _memory(machine: Machine, root: Path | None) -> dict[str, Knob]:
    found: dict[str, Knob] = {}
    pools = {}
    for size in PAGE_SIZES_KIB:
        pool = pools[size] = HugePages({node: kib // size for node, kib in machine.memory_kib.items()})
        found[f"/sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages"] = pool.total()
        for node in machine.memory_kib:
            folder = f"/sys/devices/system/node/node{node}/hugepages/hugepages-{size}kB"
            found[f"{folder}/nr_hugepages"] = pool.of_node(node)
            found[f"{folder}/free_hugepages"] = ReadOnly("0")
    swaps = State(_swap_table(machine, root))
    huge = pools[PAGE_SIZES_KIB[0]]
    total = sum(machine.memory_kib.values())
    found["/proc/swaps"] = swaps
    found["/proc/meminfo"] = View(lambda: _meminfo(total, swaps.text, sum(huge.pages.values())))
    found[f"{VM}/nr_hugepages"] = huge.total()
    found[f"{VM}/nr_overcommit_hugepages"] = Int(0)
    found[f"{VM}/drop_caches"] = Int(0, 1, 4)
    return found


def _swap_table(machine: Machine, root: Path | None) -> str:
    kept = disk.swap_areas(root)
    rows = ["Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"]
    used = [swap for swap in machine.swaps if kept is None or swap.path in kept]
    for priority, swap in enumerate(used):
        rows.append(f"{swap.path:<39} partition\t{swap.size_kib}\t\t{swap.used_kib}\t\t{-2 - priority}")
    return "\n".join(rows)


def _meminfo(total_kib: int, swaps: str, huge_pages: int) -> str:
    rows = [row.split() for row in swaps.splitlines()[1:]]
    size, used = (sum(int(row[column]) for row in rows) for column in (2, 3))
    free = total_kib * 9 // 10 - huge_pages * PAGE_SIZES_KIB[0]
    kib = {"MemTotal": total_kib, "MemFree": free, "MemAvailable": free, "Buffers": 2048, "Cached": 65536}
    kib |= {"SwapCached": 0, "SwapTotal": size, "SwapFree": size - used}
    lines = [f"{name + ':':<16}{value:>8} kB" for name, value in kib.items()]
    lines += [f"HugePages_Total: {huge_pages:>7}", f"HugePages_Free:  {huge_pages:>7}"]
    return "\n".join([*lines, f"Hugepagesize:    {PAGE_SIZES_KIB[0]:>7} kB"])


def _kernel() -> dict[str, Knob]:
    real = {name: ReadOnly(Path(KERNEL, name).read_text().strip()) for name in OF_REAL_KERNEL}
    own = {name: Knob() for name in OF_NAMESPACES}
    random = {"random/boot_id": ReadOnly(str(uuid.uuid4())), "random/uuid": View(lambda: str(uuid.uuid4()))}
    core = {"core_pattern": Knob("core"), "core_uses_pid": Int(0, *ON_OFF), "arch": ReadOnly(platform.machine())}
    return {f"{KERNEL}/{name}": knob for name, knob in {**real, **own, **random, **core}.items()}


def _thp(machine: Machine) -> dict[str, Knob]:
    found: dict[str, Knob] = {
        "enabled": Choice(machine.thp),
        "defrag": Choice("always defer defer+madvise [madvise] never"),
        "shmem_enabled": Choice("always within_size advise [never] deny force"),
        "use_zero_page": Int(1, *ON_OFF),
        "hpage_pmd_size": ReadOnly("2097152"),
        "khugepaged/defrag": Int(1, *ON_OFF),
        "khugepaged/alloc_sleep_millisecs": Int(60000, 0, 2**32 - 1),
        "khugepaged/max_ptes_none": Int(511, 0, 511),
        "khugepaged/pages_to_scan": Int(4096, 1, 2**32 - 1),
        "khugepaged/scan_sleep_millisecs": Int(10000, 0, 2**32 - 1),
    }
    return {**{f"{THP}/{name}": knob for name, knob in found.items()}, "/sys/kernel/mm/ksm/run": Int(0, 0, 2)}


def _parameters(machine: Machine) -> dict[str, Knob]:
    """Of modules that are loaded."""
    found: dict[str, Knob] = {
        "nvme_core/parameters/io_timeout": Int(30, 0, 2**32 - 1),
        "sunrpc/parameters/tcp_slot_table_entries": Int(2, 2, 65536),
        "sunrpc/parameters/tcp_max_slot_table_entries": Int(65536, 2, 65536),
    }
    if any(device.gpu for device in machine.devices):
        found["nvidia/version"] = ReadOnly("570.86.15")
    return {f"/sys/module/{name}": knob for name, knob in found.items()}


def _queues(machine: Machine) -> dict[str, Knob]:
    found: dict[str, Knob] = {}
    for disk_name in [*machine.disks, *(device.block for device in machine.devices if device.block)]:
        queue = f"/sys/block/{disk_name}/queue"
        found[f"{queue}/scheduler"] = Choice("[none] mq-deadline kyber bfq")
        found[f"{queue}/nr_requests"] = Int(1023, 4, 4096)
        found[f"{queue}/read_ahead_kb"] = Int(128)
        found[f"{queue}/rotational"] = Int(0 if disk_name.startswith("nvme") else 1, *ON_OFF)
        found[f"{queue}/rq_affinity"] = Int(1, 0, 2)
    return found
