"""Find trainings again: those that pods have recorded, and those whose processes run in pods without a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.cluster.environment import CONTAINER, Environment
from gpuctl.cluster.probe import judge
from gpuctl.cluster.train import launch, prepare
from gpuctl.cluster.train.flow import gone
from gpuctl.cluster.train.watch import Training
from gpuctl.core.errors import GpuctlError
from gpuctl.core.redact import removed
from gpuctl.core.text import named
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.remote import detached
from gpuctl.remote.connection import run_in_all
from gpuctl.remote.detached import PodRuns, Run
from gpuctl.remote.model import PodTarget


@dataclass(frozen=True)
class Survey:
    """The `answers` of the `pods`, in order; a text for a pod that did not answer. `uids`: of all pods, by name."""

    env: Environment
    pods: Sequence[PodTarget]
    answers: Sequence[PodRuns | str]
    uids: Mapping[str, str]

    @property
    def answered(self) -> list[tuple[PodTarget, PodRuns]]:
        """The pods that answered."""
        return [
            (target, answer)
            for target, answer in zip(self.pods, self.answers, strict=True)
            if not isinstance(answer, str)
        ]

    @property
    def runs(self) -> list[Run]:
        return [run for _, answer in self.answered for run in answer.runs]


@dataclass(frozen=True)
class KnownTraining:
    """A training; `description` for people; `runs`: whether it is running, as far as its pods know."""

    training: Training
    description: str
    runs: bool


def survey(cluster: Cluster, env: Environment, python: str) -> Survey:
    """Ask all pods concurrently; `GpuctlError` if none exists."""
    existing = prepare.pods_of(cluster, env)
    count = max(prepare.deployed_pods(cluster, env), len(existing))
    pods = [
        PodTarget(cluster, name, CONTAINER, python=python)
        for rank in range(count)
        if (name := env.pod_name(rank)) in existing
    ]
    if not pods:
        raise GpuctlError(_finding(env), "none of its pods exists")
    uids = {name: str(pod["metadata"]["uid"]) for name, pod in existing.items()}
    return Survey(env, pods, run_in_all(pods, _known), uids)


def newest(at: Survey) -> KnownTraining:
    """Return the training started last among the recorded ones; `GpuctlError` if there is none."""
    if not at.runs:
        raise _none(at)
    return _training(at, _last(at.runs).token)


def to_end(at: Survey) -> list[KnownTraining]:
    """Return the newest training and, if it does not run, every other one with running processes. `GpuctlError` if
    none.

    Such processes stay when a pod is recreated that alone knew what it had started by ssh in the others.
    """
    trainings = [newest(at)] if at.runs else []
    if not any(training.runs for training in trainings):
        tokens = {token for _, answer in at.answered for token in answer.processes}
        tokens |= {run.token for run in at.runs if run.running}
        trainings += [
            _training(at, token) for token in sorted(tokens - {training.training.token for training in trainings})
        ]
    if not trainings:
        raise _none(at)
    return trainings


def _training(at: Survey, token: str) -> KnownTraining:
    records = [(target, run) for target, answer in at.answered for run in answer.runs if run.token == token]
    if not records:
        return _orphan(at, token)
    last, pods = _last([run for _, run in records]), [target for target, _ in records]
    if not launch.is_by_ssh(last.argv):  # a pod without a record of its part has lost it
        names = [at.env.pod_name(rank) for rank in range(launch.size(last.argv))]
        pods = [PodTarget(at.pods[0].cluster, name, CONTAINER, python=at.pods[0].python) for name in names]
    training = Training(last.name, token, pods, gone(at.pods[0].cluster, at.uids), launch.grace_s(at.env))
    return KnownTraining(
        training, f"training {last.name}, {last.about} of {last.actor}", any(run.running for _, run in records)
    )


def _orphan(at: Survey, token: str) -> KnownTraining:
    commands = {target.pod: answer.processes[token] for target, answer in at.answered if token in answer.processes}
    command = removed(next(iter(commands.values())))[0][: judge.MOST_OF_A_COMMAND]
    description = f"unrecorded processes that still run in {named(commands)}: {command}"
    training = Training("", token, (), gone(at.pods[0].cluster, at.uids), launch.grace_s(at.env))
    return KnownTraining(training, description, runs=True)


def _last(runs: Sequence[Run]) -> Run:
    return max(runs, key=lambda run: run.began)


def _known(target: PodTarget) -> PodRuns | str:
    try:
        return detached.inspect(target)
    except GpuctlError as error:
        return error.wrong


def _finding(env: Environment) -> str:
    return f"find a training of {env.name}"


def _none(at: Survey) -> GpuctlError:
    unread = [
        f"{target.pod}: {answer}" for target, answer in zip(at.pods, at.answers, strict=True) if isinstance(answer, str)
    ]
    summary = "no pod answers" if len(unread) == len(at.pods) else "the pods that answer have no record of one"
    return GpuctlError(_finding(at.env), f"{summary}; {unread[0]}" if unread else "its pods have no record of one")
