"""A folder that stands for an H100 node: its files, and programs that print recordings."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import rdma

DATA = Path(__file__).parents[1] / "data"
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max locked memory         8388608              unlimited            bytes
Max open files            1024                 524288               files
"""


def put(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def program(root: Path, name: str, does: str) -> None:
    """A stand-in for a program, found below the root only."""
    put(root, f"/usr/bin/{name}", f"#!/bin/sh\n{does}\n")
    (root / "usr/bin" / name).chmod(0o755)


def build(root: Path) -> Path:
    """An H100 node with one InfiniBand and one RoCE port, its programs replaced by what they printed elsewhere."""
    program(root, "nvidia-smi", f"exec /bin/cat {DATA / 'nvidia-smi/570-h100-8gpu.xml'}")
    program(root, "ssh", 'case "$*" in *10.0.0.3*) echo "Permission denied (publickey)." >&2; exit 255;; esac; echo b')
    program(
        root,
        "getent",
        'case "$2" in b) echo "10.0.0.2 STREAM b";; 10.0.0.2) echo "10.0.0.2 b.x b";; *) exit 2;; esac',
    )
    program(root, "ip", 'echo "[]"')
    program(root, "mpirun", 'echo "mpirun (Open MPI) 4.1.4"')
    program(root, "nv-fabricmanager", 'echo "Fabric Manager version is : 570.86.15"')
    put(root, "/opt/nccl-tests/build/all_reduce_perf", "#!/bin/sh\n# stands in for one that needs libmpi.so.40\n")
    (root / "opt/nccl-tests/build/all_reduce_perf").chmod(0o755)
    put(root, "/usr/lib/x86_64-linux-gnu/libnccl.so.2.27.7", "")
    (root / "usr/lib/x86_64-linux-gnu/libnccl.so.2").symlink_to("libnccl.so.2.27.7")
    put(root, "/etc/nccl.conf", "# site\nNCCL_IB_TC = 106\n")
    put(
        root,
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Rel\n",
    )
    put(root, "/proc/driver/nvidia-nvswitch/devices/0000:01:00.0", "")
    put(root, "/proc/1/comm", "systemd\n")
    put(root, "/proc/42/comm", "nv-fabricmanager"[:15] + "\n")
    put(root, "/proc/sys/kernel/osrelease", "5.15.0-91-generic\n")
    put(root, "/proc/sys/kernel/hostname", "a\n")
    put(root, "/proc/self/status", f"Name:\tpython\nPPid:\t1\nUid:\t{os.geteuid()}\t{os.geteuid()}\t0\t0\n")
    put(root, "/proc/self/limits", LIMITS)
    put(root, "/proc/self/environ", "HOME=/root\0")
    put(root, "/sys/module/nvidia_peermem/refcnt", "0\n")
    for name, link, state, rate in (
        ("mlx5_0", "InfiniBand", "4: ACTIVE", "400 Gb/sec (4X NDR)"),
        ("mlx5_1", "Ethernet", "1: DOWN", "40 Gb/sec (4X QDR)"),
    ):
        port = f"/sys/class/infiniband/{name}/ports/1"
        for file, value in (("link_layer", link), ("state", state), ("rate", rate), ("phys_state", "5: LinkUp")):
            put(root, f"{port}/{file}", value + "\n")
        put(root, f"{port}/gids/0", "fe80:0000:0000:0000:946d:ae03:00cd:e72c\n")
        put(root, f"{port}/gids/1", f"{rdma.NO_GID}\n")
        put(root, f"{port}/gid_attrs/types/0", "IB/RoCE v1\n")
    put(root, "/sys/class/infiniband/mlx5_1/device/net/ens1/dev_port", "0\n")
    return root
