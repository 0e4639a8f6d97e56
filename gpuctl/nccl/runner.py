"""What runs launches on nodes: over ssh and mpirun, on Kubernetes, by Slurm, or in a simulated fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gpuctl.nccl.model import Launch, LaunchResult

ProgressListener = Callable[[Launch, str], None]  # a line of progress: "started", "64M done"


class Runner(Protocol):
    """Held to one test of all its promises, whoever keeps them."""

    def run(
        self, launches: Sequence[Launch], listener: ProgressListener, broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        """Run launches at the same time, none sharing a node with another; returns their ends in the same order.

        A launch that does not end within its limit is a hang: it is killed on every node and confirmed gone before
        this returns. So is everything once `broken_off` says true. Nothing of a launch is left behind on a node,
        whatever happens; nodes where that cannot be confirmed are `lost`.
        """
