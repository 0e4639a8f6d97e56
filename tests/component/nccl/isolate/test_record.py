"""Whether the runs of an isolation can be kept is said before any node is asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.nccl.isolate import command
from gpuctl.core.errors import InvalidInput
from gpuctl.nccl.isolate import record
from tests.rig.nccl.simulated import known, net, play


@pytest.fixture(autouse=True)
def not_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """May do what the owner of a file may, as root may do anything."""
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).stat().st_mode >> 6 & mode == mode)
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"GPUCTL_{name}_DIR", str(tmp_path / name))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A whole record, in a folder of its own."""
    (tmp_path / "runs").mkdir()
    played = play(net(16))
    record.write(tmp_path / "runs/16.json", played.fleet, played.history)
    return tmp_path / "runs/16.json"


def isolate(kept: Path, tmp_path: Path) -> Result:
    """Two hosts, of which the record does not tell."""
    (tmp_path / "fleet.ini").write_text("a rack=r1\nb rack=r1\n")
    return CliRunner().invoke(command, ["--inventory", str(tmp_path / "fleet.ini"), "--record", str(kept)])


def refusal(result: Result) -> str:
    assert isinstance(result.exception, InvalidInput)
    return str(result.exception)


@pytest.mark.parametrize("name", ["16.json", "new.json"])
def test_a_record_in_a_folder_that_cannot_be_written_is_refused_whether_it_is_there_or_not(
    kept: Path, tmp_path: Path, name: str
) -> None:
    kept.parent.chmod(0o500)
    assert "its folder is not writable" in refusal(isolate(kept.with_name(name), tmp_path))


def test_a_read_only_record_is_gone_on_with_as_a_new_one_takes_its_place(kept: Path, tmp_path: Path) -> None:
    kept.chmod(0o400)
    assert "it is about other nodes" in refusal(isolate(kept, tmp_path))
    record.write(kept, known(net(2)), ())
    assert record.read(kept).history == ()


def test_a_record_that_cannot_be_read_is_refused(kept: Path, tmp_path: Path) -> None:
    kept.chmod(0o200)
    done = isolate(kept, tmp_path)
    assert (done.exit_code, "is not readable" in done.stderr) == (2, True)
