"""Steps of an incident that need no node: the log, and the command that resumes a job."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpuctl.core import run_history
from gpuctl.core.errors import InvalidInput
from gpuctl.incident.model import Answer, Entry, IncidentRequest, State, Step
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Run, Sweep, Transport
from gpuctl.workflows.incident import flow, steps


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path))


def read_log(path: Path, text: str) -> Answer:
    path.write_text(text)
    request = IncidentRequest("alert", log=str(path))
    return steps.Steps(request, print).read(flow.new(request), Entry(1, Step.LOG, "", ""))


def test_the_first_failure_is_named_with_its_rank_and_node(tmp_path: Path) -> None:
    answer = read_log(tmp_path / "log", "n3:812:901 [0] NCCL WARN no device\n[rank1]: Connection reset by peer\n")
    first = answer.details["first"]
    assert (first["kind"], first["node"]) == ("NCCL warning", "n3")


def test_a_log_of_consequences_alone_names_no_first_failure(tmp_path: Path) -> None:
    assert read_log(tmp_path / "log", "[rank1]: Connection reset by peer\n").details["first"] is None


@pytest.mark.parametrize(("code", "state"), [(0, State.DONE), (3, State.FAILED)])
def test_the_command_that_resumes_the_job_is_run_without_a_shell_and_recorded(code: int, state: State) -> None:
    argv = [sys.executable, "-c", f"import sys; sys.exit({code} if sys.argv[1] == '$HOME; x' else 9)", "$HOME; x"]
    act = steps.Steps(IncidentRequest("alert"), print).prepare(
        flow.new(IncidentRequest("alert")), Entry(9, Step.RESUME, "", "", {"command": argv, "job": ""})
    )
    mark = ["incident", "i", "step 9", "resume job"]
    assert act.carry_out(mark).state is state
    outcome = flow.outcome(mark)
    assert outcome is not None
    assert outcome.state is state
    assert "$HOME" not in str(run_history.load(run_history.names()[-1]))


def test_a_command_that_does_not_exist_has_failed() -> None:
    act = steps.Steps(IncidentRequest("alert"), print).prepare(
        flow.new(IncidentRequest("alert")), Entry(9, Step.RESUME, "", "", {"command": ["/none"], "job": ""})
    )
    assert act.carry_out(["incident", "i", "step 9", "resume job"]).state is State.FAILED


def test_a_log_that_cannot_be_read_is_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        steps.check(IncidentRequest("alert", log=str(tmp_path / "none")))
    assert not (tmp_path / "incidents").exists()


def test_a_context_alone_reaches_no_node() -> None:
    with pytest.raises(InvalidInput, match="--context alone"):
        steps.check(IncidentRequest("alert", context="c"))


def used(network: str, provider: str | None) -> LaunchResult:
    run = Run(Outcome.COMPLETE, None, None, (), None, None, transports=(Transport(0, "n1", network, provider),))
    return LaunchResult(Launch(("n1", "n2"), Sweep()), run, 1.0)


def test_efa_is_known_by_what_ranks_print() -> None:
    assert steps._uses_efa([used("Socket", None), used("AWS Libfabric", "efa")])
    assert not steps._uses_efa([used("IB", None), used("AWS Libfabric", "tcp")])
