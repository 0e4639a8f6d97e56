"""Parameters of modules: in loaded modules, and those that modprobe will set."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import modprobe

from tests.rig.trees.host import TreeHost, changed, content, put, small_server, states, tune, undo

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
    assert "once it is reloaded" in knob["notes"][0]


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


def test_a_builtin_module_takes_no_options(root: Path) -> None:
    put(root, "/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
    put(root, "/lib/modules/6.1.0-18-amd64/modules.builtin", "kernel/net/sunrpc/sunrpc.ko\n")
    answer = tune(root, {KNOB: "128"})
    assert states(answer) == {KNOB: "unsupported"}
    assert "cmdline.sunrpc.tcp_max_slot_table_entries" in answer["knobs"][0]["reason"]


def test_a_module_that_this_kernel_does_not_have_is_unsupported(root: Path) -> None:
    put(root, "/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
    put(root, "/lib/modules/6.1.0-18-amd64/modules.dep", "kernel/fs/nfs/nfs.ko.xz: kernel/net/sunrpc/sunrpc.ko.xz\n")
    answer = tune(root, {KNOB: "128", "modprobe.efa.debug": "1"}, check=True)
    assert states(answer) == {KNOB: "differs", "modprobe.efa.debug": "unsupported"}


def test_a_container_has_no_modules(root: Path) -> None:
    put(root, "/run/systemd/container", "docker\n")
    assert states(tune(root, {KNOB: "128"})) == {KNOB: "unsupported"}


def test_the_kernel_command_line_wins(root: Path) -> None:
    put(root, "/proc/cmdline", "ro sunrpc.tcp-max-slot-table-entries=16\n")
    reading = tune(root, {KNOB: "128"})["knobs"][0]
    assert (reading["state"], reading["boot"]) == ("contested", "16")
    assert [(c["owner"], c["value"], c["wins"]) for c in reading["conflicts"]] == [("kernel command line", "16", True)]


def test_hyphens_and_other_spellings_are_the_same(root: Path) -> None:
    put(root, "/usr/lib/modprobe.d/nvme.conf", "options nvme-core io_timeout=0xff multipath=Y\n")
    put(root, "/sys/module/nvme_core/parameters/io_timeout", "255\n")
    put(root, "/sys/module/nvme_core/parameters/multipath", "Y\n")
    answer = tune(root, {"modprobe.nvme_core.io_timeout": "255", "modprobe.nvme_core.multipath": "1"}, check=True)
    assert set(states(answer).values()) == {"ok"}


def test_nvidia_keeps_its_parameters_elsewhere(root: Path) -> None:
    put(root, "/sys/module/nvidia/initstate", "live\n")
    put(root, "/proc/driver/nvidia/params", 'EnableGpuFirmware: 18\nRegistryDwords: ""\n')
    reading = tune(root, {"modprobe.nvidia.NVreg_EnableGpuFirmware": "0"})["knobs"][0]
    assert (reading["state"], reading["now"], reading["boot"], reading["reboot"]) == ("pending", "18", "0", True)
    put(root, "/proc/driver/nvidia/params", "EnableGpuFirmware: 0\n")
    assert states(tune(root, {"modprobe.nvidia.NVreg_EnableGpuFirmware": "0"})) == {reading["knob"]: "ok"}


def test_a_parameter_that_a_loaded_module_does_not_show_is_pending(root: Path) -> None:
    put(root, "/sys/module/sunrpc/initstate", "live\n")
    put(root, "/proc/stat", "cpu 1 2 3\nbtime 1700000000\n")
    assert states(tune(root, {KNOB: "128"})) == {KNOB: "pending"}
    put(root, "/proc/stat", "cpu 1 2 3\nbtime 9700000000\n")
    reading = tune(root, {KNOB: "128"})["knobs"][0]
    assert (reading["state"], reading["now"]) == ("ok", "not shown")


def test_a_value_that_the_module_refuses_is_reported(root: Path) -> None:
    class Refusing(TreeHost):
        def write(self, path: str, text: str) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

    put(root, LIVE, "65536\n")
    reading = tune(root, {KNOB: "1"}, Refusing(root))["knobs"][0]
    assert (reading["state"], reading["reason"]) == ("failed", "Invalid argument")


def test_an_option_that_somebody_edited_is_a_conflict(root: Path) -> None:
    tune(root, {KNOB: "128"})
    text = (root / OURS).read_text()
    put(root, f"/{OURS}", text.replace("=128", "=256"))
    assert states(undo(root)) == {KNOB: "conflict"}
    assert "=256" in (root / OURS).read_text()


@pytest.mark.parametrize("value", [True, "a b", 'x"', "1\\", "#1", ""])
def test_a_value_is_one_word(value: object) -> None:
    kind = modprobe.type_of("sunrpc.tcp_max_slot_table_entries")
    assert kind is not None
    with pytest.raises(ValueError, match="must be"):
        kind.check(value)
