"""A real Slurm keeps the promises of every runner (tests/rig/runner_promises.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.integration.nccl.slurm.conftest import Start
from tests.integration.nccl.slurm.site import Site as Slurm
from tests.integration.nccl.slurm.test_runner import RING
from tests.rig.runner_promises import PROMISES, Behaviour, Site

NODES = ("h1", "h2")
MIB = 1 << 20


@pytest.fixture
def promising(site: Slurm, runner: Start) -> Iterator[Site]:
    program = site.programs / "all_reduce_perf"
    away = program.with_name("away")
    faults = {Behaviour.FAILED: "crash {} " + str(32 * MIB), Behaviour.HANGING: "hang {} " + str(32 * MIB)}

    def behave(how: Behaviour) -> None:
        site.fabric(*(faults[how].format(node) for node in NODES if how in faults))
        if how is Behaviour.MISSING:
            program.rename(away)

    def left() -> list[str]:
        return [process for node in NODES for process in site.tests_on(node)]

    yield Site(runner(NODES), NODES, behave, left, limit_s=6, sweep=replace(RING, limit_s=60))
    if away.exists():
        away.rename(program)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_slurm_keeps_its_promise(promise: Callable[[Site], None], promising: Site) -> None:
    promise(promising)
