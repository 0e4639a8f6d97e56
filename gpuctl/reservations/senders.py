"""People behind the senders of messages: SQS proves the id of a user, or of a role with the name of its session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.reservations.rules.access import ACCOUNT
from gpuctl.reservations.rules.model import Caller

DOING = "accept a message"
HINT = "an admin runs `gpuctl reservations deploy` with your role or user"
USER_ID = re.compile(r"AIDA[A-Z0-9]{12,}")
ROLE_ID = re.compile(r"AROA[A-Z0-9]{12,}")


@dataclass(frozen=True)
class Senders:
    """Senders of a site. `users`: id of an IAM user -> person. `roles`: id of a role with pinned session names -> name.

    Ids and not names: a role that is deleted and made again by somebody else has another id. `groups`: person -> group.
    """

    users: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    admins: tuple[str, ...] = ()

    def caller(self, sender: str) -> Caller:
        """The person behind a SenderId; `InvalidInput` for one that proves nobody.

        The id of the account (its root), of a service, of a federated user (who chooses the name) and of a role that is
        not listed are none of these.
        """
        if sender in self.users:
            person = self.users[sender]
        else:
            role, colon, person = sender.partition(":")
            if not colon or role not in self.roles:
                raise InvalidInput(DOING, f"the sender {sender[:120]!r} is not one of this site", HINT)
            if not ACCOUNT.fullmatch(person):
                raise InvalidInput(DOING, f"the session name of {sender[:120]!r} is no name of a person", HINT)
        return Caller(person, self.groups.get(person, ""), admin=person in self.admins)

    def as_dict(self) -> dict[str, Any]:
        """Content of the file beside the function."""
        return {
            "users": dict(self.users),
            "roles": dict(self.roles),
            "groups": dict(self.groups),
            "admins": list(self.admins),
        }


def senders(plain: Mapping[str, Any]) -> Senders:
    """Senders from the content of the file; `InvalidInput` for an id or a person that cannot be one."""
    doing = "read the senders"
    known = Senders(plain["users"], plain["roles"], plain["groups"], tuple(plain["admins"]))
    wrong = [id_ for id_ in known.users if not USER_ID.fullmatch(id_)]
    wrong += [id_ for id_ in known.roles if not ROLE_ID.fullmatch(id_)]
    wrong += [person for person in known.users.values() if not ACCOUNT.fullmatch(person)]
    if wrong:
        raise InvalidInput(doing, f"{wrong[0]!r} is no id of a user or role, or no name of a person", "deploy again")
    return known


def mixed(users: Mapping[str, str], roles: Mapping[str, bool]) -> str:
    """Why two people could have one name; "" if they cannot. `users`: IAM user -> person. `roles`: True for one of IAM
    Identity Center, whose sessions have the logins of its people; those of the others have the names of IAM users.
    """
    renamed = [f"{user}={person}" for user, person in users.items() if person != user]
    if roles and renamed:
        return f"with a role, --user {renamed[0]} is the name that another IAM user or login may have as its session"
    directory = [name for name, by_identity_center in roles.items() if by_identity_center]
    if directory and (users or len(directory) < len(roles)):
        return f"the role {directory[0]} has logins of IAM Identity Center, which are not the names of IAM users"
    return ""


# ---- trust policies of roles -----------------------------------------------------------------------------------------

USERNAME = "${aws:username}"
IDENTITY_CENTER = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/aws-reserved/sso\.amazonaws\.com/\S+")


def unpinned(arn: str, trust: Mapping[str, Any]) -> str:
    """Why somebody could choose the session name of a role; "" if nobody can.

    Only IAM Identity Center, and a trust policy that demands the name of the IAM user, pin it. With web identities
    (IRSA) the process chooses it; with EKS Pod Identity and services it names no person.
    """
    if IDENTITY_CENTER.fullmatch(arn):
        return ""  # AWS owns these roles: their session name is the login of the person
    allows = [one for one in _listed(trust.get("Statement", [])) if one.get("Effect") == "Allow"]
    if not allows:
        return "its trust policy allows nobody to take it"
    account = arn.split(":")[4]
    return next((reason for statement in allows if (reason := _unpinned_by(statement, account))), "")


def _unpinned_by(statement: Mapping[str, Any], account: str) -> str:
    """Why a statement of a trust policy lets somebody choose the session name; "" if it does not."""
    actions = [str(one).casefold() for one in _listed(statement.get("Action", "*"))]
    names = (statement.get("Condition") or {}).get("StringEquals", {})
    pinned = {key.casefold(): _listed(value) for key, value in names.items()}.get("sts:rolesessionname")
    if "NotAction" in statement or "NotPrincipal" in statement:
        return "its trust policy excludes instead of naming"
    if set(actions) - {"sts:assumerole", "sts:tagsession", "sts:setsourceidentity"}:
        return f"its trust policy allows {', '.join(sorted(actions))}, which lets the caller choose the session name"
    if not _of_account(statement.get("Principal"), account):
        return "its trust policy allows others than this account's, where a user may have any name"
    if pinned != [USERNAME]:
        return f"its trust policy does not demand the session name {USERNAME} (StringEquals sts:RoleSessionName)"
    return ""


def _of_account(principals: Any, account: str) -> bool:
    """True for principals of one account alone."""
    if not isinstance(principals, Mapping) or set(principals) != {"AWS"}:
        return False
    listed = [str(one) for one in _listed(principals["AWS"])]
    return bool(listed) and all(one == account or one.split(":")[4:5] == [account] for one in listed)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]
