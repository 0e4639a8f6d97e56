"""gpuctl's programs on a host: gpuctl-boot keeps settings over a reboot, gpuctl-exec runs a job near its GPU."""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..host import Host
from ..model import Knob, Reading, Step, Unsupported
from ..resources.file import described
from ..snapshot import HostSnapshot
from ._common import read_all, settled
from ._types import OneOf, Type

if TYPE_CHECKING:
    # Read as text, never imported; the import makes Ansible send them to the host.
    from .. import boot, exec, gpu_boot  # noqa: A004, F401

OLDEST_PYTHON = 9  # of 3.x
# The modules of this package that each program needs; they import no others.
MODULES = {
    "gpuctl-boot": (
        *("__init__", "host", "bounded_output", "lock", "boot_turn", "topology", "idle", "pinning", "readahead"),
        "boot",
    ),
    "gpuctl-gpu": (
        *(
            "__init__",
            "host",
            "bounded_output",
            "lock",
            "boot_turn",
            "remembered",
            "model",
            "smi",
            "mig_layout",
            "gpu_rules",
        ),
        *("clock_locks", "gpu_boot"),
    ),
    "gpuctl-exec": (
        "__init__",
        "host",
        "bounded_output",
        "topology",
        "gpus",
        "allocators",
        "memory_policy",
        "affinity",
        "exec",
    ),
}
# -I: ignore the caller's environment and folders; -B: write no compiled files.
STARTER = """#!{python} -IB
\"\"\"{about} Installed by gpuctl.\"\"\"
import sys

sys.path.insert(0, "/usr/local/lib/{name}")
from gpuhost.{module} import main

sys.exit(main(sys.argv[1:]))
"""
# Runs after all other owners of the same values at boot. Not RemainAfterExit, as it must run again.
UNIT = """[Unit]
Description=Put kernel settings back that gpuctl set
Documentation=file:///etc/gpuctl/boot.conf
After=systemd-modules-load.service systemd-udev-settle.service network-online.target nvidia-persistenced.service
After=tuned.service irqbalance.service cpupower.service cpufrequtils.service ondemand.service sysfsutils.service
Wants=gpuctl-boot.timer

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/gpuctl-boot
TimeoutStartSec=300

[Install]
WantedBy=multi-user.target
"""
# A second run: tuned sets its values after it has reported readiness, and a NIC requests interrupts when its link comes
# up. A restart of the timer resets the delay, so a burst of events causes one run.
TIMER = """[Unit]
Description=Put kernel settings back that gpuctl set, once things have settled
Documentation=file:///etc/gpuctl/boot.conf
StartLimitIntervalSec=0

[Timer]
OnActiveSec=20s
AccuracySec=1s
"""
# A reloaded driver gets new interrupts with default affinities. SYSTEMD_WANTS is not enough: before systemd 252 it
# starts nothing for a device that systemd knows already.
UDEV = """# Written by gpuctl; `gpuctl rollback` takes it back.
ACTION=="bind", SUBSYSTEM=="pci", ATTR{class}=="0x02*|0x03*", RUN+="/bin/systemctl --no-block restart gpuctl-boot.timer"
"""
# Before everything that lists or uses GPUs: MIG devices would be missing from its list.
GPU_UNIT = """[Unit]
Description=Put GPU settings back that gpuctl set
Documentation=file:///etc/gpuctl/gpu.conf
After=systemd-modules-load.service nvidia-persistenced.service nvidia-fabricmanager.service
Before=kubelet.service k3s.service k3s-agent.service rke2-server.service rke2-agent.service
Before=docker.service slurmd.service nvidia-cdi-refresh.service
Before=nvidia-dcgm.service dcgm.service nvidia-dcgm-exporter.service dcgm-exporter.service
Wants=gpuctl-gpu.timer

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/gpuctl-gpu
TimeoutStartSec=300

[Install]
WantedBy=multi-user.target
"""
# A second run, after units that run nvidia-smi themselves, and after a driver that was loaded again.
GPU_TIMER = """[Unit]
Description=Put GPU settings back that gpuctl set, once things have settled
Documentation=file:///etc/gpuctl/gpu.conf
StartLimitIntervalSec=0

[Timer]
OnActiveSec=20s
AccuracySec=1s
"""
GPU_UDEV = """# Written by gpuctl; `gpuctl rollback` takes it back.
ACTION=="bind", SUBSYSTEM=="pci", DRIVER=="nvidia", RUN+="/bin/systemctl --no-block restart gpuctl-gpu.timer"
"""
PROGRAMS = {
    "gpuctl-boot": ("/usr/local/sbin/gpuctl-boot", "boot", "Puts kernel settings back at boot."),
    "gpuctl-gpu": ("/usr/local/sbin/gpuctl-gpu", "gpu_boot", "Puts GPU settings back at boot and driver load."),
    "gpuctl-exec": ("/usr/local/bin/gpuctl-exec", "exec", "Runs a program on the processors and memory near its GPU."),
}
STARTED_AT_BOOT = ("gpuctl-boot", "gpuctl-gpu")
INSTALLED = OneOf(("installed",))


