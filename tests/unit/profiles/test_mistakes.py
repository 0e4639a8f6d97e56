"""A bad profile file is refused with all mistakes and their lines, before any host is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles

from tests.rig.profile_files import mistakes, row, write


def only(folder: Path, text: str) -> str:
    """The only mistake of a profile."""
    messages = mistakes(write(folder, "mine", text))
    assert len(messages) == 1, messages
    return messages[0]


def test_all_mistakes_are_reported_in_the_order_of_their_lines(tmp_path: Path) -> None:
    text = f"""\
about: many mistakes
knob: {{}}
knobs:
  sysctl.vm.swapiness: {row(0)}
  sysctl.vm.dirty_bytes: {row("8GB")}
  thp.enabled: {{value: madvise, why: a reason, sauce: a test}}
overlays:
  - name: efa
    why: a reason
    when: {{nic: [efa]}}
"""
    assert mistakes(write(tmp_path, "mine", text)) == [
        "2: knob is not known; did you mean knobs?",
        "4: there is no knob sysctl.vm.swapiness; did you mean sysctl.vm.swappiness?",
        "5: sysctl.vm.dirty_bytes must be a number of bytes, such as 33554432 or 32MiB, not '8GB'",
        "6: knobs.thp.enabled.sauce is not known; did you mean source?",
        "6: thp.enabled needs source; it is not inherited",
        "10: overlays[0].when.nic is not known; did you mean nics?",
    ]


def test_an_error_prints_all_its_mistakes_with_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, "mine", "knobs:\n  thp.enabled: {value: maybe}\n")
    with pytest.raises(profiles.ProfileError) as caught:
        profiles.load(path)
    assert str(caught.value).splitlines() == [
        f"{path}:2: thp.enabled needs why, source; it is not inherited",
        f"{path}:2: thp.enabled must be one of always, madvise, never, not 'maybe'",
    ]


def test_a_knob_given_twice_is_refused(tmp_path: Path) -> None:
    text = f"knobs:\n  thp.enabled: {row('always')}\n  thp.enabled: {row('never')}\n"
    assert only(tmp_path, text) == "3: thp.enabled is given twice, first on line 2; keep one"


def test_a_field_given_twice_in_a_row_is_refused(tmp_path: Path) -> None:
    text = "knobs:\n  thp.enabled:\n    value: never\n    why: a\n    why: b\n    source: c\n"
    assert only(tmp_path, text) == "5: why is given twice, first on line 4; keep one"


def test_a_value_below_its_name_is_reported_with_its_own_line(tmp_path: Path) -> None:
    text = "knobs:\n  sysctl.vm.swappiness:\n    why: a\n    source: b\n    value: 10%\n"
    assert only(tmp_path, text) == "5: sysctl.vm.swappiness must be a whole number without a unit, not '10%'"


def test_yaml_that_cannot_be_read_names_the_line(tmp_path: Path) -> None:
    message = only(tmp_path, "knobs:\n  thp.enabled: {value: never\n  x: [\n")
    assert message.startswith(("3: is not YAML", "4: is not YAML")), message


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "is an empty profile; add `knobs:` or `extends:`"),
        ("- a\n", "is not a mapping of name, about, extends"),
        ("about: nothing else\n", "holds no knobs"),
        ("knobs: [thp.enabled]\n", "knobs is not a mapping of knobs"),
        ("knobs: {[a]: b}\n", "a list or mapping cannot be a name"),
        ("overlays: {}\n", "overlays is not a list of overlays"),
        ("about: [a]\nknobs: {}\n", "about is not text"),
        ("knobs: !!python/none {}\n", "has the tag tag:yaml.org,2002:python/none"),
        ("a: 1\n---\nb: 2\n", "starts a second document"),
    ],
)
def test_a_malformed_profile_is_refused(tmp_path: Path, text: str, wrong: str) -> None:
    assert any(wrong in mistake for mistake in mistakes(write(tmp_path, "mine", text)))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_bytes(b"about: \xff\xfe\n")
    assert mistakes(path) == [f"{path}: is not UTF-8 text"]


def test_aliases_are_refused_also_a_recursive_one(tmp_path: Path) -> None:
    text = f"knobs:\n  thp.enabled: &one {row('never')}\n  thp.defrag: *one\n"
    for content in (text, "knobs: &a {x: *a}\n"):
        assert any("is an alias (*" in mistake for mistake in mistakes(write(tmp_path, "mine", content)))


def test_on_and_off_need_no_quotes_and_numbers_keep_their_digits(tmp_path: Path) -> None:
    text = f"knobs:\n  cpu.boost: {row('off')}\n  irq.balance: {row('off')}\n  sysctl.vm.swappiness: {row('010')}\n"
    rows = profiles.load(write(tmp_path, "mine", text)).rows
    assert (rows["cpu.boost"].value, rows["irq.balance"].value) == ("off", "off")
    assert rows["sysctl.vm.swappiness"].value == "10"


def test_a_knob_of_an_unknown_kind_lists_the_kinds(tmp_path: Path) -> None:
    message = only(tmp_path, f"knobs:\n  firmware.speed: {row('high')}\n")
    assert message.startswith("2: there is no knob firmware.speed; a knob's name starts with its kind: sysctl, thp")


def test_a_knob_under_another_kind_is_suggested(tmp_path: Path) -> None:
    message = only(tmp_path, f"knobs:\n  cmdline.transparent_hugepage: {row('never')}\n")
    assert message == "2: there is no knob cmdline.transparent_hugepage; thp.enabled sets that"


def test_a_sysctl_that_gpuctl_does_not_know_needs_a_type(tmp_path: Path) -> None:
    hint = "if the kernel has it, add `type: int`, `bytes` or `text`"
    unknown = "sysctl.net.netfilter.nf_conntrack_max"
    assert only(tmp_path, f"knobs:\n  {unknown}: {row(1048576)}\n") == f"2: there is no knob {unknown}; {hint}"
    text = f"knobs:\n  {unknown}: {{value: 1048576, type: int, why: a, source: b}}\n"
    assert profiles.load(write(tmp_path, "mine", text)).rows[unknown].value == "1048576"


@pytest.mark.parametrize(
    ("knob", "type_name", "wrong"),
    [
        ("sysctl.net.ipv4.tcp_mem", "number", "there is no type 'number'; use int, bytes, text"),
        ("sysctl.net.ipv4.tcp_mem", "int", "sysctl.net.ipv4.tcp_mem must be a whole number"),
        ("sysctl.vm.swappiness", "int", "sysctl.vm.swappiness takes no `type`"),
        ("thp.enabled", "text", "thp.enabled takes no `type`"),
        ("sysctl./etc/passwd", "text", "sysctl./etc/passwd takes no `type`"),
    ],
)
def test_a_type_is_checked_like_everything_else(tmp_path: Path, knob: str, type_name: str, wrong: str) -> None:
    text = f"knobs:\n  {knob}: {{value: many, type: {type_name}, why: a, source: b}}\n"
    assert wrong in only(tmp_path, text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sysctl.vm.dirty_bytes=1GiB", "sysctl.vm.dirty_ratio=10"),
        ("swap.off=off", "unit.dev-sda3.swap=enabled"),
        ("sysctl.kernel.numa_balancing=0", "cmdline.numa_balancing=enable"),
        ("irq.balance=exact", "unit.irqbalance.service=disabled stopped"),
        ("cmdline.nvme_core.io_timeout=255", "modprobe.nvme_core.io_timeout=30"),
    ],
)
def test_two_knobs_that_set_the_same_thing_are_refused(tmp_path: Path, one: str, other: str) -> None:
    (first, value), (second, other_value) = (setting.split("=", 1) for setting in (one, other))
    message = only(tmp_path, f"knobs:\n  {first}: {row(value)}\n  {second}: {row(other_value)}\n")
    assert message.startswith(f"3: {second} sets the same thing as {first} (")
    assert message.endswith(f"2); keep one, or leave the other out with `drop: [{first}]`")


def test_a_setting_of_gpus_belongs_to_the_inventory(tmp_path: Path) -> None:
    message = only(tmp_path, "knobs:\n  gpu.persistence: {value: on, why: w, source: s}\n")
    assert "2: gpu.persistence is not for a profile; set it in gpu_settings of the inventory" in message
