"""What all tests have in common: the order in which workers take them, and that none is timed."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

from tests.rig import order

settings.register_profile("not timed", deadline=None)
settings.load_profile("not timed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: order.rank(item.nodeid))


def pytest_collection_finish() -> None:
    """What collection made stays to the end: garbage collection need not look at it again."""
    gc.freeze()


# Collection makes many long-lived objects. With the usual thresholds, more than half of its time is garbage collection.
gc.set_threshold(200_000, 20, 100)
