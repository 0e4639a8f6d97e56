"""gpuctl incident start, resume, replay and list: exit codes and files, by recorded answers of workflows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.incident import handle
from gpuctl.cli.incident.group import incident
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.incident.model import Step
from gpuctl.workflows.incident import flow, steps
from gpuctl.workflows.incident.acts import Question
from tests.rig import incident_stories as stories
from tests.rig.incident_stories import StandinWorkflows

ALERT = "GPU utilization dropped to 30 %"


@pytest.fixture(autouse=True)
def workflows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandinWorkflows:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path))
    standin = StandinWorkflows(stories.EFA)
    monkeypatch.setattr(steps, "Steps", lambda _request, _notify: standin)
    monkeypatch.setattr(steps, "check", lambda request: request)
    return standin


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(incident, [*map(str, words)])


def records(folder: Path) -> list[Path]:
    return sorted((folder / "incidents").glob("*.json"))


def test_it_ends_with_the_cause_and_a_proposal_and_a_closed_one_is_not_repeated(
    tmp_path: Path, workflows: StandinWorkflows
) -> None:
    result = run("start", ALERT, "--log", "job.log")
    assert result.exit_code == 0
    assert "cause proven: the NCCL tests prove that node n3 is bad" in result.output
    assert "gpuctl nodes restart n3 efa" in result.output
    assert "nothing was changed" in result.output
    [path] = records(tmp_path)
    made = list(workflows.made)
    assert run("resume", path.stem).exit_code == 0
    assert workflows.made == made


def test_without_an_answer_the_command_that_goes_on_is_named(tmp_path: Path, workflows: StandinWorkflows) -> None:
    workflows.errors[Step.PREFLIGHT] = flow.NoAnswer("make the step", "no node answered")
    result = run("start", ALERT)
    [path] = records(tmp_path)
    assert isinstance(result.exception, GpuctlError)
    assert result.exception.exit_code == 3
    assert f"`gpuctl incident resume {path.stem}`" in result.exception.hint
    assert run("resume", path.stem).exit_code == 0


def test_the_post_mortem_is_written_to_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    assert run("start", ALERT, "--report", folder).exit_code == 0
    assert sorted(path.suffix for path in folder.iterdir()) == [".html", ".md"]
    result = run("start", ALERT, "--report", tmp_path / "none")
    assert isinstance(result.exception, InvalidInput)
    assert len(records(tmp_path)) == 1


def test_an_incident_without_a_proven_cause_ends_with_1(tmp_path: Path, workflows: StandinWorkflows) -> None:
    workflows.answers = stories.NOTHING
    result = run("start", ALERT)
    assert result.exit_code == 1
    assert "not found: no step proves a cause" in result.output
    [path] = records(tmp_path)
    assert "not found" in run("list").output
    assert "not found" in run("replay", path).output
    assert json.loads(run("replay", path, "-o", "json").output)["name"] == path.stem


def test_a_damaged_record_does_not_hide_the_others(tmp_path: Path) -> None:
    run("start", ALERT)
    [path] = records(tmp_path)
    plain = json.loads(path.read_text())
    plain["entries"][3]["answer"]["details"]["faults"] = [{"kind": 3}]
    (tmp_path / "incidents" / "20000101-000000-1.json").write_text("{")
    (tmp_path / "incidents" / "20000101-000000-2.json").write_text(json.dumps(plain))
    result = run("list")
    assert result.exit_code == 0
    assert result.output.count("damaged") == 2
    assert "proven" in result.output


def test_a_plan_makes_no_step_and_no_record(tmp_path: Path) -> None:
    result = run("start", ALERT, "--plan")
    assert result.exit_code == 0
    assert "gpuctl nccl isolate --rails none -b 512M -e 4G" in result.output
    assert records(tmp_path) == []


@pytest.mark.parametrize("words", [("--consent", "drain"), ("--force",), ("--", "sbatch"), ("--resume-with", "")])
def test_what_would_act_without_a_question_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert run("start", ALERT, *words).exit_code == 2
    assert records(tmp_path) == []


def test_a_command_with_an_open_quote_is_refused(tmp_path: Path) -> None:
    error = run("start", ALERT, "--resume-with", "sbatch 'x").exception
    assert isinstance(error, InvalidInput)
    assert records(tmp_path) == []


def test_without_a_terminal_no_act_is_done_and_with_yes_each(workflows: StandinWorkflows) -> None:
    workflows.answers = stories.CURED
    result = run("start", ALERT, "--log", "job.log", "--resume-with", "sbatch train.sh")
    assert "drain: declined: not done: there is no terminal for the question" in result.output
    assert workflows.acted == []
    result = run("start", ALERT, "--log", "job.log", "--resume-with", "sbatch train.sh", "--yes")
    assert result.exit_code == 0, result.output
    assert "n3 passes again what it failed" in result.output
    assert workflows.acted == [Step.DRAIN, Step.REPAIR, Step.GIVE_BACK, Step.RESUME]


def test_a_repair_that_does_not_cure_ends_with_1(workflows: StandinWorkflows) -> None:
    workflows.answers = stories.NOT_CURED
    result = run("start", ALERT, "--log", "job.log", "--yes")
    assert result.exit_code == 1
    assert "n3 is not proven to be cured: it stays drained" in result.output
    assert workflows.acted == [Step.DRAIN, Step.REPAIR]


def test_yes_does_not_end_work_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    screen = handle._Screen(yes=True)
    assert screen.ask(Question("job 9 is over: requeue it")) == ""
    assert "no terminal" in screen.ask(Question("job 9 runs: end it", covers_yes=False))
    assert "job 9 runs: end it" in capsys.readouterr().err


def test_names_of_incidents_lead_nowhere_else() -> None:
    for name in ("none", "../runs/x"):
        assert isinstance(run("resume", name).exception, InvalidInput)
