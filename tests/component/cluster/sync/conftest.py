"""A folder here with a few files, and one that is not there yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.cluster.receiver import TREE, fill


@pytest.fixture
def here(tmp_path: Path) -> Path:
    fill(tmp_path / "here", TREE)
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"
