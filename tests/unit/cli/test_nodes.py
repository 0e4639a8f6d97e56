"""gpuctl nodes: what it prints of recorded facts, its exit codes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.nodes import command
from gpuctl.cli.nodes.draw import duration, ranges
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.report import JSON_SCHEMA
from gpuctl.hosts import plan as host_plan
from gpuctl.nodes import facts_file
from gpuctl.nodes.model import Fleet
from gpuctl.workflows import nodes as flow
from tests.rig.gpu_user_facts import NOW, POD, STEPS, facts, job, process
from tests.rig.gpu_user_trees import xml_with


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A job, a pod and a session on one node; an idle node; one that did not answer."""
    ranks = [process(70 + n, f"{STEPS}/job_9/step_0/user/task_{n}", since=NOW - 11_520) for n in range(4)]
    used = facts(
        *ranks,
        process(7, POD, command="python \x1b[2J serve.py"),
        process(8, login_uid=1001),
        on={**{n: [70 + n] for n in range(4)}, 4: [7], 6: [8]},
        slurm_jobs=[job("9", 0, 1, 2, 3, 5)],
        slurmd=True,
    )
    path = tmp_path / "facts.json"
    facts_file.save(path, Fleet({"gpu-1": used, "gpu-2": facts()}, {"gpu-3": "no route to host"}, NOW))
    return path


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(command.nodes, [str(word) for word in words], catch_exceptions=True)


def test_a_line_for_each_node_and_each_user(saved: Path) -> None:
    result = run("--from", saved)
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert result.exit_code == 3, result.output
    assert "gpu-1 p5.48xlarge 8 GPUs 6 in use, 1 reserved, 1 idle 0 of 637 GiB 0 %" in lines
    [ranks] = [line for line in lines if line.startswith("0-3 ")]
    assert ranks.startswith("0-3 alice job 9 step 0 3.5 GiB since ")
    assert ranks.endswith("(3 h 12 min) python train.py")
    [pod] = [line for line in lines if "team-a/trainer-0" in line and "GiB" in line]
    assert pod.startswith("4 team-a/trainer-0 main 0.9 GiB since ")
    assert pod.endswith("python \\x1b[2J serve.py")
    assert "5 reserved job 9 has it, and no process on it" in lines
    assert "gpu-3 - ? GPUs UNKNOWN: no route to host" in lines
    assert "2 \u00d7 p5: 6 of 16 GPUs in use; 1 reserved; 9 idle" in lines
    assert "1 \u00d7 unknown type: 0 of 0 GPUs in use; 1 node UNKNOWN" in lines
    assert any(line.startswith("UNKNOWN reachable gpu-3: nothing is known of it: no route to host") for line in lines)


def test_json_has_the_documented_form_and_all_of_each_process(saved: Path) -> None:
    result = run("--from", saved, "-o", "json")
    report = json.loads(result.stdout)
    assert set(JSON_SCHEMA["required"]) <= set(report)
    assert (report["exit_code"], result.exit_code) == (3, 3)
    first, second, third = report["nodes"]
    assert first["counts"] == {"used": 6, "reserved": 1, "memory_in_use": 0, "idle": 1, "unknown": 0}
    assert first["users"][0]["processes"][0]["start_ticks"] == 100
    assert (first["users"][0]["since"], first["users"][0]["gpus"]) == (NOW - 11_520, [0, 1, 2, 3])
    assert second["counts"]["idle"] == 8
    assert (third["counts"], third["unknown"], third["gpus_total"]) == (None, "no route to host", None)
    assert report["summary"][0] == {
        "type": "p5",
        "nodes": 2,
        "gpus": 16,
        "nodes_unknown": 0,
        "used": 6,
        "reserved": 1,
        "memory_in_use": 0,
        "idle": 9,
        "unknown": 0,
    }


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (Fleet({"a": facts()}, {}, NOW), 0),
        (Fleet({"a": facts(pid_namespace="nested")}, {}, NOW), 1),
        (Fleet({"a": facts(process(7), on={1: [7]}, slurm_jobs=[job("10", 1)])}, {}, NOW), 1),
        (Fleet({}, {"a": "no route"}, NOW), 3),
        (Fleet({"a": facts(pid_namespace="nested")}, {"b": "no route"}, NOW), 3),
    ],
)
def test_the_exit_code(made: Fleet, code: int, tmp_path: Path) -> None:
    facts_file.save(tmp_path / "facts.json", made)
    assert run("--from", tmp_path / "facts.json").exit_code == code


@pytest.mark.parametrize(
    "words",
    [
        ["--from", "FACTS", "--inventory", "prod"],
        ["--from", "FACTS", "--limit", "a"],
        ["--from", "FACTS", "--watch"],
        ["--from", "FACTS", "--save", "x"],
        ["--from", "none.json"],
        ["FACTS"],
        ["--watch", "-o", "json"],
        ["--from", "FACTS", "--type", "p99"],
        ["--inventory", "no-such-inventory"],
    ],
)
def test_options_that_exclude_each_other_are_refused(words: list[str], tmp_path: Path) -> None:
    facts_file.save(tmp_path / "facts.json", Fleet({"gpu-1": facts()}, {}, NOW))
    result = run(*[str(tmp_path / "facts.json") if word == "FACTS" else word for word in words])
    assert isinstance(result.exception, InvalidInput), result.output
    assert result.exception.exit_code == 2


