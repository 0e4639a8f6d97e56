"""A sync as the pod's own program carries it out: what is written, what is kept, what a cut leaves."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.cluster.sync import excludes
from gpuctl.cluster.sync.local import KEEPS_CHANGING, SMALL, Local
from gpuctl.cluster.sync.model import Item
from gpuctl.cluster.sync.push import PodSync, SyncRequest, preview
from gpuctl.cluster.sync.scan import scan
from gpuctl.domain.findings import Verdict
from tests.rig.cluster.receiver import TREE, files, fill, first, open_stream, opened, sync


def test_a_folder_is_there_afterwards_and_a_second_sync_sends_nothing(here: Path, there: Path) -> None:
    first, second = sync(here, there), sync(here, there)
    assert files(there) == TREE
    assert (first.files, first.bytes, first.verdict) == (4, 7, Verdict.OK)
    assert (second.files, second.deleted, second.verdict) == (0, 0, Verdict.OK)


def test_only_what_changed_is_sent(here: Path, there: Path) -> None:
    sync(here, there)
    (here / "pkg/a.py").write_text("A")
    os.utime(here / "train.py", ns=(1, 1))  # touched, and the same
    assert sync(here, there).files == 1
    assert files(there)["pkg/a.py"] == "A"


def test_links_modes_empty_folders_times_and_odd_names_arrive(here: Path, there: Path) -> None:
    (here / "to").symlink_to("pkg")
    (here / "nowhere").symlink_to("/does/not/exist")
    (here / "void/below").mkdir(parents=True)
    (here / "run.sh").write_text("#!/bin/sh\n")
    (here / "run.sh").chmod(0o755)
    os.utime(here / "run.sh", ns=(0, 1_234_567_891_234_567_891))
    odd = [b"\xff\xfe", "Grüße ☃".encode(), b"new\nline", b" spaces ", b"-rf", b"quote'\"$(x)"]
    for name in odd:
        Path(os.fsdecode(os.fsencode(here) + b"/" + name)).write_bytes(name)
    assert sync(here, there).verdict is Verdict.OK
    assert [str((there / name).readlink()) for name in ("to", "nowhere")] == ["pkg", "/does/not/exist"]
    assert (there / "void/below").is_dir()
    found = (there / "run.sh").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (0o775, 1_234_567_891_234_567_891)
    assert all(Path(os.fsdecode(os.fsencode(there) + b"/" + name)).read_bytes() == name for name in odd)
    assert sync(here, there).files == 0


def test_the_group_may_change_what_is_not_private(here: Path, there: Path) -> None:
    modes = {"open.py": (0o644, 0o664), "run.sh": (0o755, 0o775), "key": (0o600, 0o600), "read": (0o444, 0o444)}
    for name, (mode, _) in modes.items():
        (here / name).write_text("x")
        (here / name).chmod(mode)
    sync(here, there)
    assert {name: stat.S_IMODE((there / name).stat().st_mode) for name in modes} == {
        name: mode for name, (_, mode) in modes.items()
    }


def test_a_new_mode_is_set_without_sending_the_file_again(here: Path, there: Path) -> None:
    sync(here, there)
    (here / "train.py").chmod(0o755)
    assert sync(here, there).files == 0
    assert stat.S_IMODE((there / "train.py").stat().st_mode) == 0o775


def test_a_file_that_is_there_the_same_gets_the_mode_that_it_has_here(here: Path, there: Path) -> None:
    fill(there, {"train.py": "train"})
    (here / "train.py").chmod(0o755)
    assert sync(here, there).files == 3
    assert stat.S_IMODE((there / "train.py").stat().st_mode) == 0o775


def test_a_large_file_goes_in_parts(here: Path, there: Path) -> None:
    data = os.urandom(3 << 20)
    (here / "weights.bin").write_bytes(data)
    assert sync(here, there).verdict is Verdict.OK
    assert (there / "weights.bin").read_bytes() == data


# ---- deletes and conflicts ------------------------------------------------------------------------------------------


def test_what_is_gone_here_is_deleted_with_the_folders_that_it_leaves_empty(here: Path, there: Path) -> None:
    sync(here, there)
    (here / "pkg/deep/b.py").unlink()
    (here / "pkg/deep").rmdir()
    assert sync(here, there).deleted == 2
    assert not (there / "pkg/deep").exists()


def test_what_no_sync_put_there_stays(here: Path, there: Path) -> None:
    fill(there, {"checkpoints/step-1.pt": "weights", "hostfile": "pod-0 slots=8", "pkg/made-in-pod.log": "log"})
    sync(here, there)
    for name in ("pkg/a.py", "pkg/deep/b.py"):
        (here / name).unlink()
    for name in ("pkg/deep", "pkg"):
        (here / name).rmdir()
    outcome = sync(here, there)
    assert (outcome.deleted, outcome.verdict) == (3, Verdict.OK)
    left = files(there)
    assert {"checkpoints/step-1.pt", "hostfile", "pkg/made-in-pod.log"} <= set(left)
    assert "pkg/a.py" not in left


def test_a_file_that_was_there_the_same_before_any_sync_is_not_deleted(here: Path, there: Path) -> None:
    fill(there, {"train.py": "train"})
    sync(here, there)
    (here / "train.py").unlink()
    assert sync(here, there).deleted == 0
    assert files(there)["train.py"] == "train"


def test_what_was_changed_in_the_pod_is_kept_and_told(here: Path, there: Path) -> None:
    sync(here, there)
    (there / "train.py").write_text("mine")
    (there / "pkg/a.py").write_text("mine too")
    (here / "train.py").write_text("newer")
    (here / "pkg/a.py").unlink()
    outcome = sync(here, there)
    assert {each.path: each.why for each in outcome.kept} == {
        "train.py": "changed in the pod since the last sync",
        "pkg/a.py": "changed in the pod, and deleted here",
    }
    assert outcome.verdict is Verdict.FAIL
    assert (files(there)["train.py"], files(there)["pkg/a.py"]) == ("mine", "mine too")


def test_a_change_of_the_same_size_and_time_is_noticed_in_the_pod(here: Path, there: Path) -> None:
    sync(here, there)
    before = (there / "train.py").stat()
    (there / "train.py").write_text("TRAIN")
    os.utime(there / "train.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    (here / "train.py").write_text("other")
    assert [each.path for each in sync(here, there).kept] == ["train.py"]


def test_force_replaces_what_was_changed_in_the_pod(here: Path, there: Path) -> None:
    sync(here, there)
    fill(there, {"train.py": "mine", "pkg/a.py": "mine"})
    (here / "pkg/a.py").unlink()
    outcome = sync(here, there, force=True)
    assert (outcome.kept, outcome.deleted) == ((), 1)
    assert files(there) == {name: text for name, text in TREE.items() if name != "pkg/a.py"}


def test_a_file_that_the_pod_lost_comes_back(here: Path, there: Path) -> None:
    sync(here, there)
    (there / "train.py").unlink()
    assert sync(here, there).files == 1
    assert files(there) == TREE


def test_what_the_pod_already_has_the_same_is_no_conflict(here: Path, there: Path) -> None:
    fill(there, {"train.py": "other", "pkg/a.py": "a"})
    outcome = sync(here, there)
    assert [(each.path, each.why) for each in outcome.kept] == [("train.py", "existed before any sync, and differs")]


def test_a_link_in_the_pod_is_never_written_through(here: Path, there: Path, tmp_path: Path) -> None:
    fill(tmp_path / "elsewhere", {"a.py": "precious"})
    there.mkdir()
    (there / "pkg").symlink_to(tmp_path / "elsewhere")
    for force in (False, True):
        sync(here, there, force=force)
        assert files(tmp_path / "elsewhere") == {"a.py": "precious"}
    assert (there / "pkg/a.py").read_text() == "a"
    assert not (there / "pkg").is_symlink()


def test_files_become_folders_and_folders_files(here: Path, there: Path) -> None:
    sync(here, there)
    (here / "train.py").unlink()
    fill(here, {"train.py/main.py": "main"})
    for name in ("pkg/a.py", "pkg/deep/b.py"):
        (here / name).unlink()
    (here / "pkg/deep").rmdir()
    (here / "pkg").rmdir()
    (here / "pkg").write_text("a file now")
    assert sync(here, there).kept == ()
    assert files(there) == {"train.py/main.py": "main", "pkg": "a file now", "data/empty": ""}


def test_a_pattern_that_comes_later_deletes_nothing(here: Path, there: Path) -> None:
    sync(here, there)
    (here / "pkg/a.py").unlink()
    assert sync(here, there, "pkg/").deleted == 0
    assert files(there) == TREE


def test_files_of_another_folder_stay_until_force(here: Path, there: Path, tmp_path: Path) -> None:
    sync(here, there)
    fill(tmp_path / "other", {"train.py": "train", "new.py": "new"})
    outcome = sync(tmp_path / "other", there)
    assert (outcome.deleted, outcome.strangers) == (0, 6)
    assert set(files(there)) == {*TREE, "new.py"}
    assert sync(tmp_path / "other", there, force=True).deleted == 6


def test_a_folder_that_cannot_be_read_here_deletes_nothing_there(here: Path, there: Path) -> None:
    sync(here, there)
    local, stream = Local(here, excludes.read_patterns(here, [])), open_stream()
    read = {path: item for path, item in local.scanned.items.items() if not path.startswith("pkg/")}
    local.scanned = replace(local.scanned, items=read, unread={"pkg": "Permission denied"})
    bringer = PodSync(stream, local, SyncRequest(str(there)))
    bringer.begin()
    outcome = bringer.carry_out(bringer.plan())
    stream.close()
    assert (outcome.deleted, outcome.verdict) == (0, Verdict.FAIL)
    assert [(each.path, each.why) for each in outcome.failed] == [("pkg", "cannot read it here: Permission denied")]
    assert files(there) == TREE


def test_a_folder_that_is_gone_here_deletes_nothing_there(here: Path, there: Path, tmp_path: Path) -> None:
    sync(here, there)
    with opened(here, there) as bringer:
        here.rename(tmp_path / "away")
        bringer.local.rescan()
        outcome = bringer.carry_out(bringer.plan())
    assert (outcome.deleted, outcome.verdict) == (0, Verdict.FAIL)
    assert [(each.path, each.why) for each in outcome.failed] == [
        (".", "cannot read it here: the folder does not exist")
    ]
    assert files(there) == TREE


def test_a_folder_that_can_be_read_only_after_it_was_looked_at_loses_nothing(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(here, there)
    with opened(here, there) as bringer:
        local = bringer.local
        read = {path: item for path, item in local.scanned.items.items() if not path.startswith("pkg/")}
        local.scanned = replace(local.scanned, items=read, unread={"pkg": "Stale file handle"})

        def later(_: object) -> dict[str, str]:
            local.scanned = scan(here, local.excludes)
            return {}

        monkeypatch.setattr(local, "hashes", later)
        plan = bringer.plan()
    assert [step for step in plan.steps if step.what == "delete"] == []
    assert [each.path for each in plan.unread] == ["pkg"]


def test_a_check_tells_what_cannot_be_read_here(here: Path, there: Path) -> None:
    with opened(here, there, check=True) as bringer:
        bringer.local.scanned = replace(bringer.local.scanned, unread={"pkg": "Permission denied"})
        outcome = preview("here", bringer.plan())
    assert (outcome.verdict, [each.path for each in outcome.failed]) == (Verdict.FAIL, ["pkg"])


# ---- what went wrong, and the next time -----------------------------------------------------------------------------


def test_a_file_that_kept_changing_is_sent_once_it_is_quiet(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = here / "log.bin"
    log.write_bytes(bytes(SMALL + 1))
    sync(here, there)
    with opened(here, there) as bringer:
        large = bringer.local.large

        def growing(path: str, sent: dict[str, tuple[str, Item]]) -> Iterator[bytes]:
            for message in large(path, sent):
                with log.open("ab") as stream:
                    stream.write(b"y")
                yield message

        log.write_bytes(os.urandom(SMALL + 1))
        bringer.local.rescan()
        with monkeypatch.context() as patch:
            patch.setattr(bringer.local, "large", growing)
            outcome = bringer.carry_out(bringer.plan())
        assert [(each.path, each.why) for each in outcome.failed] == [("log.bin", KEEPS_CHANGING)]
        bringer.local.rescan()
        outcome = bringer.carry_out(bringer.plan())
    assert (outcome.files, outcome.kept, outcome.verdict) == (1, (), Verdict.OK)
    assert (there / "log.bin").read_bytes() == log.read_bytes()


def test_a_folder_that_stays_for_what_others_have_in_it_is_no_conflict_later(here: Path, there: Path) -> None:
    sync(here, there)
    fill(there, {"pkg/__pycache__/a.pyc": "made in the pod"})
    with opened(here, there) as bringer:
        (here / "pkg").rename(here / "renamed")
        bringer.local.rescan()
        assert bringer.carry_out(bringer.plan()).verdict is Verdict.OK
        (here / "train.py").write_text("newer")
        bringer.local.rescan()
        outcome = bringer.carry_out(bringer.plan())
        assert (outcome.kept, outcome.deleted, outcome.verdict) == ((), 0, Verdict.OK)
        shutil.rmtree(there / "pkg/__pycache__")
        assert bringer.carry_out(bringer.plan()).deleted == 1


NO_ROOM = """
import errno, os
finish = module.Writer._finish
def full(writer, stream, told, value):
    if os.path.exists(os.path.join(writer.root, b".gpuctl-sync", b"full")):
        raise OSError(errno.ENOSPC, "No space left on device")
    return finish(writer, stream, told, value)
