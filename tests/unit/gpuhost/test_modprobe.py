"""Parameters of modules: what is loaded now, and what modprobe will give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.gpuhost.trees import changed, content, put, small_server, states, tune, undo

KNOB = "modprobe.sunrpc.tcp_max_slot_table_entries"
LIVE = "/sys/module/sunrpc/parameters/tcp_max_slot_table_entries"
OURS = "etc/modprobe.d/zz-gpuctl.conf"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return small_server(tmp_path)


def test_a_module_that_is_not_loaded_only_gets_its_line(root: Path) -> None:
    before = content(root)
    assert changed(tune(root, {KNOB: "128"}, check=True)) == {KNOB}
    assert states(tune(root, {KNOB: "128"})) == {KNOB: "ok"}
    assert "options sunrpc tcp_max_slot_table_entries=128\n" in (root / OURS).read_text()
    assert changed(tune(root, {KNOB: "128"})) == set()
    undo(root)
    assert content(root) == before


def test_a_loaded_module_that_takes_it_gets_it_at_once(root: Path) -> None:
    put(root, LIVE, "65536\n")
    knob = tune(root, {KNOB: "128"})["knobs"][0]
    assert (knob["state"], knob["now"], knob["boot"]) == ("ok", "128", "128")
    undo(root)
    assert (root / LIVE[1:]).read_text() == "65536\n"


def test_a_loaded_module_that_does_not_take_it_waits(root: Path) -> None:
    put(root, LIVE, "65536\n", 0o444)
    knob = tune(root, {KNOB: "128"})["knobs"][0]
    assert (knob["state"], knob["now"], knob["boot"]) == ("pending", "65536", "128")
    assert "loaded again" in knob["notes"][0]


def test_a_switch_reads_as_y_or_n(root: Path) -> None:
    put(root, "/sys/module/nvidia/parameters/flag", "Y\n")
    knob = tune(root, {"modprobe.nvidia.flag": "1"})["knobs"][0]
    assert knob["now"] == "Y"
    assert [step["setting"] for step in knob["steps"]] == ["line:/etc/modprobe.d/zz-gpuctl.conf:options nvidia flag"]


@pytest.mark.parametrize(("name", "wins"), [("zzz.conf", True), ("50-nfs.conf", False)])
def test_another_file_with_the_same_option_is_named(root: Path, name: str, wins: bool) -> None:
    put(root, f"/etc/modprobe.d/{name}", "# nfs\noptions sunrpc pool_mode=percpu tcp_max_slot_table_entries=64\n")
    knob = tune(root, {KNOB: "128"})["knobs"][0]
    assert [(c["where"], c["value"], c["wins"]) for c in knob["conflicts"]] == [
        (f"/etc/modprobe.d/{name}:2", "64", wins)
    ]
    assert knob["state"] == ("contested" if wins else "ok")


def test_what_is_built_in_takes_no_options(root: Path) -> None:
    put(root, "/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
    put(root, "/lib/modules/6.1.0-18-amd64/modules.builtin", "kernel/net/sunrpc/sunrpc.ko\n")
    answer = tune(root, {KNOB: "128"})
    assert states(answer) == {KNOB: "unsupported"}
    assert "cmdline.sunrpc.tcp_max_slot_table_entries" in answer["knobs"][0]["reason"]
