"""Host trees lie in memory."""

from __future__ import annotations

from tests.rig.memory import tmp_path

__all__ = ["tmp_path"]
