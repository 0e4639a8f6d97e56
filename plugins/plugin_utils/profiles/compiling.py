"""Compile a checked profile into plain values for the engine, to be sent to a host as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .model import Profile, Row


def compiled(profile: Profile) -> dict[str, Any]:
    """The engine's form of a profile; `gpuhost.overlays.select` chooses the overlays on the host."""
    return {
        "name": profile.name,
        "knobs": _knobs(profile.rows.values()),
        "overlays": [
            {
                "name": overlay.name,
                "when": {name: list(patterns) for name, patterns in overlay.when.items()},
                "knobs": _knobs(overlay.rows.values()),
                "drop": list(overlay.drop),
            }
            for overlay in profile.overlays
        ],
    }


def _knobs(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [{"name": row.name, "value": row.value, "why": row.why, "source": row.source} for row in rows]
