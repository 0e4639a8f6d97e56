"""The last act of an incident: a job of a real Slurm is queued again once, and one that runs only with a question."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.edges import slurm
from gpuctl.incident.model import Answer, Entry, Incident, IncidentRequest, State, Step
from gpuctl.workflows.incident import flow
from gpuctl.workflows.incident.acts import Acts, Question
from tests.integration.nccl.slurm.site import Site
from tests.rig.host import wait_until


def incident(number: str) -> Incident:
    return replace(flow.new(IncidentRequest("alert", job=number, slurm=True)), name=f"20200101-000000-{number}")


def requeued(one: Incident, questions: list[Question]) -> Answer:
    entry = Entry(9, Step.RESUME, f"scontrol requeue {one.request.job}", "")

    def ask(question: Question) -> str:
        questions.append(question)
        return "" if question.covers_yes else "not done: declined"

    return Acts([], ask).make(one, entry)


def test_a_job_that_ended_is_requeued_once_and_one_that_runs_is_not_by_yes_alone(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path))
    ended, running = (submitted(site, tmp_path / f"{name}.sh", name) for name in ("false", "sleep 600"))
    try:
        wait_until(lambda: slurm.runs_of(ended)[0].state == "FAILED", 60, "the job does not fail")
        wait_until(lambda: slurm.runs_of(running)[0].state == "RUNNING", 60, "the job does not start")
        one, questions = incident(ended), list[Question]()
        answers = [requeued(one, questions) for _ in range(2)]  # the second as after a kill
        assert [answer.state for answer in answers] == [State.DONE] * 2, answers
        assert len(questions) == 1
        [run] = slurm.runs_of(ended)
        assert (run.is_mine, run.state, run.restarts) == (True, "PENDING", 1)
        assert requeued(incident(running), questions).state is State.DECLINED
        assert "what it did since its last checkpoint is lost" in questions[-1].text
        [run] = slurm.runs_of(running)
        assert (run.state, run.restarts) == ("RUNNING", 0)
    finally:
        for number in (ended, running):
            site.ask("scancel", "--full", number)
    assert slurm.runs_of("999999") == []


def submitted(site: Site, script: Path, command: str) -> str:
    """Number of a new job."""
    script.write_text(f"#!/bin/sh\nexec {command}\n")
    return site.ask("sbatch", "--parsable", "--requeue", "--output=/dev/null", str(script)).strip()
