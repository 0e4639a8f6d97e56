"""Whose build it is: only ours is cancelled, only what is ours says why, and one that runs is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from gpuctl.cluster.environment import Environment, Object, environment
from gpuctl.cluster.image_build import cancel, flow, wait
from gpuctl.cluster.image_build.builds import BINARY
from gpuctl.cluster.image_build.context import Context
from gpuctl.cluster.image_build.judge import NotBuilt
from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.edges.kube import watch
from gpuctl.edges.kube.cluster import Cluster, Kind, Request
from tests.rig.cluster.files import ON_OPENSHIFT, cluster

AWAY = Unreachable("begin a build of lab", "the connection was lost")


def build(number: int, phase: str, **status: Any) -> Object:
    return {"metadata": {"name": f"lab-{number}", "uid": str(number)}, "status": {"phase": phase, **status}}


@dataclass
class Builds:
    """A cluster with these builds, that cannot begin one; `said`: what it was told to do, and what a user was told."""

    there: list[Object]
    said: list[str] = field(default_factory=list)

    def kind(self, api_version: str, kind: str) -> Kind:
        return Kind(api_version, kind, f"{kind.lower()}s", namespaced=True)

    def path_of(self, kind: Kind, name: str = "") -> str:
        return f"{kind.plural}/{name}"

    def find(self, kind: Kind, labels: Mapping[str, str]) -> list[Object]:
        return self.there

    def get(self, kind: Kind, name: str) -> Object:
        return next(each for each in self.there if each["metadata"]["name"] == name)

    def ask(self, request: Request) -> Object:
        self.said.append(f"{request.method} {request.path}")
        self.get(self.kind("", "Build"), request.path.rpartition("/")[2])["status"]["phase"] = "Cancelled"
        return {}

    def once(self, request: Request, silent_s: float = 0) -> Object:
        assert request.path.endswith(BINARY)
        raise AWAY

    def tell(self, subject: str, words: str) -> None:
        self.said.append(f"{subject}: {words}")


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    return environment(cluster(tmp_path, ON_OPENSHIFT, {"image": {"name": None, "build": {}}}))


def cancelled(env: Environment, *there: Object) -> list[str]:
    """What is done and told where no answer named ours; the first of these builds is older."""
    found = Builds(list(there))
    cancel.cancel(cast("Cluster", found), env, "", there[:1], found.tell)
    assert found.said[0] == "build: is being cancelled"
    return found.said[1:]


def test_the_only_one_that_came_since_is_cancelled(env: Environment) -> None:
    said = cancelled(env, build(1, "Running"), build(2, "Pending"))
    assert said == ["PATCH builds/lab-2", "Build lab-2: is cancelled"]


@pytest.mark.parametrize("other", ["New", "Failed"])
def test_of_several_none_is_cancelled_also_where_one_is_over(env: Environment, other: str) -> None:
    (said,) = cancelled(env, build(1, "Complete"), build(2, other), build(3, "New"))
    assert "lab-3 is ours; `oc cancel-build NAME` cancels it" in said


def test_where_none_came_it_says_so(env: Environment) -> None:
    assert cancelled(env, build(1, "Running")) == ["build: none has started, or it has finished already"]


def begun(env: Environment, *there: Object) -> tuple[GpuctlError, str]:
    """Why a build of a folder has not begun, and what is told; the first of these is older."""
    found = Builds(list(there))
    with pytest.raises(GpuctlError) as error:
        flow._begin(cast("Cluster", found), env, Context(()), there[:1], found.tell)
    return error.value, "\n".join(found.said)


def test_a_build_that_failed_before_it_took_the_folder_says_why(env: Environment) -> None:
    error, _ = begun(env, build(1, "Failed"), build(2, "Error", reason="CannotCreateBuildPod", message="no quota"))
    assert isinstance(error, NotBuilt)
    assert "no quota" in str(error)


def test_what_a_build_waited_for_is_reported(env: Environment) -> None:
    error, said = begun(
        env, build(1, "Complete"), build(2, "New", reason="InvalidOutputReference", message="no output")
    )
    assert error is AWAY
    assert "Build lab-2: waits to be started: no output\nhint: the ImageStream is gone" in said
    _, said = begun(env, build(1, "Complete"), build(2, "Pending"))
    assert "Build lab-2: waits for its pod\nhint: the cluster waits 5 minutes for a build's pod" in said


def test_a_failure_of_somebody_else_is_not_taken_for_ours(env: Environment) -> None:
    error, _ = begun(env, build(1, "Complete"), build(2, "Failed"), build(3, "New"))
    assert error is AWAY


def test_a_folder_waits_until_no_build_runs_and_not_for_ever(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [{"lab-1": build(1, "Running")}, {"lab-1": build(1, "Complete"), "lab-2": build(2, "Pending")}]
    monkeypatch.setattr(watch, "watch", lambda *_: iter(seen))
    found = Builds([])
    there = wait.turn(cast("Cluster", found), env, 60, found.tell)
    assert [each["metadata"]["name"] for each in there] == ["lab-1", "lab-2"]
    assert found.said == ["Build lab-1: is running; ours starts when it has finished"]
    del seen[1]
    with pytest.raises(GpuctlError, match="cannot begin a build of lab: lab-1 has not finished after 60 s"):
        wait.turn(cast("Cluster", found), env, 60, found.tell)
