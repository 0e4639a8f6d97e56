"""Facts of a node's audit, read from a folder that stands for the node."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import (
    counters,
    kernel_log,
    nvlink,
    pcie,
    system,
)
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from tests.rig import health_files
from tests.rig.h100_node import program, put
from tests.rig.recordings import recording

WINDOW = {"window_s": 0.05}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return health_files.build(tmp_path)


# ---- kernel log ------------------------------------------------------------------------------------------------------


def test_lines_that_matter_are_passed_on_and_all_are_counted(root: Path) -> None:
    facts = kernel_log.read(Host(root), {})
    assert [(b["boot"], b["kernel_lines"], len(b["lines"]), b["dropped"]) for b in facts["boots"]] == [
        (0, 3, 2, 0),
        (-1, 3, 2, 0),
    ]
    assert facts["unread"] == {}


# One for each part of MATTERS; the last begins with a letter that only ignoring the case makes an s.
OF_FAULTS = [
    "NVRM: Xid", "nvidia-nvswitch3: SXid", "NVLink: down", "Linux version 6.8", "efa 0000:00", "infiniband mlx5_0: x",
    "rdmap0s31: x", "mlx5_core 0000:9b:00.0: Health issue", "mlx4_en: Timeout", "ib0: down", "python[1]: segfault at 0",
    "EDAC MC0: 1 CE", "[Hardware Error]: CPU 3", "Machine check events", "mce: CPU0", "Memory failure: 0x1",
    "AER: Corrected", "PCIe Bus Error: severity", "task x blocked for more than 120 seconds", "soft lockup",
    "watchdog: hard LOCKUP", "rcu: INFO", "kernel BUG at mm", "Kernel panic", "BUG: soft", "Oops: 0002",
    "Unable to handle kernel paging", "Internal error: x", "general protection fault", "Out of memory: Killed",
    "nvidia 0000:9b:00.0: probe with driver nvidia failed", "oom-kill:constraint", "I/O error, sda", "EXT4-fs error",
    "XFS (dm-0): Corruption", "XFS (dm-0): shutting down", "Remounting filesystem read-only", "nvme0n1: x",
    "LustreError: 11", "LNetError: 12", "nfs: server nas not responding", "thermal throttled", "temperature above",
    "mlx5_core: link down on port 1", "XFS: metadata I/O error", "\u017fegfault at 0",
]  # fmt: skip


def test_a_line_that_matters_is_kept_whatever_its_case(root: Path) -> None:
    lines = [*OF_FAULTS, *map(str.upper, OF_FAULTS)]
    put(root, "/journal.txt", "\n".join([*lines, "usb 1-1: new device"]) + "\n")
    program(root, "journalctl", f"/bin/cat {root}/journal.txt")
    boot = kernel_log.read(Host(root), {})["boots"][0]
    assert (boot["lines"], boot["kernel_lines"]) == (lines, len(lines) + 1)


def test_without_a_journal_the_kernels_buffer_is_read_and_the_boot_before_is_unread(root: Path) -> None:
    program(root, "journalctl", "echo 'No journal files were found.' >&2; exit 1")
    program(root, "dmesg", "echo '[    1.000000] NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.'")
    facts = kernel_log.read(Host(root), {})
    assert [b["boot"] for b in facts["boots"]] == [0]
    assert "No journal files" in facts["unread"]["boot -1"]


def test_messages_that_nobody_may_read_are_no_empty_log(root: Path) -> None:
    program(root, "journalctl", "echo 'not seeing messages from other users' >&2")
    program(root, "dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    facts = kernel_log.read(Host(root), {})
    assert facts["boots"] is None
    assert "Operation not permitted" in facts["unread"]["boot 0"]


def test_a_journal_that_shows_nothing_is_no_quiet_day_unless_it_has_older_messages(root: Path) -> None:
    quiet = "case \"$*\" in *--since*) ;; *) echo '2026-11-27T03:00:00.000001+0000 n1 kernel: usb 1-1: new';; esac"
    program(root, "journalctl", quiet)
    day = kernel_log.read(Host(root), {"since_h": 24})
    assert [(boot["boot"], boot["kernel_lines"]) for boot in day["boots"]] == [(0, 0), (-1, 0)]
    program(root, "journalctl", "exit 0")  # what a user without rights to the journal sees
    facts = kernel_log.read(Host(root), {"since_h": 24})
    assert facts["boots"] is None
    assert set(facts["unread"]) == {"boot 0", "boot -1"}


def test_of_too_many_lines_the_newest_are_kept_and_the_rest_is_counted(root: Path) -> None:
    line = "kernel: NVRM: Xid (PCI:0000:18:00): 31, MMU Fault"
    program(root, "journalctl", f"i=0; while [ $i -lt 2010 ]; do echo '{line}'; i=$((i+1)); done")
    boot = kernel_log.read(Host(root), {})["boots"][0]
    assert (len(boot["lines"]), boot["dropped"]) == (2000, 10)


# ---- links -----------------------------------------------------------------------------------------------------------


def test_pcie_links_with_both_ends(root: Path) -> None:
    device, port = root / "sys/bus/pci/devices", "sys/devices/pci0000:15/0000:15:01.0"
    put(root, f"/{port}/max_link_width", "8\n")
    put(root, f"/{port}/max_link_speed", "16.0 GT/s PCIe\n")
    (device / health_files.GPU_AT).rename(root / port / health_files.GPU_AT)
    (device / health_files.GPU_AT).symlink_to(root / port / health_files.GPU_AT)
    (link,) = pcie.read(Host(root), {})["links"]
    assert [link[name] for name in ("width", "speed", "most_width", "most_speed", "port_width", "port_speed")] == [
        16, 2.5, 16, 32, 8, 16,
    ]  # fmt: skip
    assert link["errors"] == {"fatal": 0, "nonfatal": 0, "correctable": 3}


def test_a_gpu_that_fell_off_the_bus_has_no_255_lanes(root: Path) -> None:
    put(root, f"/sys/bus/pci/devices/{health_files.GPU_AT}/current_link_width", "255\n")
    put(root, f"/sys/bus/pci/devices/{health_files.GPU_AT}/current_link_speed", "Unknown\n")
    (link,) = pcie.read(Host(root), {})["links"]
    assert (link["width"], link["speed"]) == (None, None)


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("nvlink_status_a100_8g.txt", [{str(n): 25.0 for n in range(12)}] * 8),
        ("nvlink_status_good.txt", [{str(n): 25.0 for n in range(12)}]),
        ("nvlink_status_bad_inactive.txt", [{}]),
        ("nvlink_status_a10_EMPTY.txt", []),
        ("h100_mig590_nvlink_s.txt", [None]),
        ("l40s595_nvlink_s.txt", [None]),
    ],
)
def test_recorded_nvlinks(name: str, links: list[Any]) -> None:
    unread: dict[str, str] = {}
    assert [gpu["links"] for gpu in nvlink.parse(recording(f"nvidia-smi/{name}").read_text(), unread)] == links
    assert unread == {}


def test_a_sentence_instead_of_links_is_a_reason(root: Path) -> None:
    program(root, "nvidia-smi", "printf 'GPU 0: NVIDIA H100 (UUID: GPU-1)\\nUnable to retrieve: Unknown Error\\n'")
    facts = nvlink.read(Host(root), {})
    assert facts["unread"] == {"GPU 0 links": "Unable to retrieve: Unknown Error"}


def test_errors_of_links_are_summed_by_name() -> None:
    text = recording("nvidia-smi/nvlink_e_h100_elided.txt").read_text()
    assert nvlink.parse_errors(text) == {0: {"Replay Errors": 0, "Recovery Errors": 0, "CRC Errors": 0}}
    assert nvlink.parse_errors(text.replace("CRC Errors: 0", "CRC Errors: 2"))[0]["CRC Errors"] == 6


# ---- counters --------------------------------------------------------------------------------------------------------


def test_counters_are_read_twice(root: Path) -> None:
    def rise() -> None:
        time.sleep(0.15)
        put(root, "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "9\n")

    thread = threading.Thread(target=rise)
    thread.start()
    facts = counters.read(Host(root), {"window_s": 0.4})
    thread.join()
    read = {**facts["ports"], **facts["links"]}
    assert {name: {c: (v["before"], v["after"]) for c, v in values.items()} for name, values in read.items()} == {
        "mlx5_0:1": {"symbol_error": (3, 9), "link_downed": (3, 3), "port_rcv_data": (3, 3), "out_of_sequence": (4, 4)},
        "ens5": {"rx_errors": (1, 1), "carrier_down_count": (1, 1), "bw_in_allowance_exceeded": (5, 5)},
    }
    assert facts["window_s"] >= 0.4


def test_a_counter_that_a_port_does_not_have_is_left_out_and_text_is_a_reason(root: Path) -> None:
    folder = "/sys/class/infiniband/mlx5_0/ports/1/counters"
    put(root, f"{folder}/VL15_dropped", "N/A (no PMA)\n")
    put(root, f"{folder}/port_xmit_wait", "broken\n")
    facts = counters.read(Host(root), WINDOW)
    assert "VL15_dropped" not in facts["ports"]["mlx5_0:1"]
    assert facts["unread"] == {"mlx5_0:1 port_xmit_wait": "broken"}


def test_allowances_that_cannot_be_read_are_a_reason(root: Path) -> None:
    program(root, "ethtool", "echo 'Operation not permitted' >&2; exit 1")
    assert counters.read(Host(root), WINDOW)["unread"] == {"ens5 allowances": "Operation not permitted"}


# ---- machine ---------------------------------------------------------------------------------------------------------


def test_disks_memory_processes_and_services(root: Path) -> None:
    put(root, "/proc/7/stat", "7 (a (b) c) Z 1 1 1 0 -1 0\n")
    facts = system.read(Host(root), {})
    (disk,) = facts["disks"]
    assert (disk["path"], disk["type"], disk["read_only"]) == ("/", "ext4", False)
    free = os.statvfs(root)
    assert disk["free_percent"] == pytest.approx(100 * free.f_bavail / free.f_blocks, abs=1)
    assert facts["memory"] == {
        "total_mib": 2064111, "available_mib": 1953125, "swap_used_mib": 0, "corrupted_mib": 0,
    }  # fmt: skip
    assert facts["edac"] == {"controllers": 1, "corrected": 2, "uncorrected": 0}
    assert facts["zombies"] == 1
    assert facts["failed_units"] == ["nvidia-dcgm.service"]
    assert facts["kubelet"] == {"runs": True, "healthy": None, "gpu_plugin": True}
    assert set(facts["unread"]) == {"clock"}  # of this machine, not of the folder


def test_the_clock_of_this_machine() -> None:
    clock = system.read(Host(), {})["clock"]
    assert clock is None or set(clock) == {"synchronised", "most_wrong_ms"}
    assert clock is None or isinstance(clock["synchronised"], bool)


def test_a_process_counts_as_stuck_only_if_it_still_is_a_second_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in (50, 51):
        put(root, f"/proc/{pid}/stat", f"{pid} (dd) D 1 1 1 0 -1 0\n")
    monkeypatch.setattr(time, "sleep", lambda _: put(root, "/proc/51/stat", "51 (dd) S 1 1 1 0 -1 0\n"))
    assert system.read(Host(root), {})["stuck"] == {"count": 1, "processes": [{"pid": 50, "name": "dd"}]}


def test_hidden_processes_are_unknown(root: Path) -> None:
    (root / "proc/1/stat").unlink()
    facts = system.read(Host(root), {})
    assert (facts["stuck"], facts["zombies"]) == (None, None)
    assert facts["unread"]["stuck"] == "processes are hidden here"
