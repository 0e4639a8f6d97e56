"""Kernel parameters below /proc/sys, kept by a file in /etc/sysctl.d that sorts last."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Conflict, Knob, Reading, Refused, Step, Unsupported
from ..owners import MAIN
from ..resources.line import SYSCTL
from ..snapshot import HostSnapshot
from ._common import read_all, settled
from ._types import Int, Ints, OneOf, Size, Text, Type

COUNT = Int(0, 2**31 - 1)
BUFFER = Size(2048)
SWITCH = Int(0, 1)
TYPES: dict[str, Type] = {
    "vm.swappiness": Int(0, 200),
    "vm.dirty_ratio": Int(0, 100),
    "vm.dirty_background_ratio": Int(0, 100),
    "vm.dirty_bytes": Size(8192),
    "vm.dirty_background_bytes": Size(1),
    "vm.dirty_expire_centisecs": COUNT,
    "vm.dirty_writeback_centisecs": COUNT,
    "vm.zone_reclaim_mode": Int(0, 7),
    "vm.max_map_count": COUNT,
    "vm.nr_hugepages": COUNT,
    "vm.min_free_kbytes": COUNT,
    "vm.overcommit_memory": Int(0, 2),
    "vm.overcommit_ratio": COUNT,
    "vm.overcommit_kbytes": COUNT,
    "vm.vfs_cache_pressure": COUNT,
    "vm.stat_interval": COUNT,
    "vm.compaction_proactiveness": Int(0, 100),
    "vm.watermark_scale_factor": Int(1, 3000),
    "kernel.numa_balancing": Int(0, 3),
    "kernel.nmi_watchdog": SWITCH,
    "kernel.watchdog": SWITCH,
    "kernel.soft_watchdog": SWITCH,
    "kernel.pid_max": Int(301, 4194304),
    "kernel.threads-max": COUNT,
    "kernel.timer_migration": SWITCH,
    "kernel.sched_rt_runtime_us": Int(-1, 2**31 - 1),
    "kernel.sched_autogroup_enabled": SWITCH,
    "kernel.shmmax": Size(),
    "kernel.shmall": Int(0, 2**63 - 1),
    "kernel.shmmni": Int(0, 32768),
    "kernel.perf_event_paranoid": Int(-1, 4),
    "fs.file-max": Int(0, 2**63 - 1),
    "fs.nr_open": Int(8, 2147483584),
    "fs.aio-max-nr": COUNT,
    "fs.inotify.max_user_instances": COUNT,
    "fs.inotify.max_user_watches": COUNT,
    "net.core.somaxconn": COUNT,
    "net.core.netdev_max_backlog": COUNT,
    "net.core.netdev_budget": COUNT,
    "net.core.netdev_budget_usecs": COUNT,
    "net.core.busy_poll": COUNT,
    "net.core.busy_read": COUNT,
    "net.core.optmem_max": Size(),
    "net.core.rmem_default": BUFFER,
    "net.core.rmem_max": BUFFER,
    "net.core.wmem_default": BUFFER,
    "net.core.wmem_max": BUFFER,
    "net.core.default_qdisc": OneOf(("fq", "fq_codel", "pfifo_fast", "cake", "mq")),
    "net.ipv4.ip_local_port_range": Ints(2),
    "net.ipv4.ip_forward": SWITCH,
    "net.ipv4.neigh.default.gc_thresh1": COUNT,
    "net.ipv4.neigh.default.gc_thresh2": COUNT,
    "net.ipv4.neigh.default.gc_thresh3": COUNT,
    "net.ipv6.neigh.default.gc_thresh1": COUNT,
    "net.ipv6.neigh.default.gc_thresh2": COUNT,
    "net.ipv6.neigh.default.gc_thresh3": COUNT,
    "net.ipv4.tcp_congestion_control": OneOf(("bbr", "cubic", "reno", "dctcp", "htcp")),
    "net.ipv4.tcp_ecn": Int(0, 5),
    "net.ipv4.tcp_fastopen": Int(0, 0x7FFFFFFF),
    "net.ipv4.tcp_fin_timeout": COUNT,
    "net.ipv4.tcp_keepalive_intvl": COUNT,
    "net.ipv4.tcp_keepalive_probes": COUNT,
    "net.ipv4.tcp_keepalive_time": COUNT,
    "net.ipv4.tcp_low_latency": SWITCH,
    "net.ipv4.tcp_max_syn_backlog": COUNT,
    "net.ipv4.tcp_mtu_probing": Int(0, 2),
    "net.ipv4.tcp_no_metrics_save": SWITCH,
    "net.ipv4.tcp_retries2": COUNT,
    "net.ipv4.tcp_rmem": Ints(3),
    "net.ipv4.tcp_sack": SWITCH,
    "net.ipv4.tcp_slow_start_after_idle": SWITCH,
    "net.ipv4.tcp_syncookies": Int(0, 2),
    "net.ipv4.tcp_timestamps": Int(0, 2),
    "net.ipv4.tcp_tw_reuse": Int(0, 2),
    "net.ipv4.tcp_window_scaling": SWITCH,
    "net.ipv4.tcp_wmem": Ints(3),
    "net.ipv4.udp_rmem_min": BUFFER,
    "net.ipv4.udp_wmem_min": BUFFER,
}
# Exclusive pairs: writing one resets the other.
PAIRS = {
    "vm.dirty_bytes": "vm.dirty_ratio",
    "vm.dirty_background_bytes": "vm.dirty_background_ratio",
    "vm.overcommit_kbytes": "vm.overcommit_ratio",
}
PAIRS.update({ratio: size for size, ratio in list(PAIRS.items())})
FREE = Text()


def type_of(key: str) -> Type | None:
    """Type of a parameter's value; None if gpuctl does not know the parameter."""
    return TYPES.get(key)


