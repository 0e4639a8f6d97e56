"""gpuctl incident start, resume, replay and list: consents, exit codes and files, by recorded answers of workflows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.incident.group import incident
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.workflows.incident import steps
from tests.rig import incident_stories as stories
from tests.rig.incident_stories import StandinWorkflows

ALERT = "GPU utilization dropped to 30 %"
ALL = [word for name in ("drain", "repair", "undrain", "resume-job") for word in ("--consent", name)]


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


def test_without_a_terminal_it_waits_for_each_consent_and_goes_on_with_it(
    tmp_path: Path, workflows: StandinWorkflows
) -> None:
    result = run("start", ALERT, "--log", "job.log", "--", "sbatch", "--nodes=4", "train.sh")
    assert isinstance(result.exception, GpuctlError)
    assert (result.exception.exit_code, workflows.acts) == (3, [])
    [path] = records(tmp_path)
    assert f"`gpuctl incident resume {path.stem} --consent drain` goes on" in result.exception.hint
    result = run("resume", path.stem, *ALL)
    assert (result.exit_code, workflows.acts) == (0, ["drain", "repair", "undrain", "resume job"])
    assert json.loads(path.read_text())["request"]["command"] == ["sbatch", "--nodes=4", "train.sh"]
    assert run("resume", path.stem).exit_code == 0
    assert workflows.acts == ["drain", "repair", "undrain", "resume job"]


def test_the_post_mortem_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    assert run("start", ALERT, "--report", folder, *ALL).exit_code == 0
    assert sorted(path.suffix for path in folder.iterdir()) == [".html", ".md"]
    result = run("start", ALERT, "--report", tmp_path / "none", *ALL)
    assert isinstance(result.exception, InvalidInput)
    assert len(records(tmp_path)) == 1


def test_an_incident_without_a_proven_cause_ends_with_1(tmp_path: Path, workflows: StandinWorkflows) -> None:
    workflows.answers = stories.NOTHING
    result = run("start", ALERT, *ALL)
    assert (result.exit_code, workflows.acts) == (1, [])
    assert "cause not found" in result.output
    [path] = records(tmp_path)
    assert "not found" in run("list").output
    assert "not found" in run("replay", path).output
    assert json.loads(run("replay", path, "-o", "json").output)["name"] == path.stem


def test_a_plan_makes_no_step_and_no_record(tmp_path: Path) -> None:
    result = run("start", ALERT, "--plan")
    assert result.exit_code == 0
    assert "gpuctl nccl isolate -b 512M -e 4G" in result.output
    assert records(tmp_path) == []


def test_names_of_incidents_lead_nowhere_else() -> None:
    for name in ("none", "../runs/x"):
        assert isinstance(run("resume", name).exception, InvalidInput)
