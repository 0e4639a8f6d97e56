"""Fixtures: a real Slurm, and a runner on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gpuctl.nccl.runners.slurm.command import Settings
from gpuctl.nccl.runners.slurm.runner import SlurmRunner
from tests.integration.nccl.slurm.site import NODES, Site, missing, started
from tests.rig.needs import HOSTS, need

Start = Callable[..., SlurmRunner]


@pytest.fixture(scope="session")
def slurm() -> Iterator[Site]:
    """This worker's own."""
    need(missing(), HOSTS)
    with started() as site:
        yield site


@pytest.fixture
def site(slurm: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Slurm with nothing in its queue and a whole network; our own commands use it."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    slurm.fabric()
    slurm.all_idle()
    assert slurm.queue() == ""
    return slurm


@pytest.fixture
def runner(site: Site) -> Iterator[Start]:
    """`runner(wait_s=3)`: on all nodes, given back when the test ends."""
    made: list[SlurmRunner] = []

    def start(nodes: tuple[str, ...] = NODES, **more: object) -> SlurmRunner:
        made.append(SlurmRunner(nodes, Settings(search_path=(str(site.programs),), **more)))  # type: ignore[arg-type]
        return made[-1]

    yield start
    for one in made:
        one.close()
