"""Checks for pods that do not start: missing objects, then scheduling, then containers."""

from __future__ import annotations

from gpuctl.cluster.doctor.model import Check, Trouble
from gpuctl.cluster.doctor.start import containers, exists, nodes, scheduling, start_log, volumes

LATER = ("volumes", "scheduled", "network", "image", "container", "prepare", "crash", "ready")
START = Trouble(
    "start",
    (
        Check("deployed", exists.deployed, explains=("created", "nodes", "terminated", *LATER)),
        Check("created", exists.created),
        Check("nodes", nodes.nodes, explains=("terminated", *LATER)),
        Check("volumes", volumes.volumes, explains=("scheduled", "container")),
        Check("scheduled", scheduling.scheduled),
        Check("terminated", containers.terminated, explains=("crash", "ready")),
        Check("network", volumes.network, explains=("ready",)),
        Check("image", containers.image, explains=("ready",)),
        Check("container", containers.container, explains=("ready",)),
        Check("prepare", containers.prepare, explains=("ready",)),
        Check("crash", containers.crash, explains=("ready",)),
        Check("ready", start_log.ready),
        Check("ssh", start_log.ssh),
        Check("memlock", start_log.memlocked, optional=True),
        Check("gpus", start_log.gpus, optional=True),
    ),
)
