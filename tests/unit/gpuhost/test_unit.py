"""systemd units: at boot and now, independently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Result
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import unit

from tests.rig.trees.host import (
    Counting,
    TreeHost,
    changed,
    content,
    put,
    small_server,
    states,
    tune,
    undo,
    units,
)

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


def test_a_missing_unit_counts_as_off_and_cannot_be_enabled(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    assert states(tune(root, {KNOB: "disabled stopped"})) == {KNOB: "ok"}
    assert states(tune(root, {KNOB: "enabled started"})) == {KNOB: "unsupported"}


def test_a_static_unit_cannot_be_enabled(tmp_path: Path) -> None:
    answer = tune(server(tmp_path, boot="static", now="inactive"), {KNOB: "enabled"})
    assert states(answer) == {KNOB: "unsupported"}
    assert "static" in answer["knobs"][0]["reason"]


@pytest.mark.parametrize(("wanted", "word"), [("enabled", "enable"), ("disabled", "it can be masked")])
def test_a_generated_unit_can_only_be_masked(tmp_path: Path, wanted: str, word: str) -> None:
    root = server(tmp_path, boot="generated", now="active")
    put(root, "/run/systemd/generator/nightly.timer", "[Timer]\n")
    before = content(root)
    answer = tune(root, {KNOB: wanted})
    assert states(answer) == {KNOB: "unsupported"}
    assert word in answer["knobs"][0]["reason"]
    assert states(tune(root, {KNOB: "masked stopped"})) == {KNOB: "ok"}
    undo(root)
    assert content(root) == before


def test_a_unit_with_its_file_in_the_masks_place_cannot_be_masked(tmp_path: Path) -> None:
    root = server(tmp_path, boot="enabled", now="active")
    put(root, "/etc/systemd/system/nightly.timer", "[Timer]\n")
    answer = tune(root, {KNOB: "masked"})
    assert states(answer) == {KNOB: "unsupported"}
    assert "disable it instead" in answer["knobs"][0]["reason"]


def test_a_failed_unit_that_is_started_is_stopped_again_by_undo(tmp_path: Path) -> None:
    root = server(tmp_path, boot="enabled", now="failed")
    assert states(tune(root, {KNOB: "started"})) == {KNOB: "ok"}
    assert set(states(undo(root)).values()) == {"ok"}
    assert undo(root)["knobs"] == []


def test_a_unit_that_somebody_else_changed_since_is_a_conflict(tmp_path: Path) -> None:
    root = server(tmp_path, boot="enabled", now="active")
    tune(root, {KNOB: "disabled"})
    put(root, "/run/standin-units.json", '{"nightly.timer": {"boot": "masked", "now": "active"}}')
    assert states(undo(root)) == {KNOB: "conflict"}


@pytest.mark.parametrize(
    ("unit_name", "disturbs"), [("trainer.service", True), ("nightly.timer", False), ("irqbalance.service", False)]
)
def test_only_stopping_what_may_serve_a_job_waits_for_a_free_host(
    tmp_path: Path, unit_name: str, disturbs: bool
) -> None:
    root = small_server(tmp_path)
    units(root, **{unit_name.replace(".", "__"): {"boot": "enabled", "now": "active"}})
    put(root, "/proc/4711/comm", "slurmstepd\n")
    reading = tune(root, {f"unit.{unit_name}": "disabled stopped"})["knobs"][0]
    assert reading["state"] == ("refused" if disturbs else "ok")


def test_all_units_are_read_by_one_query(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    names = ("nightly.timer", "weekly.timer", "yearly.timer")
    units(root, **{name.replace(".", "__"): {"boot": "enabled", "now": "active"} for name in names})
    host = Counting(root)
    tune(root, {f"unit.{name}": "enabled started" for name in names}, host)
    assert len(host.started) == 1


def test_systemd_reads_its_unit_files_once_for_several_boot_states(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    units(
        root,
        nightly__timer={"boot": "enabled", "now": "inactive"},
        weekly__timer={"boot": "masked", "now": "inactive"},
        yearly__timer={"boot": "disabled", "now": "inactive"},
    )
    knobs = {"unit.nightly.timer": "disabled", "unit.weekly.timer": "enabled", "unit.yearly.timer": "masked"}
    host = Counting(root)
    assert set(states(tune(root, knobs, host)).values()) == {"ok"}
    changes = [words for words in host.started if " show " not in words]
    assert changes == [
        "systemctl disable --no-reload -- nightly.timer",
        "systemctl unmask --no-reload -- weekly.timer",
        "systemctl enable --no-reload -- weekly.timer",
        "systemctl mask --no-reload -- yearly.timer",
        "systemctl daemon-reload",
    ]
    assert len(host.started) - len(changes) == 2, "states are read once before the changes and once after them"


@pytest.mark.parametrize(("verb", "failed"), [("disable", {KNOB}), ("daemon-reload", {KNOB, "unit.weekly.timer"})])
def test_a_failing_systemctl_fails_the_units_that_it_concerns(tmp_path: Path, verb: str, failed: set[str]) -> None:
    root = small_server(tmp_path)
    units(
        root,
        nightly__timer={"boot": "enabled", "now": "inactive"},
        weekly__timer={"boot": "disabled", "now": "inactive"},
    )

    class Failing(TreeHost):
        def _run(self, argv: Any, *more: Any) -> Any:
            return Result(1, "", "no space left") if argv[1] == verb else super()._run(argv, *more)

    answer = tune(root, {KNOB: "disabled", "unit.weekly.timer": "enabled"}, Failing(root))
    assert {knob for knob, state in states(answer).items() if state == "failed"} == failed
    assert all("no space left" in knob["reason"] for knob in answer["knobs"] if knob["knob"] in failed)


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


@pytest.mark.parametrize("name", ["irqbalance", "a/b.service", "--now.service x", "x.conf"])
def test_a_knob_is_named_by_the_whole_name_of_a_unit(name: str) -> None:
    assert unit.type_of(name) is None


def test_profiles_cannot_set_units_of_gpuctl() -> None:
    spec = unit.type_of("gpuctl-boot.service")
    assert spec is not None
    with pytest.raises(ValueError, match="its own units"):
        spec.check("stopped")


@pytest.mark.parametrize("value", ["on", "enabled disabled", "masked started", "", "stopped stopped"])
def test_a_contradictory_unit_state_is_refused(value: str) -> None:
    spec = unit.type_of("nightly.timer")
    assert spec is not None
    with pytest.raises(ValueError, match=r"must be|cannot"):
        spec.check(value)
