"""What `gpuctl cluster train` takes for itself, leaves to the script, and refuses before any cluster is asked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.cluster import train
from gpuctl.cli.cluster.train_report import Screen
from gpuctl.cluster import access
from gpuctl.cluster.environment import EnvironmentRequest, environment
from gpuctl.cluster.train.launch import Launch
from gpuctl.cluster.train.prepare import Ready
from gpuctl.cluster.train.watch import Failure, Training, TrainingState
from gpuctl.domain.findings import Finding, Verdict
from tests.rig.cluster.files import cluster, write
from tests.rig.reports import valid_json


def parsed(*words: str) -> dict[str, Any]:
    return train.train.make_context("train", list(words)).params


def run(*words: str) -> Result:
    return CliRunner().invoke(train.train, list(words))


def test_what_stands_after_the_script_is_the_scripts() -> None:
    found = parsed("lab", "--nodes", "2", "--check", "train.py", "--nodes", "9", "--stop", "--", "-x")
    assert (found["nodes"], found["check"], found["stop"]) == (2, True, False)
    assert (found["name"], found["script"]) == ("lab", "train.py")
    assert found["args"] == ("--nodes", "9", "--stop", "--", "-x")


def test_options_may_stand_before_the_cluster_and_have_an_equals_sign() -> None:
    found = parsed("--nodes=2", "--env", "A=b=c d", "lab", "train.py", "--lr=1")
    assert (found["nodes"], found["variables"], found["args"]) == (2, {"A": "b=c d"}, ("--lr=1",))


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["lab"], "pass a SCRIPT, or --attach or --stop without one"),
        (["lab", "--attach", "train.py"], "pass a SCRIPT, or --attach or --stop without one"),
        (["lab", "--attach", "--stop"], "--attach does not go with --stop"),
        (["lab", "--detach", "--check", "train.py"], "--detach does not go with --check"),
        (["lab", "--env", "1A=b", "train.py"], "'1A=b' is not NAME=VALUE"),
        (["lab", "--folder", "code", "train.py"], "use an absolute path"),
        (["lab", "-o", "json", "train.py"], "--output goes with --check"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], wrong: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert wrong in done.output


def test_a_cluster_file_with_mistakes_is_refused_before_any_cluster_is_asked(tmp_path: Path) -> None:
    path = write(tmp_path, {"gpus": {"per_node": 99}})
    done = run(str(path), "train.py")
    assert "per_node" in str(done.exception)


def finish(
    heard: TrainingState,
    monkeypatch: pytest.MonkeyPatch,
    screen: Screen,
    broken_off: bool = False,
    wrong: str = "it is away",
) -> int:
    from gpuctl.cluster.train import flow

    monkeypatch.setattr(flow, "end", lambda *_: [flow.EndResult("lab-0"), flow.EndResult("lab-1", wrong)])
    try:
        train._finish(Training("run", "t", ()), (), heard, screen, broken_off)
    except click.exceptions.Exit as error:
        return error.exit_code
    return 0


def test_each_way_to_end_has_its_exit_code_and_says_what_is_not_confirmed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen("lab-0", all_output=False)
    assert finish(TrainingState(), monkeypatch, screen) == 0
    assert finish(TrainingState(lost="lab-0: not logged in"), monkeypatch, screen) == 3
    assert "lab-0: not logged in; the training continues" in capsys.readouterr().err
    failed = TrainingState(failures=[Failure("lab-1", "ended with exit code 7", ["oom"])])
    assert finish(failed, monkeypatch, screen) == 1
    said = capsys.readouterr().err
    assert "lab-1: oom\nFAIL     exit            lab-1: ended with exit code 7" in said
    assert "no process of it is left in lab-0\n" in said
    assert "UNKNOWN  exit            lab-1: not confirmed to have ended: it is away" in said


def test_what_nobody_knows_is_a_problem_of_a_check_and_stops_no_training(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from gpuctl.cluster.train import flow, prepare

    launch = Launch(
        environment(cluster(tmp_path), EnvironmentRequest(nodes=1)), "torchrun", "train.py", (), 1, 8, "/workspace"
    )
    unknown = Finding("gpus", "lab-0", Verdict.UNKNOWN, "the image has no nvidia-smi")
    there: Any = SimpleNamespace(pod="lab-0")
    begun: list[Ready] = []

    def start(ready: Ready, by: str) -> Training:
        begun.append(ready)
        return Training("run", "t", ())

    none: Any = None
    monkeypatch.setattr(access, "open_access", lambda _: access.PodAccess(none, launch.env, ""))
    monkeypatch.setattr(flow, "start", start)
    for findings, code in (([], 0), ([unknown], 1)):
        ready = Ready(launch, [there], {}, [], findings)
        monkeypatch.setattr(prepare, "prepare", lambda *_, ready=ready: ready)
        assert run("lab", "--check", "train.py").exit_code == code
        shown = valid_json(run("lab", "--check", "-o", "json", "train.py").stdout)
        assert (shown["command"], shown["exit_code"], shown["launcher"]) == ("cluster train", code, "torchrun")
        assert {finding["target"] for finding in shown["findings"]} <= {launch.env.name}
        assert begun == []
    assert (run("lab", "--detach", "train.py").exit_code, len(begun)) == (0, 1)


@pytest.mark.parametrize(("wrong", "code"), [("", 0), ("it is away", 3)])
def test_stop_ends_all_that_was_found_and_is_done_when_all_of_it_is_confirmed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: str, code: int
) -> None:
    from gpuctl.cluster.train import flow, runs

    looked: Any = SimpleNamespace(pods=())
    found = [
        runs.KnownTraining(Training("run", "t", ()), "training run, train.py of ann@desk", runs=False),
        runs.KnownTraining(Training("", "kept-1", ()), "what runs in lab-1", runs=True),
    ]
    monkeypatch.setattr(runs, "survey", lambda *_: looked)
    monkeypatch.setattr(runs, "to_end", lambda _: found)
    monkeypatch.setattr(flow, "end", lambda training, _: [flow.EndResult("lab-1", "" if training.name else wrong)])
    none: Any = None
    with pytest.raises(click.exceptions.Exit) as caught:
        train._stop(access.PodAccess(none, none, ""), "python3")
    said = capsys.readouterr().err
    assert "already ended, checking training run, train.py of ann@desk\n" in said
    assert "ending what runs in lab-1\n" in said
    assert caught.value.exit_code == code


def test_after_ctrl_c_the_exit_code_is_130_only_when_all_of_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen("lab-0", all_output=False)
    assert finish(TrainingState(), monkeypatch, screen, broken_off=True, wrong="") == 130
    assert finish(TrainingState(), monkeypatch, screen, broken_off=True) == 3


def test_the_last_lines_are_not_said_twice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failed = TrainingState(failures=[Failure("lab-0", "ended with exit code 7", ["oom"])])
    finish(failed, monkeypatch, Screen("lab-0", all_output=False))
    assert "oom" not in capsys.readouterr().err


def test_the_first_pods_lines_are_plain_and_the_others_have_their_name(capsys: pytest.CaptureFixture[str]) -> None:
    for all_output in (False, True):
        screen = Screen("lab-0", all_output)
        screen.printed("lab-0", "a")
        screen.printed("lab-1", "b")
    screen.printed("lab-0", " 10%\r")
    assert capsys.readouterr().out == "a\na\nlab-1: b\n 10%\r"
