"""Which trainings are found again, by what pods remember of them and by what lives of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuctl.cluster.environment import Environment, EnvironmentRequest, environment
from gpuctl.cluster.train import flow, runs
from gpuctl.cluster.train.runs import Survey
from gpuctl.core.errors import GpuctlError
from gpuctl.remote import detached
from gpuctl.remote.detached import PodRuns, Run
from gpuctl.remote.model import PodTarget, ProcessExit
from tests.rig.cluster.files import cluster
from tests.rig.local_pods import Pod, later, until

BY_SSH = ("deepspeed", "--num_nodes=3", "train.py")
IN_EACH = ("torchrun", "--nnodes=3", "train.py")
COMMAND = "python3 -u train.py"


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    return environment(cluster(tmp_path), EnvironmentRequest(nodes=3))


def known_run(name: str, began: float, argv: Sequence[str] = IN_EACH, running: bool = False) -> Run:
    ended = None if running else ProcessExit(0)
    return Run(name, f"kept-{name}", argv, "ann@desk", "train.py", began, running, ended)


def looked(env: Environment, *known: PodRuns | str) -> Survey:
    pods = [Pod(Path("/none"), env.pod_name(rank)).target for rank in range(len(known))]
    return Survey(env, pods, known, {})


def names(pods: Sequence[PodTarget]) -> list[str]:
    return [each.pod for each in pods]


def test_what_ssh_began_in_other_pods_is_found_though_the_one_that_knew_of_it_was_made_anew(env: Environment) -> None:
    left = PodRuns(processes={"kept-x": f"{COMMAND} --wandb-token=0123456789abcdef"})
    at = looked(env, PodRuns(), left, left)
    [found] = runs.to_end(at)
    assert (found.training.token, found.training.pods, found.runs) == ("kept-x", (), True)
    assert (
        found.description == f"unrecorded processes that still run in lab-1, lab-2: {COMMAND} --wandb-token=<removed>"
    )
    with pytest.raises(GpuctlError, match="its pods have no record of one"):
        runs.newest(at)


def test_one_that_has_ended_hides_no_other_that_lives(env: Environment) -> None:
    old, other = known_run("old", 2.0), known_run("other", 1.0)
    again = known_run("other", 1.0, running=True)
    left = {"kept-x": COMMAND, "kept-other": COMMAND, "kept-old": COMMAND}
    found = runs.to_end(looked(env, PodRuns([other, old]), PodRuns([again], left), "it does not answer"))
    assert [each.training.token for each in found] == ["kept-old", "kept-other", "kept-x"]
    assert [each.runs for each in found] == [False, True, True]
    assert [each.training.name for each in found] == ["old", "other", ""]


def test_of_one_that_runs_nothing_else_is_ended(env: Environment) -> None:
    new, left = known_run("new", 2.0, running=True), PodRuns(processes={"kept-x": COMMAND})
    [found] = runs.to_end(looked(env, PodRuns([known_run("old", 1.0), new]), left, left))
    assert (found.training.name, found.runs) == ("new", True)
    assert found.description == "training new, train.py of ann@desk"


def test_one_that_is_begun_in_each_pod_is_heard_in_those_that_lost_it_too_and_one_by_ssh_in_the_first(
    env: Environment,
) -> None:
    each = looked(env, PodRuns(), PodRuns([known_run("run", 1.0)]), PodRuns())
    assert names(runs.newest(each).training.pods) == ["lab-0", "lab-1", "lab-2"]
    first = looked(env, PodRuns([known_run("run", 1.0, BY_SSH)]), PodRuns(), PodRuns())
    assert names(runs.newest(first).training.pods) == ["lab-0"]


@pytest.mark.parametrize(
    ("last", "wrong"),
    [
        (PodRuns(), "its pods have no record of one"),
        ("it is away", "the pods that answer have no record of one; lab-1: it is away"),
    ],
)
def test_where_there_is_none_it_is_reported_which_pod_nobody_could_ask(
    env: Environment, last: PodRuns | str, wrong: str
) -> None:
    for search in (runs.to_end, runs.newest):
        with pytest.raises(GpuctlError) as caught:
            search(looked(env, PodRuns(), last))
        assert caught.value.wrong == wrong


def test_what_lives_is_ended_and_confirmed(env: Environment, tmp_path: Path) -> None:
    pod, mark = Pod(tmp_path / "runs", "lab-1"), detached.token()
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    rank = subprocess.Popen(words, env={"PYTHON_GPUCTL_PROGRAM": mark})
    later(0.1, rank.wait)
    until(lambda: mark in detached.inspect(pod.target).processes)
    known = PodRuns(processes={mark: detached.inspect(pod.target).processes[mark]})
    [found] = runs.to_end(Survey(env, [pod.target], [known], {}))
    assert [each.confirmed for each in flow.end(found.training, [pod.target])] == [True]
    assert rank.wait(5) == -signal.SIGTERM
