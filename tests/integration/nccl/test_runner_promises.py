"""mpirun over ssh and Ansible on real hosts keep the promises of every runner (tests/rig/runner_promises.py)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuctl.nccl import plan
from tests.integration.nccl.cluster import MIB, SWEEP, Cluster
from tests.rig.runner_promises import PROMISES, Behaviour, Site

FAULTS = {Behaviour.FAILED: f"crash {{}} {128 * MIB}", Behaviour.HANGING: f"hang {{}} {128 * MIB}"}
RING = plan.with_env(replace(SWEEP, begin_bytes=64 * MIB, limit_s=60), plan.RING)
NODES = ("h1", "h2")
MOMENT_S = 3.0


@pytest.fixture(params=["ssh", "ansible"])
def site(request: pytest.FixtureRequest, pair: Cluster) -> Site:
    pair.through = request.param

    def behave(how: Behaviour) -> None:
        pair.fabric(*(FAULTS[how].format(node) for node in NODES if how in FAULTS))
        if how is Behaviour.MISSING:
            for node in NODES:
                (pair[node].root / "usr/local/bin/all_reduce_perf").unlink()

    return Site(pair.runner(), NODES, behave, lambda: _left(pair), limit_s=8, sweep=RING)


def _left(pair: Cluster) -> list[str]:
    """What still runs on the hosts; the processes of the connection itself may need a moment to end."""
    until = time.monotonic() + MOMENT_S
    while (left := pair.left()) and time.monotonic() < until:
        time.sleep(0.1)
    return [f"{node}: {text}" for node, text in left.items()]


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_runner_on_hosts_keeps_its_promise(promise: Callable[[Site], None], site: Site) -> None:
    promise(site)
