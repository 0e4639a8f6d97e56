"""Random histories: `tests/rig/reservations/world.py` checks after each write what the rules promise.

`python -m bench.reservations histories` runs many more.
"""

from __future__ import annotations

import pytest

from gpuctl.reservations.rules.reports import Order
from tests.rig.reservations.world import ALL, NONE, SLOW, Agent, Faults, World


@pytest.mark.parametrize("faults", [ALL, SLOW], ids=["fast", "slow"])
@pytest.mark.parametrize("seed", range(12))
def test_promises_hold_whatever_is_lost_doubled_late_or_crashes(seed: int, faults: Faults) -> None:
    world = World(seed, faults).run()
    assert len(world.states) > 0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("quotas", [True, False])
def test_without_faults_no_promise_moves(seed: int, quotas: bool) -> None:
    world = World(seed, NONE, quotas=quotas).run()
    assert len(world.states) > 0
    assert world.moved_promises() == []


def test_the_histories_would_show_a_node_that_obeys_old_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history that cannot fail proves nothing: without fences, GPUs are booked twice or sessions stay."""
    obey = Agent.obey

    def obey_all(agent: Agent, order: Order, fails: bool) -> tuple[str, Order] | None:
        agent.fence = min(agent.fence, order.fence)
        return obey(agent, order, fails)

    monkeypatch.setattr(Agent, "obey", obey_all)
    broken = 0
    for seed in range(12):
        try:
            World(seed, SLOW).run()
        except AssertionError:
            broken += 1
    assert broken > 0
