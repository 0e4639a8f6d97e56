"""Files and programs of a healthy GPU node that its audit reads, put into a folder that stands for the node."""

from __future__ import annotations

from pathlib import Path

from tests.rig.h100_node import program, put

GPU_AT = "0000:18:00.0"
NVLINK_STATUS = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n"
NVLINK_ERRORS = (
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"
    "\t Link 0: Replay Errors: 0\n\t Link 0: Recovery Errors: 0\n\t Link 0: CRC Errors: 0\n"
)
KERNEL_LOG = (
    "2026-11-27T03:00:00.000001+0000 n1 kernel: Linux version 6.8.0-45-generic\n"
    "2026-11-27T03:00:01.000001+0000 n1 kernel: usb 1-1: new high-speed USB device number 2\n"
    "2026-11-27T03:00:02.000001+0000 n1 kernel: NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15\n"
)
ENA = "NIC statistics:\n     bw_in_allowance_exceeded: 5\n     queue_0_tx_cnt: 7\n"
MEMINFO = (
    "MemTotal: 2113650032 kB\nMemAvailable: 2000000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\nHardwareCorrupted: 0 kB\n"
)


def build(root: Path) -> Path:
    """Add them to a folder, which may hold other files of the node."""
    smi = root / "usr/bin/nvidia-smi"
    before = smi.read_text().partition("\n")[2] if smi.exists() else "exit 9"
    program(
        root,
        "nvidia-smi",
        f"case \"$*\" in 'nvlink -s') printf '{NVLINK_STATUS}'; exit;;"
        f" 'nvlink -e') printf '{NVLINK_ERRORS}'; exit;; esac\n{before}",
    )
    program(root, "journalctl", f"printf '{KERNEL_LOG}'")
    program(root, "ethtool", f"printf '{ENA}'")
    program(root, "systemctl", "echo 'nvidia-dcgm.service loaded failed failed NVIDIA DCGM service'")
    device = f"/sys/bus/pci/devices/{GPU_AT}"
    for name, value in {
        "class": "0x030200",
        "vendor": "0x10de",
        "device": "0x2330",
        "numa_node": "0",
        "current_link_width": "16",
        "max_link_width": "16",
        "current_link_speed": "2.5 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "aer_dev_fatal": "DLP 0\nTOTAL_ERR_FATAL 0",
        "aer_dev_nonfatal": "DLP 0\nTOTAL_ERR_NONFATAL 0",
        "aer_dev_correctable": "RxErr 3\nTOTAL_ERR_COR 3",
    }.items():
        put(root, f"{device}/{name}", f"{value}\n")
    for counter in ("symbol_error", "link_downed", "port_rcv_data"):
        put(root, f"/sys/class/infiniband/mlx5_0/ports/1/counters/{counter}", "3\n")
    put(root, "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "4\n")
    put(root, "/sys/class/net/ens5/device/vendor", "0x1d0f\n")
    put(root, "/sys/class/net/ens5/statistics/rx_errors", "1\n")
    put(root, "/sys/class/net/ens5/carrier_down_count", "1\n")
    put(root, "/proc/mounts", "/dev/nvme0n1p1 / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\n")
    put(root, "/proc/meminfo", MEMINFO)
    put(root, "/proc/uptime", "12345.67 1.0\n")
    put(root, "/proc/1/stat", "1 (systemd) S 0 1 1 0 -1 0\n")
    put(root, "/proc/300/stat", "300 (kubelet) S 1 1 1 0 -1 0\n")
    put(root, "/var/lib/kubelet/device-plugins/nvidia-gpu.sock", "")
    put(root, "/sys/devices/system/edac/mc/mc0/ce_count", "2\n")
    put(root, "/sys/devices/system/edac/mc/mc0/ue_count", "0\n")
    return root
