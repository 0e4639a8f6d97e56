"""Long test files come first, and the table that says which are long names nothing that is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig import order

REPOSITORY = Path(__file__).parents[3]


def test_real_clusters_come_before_other_integration_tests_and_these_before_unit_tests() -> None:
    files = [
        "tests/contracts/test_layers.py::test_x",
        "tests/component/gpuhost/test_crash.py::test_x",
        "tests/integration/test_rig.py::test_x",
        "tests/integration/cluster/sync/test_real_pods.py::test_x",
    ]
    assert sorted(files, key=order.rank) == files[::-1]


@pytest.mark.parametrize("path", order.LONGEST_FIRST)
def test_every_row_of_the_table_exists_and_can_be_reached(path: str) -> None:
    assert (REPOSITORY / path).exists()
    assert order.LONGEST_FIRST[order.rank(path)] == path
