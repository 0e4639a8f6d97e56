"""The plan's predictions against refusals: each injected cause is predicted and happens, and good plans come up.

The account is moto with eks_endpoint.py and eks_refusing_account.py; `python -m tests.rig.eks_trial` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rig import eks_trial
from tests.rig.eks_causes import CAUSES, GOOD
from tests.rig.eks_trial import Cause, World, misses, outcome, restored


@pytest.fixture(scope="module")
def account() -> Iterator[World]:
    with eks_trial.world() as made:
        yield made


@pytest.mark.parametrize("cause", CAUSES, ids=lambda one: one.name)
def test_a_cause_is_predicted_and_happens(account: World, cause: Cause) -> None:
    with restored(account):
        assert misses(cause, outcome(account, cause.inject(account), cause.later)) == []


@pytest.mark.parametrize("name", GOOD)
def test_a_good_plan_has_no_alarm_and_comes_up(account: World, name: str) -> None:
    with restored(account):
        made = outcome(account, GOOD[name](account))
        assert (list(made.predicted), made.happened) == ([], "")


def test_there_are_as_many_causes_and_good_plans_as_promised() -> None:
    assert len({one.name for one in CAUSES}) == len(CAUSES) >= 40
    assert len(GOOD) >= 20
