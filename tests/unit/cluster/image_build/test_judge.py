"""How a build stands, in words."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.cluster.image_build import judge
from gpuctl.cluster.image_build.judge import Built, NotBuilt


def build(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "lab-1"}, "status": status}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "waits to be started"),
        ({"phase": "New", "reason": "CannotCreateBuildPod", "message": "quota"}, "waits to be started: quota"),
        ({"phase": "Pending", "reason": "X"}, "waits for its pod: X"),
        ({"phase": "Running"}, "is running"),
        ({"phase": "Cancelled"}, "is cancelled"),
        ({"phase": "Failed", "message": "m"}, "has failed: m"),
    ],
)
def test_a_phase_is_reported_with_what_it_waits_for(status: dict[str, Any], words: str) -> None:
    assert judge.describe(build(**status)) == words


def test_an_image_is_reported_with_its_digest_where_the_registry_gave_one() -> None:
    done = {"phase": "Complete", "outputDockerImageReference": "r/team/lab:latest"}
    to = {"output": {"to": {"imageDigest": "sha256:1"}}}
    assert judge.result(build(**done, **to)) == Built("lab-1", "r/team/lab:latest", "sha256:1")
    assert judge.result(build(**done, output={})) == Built("lab-1", "r/team/lab:latest", "")


def test_what_keeps_a_build_from_beginning_has_a_hint_where_one_is_known() -> None:
    assert "no registry" in judge.hint(build(phase="New", reason="InvalidOutputReference"))
    assert (judge.hint(build(phase="New")), judge.hint(build(reason="Whatever"))) == ("", "")


@pytest.mark.parametrize(
    ("status", "wrong", "hint"),
    [
        (
            {"phase": "Failed", "reason": "OutOfMemoryKilled", "message": "killed"},
            "cannot build lab-1: killed (OutOfMemoryKilled)",
            "raise image.build.memory",
        ),
        (
            {"phase": "Failed", "reason": "New", "logSnippet": "one\ntwo\n"},
            "cannot build lab-1: New\n    one\n    two",
            "`oc describe build lab-1` shows more",
        ),
        (
            {"phase": "Failed", "message": "no https://0123abcd@host/a.git", "logSnippet": "fetch https://ab12@host/b"},
            "cannot build lab-1: no https://<removed>@host/a.git\n    fetch https://<removed>@host/b",
            "`oc describe build lab-1` shows more",
        ),
        ({"phase": "Error"}, "cannot build lab-1: the cluster gives no reason", "`oc describe"),
        ({"phase": "Cancelled", "reason": "CancelledBuild"}, "cannot build lab-1: it was cancelled", "start it again"),
    ],
)
def test_a_build_that_made_no_image_says_why_and_what_to_try(status: dict[str, Any], wrong: str, hint: str) -> None:
    with pytest.raises(NotBuilt) as told:
        judge.result(build(**status))
    assert str(told.value) == wrong
    assert hint in told.value.hint