def path_of(key: str) -> str:
    """The file of a parameter."""
    return "/proc/sys/" + key.replace(".", "/")


def setting_of(key: str) -> str:
    """The setting of a parameter: its file, or a pair of exclusive files."""
    if key not in PAIRS:
        return f"value:{path_of(key)}"
    return "either:" + ":".join(sorted((path_of(key), path_of(PAIRS[key]))))


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Values now, and those that sysctl.d gives at the next boot."""
    return read_all(snapshot, knobs, _read)


def _read(snapshot: HostSnapshot, knob: Knob) -> Reading:
    now = snapshot.host.value(path_of(knob.key))
    if now is None:
        raise Unsupported(f"this kernel or container has no {path_of(knob.key)}")
    twin = PAIRS.get(knob.key, "")
    owners = snapshot.owners
    required = owners.programs.required(knob.key, knob.value)
    if required:
        raise Refused(required)
    steps: tuple[Step, ...] = ()
    if now != knob.value and twin:
        steps += snapshot.step(setting_of(knob.key), f"{knob.key.rpartition('.')[2]}={knob.value}")
    elif now != knob.value:
        steps += (Step(setting_of(knob.key), now, knob.value),)
    winner = owners.sysctl_at_boot(knob.key, twin)
    due: tuple[Step, ...] = ()
    if winner is None or winner[0] != knob.value:
        due = snapshot.step(f"line:{SYSCTL}:{knob.key}", knob.value)
    rivals = owners.sysctl_rivals(knob.key, knob.value, twin, bool(due))
    for line in owners.main_file_lines(knob.key, knob.value, twin):
        due += snapshot.step(f"comment:{MAIN}:{line}", "off")
    return settled(knob, now=now, boot=_at_boot(winner, rivals), steps=steps + due, conflicts=tuple(rivals))


def _at_boot(winner: object, rivals: list[Conflict]) -> str:
    """The value after a reboot: of the last winning rival, else of the files, else the kernel's default."""
    last = [rival.value for rival in rivals if rival.wins]
    if last:
        return last[-1]
    return winner[0] if isinstance(winner, tuple) else "kernel default"
