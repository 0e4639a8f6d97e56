"""A pod will not start: from what is not there, over who takes it, to what runs in it."""

from __future__ import annotations

from gpuctl.cluster.doctor.model import Check, Trouble
from gpuctl.cluster.doctor.start import containers, exists, nodes, scheduling, start_log, volumes

LATER = ("volumes", "placed", "network", "image", "container", "prepare", "crash", "ready")
START = Trouble(
    "start",
    (
        Check("deployed", exists.deployed, explains=("made", "nodes", "ended", *LATER)),
        Check("made", exists.made),
        Check("nodes", nodes.nodes, explains=("ended", *LATER)),
        Check("volumes", volumes.volumes, explains=("placed", "container")),
        Check("placed", scheduling.placed),
        Check("ended", containers.ended, explains=("crash", "ready")),
        Check("network", volumes.network, explains=("ready",)),
        Check("image", containers.image, explains=("ready",)),
        Check("container", containers.container, explains=("ready",)),
        Check("prepare", containers.prepare, explains=("ready",)),
        Check("crash", containers.crash, explains=("ready",)),
        Check("ready", start_log.ready),
        Check("ssh", start_log.ssh),
        Check("memlock", start_log.memlocked, aside=True),
        Check("gpus", start_log.gpus, aside=True),
    ),
)
