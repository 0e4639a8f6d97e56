"""Why pods do not start, and how they end, from statuses as kubelets write them."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.nccl.runners.kube import pod_state


def pod(state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    told = [{"name": "nccl", "image": "example/nccl-tests:1", "state": state}] if state else []
    return {"metadata": {"name": "p"}, "status": {"phase": "Pending", "containerStatuses": told, **status}}


PULLING = {
    "waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "example/nccl-tests:1"'},
}
UNPLACED = [
    {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/64 nodes are available: 1 Insufficient nvidia.com/gpu, 63 node(s) didn't match node selector.",
    }
]


def test_a_pod_without_a_place_says_what_the_scheduler_said() -> None:
    assert pod_state.why_waiting(pod(conditions=UNPLACED)).startswith(
        "it cannot be placed: 0/64 nodes are available: 1 Ins"
    )


def test_an_image_that_cannot_be_pulled_is_named() -> None:
    said = pod_state.why_waiting(pod(PULLING))
    assert said.startswith("its image example/nccl-tests:1 cannot be pulled (ImagePullBackOff): Back-off pulling")


def test_a_name_that_is_no_image_is_not_waited_for() -> None:
    assert pod_state.is_hopeless(pod({"waiting": {"reason": "InvalidImageName", "message": "couldn't parse"}}))
    assert not pod_state.is_hopeless(pod(PULLING))


def test_a_container_that_is_being_made_has_no_reason_yet() -> None:
    assert pod_state.why_waiting(pod({"waiting": {"reason": "ContainerCreating"}})) == ""
    assert not pod_state.has_begun(pod({"waiting": {"reason": "ContainerCreating"}}))


def test_a_running_container_has_begun_and_not_ended() -> None:
    found = pod({"running": {"startedAt": "2026-01-01T00:00:00Z"}}, phase="Running")
    assert (pod_state.has_begun(found), pod_state.is_finished(found), pod_state.exit_code(found)) == (True, False, None)


def test_an_ended_container_has_its_exit_status() -> None:
    found = pod({"terminated": {"exitCode": 3, "reason": "Error"}}, phase="Failed")
    assert (pod_state.is_finished(found), pod_state.exit_code(found), pod_state.why_gone(found)) == (True, 3, "")


def test_a_pod_that_was_evicted_before_it_began_has_none() -> None:
    found = pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    assert pod_state.exit_code(found) is None
    assert pod_state.why_gone(found) == "its pod was ended (Evicted): The node was low on resource: memory."


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pod({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), "its pod was out of memory (OOMKilled)"),
        (None, "its pod was deleted by somebody else"),
        (
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}},
            "its pod was deleted by somebody else, or its node is being drained",
        ),
        (pod({"running": {}}, phase="Running"), ""),
    ],
)
def test_what_ended_a_pod_from_outside_is_told(found: dict[str, Any] | None, said: str) -> None:
    assert pod_state.why_gone(found) == said
