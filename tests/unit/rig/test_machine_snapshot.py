"""The comparison of two snapshots names what tests changed on their machine, and nothing that others changed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from tests.rig import machine_snapshot
from tests.rig.machine_snapshot import Snapshot

HOST_MOUNTS = "21 1 0:21 / /proc rw,relatime - proc proc rw\n22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n"


def snapshot(**sections: dict[str, str]) -> Snapshot:
    """One that holds just this; `kernel_file` is the section "kernel file"."""
    given = {name.replace("_", " "): section for name, section in sections.items()}
    return {name: given.get(name, {}) for name in machine_snapshot.SECTIONS}


def test_a_device_whose_mode_or_owner_changed_is_named_with_both() -> None:
    before = snapshot(device={"/dev/null": "crw-rw-rw- 0:0 1,3"})
    after = snapshot(device={"/dev/null": "crw--w---- 0:5 1,3"})
    assert machine_snapshot.differences(before, after) == [
        "device /dev/null: crw-rw-rw- 0:0 1,3 before, crw--w---- 0:5 1,3 after"
    ]


def test_what_came_and_what_went_is_named() -> None:
    before, after = snapshot(mount={"/etc/hosts": "x"}), snapshot(configuration={"/etc/new": "-rw-r--r-- 0:0"})
    assert machine_snapshot.differences(before, after) == [
        "mount /etc/hosts: x before, absent after",
        "configuration /etc/new: absent before, -rw-r--r-- 0:0 after",
    ]


def test_a_setting_that_came_with_an_interface_of_somebody_else_is_no_difference() -> None:
    forwarding = {"/proc/sys/net/ipv4/conf/theirs/forwarding": "1"}
    assert machine_snapshot.differences(snapshot(), snapshot(sysctl=forwarding)) == []
    changed = {"/proc/sys/net/ipv4/conf/theirs/forwarding": "0"}
    (line,) = machine_snapshot.differences(snapshot(sysctl=forwarding), snapshot(sysctl=changed))
    assert line.endswith("1 before, 0 after")


def test_a_package_installed_elsewhere_explains_new_content_but_no_new_mode() -> None:
    old = {"/etc/a.conf": "-rw-r--r-- 0:0 sha256 1", "/etc/b.conf": "-rw-r--r-- 0:0 sha256 1"}
    new = {"/etc/a.conf": "-rw-r--r-- 0:0 sha256 2", "/etc/b.conf": "-rw-rw-rw- 0:0 sha256 1", "/etc/c.conf": "x"}
    before = snapshot(configuration=old, packages={"/var/lib/dpkg/status": "1"})
    after = snapshot(configuration=new, packages={"/var/lib/dpkg/status": "2"})
    (line,) = machine_snapshot.differences(before, after)
    assert line.startswith("configuration /etc/b.conf: ")
    same_packages = snapshot(configuration=new, packages={"/var/lib/dpkg/status": "1"})
    assert len(machine_snapshot.differences(before, same_packages)) == 3


def test_devices_are_read_with_mode_owner_and_kind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "file").write_text("")
    before = machine_snapshot.devices(tmp_path)
    (tmp_path / "pipe").chmod(0o640)
    after = machine_snapshot.devices(tmp_path)
    (line,) = machine_snapshot.differences(snapshot(device=before), snapshot(device=after))
    assert line.startswith(f"device {tmp_path}/pipe: prw------- ")
    assert " before, prw-r----- " in line


def test_what_is_removed_while_it_is_read_counts_as_absent(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    section = {
        **machine_snapshot.kernel_files(tmp_path),
        str(tmp_path / "gone"): machine_snapshot._state(tmp_path / "gone"),
    }
    assert list(machine_snapshot.present(section)) == [str(tmp_path / "sys")]


def test_settings_are_compared_by_value_and_those_the_kernel_moves_are_left_out(tmp_path: Path) -> None:
    for name, text in (("vm/swappiness", "60\n"), ("kernel/ns_last_pid", "4711\n"), ("kernel/random/uuid", "a\n")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine_snapshot.sysctls(tmp_path) == {f"{tmp_path}/vm/swappiness": "60"}


@pytest.mark.parametrize(
    "line",
    [
        "30 21 0:5 /null /proc/kmsg rw - devtmpfs devtmpfs rw",  # over a kernel file
        "30 22 0:30 / /etc rw - tmpfs tmpfs rw",
        "30 22 0:30 / /run/netns rw shared:7 - tmpfs tmpfs rw",
        "30 22 0:30 / /cache/gctl100/hosts/h1/root rw - overlay overlay rw",  # of a rig that is gone
    ],
)
def test_a_mount_on_the_system_or_of_a_rig_that_is_gone_counts(line: str) -> None:
    plain, more = (
        machine_snapshot.system_mounts(text, [Path("/cache/gctl101")], Path("/cache"))
        for text in (HOST_MOUNTS, HOST_MOUNTS + line)
    )
    assert len(machine_snapshot.differences(snapshot(mount=plain), snapshot(mount=more))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "30 22 0:30 / /run/user/1000 rw - tmpfs tmpfs rw",
        "30 22 0:30 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw",
        "30 22 0:30 / /tmp/somebody rw - tmpfs tmpfs rw",
        "30 22 0:30 / /cache/gctl101/hosts/h1/root rw - overlay overlay rw",  # of a rig that runs
    ],
)
def test_a_mount_that_others_make_in_normal_operation_does_not_count(line: str) -> None:
    mounts = machine_snapshot.system_mounts(HOST_MOUNTS + line, [Path("/cache/gctl101")], Path("/cache"))
    assert sorted(mounts) == ["/", "/proc"]


def test_a_change_of_propagation_is_a_difference() -> None:
    before, after = (
        machine_snapshot.system_mounts(text, [], Path("/cache"))
        for text in (HOST_MOUNTS, HOST_MOUNTS.replace(" shared:1", ""))
    )
    (line,) = machine_snapshot.differences(snapshot(mount=before), snapshot(mount=after))
    assert line.startswith("mount /: 254:0 / rw shared:1 ")


def test_the_last_of_several_processes_fails_where_the_machine_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = iter(["crw-rw-rw-", "crw-------"])
    monkeypatch.setattr(machine_snapshot, "take", lambda: snapshot(device={"/dev/null": next(modes, "crw-------")}))
    first = machine_snapshot.unchanged(tmp_path, settle_s=0)
    with contextlib.ExitStack() as last:
        with first:
            last.enter_context(machine_snapshot.unchanged(tmp_path, settle_s=0))
        with pytest.raises(AssertionError, match=r"changed this machine:\n  device /dev/null: crw-rw-rw- before, crw-"):
            last.close()
    with machine_snapshot.unchanged(tmp_path):  # a later one begins with the machine as it finds it
        pass
