"""A sync that is cut off, or that meets others: what is whole stays whole, and the next one goes on."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest

from gpuctl.cluster.sync import excludes
from gpuctl.cluster.sync.local import Local
from gpuctl.cluster.sync.push import PodSync, SyncRequest
from gpuctl.cluster.sync.stream import Refused
from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.findings import Verdict
from tests.rig.cluster.receiver import files, fill, open_stream, sync


@pytest.mark.parametrize("part", [0.2, 0.4, 0.6, 0.8])
def test_a_sync_that_is_cut_off_leaves_only_whole_files_and_goes_on(here: Path, there: Path, part: float) -> None:
    fill(here, {f"many/{number}.txt": f"{number}" * 1000 for number in range(300)})
    (here / "large.bin").write_bytes(os.urandom(2 << 20))
    wanted = {path.name: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    with pytest.raises(Unreachable):
        sync(here, there, breaks_after=20_000 + int(part * (2 << 20)))
    for path in there.rglob("*"):
        if path.is_file() and ".gpuctl-sync" not in path.parts:
            assert path.read_bytes() == wanted[path.name]
    assert list((there / ".gpuctl-sync/incoming").iterdir()) == []
    assert sync(here, there).verdict is Verdict.OK
    assert {p.name: p.read_bytes() for p in there.rglob("*") if p.is_file() and ".gpuctl-sync" not in p.parts} == wanted


def test_what_a_cut_sync_put_there_is_still_known_as_ours(here: Path, there: Path) -> None:
    fill(here, {f"many/{number}.txt": f"{number}" * 1000 for number in range(300)})
    (here / "many/zz.bin").write_bytes(os.urandom(1 << 20))
    with pytest.raises(Unreachable):
        sync(here, there, breaks_after=200_000)
    arrived = set(files(there))
    assert arrived
    for name in arrived:
        (here / name).unlink()
    assert sync(here, there).deleted >= len(arrived)
    assert not arrived & set(files(there))


def test_a_record_that_was_cut_in_the_middle_of_a_line_is_still_read(here: Path, there: Path) -> None:
    sync(here, there)
    with (there / ".gpuctl-sync/manifest").open("a") as stream:
        stream.write('["train.py",{"kind":"fi')
    outcome = sync(here, there)
    assert (outcome.files, outcome.kept) == (0, ())


def test_a_change_in_the_pod_between_the_look_and_the_write_is_kept(here: Path, there: Path) -> None:
    sync(here, there)
    (here / "train.py").write_text("newer")
    stream = open_stream()
    bringer = PodSync(stream, Local(here, excludes.read_patterns(here, [])), SyncRequest(str(there)))
    bringer.begin()
    plan = bringer.plan()
    (there / "train.py").write_text("mine")
    outcome = bringer.carry_out(plan)
    assert [each.path for each in outcome.kept] == ["train.py"]
    assert [each.path for each in bringer.plan().kept] == ["train.py"]
    stream.close()
    assert files(there)["train.py"] == "mine"


def test_a_file_that_grows_while_it_is_read_is_reported_or_whole(here: Path, there: Path) -> None:
    local = Local(here, excludes.read_patterns(here, []))
    stream = open_stream()
    bringer = PodSync(stream, local, SyncRequest(str(there)))
    bringer.begin()
    plan = bringer.plan()
    (here / "train.py").write_text("written after it was looked at")
    bringer.carry_out(plan)
    assert files(there)["train.py"] == "written after it was looked at"
    assert local.rescan()
    assert bringer.plan().steps == () or all(step.what == "note" for step in bringer.plan().steps)
    stream.close()


def test_two_syncs_into_one_folder_do_not_mix(here: Path, there: Path) -> None:
    first, second = open_stream(), open_stream()
    first.hello(str(there), "a", "ann@laptop:/code")
    with pytest.raises(Refused, match="another sync writes there: ann@laptop:/code") as refused:
        second.hello(str(there), "b", "bob@laptop:/code")
    assert "wait until it ends" in refused.value.hint
    first.close()
    second.close()
    assert sync(here, there).verdict is Verdict.OK


def test_a_session_whose_connection_broke_takes_the_folder_from_its_own_and_from_nobody_else(there: Path) -> None:
    broken, other, again = open_stream(), open_stream(), open_stream()
    broken.hello(str(there), "a", "ann@laptop:/code", session="ann's")  # it does not know that nobody listens
    with pytest.raises(Refused, match=r"another sync writes there: ann@laptop:/code$"):
        other.hello(str(there), "b", "bob@laptop:/code", session="bob's")
    again.hello(str(there), "a", "ann@laptop:/code", session="ann's")
    with pytest.raises(GpuctlError, match="exit code"):
        broken.alive()
    for each in (other, again):
        each.close()
    with contextlib.suppress(BrokenPipeError):
        broken.close()


def test_a_check_changes_nothing(here: Path, there: Path) -> None:
    stream = open_stream()
    bringer = PodSync(stream, Local(here, excludes.read_patterns(here, [])), SyncRequest(str(there), check=True))
    bringer.begin()
    assert [step.what for step in bringer.plan().steps] == ["put"] * 7
    stream.close()
    assert not there.exists()


def test_a_target_that_is_a_file_is_refused(here: Path, there: Path) -> None:
    there.write_text("a file")
    with pytest.raises(Refused, match=r"cannot write to .*there: "):
        sync(here, there)


def test_the_record_stays_small_however_often_it_is_written(here: Path, there: Path) -> None:
    stream = open_stream()
    local = Local(here, excludes.read_patterns(here, []))
    bringer = PodSync(stream, local, SyncRequest(str(there)))
    bringer.begin()
    for number in range(400):
        (here / "train.py").write_text(str(number))
        local.rescan(["train.py"])
        bringer.carry_out(bringer.plan())
    stream.close()
    lines = (there / ".gpuctl-sync/manifest").read_text().splitlines()
    assert len(lines) < 260
    told = [line for line in map(json.loads, lines) if isinstance(line, list) and line[0] == "train.py"]
    assert told[-1][1]["put"]
    assert files(there)["train.py"] == "399"


def test_a_python_that_cannot_be_run_is_reported_by_the_name_that_was_given(tmp_path: Path, there: Path) -> None:
    python = tmp_path / "conda-python"
    python.write_text("#!/bin/sh\necho not here >&2\nexit 127\n")
    python.chmod(0o755)
    stream = open_stream(python=str(python))
    with pytest.raises(GpuctlError, match=rf"its image has no {python} that can be run: not here"):
        stream.hello(str(there), "here", "somebody")
    stream.close()
