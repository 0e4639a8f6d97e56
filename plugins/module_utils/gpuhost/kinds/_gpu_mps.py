"""MPS: one control daemon for each set of GPUs, as a service; the GPUs are EXCLUSIVE_PROCESS while it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .. import gpu_rules, smi
from ..model import Knob, Reading, Refused, Step, Unsupported
from ..resources.file import described
from ..resources.mps import CONTROL, GPUS, LOGS, MEMORY, PERCENTAGE, PIPES, UNIT, Mps, clients, text_of
from ..snapshot import HostSnapshot
from . import _gpu_owners
from ._common import settled

# The compute mode makes every CUDA program use MPS: one that does not know the pipe folder fails instead of sharing
# the GPU by time slices.
SERVICE = """# Written by gpuctl; `gpuctl rollback` takes it back.
[Unit]
Description=NVIDIA MPS for the GPUs of {name}
After=nvidia-persistenced.service gpuctl-gpu.service
Before=slurmd.service docker.service

[Service]
Type=simple
{variables}
RuntimeDirectory=nvidia-mps/{name}
LogsDirectory=nvidia-mps/{name}
ExecStartPre={smi} -i {gpus} -c EXCLUSIVE_PROCESS
ExecStart={control} -f
ExecStop=/bin/sh -c "echo quit | {control}"
ExecStopPost={smi} -i {gpus} -c DEFAULT
TimeoutStopSec=60
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""


def read(snapshot: HostSnapshot, knob: Knob) -> Reading:
    """State of the daemons; refused where the device plugin runs MPS, or programs use a daemon that must restart."""
    host = snapshot.host
    sign = _gpu_owners.plugin_mps(host)
    if sign:
        hint = "set sharing.mps in the plugin's configuration, or leave mps out of gpu_settings"
        raise Refused(f"Kubernetes' device plugin runs MPS on this host ({sign}): {hint}")
    programs = {name: (host.which(name) or "")[len(host.root) :] for name in (CONTROL, "nvidia-smi")}
    if not programs[CONTROL]:
        raise Unsupported(f"there is no {CONTROL}: install the driver's compute utilities (nvidia-cuda-mps on Debian)")
    gpus = smi.gpus(snapshot.unchanging)
    steps: tuple[Step, ...] = ()
    stops = []
    now = {}
    entries = json.loads(knob.value)
    for entry in entries:
        environment = _environment(entry, _chosen(gpus, entry))
        unit, desired = UNIT.format(entry["name"]), text_of(environment)
        steps += snapshot.step(f"file:/etc/systemd/system/{unit}", described(_service(programs, entry, environment)))
        if not host.exists(f"/etc/systemd/system/multi-user.target.wants/{unit}"):
            steps += (Step(f"unit:{unit}:boot", "disabled", "enabled"),)
        now[entry["name"]] = Mps(entry["name"]).read(host)
        if now[entry["name"]] != desired:
            steps += (Step(f"mps:{entry['name']}", now[entry["name"]], desired),)
            stops += _refuse_while_used(snapshot, entry["name"]) if now[entry["name"]] else []
    return settled(
        knob._replace(value=", ".join(entry["name"] for entry in entries) or "none"),
        now=", ".join(f"{name} {'runs' if text else 'does not run'}" for name, text in now.items()) or "none",
        boot="not set" if any(step.setting.startswith(("file:", "unit:")) for step in steps) else None,
        steps=steps,
        disruptive=f"restarts MPS of {', '.join(stops)}" if stops else "",
    )


def exclusive_indexes(knobs: Mapping[str, Knob], gpus: list[smi.GpuState]) -> list[int]:
    """GPUs that belong to a daemon of these knobs, which sets their compute mode."""
    entries = json.loads(knobs["gpu.mps"].value) if "gpu.mps" in knobs else []
    return sorted(gpu.index for entry in entries for gpu in gpu_rules.selected(gpus, entry))


def _chosen(gpus: list[smi.GpuState], entry: Mapping[str, Any]) -> list[smi.GpuState]:
    chosen = gpu_rules.selected(gpus, entry)
    split = [
        str(gpu.index) for gpu in chosen if gpu.has("mig.mode.current") and gpu.value("mig.mode.current") == "Enabled"
    ]
    if split:
        hint = "list other gpus for it, or set their MIG instances to off first"
        raise Refused(f"GPU {', '.join(split)} of mps {entry['name']} has MIG on: {hint}")
    return chosen


def _environment(entry: Mapping[str, Any], gpus: list[smi.GpuState]) -> dict[str, str]:
    environment = {
        GPUS: ",".join(gpu.uuid for gpu in gpus),
        "CUDA_MPS_PIPE_DIRECTORY": PIPES.format(entry["name"]),
        "CUDA_MPS_LOG_DIRECTORY": LOGS.format(entry["name"]),
    }
    if "active_thread_percentage" in entry:
        environment[PERCENTAGE] = str(entry["active_thread_percentage"])
    if "memory" in entry:  # by the daemon's numbers of its GPUs
        environment[MEMORY] = ",".join(f"{number}={entry['memory']}" for number in range(len(gpus)))
    return environment


def _service(programs: Mapping[str, str], entry: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    return SERVICE.format(
        name=entry["name"],
        variables="\n".join(f"Environment={name}={value}" for name, value in environment.items()),
        gpus=environment[GPUS],
        smi=programs["nvidia-smi"],
        control=programs[CONTROL],
    )


def _refuse_while_used(snapshot: HostSnapshot, name: str) -> list[str]:
    users = clients(snapshot.host, name)
    if users:
        raise Refused(f"MPS {name} must restart, and is used by {', '.join(users)}: end these first")
    return [name]
