"""Upgrade of a service whose sessions an older version has in the folder of its database."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.reservations.local_node import STATE, adopt_sessions


@pytest.mark.parametrize("present", [None, "{}", "{ }"])
def test_the_file_of_sessions_of_an_older_version_is_moved_once(tmp_path: Path, present: str | None) -> None:
    state, new = tmp_path / "state", tmp_path / STATE.removeprefix("/")
    state.mkdir()
    adopt_sessions(tmp_path, state)
    assert not new.exists()
    (state / "sessions.json").write_text("{}")
    if present is not None:
        new.parent.mkdir(parents=True)
        new.write_text(present)
    if present == "{ }":
        with pytest.raises(InvalidInput, match="are different files of sessions"):
            adopt_sessions(tmp_path, state)
        assert (new.read_text(), (state / "sessions.json").read_text()) == ("{ }", "{}")
        return
    adopt_sessions(tmp_path, state)
    assert (new.read_text(), new.stat().st_mode & 0o077) == ("{}", 0) or present is not None
    assert not (state / "sessions.json").exists()
