"""The tests' control plane gives each version of Kubernetes the flags that it knows, and waits where it is busy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.kube import assets, plane
from tests.rig.kube.plane import Plane


class BusyPlane(Plane):
    """One whose server has too much to do for a while."""

    answers: list[int]

    def _request(self, method: str, url: str, body: object) -> tuple[int, str, float]:
        return self.answers.pop(0), '{"kind": "Status"}', 0.0


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("Kubernetes v1.20.2\n", (1, 20)),
        ("Kubernetes v1.36.0-rc.1+a1b2c3\n", (1, 36)),
        ("Kubernetes v1.9.11\n", (1, 9)),
    ],
)
def test_the_version_is_read_from_the_program(output: str, version: tuple[int, int]) -> None:
    assert assets.version_in(output) == version


def test_what_prints_no_version_is_told() -> None:
    with pytest.raises(AssertionError, match="prints no version: 'oops'"):
        assets.version_in("oops")


@pytest.mark.parametrize(
    ("program", "version", "flags"),
    [
        ("kube-apiserver", (1, 20), ["--feature-gates=BoundServiceAccountTokenVolume=true"]),
        ("kube-apiserver", (1, 21), []),
        ("kube-controller-manager", (1, 21), ["--port=0"]),
        ("kube-controller-manager", (1, 22), []),
        ("kube-scheduler", (1, 22), ["--port=0"]),
        ("kube-scheduler", (1, 36), []),
        ("etcd", (1, 20), []),
    ],
)
def test_flags_that_later_versions_do_not_know_go_to_early_ones_alone(
    program: str, version: tuple[int, int], flags: list[str]
) -> None:
    assert plane.early_flags(program, version) == flags


def test_a_busy_server_is_asked_again_and_an_error_is_told(tmp_path: Path) -> None:
    cluster = BusyPlane(tmp_path, tmp_path)
    cluster.answers = [429, 429, 200]
    assert cluster.api("GET", "/api") == {"kind": "Status"}
    assert cluster.answers == []
    cluster.answers = [429, 404]
    with pytest.raises(AssertionError, match="GET /api"):
        cluster.api("GET", "/api")
