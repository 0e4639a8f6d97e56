"""People whom an owner adds, keys of GitHub users, and what nodes report about both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.edges.ssh_keys import pair
from gpuctl.reservations.rules import access, reports
from gpuctl.reservations.rules.access import AddUser, RemoveUser
from gpuctl.reservations.rules.commands import Cancel, Command, Extend, Submit
from gpuctl.reservations.rules.model import Caller, GithubKeys, NodeState
from gpuctl.reservations.rules.reports import OrderKind
from gpuctl.reservations.rules.requests import Request
from tests.rig.reservations.books import ADA, BOB, ROOT, Desk, book

KEY, OTHER = (pair()[1] for _ in range(2))
OF_ADA = GithubKeys("ada", 7, f"{KEY} github:ada\n")
OF_BOB = GithubKeys("bobgh", 8, f"{OTHER} github:bobgh\n")


def pods() -> Desk:
    desk = Desk(book())
    desk.book = replace(desk.book, site=replace(desk.book.site, pods=True))
    return desk


def access_orders(desk: Desk) -> list[tuple[str, int, tuple[str, ...]]]:
    orders = [one for one in reports.orders(desk.book) if one.kind is OrderKind.ACCESS]
    return [(one.node, one.access, one.people) for one in orders]


def test_an_added_person_is_ordered_on_each_node_until_it_has_done_it() -> None:
    desk = Desk(book())
    id_ = desk.start(16)
    assert access_orders(desk) == []
    assert desk.send(AddUser(id_, "bob")).message == "bob gets access"
    assert access_orders(desk) == [("gpu-1", 1, ("bob",)), ("gpu-2", 1, ("bob",))]
    desk.decide(access.granted, id_, 1, "gpu-1")
    assert access_orders(desk) == [("gpu-2", 1, ("bob",))]
    assert desk.send(AddUser(id_, "cy")).accepted
    desk.decide(access.granted, id_, 1, "gpu-2")  # of the earlier order: it lacks cy
    assert [node for node, *_ in access_orders(desk)] == ["gpu-1", "gpu-2"]
    for node in ("gpu-1", "gpu-2"):
        desk.decide(access.granted, id_, 2, node)
    assert access_orders(desk) == []
    assert desk[id_].people == ("ada", "bob", "cy")
    assert desk.actions[-1] == "give access"


def test_a_node_without_the_account_says_so_once_and_gets_the_order_again() -> None:
    desk = Desk(book())
    id_ = desk.start(8)
    desk.send(AddUser(id_, "bob"))
    for _ in range(3):
        desk.decide(access.delayed, id_, 1, "gpu-1", "there is no account bob")
    assert desk[id_].access_reason == "gpu-1: there is no account bob"
    assert desk.actions.count("wait for access") == 1
    assert len(access_orders(desk)) == 1
    desk.decide(access.granted, id_, 1, "gpu-1")
    assert (desk[id_].access_reason, access_orders(desk)) == ("", [])


@pytest.mark.parametrize("caller", [BOB, ROOT])
def test_only_the_owner_adds_people_not_even_an_admin(caller: Caller) -> None:
    desk = Desk(book())
    id_ = desk.start(8)
    refused = desk.send(AddUser(id_, caller.person), caller)
    assert f"it belongs to ada, and you are {caller.person}" in refused.message
    assert (desk[id_].users, desk.actions[-1]) == ((), "refuse adduser")


def test_an_added_person_neither_extends_nor_cancels_nor_adds_others() -> None:
    desk = Desk(book())
    id_ = desk.start(8)
    desk.send(AddUser(id_, "bob"))
    for command in (Cancel(id_), Extend(id_, 60), AddUser(id_, "cy")):
        assert "it belongs to ada, and you are bob" in desk.send(command, BOB).message


def test_people_are_added_before_the_start_and_get_access_with_it() -> None:
    desk = Desk(book())
    id_ = desk.start(8, users="bob cy")
    assert desk[id_].people == ("ada", "bob", "cy")
    assert access_orders(desk) == [("gpu-1", 1, ("bob", "cy"))]
    waiting = desk.reserve(16)
    desk.send(AddUser(waiting, "bob"))
    desk.send(Cancel(id_))
    assert access_orders(desk) == []  # an ending session is given to nobody
    desk.clear(id_)
    desk.plan()
    assert access_orders(desk) == []  # it is prepared first
    desk.change(waiting, state=desk[waiting].state)
    for node in ("gpu-1", "gpu-2"):
        desk.decide(reports.session_ready, waiting, 1, node)
    assert [node for node, *_ in access_orders(desk)] == ["gpu-1", "gpu-2"]


def test_a_lost_node_gets_no_order() -> None:
    desk = Desk(book())
    id_ = desk.start(8)
    desk.send(AddUser(id_, "bob"))
    lost = replace(desk.book.nodes["gpu-1"], state=NodeState.LOST)
    desk.book = replace(desk.book, nodes={**desk.book.nodes, "gpu-1": lost})
    assert access_orders(desk) == []


@pytest.mark.parametrize(
    ("person", "wrong"),
    [
        ("ada", "it is the reservation of ada"),
        ("../x", "is not a name of an account"),
        ("", "is not a name of an account"),
        ("-rf", "is not a name of an account"),
        ("a b", "is not a name of an account"),
    ],
)
def test_a_name_that_nobody_can_have_is_refused(person: str, wrong: str) -> None:
    desk = Desk(book())
    id_ = desk.start(8)
    assert wrong in desk.send(AddUser(id_, person)).message
    assert desk[id_].users == ()


@pytest.mark.parametrize(
    ("users", "wrong"),
    [
        ("ada", "it is the reservation of ada"),
        ("bob bob", "somebody is named twice"),
        ("bob=bobgh", "no keys of the GitHub user bobgh were read"),
        (" ".join(f"u{number}" for number in range(access.MOST_USERS + 1)), "added people"),
    ],
)
def test_a_request_with_wrong_people_is_refused_as_a_whole(users: str, wrong: str) -> None:
    desk = Desk(book())
    answer = desk.send(Submit(Request(8, users=users)))
    assert (answer.accepted, wrong in answer.message) == (False, True), answer.message
    assert desk.book.reservations == {}


def test_on_hosts_people_log_in_as_ever_so_keys_are_refused() -> None:
    desk = Desk(book())
    id_ = desk.start(8)
    for command in (AddUser(id_, "bob", KEY), AddUser(id_, "bob", "", "bobgh", (OF_BOB,))):
        assert "sessions of this site are accounts of hosts" in desk.send(command).message
    refused = desk.send(Submit(Request(8, github="ada"), (OF_ADA,)))
    assert (refused.message.endswith("accounts of hosts"), refused.hint) == (True, "leave out --github")


def test_in_pods_an_added_person_needs_keys_and_adds_them_to_those_of_the_owner() -> None:
    desk = pods()
    id_ = desk.start(8, keys=KEY)
    assert "there is no public key of bob" in desk.send(AddUser(id_, "bob")).message
    assert "line 1" in desk.send(AddUser(id_, "bob", "no key")).message
    assert desk.send(AddUser(id_, "bob", f'command="x" {OTHER}')).accepted is False
    assert desk.send(AddUser(id_, "bob", OTHER)).accepted
    assert access.session_keys(desk[id_]) == f"{KEY} reservation\n{OTHER} bob\n"
    assert desk.send(AddUser(id_, "bob", OTHER)).message == "bob has access already"
    assert desk[id_].access == 1


def test_keys_of_github_open_a_pod_alone_and_with_their_user() -> None:
    desk = pods()
    answer = desk.send(Submit(Request(8, github="ADA", users="bob=bobgh"), (OF_ADA, OF_BOB)))
    assert answer.accepted, answer.message
    row = desk[answer.reservation]
    assert access.session_keys(row) == f"{KEY} github:ada\n{OTHER} github:bobgh\n"
    assert [one.id for one in access.github_of(row)] == [7, 8]
    assert access.logins(desk.book) == {"ada", "bobgh"}


def test_a_request_whose_keys_nobody_read_is_refused() -> None:
    desk = pods()
    for command in (Submit(Request(8, github="ada")), Submit(Request(8, keys=KEY, users="bob=bobgh"))):
        assert "no keys of the GitHub user" in desk.send(command).message


def test_a_second_delivery_gets_the_first_answer_whatever_github_answers_meanwhile() -> None:
    desk = pods()
    commands: list[Command] = [Submit(Request(8, github="ada"), (OF_ADA,)), Submit(Request(8, github="ada"))]
    first, second = (desk.send(command, key="one-and-the-same") for command in commands)
    assert first == second


def test_a_key_that_is_removed_at_github_no_longer_opens_the_session() -> None:
    desk = pods()
    id_ = desk.send(Submit(Request(8, github="ada", users="bob=bobgh"), (OF_ADA, OF_BOB))).reservation
    desk.plan()
    desk.decide(reports.session_ready, id_, 1, desk[id_].slots[0].node)
    desk.decide(access.granted, id_, 1, desk[id_].slots[0].node)
    desk.decide(access.refresh, {"ada": OF_ADA, "bobgh": OF_BOB})
    assert access_orders(desk) == []
    desk.decide(access.refresh, {"bobgh": replace(OF_BOB, keys="")})
    assert access.session_keys(desk[id_]) == f"{KEY} github:ada\n"
    assert len(access_orders(desk)) == 1
    assert desk.actions[-1] == "change keys"


@pytest.mark.parametrize("now", [None, GithubKeys("ada", 99, f"{OTHER} github:ada\n")])
def test_a_name_that_is_gone_or_somebody_elses_loses_its_access_for_good(now: GithubKeys | None) -> None:
    desk = pods()
    id_ = desk.send(Submit(Request(8, github="ada", keys=OTHER), (OF_ADA,))).reservation
    desk.decide(access.refresh, {"ada": now})
    assert access.session_keys(desk[id_]) == f"{OTHER} reservation\n"
    assert desk[id_].github == (GithubKeys("ada", 7, ""),)
    desk.decide(access.refresh, {"ada": now})
    assert desk.actions.count("change keys") == 1


@pytest.mark.parametrize(("command", "caller"), [("bob", ADA), ("bob", BOB), ("", BOB)])
def test_an_added_person_leaves_or_is_removed_by_the_owner(command: str, caller: Caller) -> None:
    desk = Desk(book())
    id_ = desk.start(8)
    desk.send(AddUser(id_, "bob"))
    answer = desk.send(RemoveUser(id_, command), caller)
    assert answer.message == "bob has no access any more"
    assert (desk[id_].users, desk.actions[-1]) == ((), "remove user")
    assert access_orders(desk) == [("gpu-1", 2, ())]


def test_nobody_else_is_removed() -> None:
    desk = Desk(book())
    id_ = desk.start(8)
    desk.send(AddUser(id_, "bob"))
    desk.send(AddUser(id_, "cy"))
    for command, caller, wrong in (
        (RemoveUser(id_, "cy"), BOB, "it belongs to ada, and you are bob"),
        (RemoveUser(id_, "bob"), ROOT, "it belongs to ada, and you are root"),
        (RemoveUser(id_, "ada"), ADA, "ada was not added to it"),
        (RemoveUser(id_, "eve"), ADA, "eve was not added to it"),
        (RemoveUser("r-none"), BOB, "no live reservation"),
    ):
        assert wrong in desk.send(command, caller).message
    assert desk[id_].people == ("ada", "bob", "cy")


def test_an_added_person_cannot_make_the_keys_of_a_session_too_large() -> None:
    desk = pods()
    id_ = desk.start(8, keys=KEY)
    assert "more than 20000 characters" in desk.send(AddUser(id_, "bob", "#" * 20_001)).message
    many = tuple(GithubKeys(f"u{number}", number, KEY) for number in range(access.MOST_GITHUB_OF_SESSION + 1))
    for number in range(3):
        some = many[10 * number : 10 * number + 10]
        assert desk.send(AddUser(id_, f"p{number}", "", " ".join(one.login for one in some), some)).accepted
    last = many[-1]
    assert "keys of 31 users of GitHub" in desk.send(AddUser(id_, "bob", "", last.login, (last,))).message
    desk.change(id_, keys="#" * (access.MOST_NAMED - 50))
    assert f"more than {access.MOST_NAMED} characters" in desk.send(AddUser(id_, "bob", OTHER)).message
