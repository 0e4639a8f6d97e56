"""Folders that a run creates, and folders that it cannot write."""

from __future__ import annotations

from pathlib import Path

from tests.rig.trees.host import TreeHost, content, put, small_server, states, tune, undo

DEEP = "file./etc/gpu/site/deep/one.conf"
OTHER = "file./etc/gpu/site/two.conf"
TEXT = "0644 0:0\ntext\n"


class ReadOnlyEtc(TreeHost):
    """A host whose /etc is on a read-only disk."""

    def can_write(self, path: str) -> bool:
        return not path.startswith("/etc") and super().can_write(path)


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
        answer = tune(root, knobs, host=ReadOnlyEtc(root), check=check)
        assert states(answer) == {"sysctl.vm.swappiness": "refused", "sysctl.vm.max_map_count": "ok"}
        assert "/etc/sysctl.d cannot be written" in answer["knobs"][0]["reason"]
    assert {**content(root), "etc/sysctl.d/50-site.conf": ""} == {**before, "etc/sysctl.d/50-site.conf": ""}
