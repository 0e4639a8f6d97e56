"""Runner protocol: runs launches on nodes over ssh, on Kubernetes, by Slurm, or in a simulated fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gpuctl.nccl.model import Launch, LaunchResult

ProgressListener = Callable[[Launch, str], None]  # receives lines such as "started" or "64M done"


class Runner(Protocol):
    """Implementations share one contract test: tests/integration/nccl/test_contract.py."""

    def run(
        self, launches: Sequence[Launch], listener: ProgressListener, broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        """Run launches at the same time, no two on one node; returns their results in the same order.

        A launch that does not end within its limit hangs: it is killed on every node, and its end is confirmed, before
        this method returns. The same applies to all launches once `broken_off` returns True. No process of a launch
        remains on a node; nodes where that cannot be confirmed are `lost`.
        """
