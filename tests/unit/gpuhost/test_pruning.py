"""Records that no undo needs are removed; those that are left undo exactly the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import record as records
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.record import Entry, Record, owned

from tests.rig.trees.host import put, small_server, tune, undo

SETTINGS = ("value:/proc/sys/vm/swappiness", "value:/proc/sys/vm/max_map_count", "line:/etc/a:b")


@pytest.fixture(autouse=True)
def few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "KEPT", 5)


def names(root: Path) -> list[str]:
    return [record.name for record in records.load(Host(root))]


def test_a_value_that_somebody_resets_every_day_leaves_few_records(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    for _ in range(12):
        tune(root, {"sysctl.vm.swappiness": "0"})
        put(root, "/proc/sys/vm/swappiness", "60\n")
    assert names(root) == ["000001", "000008", "000009", "000010", "000011", "000012"]
    tune(root, {"sysctl.vm.swappiness": "0"})
    undo(root)
    assert (root / "proc/sys/vm/swappiness").read_text() == "60\n"


def test_what_was_given_back_is_forgotten(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    for _ in range(6):
        tune(root, {"sysctl.vm.swappiness": "0"})
        undo(root)
    assert names(root) == [f"{number:06d}" for number in range(8, 13)]


@pytest.mark.parametrize("seed", range(300))
def test_any_undo_does_the_same_without_the_records_that_are_spared(seed: int) -> None:
    history = _history(random.Random(seed))  # noqa: S311 - no secret
    spare = records._spare(history)
    left = [record for record in history if record not in spare]
    assert left[-5:] == history[-5:]
    assert owned(left) == owned(history)
    for target in left:
        assert owned(left, target.name) == owned(history, target.name)


def _history(chance: random.Random) -> list[Record]:
    """Runs, undos, interrupted and failed ones, over few settings and values, so that many repeat."""
    history: list[Record] = []
    for number in range(1, 13):
        undo = chance.random() < 0.25
        chosen = chance.sample(SETTINGS, chance.randint(1, 3))
        entries = tuple(
            Entry("knob", setting, chance.choice("67"), "1", "1", chance.choice(["", "", "", "refused"]))
            for setting in chosen
        )
        to = chance.choice(history).name if undo and history and chance.random() < 0.3 else ""
        action, done = "undo" if undo else "tune", chance.random() < 0.9
        history.append(Record(f"{number:06d}", action, "profile", "", "", "", "", entries, done, to))
    return history
