"""Fixtures: nodes that run MPI jobs with a stand-in for nccl-tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import Hosts
from tests.integration.nccl.cluster import Cluster, build
from tests.rig import Rig
from tests.rig.needs import HOSTS, need


@pytest.fixture(scope="session")
def all_reduce_perf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, built once."""
    if shutil.which("mpicc") is None:
        need("the stand-in for nccl-tests needs mpicc; see tests/rig/packages.txt", HOSTS)
    return build(tmp_path_factory.mktemp("nccl-tests"))


@pytest.fixture
def cluster(rig: Rig, hosts: Hosts, all_reduce_perf: Path) -> Callable[[int], Cluster]:
    """`cluster(4)`: so many nodes; they are called h1, h2, …"""

    def start(number: int) -> Cluster:
        made = Cluster(rig, hosts(number), all_reduce_perf)
        made.furnish()
        return made

    return start


@pytest.fixture
def pair(cluster: Callable[[int], Cluster]) -> Cluster:
    """Two nodes."""
    return cluster(2)
