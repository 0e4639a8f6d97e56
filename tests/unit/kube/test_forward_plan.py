"""Local ports and the pods they lead to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.kube.forward.model import Request, Slot
from gpuctl.kube.forward.plan import follow, heirs, local_ports, slots
from gpuctl.kube.model import Pod

ALL = Request((8080,), selector="app=hyperpod", first=8081)


def pod(name: str, uid: str = "", phase: str = "Running", leaving: bool = False, ready: bool = True) -> Pod:
    return Pod(name, "default", uid or f"uid-{name}", phase, ready, leaving)


def anything(_: int) -> bool:
    return True


def ports(planned: list[Slot]) -> dict[str, list[int]]:
    return {slot.pod: [local for local, _ in slot.ports] for slot in planned}


def test_every_pod_gets_the_next_local_port() -> None:
    planned = slots(ALL, [pod("a"), pod("b"), pod("c")], anything)
    assert ports(planned) == {"a": [8081], "b": [8082], "c": [8083]}


def test_ports_in_use_are_skipped() -> None:
    planned = slots(ALL, [pod("a"), pod("b")], lambda port: port not in (8081, 8083))
    assert ports(planned) == {"a": [8082], "b": [8084]}


def test_several_ports_of_a_pod_are_consecutive() -> None:
    request = Request((8080, 9090), selector="app=x", first=8081)
    planned = slots(request, [pod("a"), pod("b")], anything)
    assert [slot.ports for slot in planned] == [((8081, 8080), (8082, 9090)), ((8083, 8080), (8084, 9090))]


def test_only_running_pods_that_are_not_terminating_get_a_port() -> None:
    assert ports(slots(ALL, [pod("a", phase="Pending"), pod("b", leaving=True), pod("c")], anything)) == {"c": [8081]}


def test_too_few_free_ports_are_reported_before_anything_starts() -> None:
    with pytest.raises(InvalidInput, match="fewer than 2"):
        local_ports(65535, 2, anything)


def test_a_replacement_pod_takes_over_the_port() -> None:
    now = slots(ALL, [pod("x-1"), pod("x-2")], anything)
    planned = follow(ALL, now, [pod("x-2"), pod("x-3")], anything)
    assert ports(planned) == {"x-3": [8081], "x-2": [8082]}


def test_a_pod_that_returns_under_its_name_keeps_its_port() -> None:
    now = slots(ALL, [pod("s-0"), pod("s-1")], anything)
    planned = follow(ALL, now, [pod("s-0", "new-0"), pod("s-1", "new-1")], anything)
    assert [(slot.pod, slot.uid, slot.ports[0][0]) for slot in planned] == [
        ("s-0", "new-0", 8081),
        ("s-1", "new-1", 8082),
    ]


def test_a_slot_without_a_pod_waits() -> None:
    now = slots(ALL, [pod("a"), pod("b")], anything)
    (first, second) = follow(ALL, now, [pod("b"), pod("c", phase="Pending")], anything)
    assert (first.pod, first.uid) == ("a", "")
    assert second.uid == "uid-b"


def test_an_additional_pod_gets_the_next_port() -> None:
    now = slots(ALL, [pod("a")], anything)
    assert ports(follow(ALL, now, [pod("a"), pod("b")], anything)) == {"a": [8081], "b": [8082]}


def test_an_additional_pod_never_gets_the_port_of_a_waiting_slot() -> None:
    now = [Slot(((8081, 8080),), "gone", "uid-gone"), Slot(((8082, 8080),), "b", "uid-b")]
    planned = follow(ALL, now, [pod("b"), pod("c"), pod("d")], anything)
    assert ports(planned) == {"c": [8081], "b": [8082], "d": [8083]}


def test_a_single_pod_is_followed_and_no_other_pod_is_added() -> None:
    request = Request((8080,), pod="web-1", local=(9000,))
    now = slots(request, [pod("web-1")], anything)
    assert ports(follow(request, now, [pod("web-1"), pod("web-2")], anything)) == {"web-1": [9000]}
    assert ports(follow(request, now, [pod("web-2"), pod("web-3")], anything)) == {"web-2": [9000]}


def test_a_requested_local_port_must_be_free() -> None:
    with pytest.raises(InvalidInput, match="9000"):
        slots(Request((8080,), pod="a", local=(9000,)), [pod("a")], lambda port: port != 9000)


def test_a_port_below_1024_is_forwarded_from_an_unprivileged_port() -> None:
    assert slots(Request((80, 8080), pod="a"), [pod("a")], anything)[0].ports == ((8080, 80), (8081, 8080))


def test_ports_with_separate_kubectls_move_to_the_same_replacement() -> None:
    request = Request((8080, 8888), pod="web-1", apart=True)
    now = slots(request, [pod("web-1")], anything)
    planned = follow(request, now, [pod("web-2"), pod("web-3")], anything)
    assert [(slot.pod, slot.ports) for slot in planned] == [("web-2", ((8080, 8080),)), ("web-2", ((8888, 8888),))]


def labelled(owner: str, **labels: str) -> Pod:
    return replace(pod("db-0"), owner=owner, labels={"app": "db", **labels})


def test_a_pod_of_a_statefulset_is_followed_by_its_name_alone_as_its_siblings_have_the_same_labels() -> None:
    pod_labels = {"statefulset.kubernetes.io/pod-name": "db-0", "apps.kubernetes.io/pod-index": "0"}
    assert heirs(labelled("StatefulSet", **pod_labels)) == ""
    assert heirs(labelled("StatefulSet")) == ""
    assert heirs(labelled("Clone", **pod_labels)) == ""


def test_a_pod_with_a_controller_is_followed_by_its_shared_labels() -> None:
    assert heirs(labelled("ReplicaSet", **{"pod-template-hash": "x", "tier": "1"})) == "app=db,tier=1"
    assert heirs(labelled("")) == ""