module.Writer._finish = full
"""


def test_a_full_disk_gives_up_what_is_gone_here_and_what_it_did_not_take_is_brought_later(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first(monkeypatch, NO_ROOM)
    (here / "old.bin").write_bytes(os.urandom(2 << 20))
    fill(there, {"same.py": "same"})
    sync(here, there)
    (there / ".gpuctl-sync/full").touch()
    (here / "old.bin").rename(here / "new.bin")
    fill(here, {"same.py": "same", "void/more.py": "more"})
    (here / "to").symlink_to("train.py")
    with opened(here, there) as bringer:
        tell, alive = bringer.stream.send, bringer.stream.alive
        monkeypatch.setattr(bringer.stream, "send", lambda message: (tell(message), alive()))  # hears it at once
        outcome = bringer.carry_out(bringer.plan())
        assert (outcome.wrong, outcome.deleted) == ("its disk is full (No space left on device)", 1)
        assert set(files(there)) == {*TREE, "same.py"}
        (there / ".gpuctl-sync/full").unlink()
        assert bringer.carry_out(bringer.plan()).verdict is Verdict.OK
        assert {step.what for step in bringer.plan().steps} <= {"note"}  # of files that have just been written
    assert (there / "new.bin").read_bytes() == (here / "new.bin").read_bytes()
    assert files(there).keys() == files(here).keys()
    assert (there / "to").is_symlink()


def test_what_could_not_be_deleted_is_not_counted_as_deleted(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(here, there)
    (here / "train.py").unlink()
    (here / "data/empty").unlink()
    refuses = """
