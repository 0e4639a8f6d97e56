"""A profile inherits the rows of the one that it extends, and contains only the differences."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles

from tests.rig.profile_files import mistakes, row, write

BASE = f"""\
about: the base
knobs:
  sysctl.vm.swappiness: {{value: 10, why: cache, source: somewhere, not_for: desktops, read_back: sysctl -a}}
  thp.enabled: {row("always")}
overlays:
  - name: virtual
    why: a reason
    when: {{machine: [virtual]}}
    knobs:
      thp.enabled: {{value: never, why: small memory}}
      sysctl.vm.nr_hugepages: {row(16)}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "base", BASE)
    return tmp_path


def test_a_row_may_override_the_value_alone_and_keeps_the_rest(folder: Path) -> None:
    write(folder, "mine", "extends: base\nknobs:\n  sysctl.vm.swappiness: 1\n")
    merged = profiles.load("mine", [folder]).rows["sysctl.vm.swappiness"]
    assert (merged.value, merged.why, merged.not_for, merged.read_back) == ("1", "cache", "desktops", "sysctl -a")
    assert merged.source == "profile mine, instead of 10 (somewhere)"
    assert merged.where == f"{folder}/mine.yml:3"


def test_a_row_may_override_value_and_why(folder: Path) -> None:
    write(folder, "mine", "extends: base\nknobs:\n  sysctl.vm.swappiness: {value: 1, why: because, source: us}\n")
    merged = profiles.load("mine", [folder]).rows["sysctl.vm.swappiness"]
    assert (merged.value, merged.why, merged.source) == ("1", "because", "us")


def test_a_new_row_needs_value_why_and_source(folder: Path) -> None:
    path = write(folder, "mine", "extends: base\nknobs:\n  thp.defrag: {value: never}\n  thp.shmem_enabled:\n")
    assert mistakes(path, [folder]) == [
        "3: thp.defrag needs why, source; it is not inherited",
        "4: thp.shmem_enabled needs value, why, source; it is not inherited",
    ]


def test_inherited_rows_keep_the_order_of_the_base(folder: Path) -> None:
    write(folder, "mine", f"extends: base\nknobs:\n  thp.defrag: {row('never')}\n  thp.enabled: madvise\n")
    profile = profiles.load("mine", [folder])
    assert {name: r.value for name, r in profile.rows.items()} == {
        "sysctl.vm.swappiness": "10",
        "thp.enabled": "madvise",
        "thp.defrag": "never",
    }
    assert (profile.name, profile.extends) == ("mine", ("base",))


def test_a_profile_can_drop_what_it_inherits_from_rows_and_overlays(folder: Path) -> None:
    write(folder, "mine", "extends: base\ndrop: [thp.enabled]\n")
    profile = profiles.load("mine", [folder])
    assert list(profile.rows) == ["sysctl.vm.swappiness"]
    assert list(profile.overlays[0].rows) == ["sysctl.vm.nr_hugepages"]


def test_dropping_an_unset_knob_is_a_mistake(folder: Path) -> None:
    path = write(folder, "mine", "extends: base\ndrop:\n  - thp.defrag\n")
    assert mistakes(path, [folder]) == ["3: drops thp.defrag, which is not set anyway; leave it out"]


def test_a_knob_that_a_profile_names_is_no_longer_changed_by_an_inherited_overlay(folder: Path) -> None:
    write(folder, "mine", "extends: base\nknobs:\n  thp.enabled: madvise\n")
    assert "thp.enabled" not in profiles.load("mine", [folder]).overlays[0].rows


def test_a_circle_is_refused_and_shown(folder: Path) -> None:
    write(folder, "a", "extends: b\n")
    write(folder, "b", "\nextends: c\n")
    write(folder, "c", "\n\nextends: a\n")
    messages = mistakes("a", [folder])
    assert messages == [f"{folder}/c.yml:3: profiles extend each other in a circle: a -> b -> c -> a"]


def test_a_profile_that_extends_itself_by_path_is_a_circle(folder: Path) -> None:
    path = write(folder, "a", "extends: ./a.yml\n")
    assert mistakes(path) == ["1: profiles extend each other in a circle: a -> a"]


def test_mistakes_of_all_files_are_reported_together(folder: Path) -> None:
    write(folder, "low", f"knobs:\n  thp.enabled: {row('sometimes')}\n")
    path = write(folder, "mine", f"extends: low\nknobs:\n  thp.defrag: {row('perhaps')}\n  thp.enabled: never\n")
    low, mine = mistakes(path, [folder])
    assert low.startswith(f"{folder}/low.yml:2: thp.enabled must be one of")
    assert mine.startswith("3: thp.defrag must be one of")


def test_an_unknown_base_does_not_make_rows_incomplete(folder: Path) -> None:
    path = write(folder, "mine", "extends: bases\ndrop: [thp.defrag]\nknobs:\n  thp.enabled: never\n")
    assert mistakes(path, [folder]) == ["1: no profile is called 'bases'; did you mean base?"]


def test_extends_takes_one_name(folder: Path) -> None:
    path = write(folder, "mine", "extends: [base, minimal]\n")
    assert mistakes(path, [folder]) == ["1: extends is not the name of one profile"]


def test_a_path_in_extends_counts_from_the_file_that_names_it(folder: Path) -> None:
    (folder / "site").mkdir()
    path = write(folder / "site", "mine", "extends: ../base.yml\n")
    assert profiles.load(path).extends == ("base",)


def test_an_inherited_rival_must_be_dropped(folder: Path) -> None:
    write(folder, "bytes", f"knobs:\n  sysctl.vm.dirty_bytes: {row('1GiB')}\n")
    text = f"extends: bytes\nknobs:\n  sysctl.vm.dirty_ratio: {row(10)}\n"
    assert "drop: [sysctl.vm.dirty_bytes]" in mistakes(write(folder, "mine", text), [folder])[0]
    write(folder, "mine", text + "drop: sysctl.vm.dirty_bytes\n")
    assert list(profiles.load("mine", [folder]).rows) == ["sysctl.vm.dirty_ratio"]