@pytest.mark.parametrize(
    "words", ["--idle 1", "--idle 1h30", "--idle -1h", "--sort x", "--type=", "--every 0", "--forks 0", "--timeout nan"]
)
def test_values_that_make_no_sense_are_refused(words: str, saved: Path) -> None:
    assert run("--from", saved, *words.split()).exit_code == 2


def test_several_files_tell_for_how_long_a_gpu_did_no_work(tmp_path: Path) -> None:
    for number in range(3):
        made = Fleet({"gpu-1": facts(process(7), on={0: [7]})}, {}, NOW + 1800 * number)
        made.nodes["gpu-1"]["gpus"][1]["busy_percent"] = 0
        made.nodes["gpu-1"]["gpus"][0]["busy_percent"] = 50
        facts_file.save(tmp_path / f"{number}.json", made)
    files = [tmp_path / f"{number}.json" for number in (2, 0, 1)]
    result = run("--from", *files, "--idle", "1h")
    assert "1-7  idle        no work in 3 readings over 1 h" in result.stdout
    assert "train.py" not in result.stdout  # of a GPU that works
    longer = run("--from", *files, "--idle", "2h")
    assert "note: 7 GPUs did no work now, but for how long is not known" in longer.stderr


def test_no_text_of_a_node_reaches_the_terminal_as_an_escape_sequence(tmp_path: Path) -> None:
    evil = "\x1b[2J\x1b]0;x\x07"
    made = facts(process(7, command=evil, name=evil, login_uid=5), on={0: [7]}, product=None, users={"5": evil})
    for gpu in made["gpus"]:
        gpu["model"] = evil
    facts_file.save(tmp_path / "facts.json", Fleet({evil: made}, {evil * 2: evil}, NOW))
    result = run("--from", tmp_path / "facts.json")
    assert "\\x1b" in result.stdout
    assert not {"\x1b", "\x07"} & set(result.output)


def test_xml_files_of_one_name_are_nodes_of_their_own(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "q.xml").write_text(xml_with({}))
    result = run("--from", tmp_path / "a/q.xml", tmp_path / "b/q.xml", "-o", "json")
    assert [node["node"] for node in json.loads(result.stdout)["nodes"]] == [
        f"{tmp_path}/a/q.xml",
        f"{tmp_path}/b/q.xml",
    ]


def answering(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    monkeypatch.setattr(host_plan, "targets", lambda source, limit: [])
    monkeypatch.setattr(flow, "ask", lambda hosts, forks, timeout_s, on_result: fleet)


def test_readings_are_kept_between_runs(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    for number in range(2):
        answering(monkeypatch, Fleet({"gpu-1": facts()}, {}, NOW + 7200 * number))
        result = run("--idle", "1h")
    assert "no work in 2 readings over 2 h" in result.stdout
    assert (state / "nodes").stat().st_mode & 0o777 == 0o700


def test_a_disk_that_takes_no_readings_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(streaks: object) -> None:
        raise GpuctlError("keep the readings", "No space left on device", "set GPUCTL_STATE_DIR")

    monkeypatch.setattr("gpuctl.nodes.readings_file.save", full)
    answering(monkeypatch, Fleet({"gpu-1": facts()}, {}, NOW))
    result = run()
    assert (result.exit_code, "8 idle" in result.stdout) == (0, True)
    assert "note: cannot keep the readings: No space left on device" in result.stderr


@pytest.mark.parametrize("text", ["", "{", "[]", '{"form": 9}', '{"form": 1, "streaks": {"a": [1]}}'])
def test_damaged_readings_count_as_none(text: str, monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    (state / "nodes").mkdir(parents=True)
    (state / "nodes/readings.json").write_text(text)
    answering(monkeypatch, Fleet({"gpu-1": facts()}, {}, NOW))
    assert run().exit_code == 0


def test_watch_draws_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, Fleet({"gpu-1": facts()}, {}, NOW))
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    result = run("--watch", "--every", "7")
    assert result.stdout.count("1 \u00d7 p5: 0 of 8 GPUs in use; 8 idle") == 3
    assert all(0 < pause <= 7 for pause in pauses)


def test_save_writes_what_from_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answering(monkeypatch, Fleet({"gpu-1": facts()}, {}, NOW))
    assert run("--save", tmp_path / "facts.json").exit_code == 0
    assert "8 idle" in run("--from", tmp_path / "facts.json").stdout


@pytest.mark.parametrize(
    ("numbers", "text"), [([0], "0"), ([0, 1, 2, 5], "0-2,5"), ([], ""), ([1, 3], "1,3"), ([6, 7], "6-7")]
)
def test_ranges(numbers: Sequence[int], text: str) -> None:
    assert ranges(numbers) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3600, "1 h"), (11_520, "3 h 12 min"), (86_400, "1 d"), (-5, "0 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
