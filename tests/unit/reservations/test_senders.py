"""People behind senders, and roles whose session names anybody may choose."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.reservations.rules.model import Caller
from gpuctl.reservations.senders import Senders, mixed, senders, unpinned

ROLE, USER = "AROAEXAMPLEROLEID01", "AIDAEXAMPLEUSERID01"
KNOWN = Senders({USER: "ada"}, {ROLE: "gpu-users"}, {"ada": "vision"}, ("ada",))
ARN = "arn:aws:iam::111122223333:role/gpu-users"
PIN = {"StringEquals": {"sts:RoleSessionName": "${aws:username}"}}
ROOT = {"AWS": "arn:aws:iam::111122223333:root"}
PINNED = {"Effect": "Allow", "Principal": ROOT, "Action": "sts:AssumeRole", "Condition": PIN}


def trust(**changes: Any) -> dict[str, Any]:
    statement = {name: value for name, value in {**PINNED, **changes}.items() if value is not None}
    return {"Version": "2012-10-17", "Statement": [statement]}


def test_users_and_sessions_of_listed_roles_are_people() -> None:
    assert KNOWN.caller(USER) == Caller("ada", "vision", admin=True)
    assert KNOWN.caller(f"{ROLE}:bob@example.org") == Caller("bob@example.org")


@pytest.mark.parametrize("sender", ["", "ada", f"{USER}:bob", f"{USER} ", f"{ROLE}", f"{ROLE}:", f"x{ROLE}:ada"])
def test_other_senders_are_nobody(sender: str) -> None:
    with pytest.raises(InvalidInput):
        KNOWN.caller(sender)


def test_the_file_beside_the_function_is_read_back() -> None:
    assert senders(KNOWN.as_dict()) == KNOWN


@pytest.mark.parametrize("change", [{"users": {"ada": "ada"}}, {"roles": {"*": "x"}}, {"users": {USER: "a b"}}])
def test_a_file_with_names_in_place_of_ids_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="no id of a user"):
        senders({**KNOWN.as_dict(), **change})


def test_a_role_that_demands_the_name_of_the_user_is_pinned() -> None:
    assert unpinned(ARN, trust()) == ""
    assert unpinned(ARN, trust(Action=["sts:AssumeRole", "sts:TagSession"], Principal={"AWS": "111122223333"})) == ""


def test_roles_of_identity_center_are_pinned_by_aws() -> None:
    path = "role/aws-reserved/sso.amazonaws.com/eu-west-1/AWSReservedSSO_Research_0123456789abcdef"
    assert unpinned(f"arn:aws:iam::111122223333:{path}", {}) == ""


UNPINNED: list[tuple[str, dict[str, Any]]] = [
    ("no condition", {"Condition": None}),
    ("a pattern", {"Condition": {"StringLike": {"sts:RoleSessionName": "${aws:username}"}}}),
    ("one of several", {"Condition": {"StringEquals": {"sts:RoleSessionName": ["${aws:username}", "ada"]}}}),
    ("only if it is given", {"Condition": {"StringEqualsIfExists": {"sts:RoleSessionName": "${aws:username}"}}}),
    ("a constant", {"Condition": {"StringEquals": {"sts:RoleSessionName": "ada"}}}),
    ("pods, where the process chooses", {"Action": "sts:AssumeRoleWithWebIdentity"}),
    ("EKS Pod Identity", {"Principal": {"Service": "pods.eks.amazonaws.com"}}),
    ("everybody", {"Principal": "*"}),
    ("every account", {"Principal": {"AWS": "*"}}),
    ("another account, whose users have any name", {"Principal": {"AWS": "arn:aws:iam::999999999999:root"}}),
    ("every action", {"Action": "sts:*"}),
    ("all but some", {"Principal": None, "NotPrincipal": ROOT}),
]


@pytest.mark.parametrize("change", [change for _, change in UNPINNED], ids=[name for name, _ in UNPINNED])
def test_a_role_whose_session_name_somebody_may_choose_is_not(change: dict[str, Any]) -> None:
    assert unpinned(ARN, trust(**change)) != ""


@pytest.mark.parametrize(
    ("users", "roles"),
    [
        ({"ada.smith": "ada"}, {"gpu-users": False}),  # another IAM user may have the name ada
        ({"ada.smith": "ada"}, {"research": True}),
        ({"ada": "ada"}, {"research": True}),  # a login ada may be somebody else than the IAM user
        ({}, {"research": True, "gpu-users": False}),
    ],
)
def test_names_of_several_directories_are_not_mixed(users: dict[str, str], roles: dict[str, bool]) -> None:
    assert mixed(users, roles) != ""


@pytest.mark.parametrize(
    ("users", "roles"),
    [
        ({"ada.smith": "ada", "bob": "bob"}, {}),
        ({"ada": "ada"}, {"gpu-users": False, "gpu-admins": False}),
        ({}, {"research": True, "operations": True}),
    ],
)
def test_names_of_one_directory_are_people(users: dict[str, str], roles: dict[str, bool]) -> None:
    assert mixed(users, roles) == ""


def test_one_statement_of_several_is_enough_to_choose() -> None:
    document = trust()
    document["Statement"].append({**PINNED, "Condition": {}})
    assert unpinned(ARN, document) != ""
    assert unpinned(ARN, {"Statement": []}) != ""
