"""Fixtures that give a test real hosts; see tests/rig/README.md."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, Unpack

import pytest

from tests.rig import Rig, TestHost, Wish, machine_snapshot, parts
from tests.rig.command import Gpuctl
from tests.rig.needs import HOSTS, need


class Hosts(Protocol):
    """Starts this many hosts, all alike; keyword arguments are those of `Rig.up`."""

    def __call__(self, number: int, **wish: Unpack[Wish]) -> list[TestHost]: ...


@pytest.fixture(scope="session", autouse=True)
def unchanged_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """All integration tests together change nothing of this machine; the last worker to end compares."""
    own = tmp_path_factory.getbasetemp()
    with machine_snapshot.unchanged(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own):
        yield


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """This worker's own bridge and network; everything on it is gone after the last test."""
    need(parts.missing(), HOSTS)
    with Rig() as started:
        yield started


@pytest.fixture
def hosts(rig: Rig) -> Iterator[Hosts]:
    """`hosts(3, machine="p5")`: called as often as a test likes; all are stopped when it ends."""
    names = (f"h{number}" for number in count(1))

    def start(number: int, **wish: Unpack[Wish]) -> list[TestHost]:
        return rig.up([next(names) for _ in range(number)], **wish)

    yield start
    rig.down()


@pytest.fixture
def host(hosts: Hosts) -> TestHost:
    """One host with the /sys and /proc of the generic two-socket server."""
    return hosts(1, machine="generic")[0]


@pytest.fixture
def gpuctl() -> Iterator[Gpuctl]:
    """The command, with a home folder of this test's own; ssh's sockets in it allow no long path."""
    with TemporaryDirectory(prefix="home-") as home:
        yield Gpuctl(Path(home))
