"""systemd units: at boot and now, each by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import unit

from tests.unit.gpuhost.trees import changed, content, put, small_server, states, tune, undo, units

KNOB = "unit.nightly.timer"


def server(tmp_path: Path, **state: str) -> Path:
    root = small_server(tmp_path)
    units(root, nightly__timer=state)
    return root


@pytest.mark.parametrize(
    ("held", "wanted", "after"),
    [
        ({"boot": "enabled", "now": "active"}, "disabled stopped", {"boot": "disabled", "now": "inactive"}),
        ({"boot": "enabled", "now": "active"}, "masked", {"boot": "masked", "now": "active"}),
        ({"boot": "disabled", "now": "inactive"}, "enabled started", {"boot": "enabled", "now": "active"}),
        ({"boot": "masked", "now": "inactive"}, "enabled", {"boot": "enabled", "now": "inactive"}),
    ],
)
def test_both_sides_are_set_and_put_back(
    tmp_path: Path, held: dict[str, str], wanted: str, after: dict[str, str]
) -> None:
    root = server(tmp_path, **held)
    before = content(root)
    assert changed(tune(root, {KNOB: wanted}, check=True)) == {KNOB}
    assert content(root) == before
    assert states(tune(root, {KNOB: wanted})) == {KNOB: "ok"}
    assert changed(tune(root, {KNOB: wanted})) == set()
    knob = tune(root, {KNOB: wanted}, check=True)["knobs"][0]
    assert (knob["boot"], knob["now"]) == (after["boot"], after["now"])
    undo(root)
    assert content(root) == before


def test_a_masked_or_failed_unit_needs_nothing_to_be_off(tmp_path: Path) -> None:
    root = server(tmp_path, boot="masked", now="failed")
    assert states(tune(root, {KNOB: "disabled stopped"}, check=True)) == {KNOB: "ok"}


def test_a_unit_that_is_not_there_is_off_and_cannot_be_on(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    assert states(tune(root, {KNOB: "disabled stopped"})) == {KNOB: "ok"}
    assert states(tune(root, {KNOB: "enabled started"})) == {KNOB: "unsupported"}


def test_a_static_unit_cannot_be_enabled(tmp_path: Path) -> None:
    answer = tune(server(tmp_path, boot="static", now="inactive"), {KNOB: "enabled"})
    assert states(answer) == {KNOB: "unsupported"}
    assert "static" in answer["knobs"][0]["reason"]


def test_without_systemd_it_is_unsupported(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/usr/bin/systemctl", "#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n", 0o755)
    assert states(tune(root, {KNOB: "disabled"})) == {KNOB: "unsupported"}


def test_a_systemd_that_does_not_answer_is_unknown(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/run/systemd/system/.keep", "")
    put(root, "/usr/bin/systemctl", "#!/bin/sh\necho 'Connection timed out' >&2\nexit 1\n", 0o755)
    answer = tune(root, {KNOB: "disabled"})
    assert states(answer) == {KNOB: "unknown"}
    assert "Connection timed out" in answer["knobs"][0]["reason"]


@pytest.mark.parametrize("value", ["on", "enabled disabled", "masked started", "", "stopped stopped"])
def test_a_wish_that_makes_no_sense_is_refused(value: str) -> None:
    wish = unit.type_of("nightly.timer")
    assert wish is not None
    with pytest.raises(ValueError, match=r"must be|cannot"):
        wish.check(value)
