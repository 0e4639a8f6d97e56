"""A control plane with two GPU nodes for the tests of a file, and a namespace of its own for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster.deploy import lab as made
from tests.integration.cluster.deploy.lab import Lab
from tests.rig.kube.plane import Plane


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    yield from made.for_tests(nodes=2)


@pytest.fixture
def lab(plane: Plane, tmp_path: Path) -> Iterator[Lab]:
    yield from made.namespaces(plane, tmp_path)
