"""Files are replaced as a whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.paths import write_atomically
from tests.rig.full_disk import file_size_limit


def test_a_full_disk_names_the_file_keeps_the_old_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "settings.yml"
    path.write_text("old\n")
    with file_size_limit(100), pytest.raises(OSError, match=r"settings\.yml"):
        write_atomically(path, "new\n" * 100)
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]
