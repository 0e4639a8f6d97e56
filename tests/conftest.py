"""What all tests have in common: the order in which workers take them."""

from __future__ import annotations

import pytest

from tests.rig import order


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: order.rank(item.nodeid))
