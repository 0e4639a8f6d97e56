"""Finds trainings again: those that pods remember, and those that live in pods which do not remember them."""

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
from gpuctl.remote.connection import in_all
from gpuctl.remote.detached import Known, Run
from gpuctl.remote.model import There


@dataclass(frozen=True)
class Looked:
    """What each of the `pods` knows, in their order; a text where it cannot be asked. `uids`: of all pods, by name."""

    env: Environment
    pods: Sequence[There]
    known: Sequence[Known | str]
    uids: Mapping[str, str]

    @property
    def heard(self) -> list[tuple[There, Known]]:
        """Those that could be asked."""
        return [(there, each) for there, each in zip(self.pods, self.known, strict=True) if not isinstance(each, str)]

    @property
    def runs(self) -> list[Run]:
        return [run for _, known in self.heard for run in known.runs]


@dataclass(frozen=True)
class Found:
    """A training. `words`: what it is, for people; `runs`: whether it does, as far as its pods know."""

    training: Training
    words: str
    runs: bool


def look(cluster: Cluster, env: Environment, python: str) -> Looked:
    """Ask all pods at the same time; `GpuctlError` where there are none."""
    found = prepare.pods_of(cluster, env)
    count = max(prepare.deployed_pods(cluster, env), len(found))
    pods = [
        There(cluster, name, CONTAINER, python=python) for rank in range(count) if (name := env.pod_name(rank)) in found
    ]
    if not pods:
        raise GpuctlError(_finding(env), "none of its pods is there")
    uids = {name: str(pod["metadata"]["uid"]) for name, pod in found.items()}
    return Looked(env, pods, in_all(pods, _known), uids)


def newest(at: Looked) -> Found:
    """The training that was begun last, of those that the pods remember; `GpuctlError` where they remember none."""
    if not at.runs:
        raise _none(at)
    return _training(at, _last(at.runs).token)


def to_end(at: Looked) -> list[Found]:
    """The newest; where that does not run, also all others of which anything does. `GpuctlError` where there is none.

    Such are left where a pod was made anew: it alone may have known of what it began by ssh in the others.
    """
    found = [newest(at)] if at.runs else []
    if not any(each.runs for each in found):
        living = {token for _, known in at.heard for token in known.living}
        living |= {run.token for run in at.runs if run.running}
        found += [_training(at, token) for token in sorted(living - {each.training.token for each in found})]
    if not found:
        raise _none(at)
    return found


def _training(at: Looked, token: str) -> Found:
    its = [(there, run) for there, known in at.heard for run in known.runs if run.token == token]
    if not its:
        return _orphan(at, token)
    last, pods = _last([run for _, run in its]), [there for there, _ in its]
    if not launch.is_by_ssh(last.argv):  # a pod that knows nothing of its part has lost it
        names = [at.env.pod_name(rank) for rank in range(launch.size(last.argv))]
        pods = [There(at.pods[0].cluster, name, CONTAINER, python=at.pods[0].python) for name in names]
    training = Training(last.name, token, pods, gone(at.pods[0].cluster, at.uids))
    return Found(training, f"training {last.name}, {last.about} of {last.by}", any(run.running for _, run in its))


def _orphan(at: Looked, token: str) -> Found:
    commands = {there.pod: known.living[token] for there, known in at.heard if token in known.living}
    command = removed(next(iter(commands.values())))[0][: judge.MOST_OF_A_COMMAND]
    words = f"what no pod remembers, and still runs in {named(commands)}: {command}"
    return Found(Training("", token, (), gone(at.pods[0].cluster, at.uids)), words, runs=True)


def _last(runs: Sequence[Run]) -> Run:
    return max(runs, key=lambda run: run.began)


def _known(there: There) -> Known | str:
    try:
        return detached.known(there)
    except GpuctlError as error:
        return error.wrong


def _finding(env: Environment) -> str:
    return f"find a training of {env.name}"


def _none(at: Looked) -> GpuctlError:
    unread = [f"{there.pod}: {each}" for there, each in zip(at.pods, at.known, strict=True) if isinstance(each, str)]
    asked = "no pod can be asked" if len(unread) == len(at.pods) else "the pods that can be asked know of none"
    return GpuctlError(_finding(at.env), f"{asked}; {unread[0]}" if unread else "its pods know of none")