import os
unlink = os.unlink
def refused(path):
    if path.endswith(b"train.py"):
        raise PermissionError(13, "Permission denied")
    unlink(path)
os.unlink = refused
"""
    first(monkeypatch, refuses)
    outcome = sync(here, there)
    assert (outcome.deleted, outcome.verdict) == (1, Verdict.FAIL)
    assert [(each.path, each.why) for each in outcome.failed] == [("train.py", "Permission denied")]


UNREADABLE = """
hash_of = module.tree.hash_of
def refused(at):
    if at.endswith(b".bin"):
        raise PermissionError(13, "Permission denied")
    return hash_of(at)
module.tree.hash_of = refused
"""


def test_a_file_that_cannot_be_read_in_the_pod_is_kept_and_stops_no_other(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(here, {"known.bin": "1", "gone.bin": "1"})
    sync(here, there)
    fill(there, {"known.bin": "theirs", "gone.bin": "theirs", "unknown.bin": "theirs"})
    fill(here, {"known.bin": "2", "unknown.bin": "2", "new.py": "new"})
    (here / "gone.bin").unlink()
    first(monkeypatch, UNREADABLE)
    outcome = sync(here, there)
    assert (outcome.files, outcome.verdict) == (1, Verdict.FAIL)
    assert {each.path: each.why for each in outcome.kept} == {
        "known.bin": "cannot be read in the pod",
        "unknown.bin": "cannot be read in the pod",
        "gone.bin": "cannot be read in the pod, and deleted here",
    }
    assert sync(here, there, force=True).verdict is Verdict.OK
    assert files(there) == files(here)
