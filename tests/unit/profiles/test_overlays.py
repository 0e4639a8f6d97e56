"""Overlays change a profile on the hosts that match; the engine chooses among the compiled ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.overlays import select
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles

from tests.rig.profile_files import machine, mistakes, row, write

TEXT = f"""\
knobs:
  thp.enabled: {row("always")}
  cpu.governor: {row("performance")}
overlays:
  - name: virtual
    why: the hypervisor keeps the clock
    when: {{machine: virtual}}
    drop: [cpu.governor]
    knobs: {{thp.enabled: madvise}}
  - name: EC2
    why: EC2 does not
    when: {{machine: [virtual], vendor: ["Amazon*"]}}
    knobs: {{cpu.governor: powersave}}
"""


def chosen(path: Path, **facts: object) -> dict[str, str]:
    knobs, _ = select(profiles.compiled(profiles.load(path)), machine(**facts))
    return {knob.name: knob.value for knob in knobs}


def test_a_host_gets_the_rows_and_then_its_overlays_in_order(tmp_path: Path) -> None:
    path = write(tmp_path, "mine", TEXT)
    assert chosen(path) == {"thp.enabled": "always", "cpu.governor": "performance"}
    assert chosen(path, machine="virtual") == {"thp.enabled": "madvise"}
    ec2 = chosen(path, machine="virtual", vendor="Amazon EC2")
    assert ec2 == {"thp.enabled": "madvise", "cpu.governor": "powersave"}


def test_a_short_row_of_an_overlay_keeps_why_and_source_of_the_profile(tmp_path: Path) -> None:
    merged = profiles.load(write(tmp_path, "mine", TEXT)).overlays[0].rows["thp.enabled"]
    assert (merged.why, merged.source) == ("a reason", "profile mine, instead of always (a test)")


def test_overlays_of_the_base_come_first(tmp_path: Path) -> None:
    write(tmp_path, "base", TEXT)
    third = "overlays:\n  - {name: own, why: a, when: {machine: virtual}, knobs: {thp.enabled: never}}\n"
    path = write(tmp_path, "mine", f"extends: ./base.yml\n{third}")
    assert [overlay.name for overlay in profiles.load(path).overlays] == ["virtual", "EC2", "own"]
    assert chosen(path, machine="virtual") == {"thp.enabled": "never"}


def test_an_overlay_by_the_name_of_an_inherited_one_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "base", TEXT)
    path = write(tmp_path, "mine", "extends: ./base.yml\noverlays:\n  - {name: EC2, why: a, when: {machine: metal}}\n")
    [message] = mistakes(path)
    assert message == "3: there is an overlay 'EC2' already, in a profile that this one extends; choose another name"


@pytest.mark.parametrize(
    ("overlay", "wrong"),
    [
        ("{name: a, why: b}", "overlays[0].when is missing"),
        ("{name: a, when: {machine: metal}}", "overlays[0].why is missing"),
        ("{why: b, when: {machine: metal}}", "overlays[0].name is missing"),
        ("{name: a, why: b, when: {}}", "overlays[0].when has no condition; use machine, distribution, family"),
        ("{name: a, why: b, when: {machine: []}}", "overlays[0].when.machine lists nothing, so no host would match"),
        ("{name: a, why: b, when: {machine: [{}]}}", "overlays[0].when.machine[0] is not text"),
        (
            "{name: a, why: b, when: {machine: virtal}}",
            "overlays[0].when.machine cannot be 'virtal'; did you mean virtual?",
        ),
        ("{name: a, why: b, when: {kernel: 6.8}}", "overlays[0].when.kernel is not known; it can be machine"),
        ("{name: a, why: b, when: {machine: metal}, drop: [x.y]}", "drops x.y, which is not set anyway"),
        (
            "{name: a, why: b, when: {gpus: none}, drop: [thp.enabled], knobs: {thp.enabled: never}}",
            "both sets and drops",
        ),
        ("{name: a, why: b, when: {machine: metal}, knobs: {thp.defrag: never}}", "thp.defrag needs why, source"),
        ("just text", "overlays[0] is not a mapping of name, why, when"),
    ],
)
def test_an_overlay_that_cannot_be_used_is_refused(tmp_path: Path, overlay: str, wrong: str) -> None:
    path = write(tmp_path, "mine", f"knobs:\n  thp.enabled: {row('always')}\noverlays:\n  - {overlay}\n")
    messages = mistakes(path)
    assert any(mistake.startswith("4: ") and wrong in mistake for mistake in messages), messages


def test_two_overlays_of_one_name_are_refused(tmp_path: Path) -> None:
    one = "{name: a, why: b, when: {machine: metal}}"
    assert mistakes(write(tmp_path, "mine", f"overlays:\n  - {one}\n  - {one}\n")) == [
        "3: there is an overlay 'a' already; choose another name"
    ]


def rivals(tmp_path: Path, first: str, second: str) -> list[str]:
    """Mistakes of a profile with vm.dirty_bytes for all, vm.dirty_ratio on some hosts."""
    text = f"""\
knobs:
  sysctl.vm.dirty_bytes: {row("1GiB")}
overlays:
  - {{name: one, why: a, when: {first}, drop: [sysctl.vm.dirty_bytes], knobs: {{sysctl.vm.dirty_ratio: {row(5)}}}}}
  - {{name: two, why: a, when: {second}, knobs: {{sysctl.vm.dirty_bytes: 2GiB}}}}
"""
    return mistakes(write(tmp_path, "mine", text))


def test_rivals_that_meet_on_some_host_are_refused(tmp_path: Path) -> None:
    [message] = rivals(tmp_path, "{machine: virtual}", "{gpus: '*H100*'}")
    wrong = f"5: sysctl.vm.dirty_bytes sets the same thing as sysctl.vm.dirty_ratio ({tmp_path}/mine.yml:4)"
    assert message == f"{wrong}; keep one, or leave the other out with `drop: [sysctl.vm.dirty_ratio]`"


def test_rivals_in_overlays_that_never_meet_are_fine(tmp_path: Path) -> None:
    assert rivals(tmp_path, "{machine: virtual}", "{machine: [metal]}") == []


def test_memory_is_compared_as_a_number(tmp_path: Path) -> None:
    text = "knobs: {}\noverlays:\n"
    for name, limit in (("small", "<64GiB"), ("large", ">=64GiB")):
        value = row("never" if name == "small" else "always")
        text += f"  - {{name: {name}, why: a, when: {{memory: '{limit}'}}, knobs: {{thp.enabled: {value}}}}}\n"
    path = write(tmp_path, "mine", text)
    found = [chosen(path, memory=memory) for memory in ("9GiB", "63GiB", "64GiB", "100GiB", "unknown")]
    assert found == [{"thp.enabled": value} for value in ("never", "never", "always", "always")] + [{}]


def test_a_limit_of_memory_in_another_form_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "mine", "overlays:\n  - {name: a, why: a, when: {memory: ['64GiB']}, knobs: {}}\n")
    [message] = mistakes(path)
    assert 'cannot be \'64GiB\'; write ">=64GiB" or "<64GiB"' in message
