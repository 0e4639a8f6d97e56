"""Read-ahead of disks is raised, never lowered; NFS gets it by a rule of udev."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import boot

from tests.rig.trees.host import TreeHost, changed, content, put, small_server, states, tune, undo

KNOB, NFS = {"disk.read_ahead_kb": "4096"}, {"disk.nfs_read_ahead_kb": "15380"}
VALUES = {"nvme0n1": 128, "md0": 8192, "dm-0": 128, "loop0": 128}
VOLUMES = (
    "NV SERVER   PORT DEV          FSID                              FSC\nv4 0a000001  801 0:45         1:0    no\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = small_server(tmp_path)
    for name, kib in VALUES.items():
        put(root, f"/sys/block/{name}/queue/read_ahead_kb", f"{kib}\n")
    return root


def read_ahead(root: Path) -> dict[str, int]:
    return {name: int((root / f"sys/block/{name}/queue/read_ahead_kb").read_text()) for name in VALUES}


def test_smaller_values_are_raised_and_come_back(root: Path) -> None:
    before = content(root)
    assert changed(tune(root, KNOB, check=True)) == {"disk.read_ahead_kb", "program.gpuctl-boot"}
    assert states(tune(root, KNOB))["disk.read_ahead_kb"] == "ok"
    assert read_ahead(root) == {"nvme0n1": 4096, "md0": 8192, "dm-0": 4096, "loop0": 128}
    assert changed(tune(root, KNOB)) == set()
    undo(root)
    assert {**content(root), "run/standin-units.json": ""} == {**before, "run/standin-units.json": ""}


def test_a_boot_raises_them_again_and_lowers_none(root: Path) -> None:
    tune(root, KNOB)
    for name, kib in VALUES.items():
        put(root, f"/sys/block/{name}/queue/read_ahead_kb", f"{kib}\n")
    assert boot.main([], TreeHost(root)) == 0
    assert read_ahead(root) == {"nvme0n1": 4096, "md0": 8192, "dm-0": 4096, "loop0": 128}


def test_tuned_with_the_same_value_is_no_rival(root: Path) -> None:
    put(root, "/etc/systemd/system/multi-user.target.wants/tuned.service", "")
    put(root, "/etc/tuned/active_profile", "site\n")
    put(root, "/etc/tuned/site/tuned.conf", "[disk]\nreadahead=>4096\n")
    assert tune(root, KNOB)["knobs"][0]["conflicts"] == []
    put(root, "/etc/tuned/site/tuned.conf", "[disk]\nreadahead=128\n")
    assert [c["wins"] for c in tune(root, KNOB)["knobs"][0]["conflicts"]] == [False]


def test_a_host_without_disks_has_no_read_ahead(tmp_path: Path) -> None:
    assert states(tune(small_server(tmp_path), KNOB))["disk.read_ahead_kb"] == "unsupported"


def test_nfs_gets_a_rule_and_mounted_file_systems_the_value(root: Path) -> None:
    put(root, "/proc/fs/nfsfs/volumes", VOLUMES)
    put(root, "/sys/class/bdi/0:45/read_ahead_kb", "128\n")
    before = content(root)
    assert states(tune(root, NFS))["disk.nfs_read_ahead_kb"] == "ok"
    assert (root / "sys/class/bdi/0:45/read_ahead_kb").read_text() == "15380\n"
    rule = (root / "etc/udev/rules.d/99-zz-gpuctl-nfs.rules").read_text().replace("\\\n", "")
    assert "'BEGIN{ret=1} {if ($4 == bdi) {ret=0}} END{exit ret}'" in rule
    assert rule.splitlines()[1].endswith('ATTR{read_ahead_kb}="15380"')
    undo(root)
    assert {**content(root), "run/standin-units.json": ""} == {**before, "run/standin-units.json": ""}
