"""Folders that stand for GPU nodes with users: processes below /proc, and a stand-in that prints nvidia-smi's XML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.rig.h100_node import DATA, program, put

XML = (DATA / "nvidia-smi/570-h100-8gpu.xml").read_text()
BOOT = 1_790_000_000
EMPTY = "<processes>\n\t\t</processes>"
SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"


def build(root: Path) -> Path:
    """A node with eight idle H100."""
    put(root, "/proc/stat", f"cpu  1 2 3\nbtime {BOOT}\n")
    put(root, "/proc/1/comm", "systemd\n")
    put(root, "/proc/sys/kernel/hostname", "gpu-1\n")
    put(root, "/etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
    put(
        root,
        "/run/systemd/sessions/3",
        "UID=1000\nUSER=alice\nREMOTE=1\nREMOTE_HOST=10.0.0.5\nSERVICE=sshd\nTTY=pts/0\n",
    )
    put(root, "/sys/class/dmi/id/product_name", "p5.48xlarge\n")
    for number in range(8):
        device = f"/sys/bus/pci/devices/0000:{number + 4:02x}:00.0"
        put(root, f"{device}/vendor", "0x10de\n")
        put(root, f"{device}/device", "0x2330\n")
        put(root, f"{device}/class", "0x030200\n")
    (root / "proc/self/ns").mkdir(parents=True)
    (root / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    (root / "proc/self/ns/cgroup").symlink_to("cgroup:[4026531835]")
    show(root, XML)
    return root


def show(root: Path, xml: str) -> None:
    """Let the stand-in print this."""
    put(root, "/q.xml", xml)
    program(root, "nvidia-smi", f"# stands in for nvidia-smi\nexec /bin/cat {root}/q.xml")


def xml_with(gpus: Mapping[int, Sequence[str]]) -> str:
    """XML of eight H100 with these rows of processes, see `row`."""
    parts = XML.split(EMPTY)
    assert len(parts) == 9
    texts = [f"<processes>{''.join(gpus[index])}</processes>" if gpus.get(index) else EMPTY for index in range(8)]
    return "".join(part + text for part, text in zip(parts, [*texts, ""], strict=True))


def row(pid: int, name: str = "python", used: str = "900 MiB", kind: str = "C", more: str = "") -> str:
    """Element of a process."""
    return (
        f"<process_info>{more}<pid>{pid}</pid><type>{kind}</type><process_name>{name}</process_name>"
        f"<used_memory>{used}</used_memory></process_info>"
    )


def on_gpus(root: Path, pids: Mapping[int, Sequence[int]]) -> None:
    """Put processes on GPUs."""
    show(root, xml_with({gpu: [row(pid) for pid in listed] for gpu, listed in pids.items()}))


def used_mib(root: Path, mib: int) -> None:
    """Let memory of the first GPU be in use."""
    text, count = re.subn(r"<used>\d+ MiB</used>", f"<used>{mib} MiB</used>", XML, count=1)
    assert count == 1
    show(root, text)


def process(  # noqa: PLR0913 - a process has as many
    root: Path,
    pid: int,
    *,
    name: str = "python",
    command: str = "python\0train.py\0",
    state: str = "S",
    ticks: int = 100,
    uid: int = 1000,
    cgroup: str = SESSION,
) -> None:
    """Files of a process, as the kernel has them."""
    fields = " ".join(["1"] * 18)
    put(root, f"/proc/{pid}/stat", f"{pid} ({name}) {state} {fields} {ticks} 0 0\n")
    put(root, f"/proc/{pid}/comm", f"{name}\n")
    put(root, f"/proc/{pid}/cmdline", command)
    put(root, f"/proc/{pid}/status", f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    put(root, f"/proc/{pid}/loginuid", f"{uid}\n")
    put(root, f"/proc/{pid}/cgroup", cgroup)
