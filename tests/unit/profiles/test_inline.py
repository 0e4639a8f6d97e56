"""A profile written in a playbook is checked like a file; mistakes name the path of the value."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles

ROW = {"why": "a reason", "source": "a playbook"}


def wrong(values: dict[str, Any]) -> list[str]:
    with pytest.raises(profiles.ProfileError) as caught:
        profiles.inline(values)
    return [str(mistake) for mistake in caught.value.mistakes]


def test_an_inline_profile_is_compiled_for_the_engine() -> None:
    values = {"name": "site", "knobs": {"sysctl.net.ipv4.tcp_rmem": {"value": [4096, 87380, "32MiB"], **ROW}}}
    assert profiles.compiled(profiles.inline(values)) == {
        "name": "site",
        "knobs": [{"name": "sysctl.net.ipv4.tcp_rmem", "value": "4096 87380 33554432", **ROW}],
        "overlays": [],
    }


def test_an_inline_profile_may_extend_another_by_name() -> None:
    profile = profiles.inline({"extends": "minimal", "knobs": {"sysctl.vm.swappiness": 1}})
    assert (profile.name, profile.extends, profile.rows["sysctl.vm.swappiness"].value) == (
        "playbook",
        ("minimal",),
        "1",
    )


def test_true_and_false_of_a_playbook_are_on_and_off() -> None:
    values = {"knobs": {"cpu.boost": {"value": True, **ROW}, "irq.balance": {"value": False, **ROW}}}
    assert [row.value for row in profiles.inline(values).rows.values()] == ["on", "off"]


def test_mistakes_name_the_path_of_the_value() -> None:
    values = {
        "nobs": {},
        "knobs": {"sysctl.vm.swappiness": {"value": "a lot", **ROW}, "thp.enabled": {"value": "never", "why": None}},
        "overlays": [{"name": "a", "why": "b", "when": {"machine": ["vm"]}}],
    }
    assert sorted(wrong(values)) == [
        "knobs.sysctl.vm.swappiness.value: sysctl.vm.swappiness must be a whole number without a unit, not 'a lot'",
        "knobs.thp.enabled: thp.enabled needs why, source; it is not inherited",
        "nobs: is not known; did you mean knobs?",
        "overlays[0].when.machine[0]: cannot be 'vm'; it can be metal, virtual, container",
    ]


def test_an_empty_mapping_is_refused() -> None:
    assert wrong({}) == ["profile: holds no knobs; add `knobs:` or `extends:`"]
