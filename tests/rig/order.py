"""The order in which workers take test files: the longest first, as measured on a quiet machine with two processors.

xdist would take those with the most tests first (`--no-loadscope-reorder` keeps this order instead): files that start
hosts and clusters have few tests, so that one of them would run at the end while all other workers wait.
"""

from __future__ import annotations

LONGEST_FIRST = (
    "tests/integration/nccl/environment/",
    "tests/integration/nccl/kube/test_real_pods.py",
    "tests/integration/nccl/test_contract.py",
    "tests/integration/nccl/test_isolation.py",
    "tests/integration/nccl/test_command.py",
    "tests/integration/cluster/inside/",
    "tests/integration/reservations/test_pods.py",
    "tests/integration/cluster/sync/",
    "tests/integration/cluster/train/",
    "tests/integration/cluster/deploy/",
    "tests/integration/cluster/",
    "tests/integration/test_interruptions.py",
    "tests/integration/test_kube_shell.py",
    "tests/integration/test_failures.py",
    "tests/integration/nccl/",
    "tests/integration/",
    "tests/packaging/",
    "tests/component/gpuhost/test_crash.py",
    "tests/component/",
    "tests/unit/gpuhost/",
    "tests/unit/nccl/",
    "tests/unit/cli/",
    "tests/unit/remote/",
    "tests/unit/cluster/",
)


def rank(nodeid: str) -> int:
    """The position of a test's file; a smaller one is taken earlier."""
    return next((at for at, start in enumerate(LONGEST_FIRST) if nodeid.startswith(start)), len(LONGEST_FIRST))
