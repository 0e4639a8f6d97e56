"""`gpuctl cluster sync` as far as it goes without a cluster: what it refuses, and what it prints."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpuctl.cli.cluster.sync import Lines, _show, sync
from gpuctl.cluster.sync.model import Kept, Outcome
from gpuctl.cluster.sync.scan import FolderScan
from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Verdict


@pytest.mark.parametrize("words", [[], ["lab", "--pods", "a"], ["--pods", "a", "--watch", "--check"]])
def test_words_that_go_together_with_nothing_are_refused(words: list[str]) -> None:
    assert CliRunner().invoke(sync, words).exit_code == 2


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--source", "nowhere"], "the folder does not exist"),
        (["--source", "/"], "that is all of /"),
        (["--source", "~"], "that is all of /"),
        (["--target", "code"], "not the absolute path of a folder"),
        (["--target", "/"], "not the absolute path of a folder"),
        (["--target", "/workspace/../etc"], "not the absolute path of a folder"),
    ],
)
def test_folders_that_cannot_be_meant_are_refused(
    words: list[str], wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=wrong):
        CliRunner().invoke(sync, ["--pods", "a", *words], catch_exceptions=False)


def test_a_change_is_reported_once_all_pods_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for pod in ("a-0", "a-1"):
        lines.reached(Outcome(pod, Verdict.OK, files=3, bytes=2048), 1)
    lines.changed(2, ["train.py"])
    lines.reached(Outcome("a-0", Verdict.OK, files=1), 2)
    assert "train.py" not in capsys.readouterr().out
    lines.reached(Outcome("a-1", Verdict.FAIL, kept=(Kept("train.py", "changed in the pod"),)), 2)
    told = capsys.readouterr().out
    assert "a-1: kept 'train.py': changed in the pod" in told
    assert "train.py: 1 pod, " in told
    lines.changed(3, ["other.py"])
    lines.reached(Outcome("a-1", Verdict.FAIL, kept=(Kept("train.py", "changed in the pod"),)), 3)
    lines.reached(Outcome("a-0", Verdict.OK, files=1), 3)
    told = capsys.readouterr().out
    assert "other.py: 2 pods, " in told
    assert "kept" not in told


def test_of_a_pod_that_was_not_asked_it_is_not_said_what_it_sees(capsys: pytest.CaptureFixture[str]) -> None:
    local: Any = SimpleNamespace(scanned=FolderScan())
    _show([Outcome("a-1", Verdict.OK, "sees", shares="a-0")], local, True, "table")
    told = capsys.readouterr().out
    assert "shares the folder of a-0" in told
    assert "sees it" not in told


def test_a_pod_whose_disk_is_full_is_not_counted_among_those_that_have_a_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = Lines()
    lines.reached(Outcome("a-0", Verdict.OK, files=3), 1)
    lines.reached(Outcome("a-1", Verdict.FAIL, wrong="its disk is full"), 1)
    lines.changed(2, ["train.py"])
    lines.reached(Outcome("a-0", Verdict.OK, files=1), 2)
    lines.reached(Outcome("a-1", Verdict.FAIL, wrong="its disk is full"), 2)
    assert "train.py: 1 pod, " in capsys.readouterr().out


def test_a_pod_that_is_away_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for _ in range(3):
        lines.away(Outcome("a-0", Verdict.UNKNOWN, wrong="it is not there"))
    assert capsys.readouterr().out.count("a-0: it is not there; trying again") == 1


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_json_and_yaml_have_the_same_outcome_of_each_pod(form: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kept = Kept("train.py", "changed in the pod")
    local: Any = SimpleNamespace(name="ann@laptop:/code", scanned=FolderScan(left_out=frozenset({".git"})))
    _show([Outcome("a-0", Verdict.FAIL, files=1, kept=(kept,))], local, False, form)
    printed = yaml.safe_load(capsys.readouterr().out)  # JSON is YAML
    assert (printed["source"], printed["left_out"]) == ("ann@laptop:/code", [".git"])
    [pod] = printed["pods"]
    assert (pod["pod"], pod["verdict"], pod["files"]) == ("a-0", "FAIL", 1)
    assert pod["kept"] == [{"path": "train.py", "why": "changed in the pod"}]
