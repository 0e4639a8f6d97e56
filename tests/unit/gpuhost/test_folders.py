"""Folders that a run creates, and folders that it cannot write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.trees.host import TreeHost, content, program, put, small_server, states, tune, undo

DEEP = "file./etc/gpu/site/deep/one.conf"
OTHER = "file./etc/gpu/site/two.conf"
TEXT = "0644 0:0\ntext\n"


class ReadOnly(TreeHost):
    """A host with a read-only folder."""

    def __init__(self, root: Path, folder: str) -> None:
        super().__init__(root)
        self.folder = folder

    def can_write(self, path: str) -> bool:
        return not path.startswith(self.folder) and super().can_write(path)


def folders(root: Path) -> set[str]:
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir()}
    return {path for path in found if not path.startswith(("var/lib/gpuctl", "run/gpuctl"))}


def test_an_undo_removes_the_folders_of_its_files_and_no_others(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    (root / "etc/sysctl.d").mkdir()
    (root / "etc/systemd/system/multi-user.target.wants").mkdir(parents=True)  # systemctl makes it
    before = folders(root) | {"var", "var/lib"}
    tune(root, {"thp.enabled": "always", "sysctl.vm.swappiness": "1", DEEP: TEXT})
    assert "etc/gpu/site/deep" in folders(root)
    undo(root)
    assert folders(root) == before


def test_a_folder_stays_while_another_setting_or_somebody_else_needs_it(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    tune(root, {DEEP: TEXT, OTHER: TEXT})
    undo(root, only=[DEEP])
    assert (root / "etc/gpu/site/two.conf").exists()
    assert not (root / "etc/gpu/site/deep").exists()
    put(root, "/etc/gpu/theirs", "")
    assert set(states(undo(root)).values()) == {"ok"}
    assert {path for path in folders(root) if path.startswith("etc/gpu")} == {"etc/gpu"}
    assert undo(root)["knobs"] == []


def test_a_read_only_etc_refuses_the_settings_that_need_it(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    before = content(root)
    knobs = {"sysctl.vm.swappiness": "1", "sysctl.vm.max_map_count": "65530"}
    put(root, "/etc/sysctl.d/50-site.conf", "vm.max_map_count = 65530\n")
    for check in (True, False):
        answer = tune(root, knobs, host=ReadOnly(root, "/etc"), check=check)
        assert states(answer) == {"sysctl.vm.swappiness": "refused", "sysctl.vm.max_map_count": "ok"}
        assert "/etc/sysctl.d cannot be written" in answer["knobs"][0]["reason"]
    assert {**content(root), "etc/sysctl.d/50-site.conf": ""} == {**before, "etc/sysctl.d/50-site.conf": ""}


@pytest.mark.parametrize(
    ("folder", "path", "knobs"),
    [
        ("/proc/sys", "/proc/sys/vm/swappiness", {"sysctl.vm.swappiness": "1"}),
        ("/proc/sys", "/proc/sys/vm/dirty_bytes", {"sysctl.vm.dirty_bytes": "1GiB"}),
        ("/sys", "/sys/kernel/mm/transparent_hugepage/enabled", {"thp.enabled": "always"}),
    ],
)
def test_kernel_files_that_cannot_be_written_are_seen_with_check(
    tmp_path: Path, folder: str, path: str, knobs: dict[str, str]
) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/sys/vm/dirty_bytes", "0\n")
    put(root, "/proc/sys/vm/dirty_ratio", "20\n")
    (knob,) = knobs
    for check in (True, False):
        answer = tune(root, knobs, host=ReadOnly(root, folder), check=check)
        assert states(answer)[knob] == "refused"
        assert f"{path} cannot be written here" in answer["knobs"][0]["reason"]
    assert not (root / "etc/sysctl.d").exists()


@pytest.mark.parametrize("folder", ["/usr", "/etc/systemd", "/etc/udev"])
def test_a_value_is_not_ok_where_nothing_can_set_it_at_boot(tmp_path: Path, folder: str) -> None:
    """As on distributions whose /usr is an image."""
    root = small_server(tmp_path)
    knobs = {"thp.enabled": "always", "irq.balance": "off", "sysctl.vm.swappiness": "1"}
    for _ in range(2):
        answer = tune(root, knobs, host=ReadOnly(root, folder))
        (thp,) = [knob for knob in answer["knobs"] if knob["knob"] == "thp.enabled"]
        assert (thp["state"], thp["now"], thp["boot"]) == ("contested", "always", "kernel default")
        assert thp["reason"] == "it is lost at the next boot without gpuctl-boot, which is refused"
        assert states(answer)["sysctl.vm.swappiness"] == "ok"
    answer = tune(root, knobs)
    assert set(states(answer).values()) <= {"ok", "unsupported"}


def test_a_boot_program_that_could_not_be_enabled_keeps_nothing(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    systemctl = (root / "usr/bin/systemctl").read_text()
    program(root, "systemctl-real", systemctl)
    failing = 'case "$*" in *enable*) echo no space left >&2; exit 1;; *) exec "$0-real" "$@";; esac'
    program(root, "systemctl", f"#!/bin/sh\n{failing}\n")
    found = states(tune(root, {"thp.enabled": "always"}))
    assert found == {"thp.enabled": "contested", "program.gpuctl-boot": "failed"}
    program(root, "systemctl", systemctl)
    assert set(states(tune(root, {"thp.enabled": "always"})).values()) == {"ok"}
