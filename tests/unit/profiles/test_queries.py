"""Queries over profiles: one knob in all of them, and the differences between two."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles

from tests.rig.profile_files import row, write


def test_explain_gives_the_row_of_every_profile_and_overlay(tmp_path: Path) -> None:
    overlay = "{name: small, why: a, when: {gpus: none}, knobs: {thp.enabled: always}}"
    write(tmp_path, "mine", f"knobs:\n  thp.enabled: {row('madvise')}\noverlays:\n  - {overlay}\n")
    explained = [(e.profile, e.overlay, e.row.value) for e in profiles.explain("thp.enabled", [tmp_path])]
    assert explained[-2:] == [("mine", "", "madvise"), ("mine", "small", "always")]
    assert ("inference", "", "never") in explained
    assert not [e for e in explained if e[0] == "minimal"]


def test_explain_is_empty_for_a_knob_that_no_profile_has() -> None:
    assert profiles.explain("sysctl.vm.overcommit_memory") == []


def test_diff_lists_different_values_and_knobs_of_one_side_also_in_overlays(tmp_path: Path) -> None:
    overlay = "{{name: vm, why: a, when: {{machine: virtual}}, {}}}"
    head = f"knobs:\n  thp.enabled: {row('always')}\n  thp.defrag: {row('never')}\n"
    a = write(tmp_path, "a", f"{head}overlays:\n  - {overlay.format('drop: [thp.defrag]')}\n")
    b = write(tmp_path, "b", f"extends: ./a.yml\nknobs: {{thp.enabled: never, cpu.boost: {row('on')}}}\n")
    c = write(tmp_path, "c", f"{head}overlays:\n  - {overlay.format('knobs: {thp.defrag: madvise}')}\n")
    one, two, three = (profiles.load(path) for path in (a, b, c))
    assert profiles.diff(one, one) == []
    assert profiles.diff(one, two) == [
        profiles.Difference("thp.enabled", "", "always", "never"),
        profiles.Difference("cpu.boost", "", None, "on"),
    ]
    assert profiles.diff(one, three) == [profiles.Difference("thp.defrag", "vm", "left alone", "madvise")]


def test_diff_compares_values_and_shows_them_as_written(tmp_path: Path) -> None:
    text = "knobs: {{sysctl.vm.dirty_bytes: {}}}\n"
    one, same, more = (
        profiles.load(write(tmp_path, name, text.format(row(size))))
        for name, size in (("one", "1GiB"), ("same", "1024MiB"), ("more", "2GiB"))
    )
    assert profiles.diff(one, same) == []
    assert profiles.diff(one, more) == [profiles.Difference("sysctl.vm.dirty_bytes", "", "1GiB", "2GiB")]
