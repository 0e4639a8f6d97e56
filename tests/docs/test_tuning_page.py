"""The page about tuning is true: its settings come from the profiles, its commands exist, its examples load."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import model, overlays
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources import line
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles

from docs import generate

TEXT = generate.PAGE.read_text()
PROSE, _, GENERATED = TEXT.partition(generate.BEGIN)
STATES = ("OK", "DIFFERS", "REFUSED", "UNSUPPORTED", "UNKNOWN", "FAILED", "PENDING", "CONTESTED", "CONFLICT")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PROSE, re.DOTALL)


def test_generating_it_again_changes_nothing() -> None:
    assert generate.page(TEXT) == TEXT, "run `python docs/generate.py`"


def test_every_setting_of_every_shipped_profile_is_on_it() -> None:
    assert all(f"#### `{name}`\n" in GENERATED for name in profiles.questions().rows)


def test_every_state_is_explained() -> None:
    assert all(f"| `{getattr(model, name)}` |" in PROSE for name in STATES)


def test_every_condition_of_overlays_is_named() -> None:
    assert all(f"`{name}`" in PROSE for name in overlays.CONDITIONS)


def test_every_file_of_ours_is_named() -> None:
    assert all(path in PROSE for path in (line.SYSCTL, line.MODPROBE, line.LIMITS, line.GRUB, line.BOOT))


def test_the_example_of_an_own_profile_loads(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(next(block for block in blocks("yaml") if "extends" in block))
    profile = profiles.load(path, [])
    assert profile.rows["sysctl.vm.dirty_bytes"].value == str(16 * 2**30)
    assert "thp.defrag" not in profile.rows
    assert profile.overlays[-1].name == "old racks"