def type_of(key: str) -> Type | None:
    """Type of a key's value."""
    return INSTALLED if key in PROGRAMS else None


def files_of(host: Host, key: str) -> dict[str, str]:
    """Files of a program -> text of their `File` setting. Programs share no file, so each can be removed alone."""
    path, module, about = PROGRAMS[key]
    package = __package__.rpartition(".")[0]
    files = {}
    for name in MODULES[key]:
        source = _source(package if name == "__init__" else f"{package}.{name}")
        files[f"/usr/local/lib/{key}/gpuhost/{name}.py"] = described(source)
    starter = STARTER.format(python=_python(host), about=about, name=key, module=module)
    files[path] = described(starter, mode=0o755)
    if key == "gpuctl-boot":
        files["/etc/systemd/system/gpuctl-boot.service"] = described(UNIT)
        files["/etc/systemd/system/gpuctl-boot.timer"] = described(TIMER)
        files["/etc/udev/rules.d/99-zz-gpuctl.rules"] = described(UDEV)
    if key == "gpuctl-gpu":
        files["/etc/systemd/system/gpuctl-gpu.service"] = described(GPU_UNIT)
        files["/etc/systemd/system/gpuctl-gpu.timer"] = described(GPU_TIMER)
        files["/etc/udev/rules.d/99-zz-gpuctl-gpu.rules"] = described(GPU_UDEV)
    return files


def _python(host: Host) -> str:
    """Path of the host's default Python, or of a newer one if that is too old, as on RHEL 8."""
    default = path = "/usr/bin/python3"
    with contextlib.suppress(OSError):  # the end of the chain is not a link
        for _ in range(5):
            path = posixpath.join("/usr/bin", host.readlink(path))
    if _minor(path) in (None, *range(OLDEST_PYTHON, 100)):
        return default
    newer = [p for p in host.glob("/usr/bin/python3.*") if (_minor(p) or 0) >= OLDEST_PYTHON]
    if not newer:
        raise Unsupported(f"this host has no Python 3.{OLDEST_PYTHON} or later in /usr/bin")
    return max(newer, key=lambda p: _minor(p) or 0)


def _minor(path: str) -> int | None:
    match = re.search(r"python3\.(\d+)$", path)
    return int(match.group(1)) if match else None


def _source(module: str) -> str:
    """The source of a module of this package, loaded from a folder, an archive, or memory."""
    spec = find_spec(module)
    source = spec.loader.get_source(module) if spec and spec.loader and hasattr(spec.loader, "get_source") else None
    if source is None:
        raise Unsupported(f"this copy of gpuctl does not carry the text of {module}")
    return str(source)


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """State of each program: installed in this version, and enabled."""
    return read_all(snapshot, knobs, _read)


def _read(snapshot: HostSnapshot, knob: Knob) -> Reading:
    steps: tuple[Step, ...] = ()
    for path, text in files_of(snapshot.host, knob.key).items():
        steps += snapshot.step(f"file:{path}", text)
    # Checks the link of `systemctl enable`, as a query to systemd would start a program on every visit.
    link = f"/etc/systemd/system/multi-user.target.wants/{knob.key}.service"
    if knob.key in STARTED_AT_BOOT and not snapshot.host.exists(link):
        steps += (Step(f"unit:{knob.key}.service:boot", "disabled", "enabled"),)
    state = (
        "installed"
        if not steps
        else "absent"
        if all(s.before in (None, "disabled") for s in steps)
        else "another version"
    )
    return settled(knob, now=state, boot=state, steps=steps)
