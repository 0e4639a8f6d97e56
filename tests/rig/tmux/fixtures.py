"""Fixtures of the shipped tmux session: `pytest_plugins = ["tests.rig.tmux.fixtures"]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuctl.core.settings import Settings
from gpuctl.tmux import render
from tests.rig.tmux.screen import Terminal, User, user
from tests.rig.tmux.session import K9S, SETTINGS, launched


@pytest.fixture
def me(tmp_path: Path) -> Iterator[User]:
    """A user with the first version of the configuration, as it is shipped."""
    with user(tmp_path / "home") as found:
        found.settings(SETTINGS)
        version = found.config / "tmux/versions/v1"
        for name, text in render.files(Settings()).items():
            (version / name).parent.mkdir(parents=True, exist_ok=True)
            (version / name).write_text(text)
        (found.config / "tmux/current").symlink_to("versions/v1")
        found.program("k9s", K9S)
        yield found


@pytest.fixture
def screen(me: User) -> Terminal:
    """The session on a terminal of 120x40."""
    return launched(me)
