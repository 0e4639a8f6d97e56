"""Keys of GitHub users in the service: a short cache, revocation, rate limits and outages."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput, Unreachable
from gpuctl.edges.public_keys import LIMIT_S, NoAnswer, RateLimited
from gpuctl.edges.ssh_keys import pair
from gpuctl.reservations import github_keys
from gpuctl.reservations.demo import SimulatedNode
from gpuctl.reservations.github_keys import FRESH_S, MOST_AN_HOUR, GithubSource
from gpuctl.reservations.rules import access
from gpuctl.reservations.rules.model import HOUR, Caller, Node, Site
from gpuctl.reservations.rules.requests import MOST_KEYS
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.memory import MemoryStore

ADA, BOB = Caller("ada", "vision"), Caller("bob", "speech")
KEY, OTHER = (pair()[1] for _ in range(2))
DOING = "reserve GPUs"


class StandinGithub:
    """Stand-in for GitHub: users in memory. `failure`: raised by each reading; `failures`: by those of a user."""

    def __init__(self) -> None:
        self.users = {"ada": (7, KEY), "bobgh": (8, OTHER)}
        self.failure: Exception | None = None
        self.failures: dict[str, Exception] = {}
        self.readings: list[str] = []

    def __call__(self, login: str, limit_s: float) -> tuple[int, str]:
        assert 0 < limit_s <= LIMIT_S
        self.readings.append(login)
        if failure := self.failures.get(login, self.failure):
            raise failure
        if login not in self.users:
            raise InvalidInput(f"read the public keys of {login}", "GitHub has no such user")
        return self.users[login]


class Lab:
    """The service of a site with pods, whose only accounts are ada and bob."""

    def __init__(self) -> None:
        self.now, self.github, self.node = 1_700_000_000, StandinGithub(), SimulatedNode("n1")
        self.store = MemoryStore(Site(pods=True), [Node("n1", "h100", (None,) * 4, place="uid-1")])
        self.service = Service(
            self.store,
            {"n1": self.node},
            lambda: self.now,
            read_github=self.github,
            has_account=lambda person: person in ("ada", "bob"),
        )

    def submit(self, key: str = "key-00001", **request: Any) -> dict[str, Any]:
        content = {"gpus": 1, "length_s": HOUR, **request}
        return self.service.answer(ADA, {"do": "submit", "key": key, "request": content})

    def add(self, caller: Caller = ADA, key: str = "key-00002", **command: str) -> dict[str, Any]:
        return self.service.answer(caller, {"do": "adduser", "key": key, "command": command})

    def row(self) -> dict[str, Any]:
        [row] = self.service.answer(ADA, {"do": "state"})["reservations"]
        return dict(row)

    def keys_of(self, id_: str) -> dict[str, str]:
        return {one.login: one.keys for one in access.github_of(self.store.load().reservations[id_])}

    def actions(self, subject: str) -> list[str]:
        entries = self.service.answer(ADA, {"do": "history", "subject": subject})["entries"]
        return [entry["action"] for entry in reversed(entries)]


def test_the_service_reads_the_keys_and_keeps_the_numeric_id() -> None:
    lab = Lab()
    row = lab.submit(github="Ada", users="bob=bobgh")["reservation"]
    assert (row["github"], row["users"]) == ([{"login": "ada", "id": 7}, {"login": "bobgh", "id": 8}], ["bob"])
    assert lab.node.people == {row["id"]: ("bob",)}
    assert lab.row()["without_access"] == []


def test_keys_are_kept_for_a_short_time_only() -> None:
    lab = Lab()
    source = GithubSource(lab.github, lambda: lab.now)
    for _ in range(3):
        assert source.resolve(["ada", "ADA"], DOING)[0].id == 7
    assert lab.github.readings == ["ada"]
    lab.now += FRESH_S
    source.resolve(["ada"], DOING)
    assert lab.github.readings == ["ada", "ada"]


def test_a_revoked_key_is_taken_away_and_the_history_says_so() -> None:
    lab = Lab()
    row = lab.submit(github="ada")["reservation"]
    lab.github.users["ada"] = (7, "")
    lab.service.refresh_keys()
    assert lab.github.readings == ["ada"]
    lab.now += FRESH_S
    lab.service.refresh_keys()
    assert lab.store.load().reservations[row["id"]].github[0].keys == ""
    assert "change keys" in lab.actions(row["id"])
    assert lab.submit("key-00009", github="ada")["exit_code"] == 2  # an empty list is an answer, not a failure


def test_without_an_answer_nobody_gets_a_new_access_and_sessions_stay_with_the_reason() -> None:
    lab = Lab()
    row = lab.submit(github="ada")["reservation"]
    lab.github.failure = Unreachable("read the GitHub user ada", "GitHub answers with HTTP status 502")
    lab.now += FRESH_S
    for _ in range(3):
        lab.service.refresh_keys()
    assert "HTTP status 502" in lab.row()["github_trouble"]
    assert lab.actions("github") == ["keep keys"]
    assert lab.github.readings == ["ada", "ada"]  # not again in each pass
    refused = lab.submit("key-00003", github="ada")
    assert ("HTTP status 502" in refused["error"], refused["exit_code"]) == (True, Unreachable.exit_code)
    assert lab.store.load().reservations[row["id"]].github[0].keys
    lab.github.failure = None
    lab.now += FRESH_S
    lab.service.refresh_keys()
    assert lab.row()["github_trouble"] == ""


def test_a_rate_limit_is_not_asked_again_before_its_end() -> None:
    lab = Lab()
    lab.github.failure = RateLimited("read the GitHub user ada", 600)
    for number in range(3):
        assert "rate limit is reached" in lab.submit(f"key-1000{number}", github="ada")["error"]
    assert lab.github.readings == ["ada"]
    lab.github.failure = None
    lab.now += 600
    assert lab.submit("key-20000", github="ada")["reservation"]["state"] == "active"


def test_a_command_that_has_its_answer_does_not_ask_github_again() -> None:
    lab = Lab()
    first = lab.submit(github="ada")
    lab.github.failure = Unreachable("read", "no answer")
    lab.now += FRESH_S
    assert lab.submit(github="ada")["reservation"]["id"] == first["reservation"]["id"]


@pytest.mark.parametrize(
    ("request_", "wrong"),
    [
        ({"github": "no--name"}, "'no--name' is no name of a GitHub user"),
        ({"github": "nobody"}, "GitHub has no such user"),
        ({"github": " ".join(f"u{number}" for number in range(11))}, "11 users of GitHub are named"),
        ({"github": "ada", "users": "eve=bobgh"}, "there is no account eve on this machine"),
        ({"github": "ada", "users": "bob"}, "there is no public key of bob"),
        ({"github": "ada", "resolved": []}, "no valid request"),
        ({}, "there is no public key to log in with"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_and_reserves_nothing(request_: dict[str, Any], wrong: str) -> None:
    lab = Lab()
    answer = lab.submit(**request_)
    assert wrong in answer["error"]
    assert lab.service.answer(ADA, {"do": "state"})["reservations"] == []


def test_the_keys_that_the_service_reads_cannot_be_put_into_a_call() -> None:
    lab = Lab()
    id_ = lab.submit(keys=KEY)["reservation"]["id"]
    forged = {"reservation": id_, "person": "bob", "github": "bobgh", "resolved": [{"login": "bobgh", "id": 1}]}
    assert "resolved is" in lab.add(**forged)["error"]
    assert lab.row()["users"] == []


def test_an_added_person_reaches_the_session_and_nobody_else_does() -> None:
    lab = Lab()
    id_ = lab.submit(keys=KEY)["reservation"]["id"]
    assert "it belongs to ada, and you are bob" in lab.add(BOB, reservation=id_, person="bob", github="bobgh")["error"]
    assert lab.add(key="key-00003", reservation=id_, person="bob", github="bobgh")["message"] == "bob gets access"
    assert lab.row()["users"] == ["bob"]
    refused = lab.service.answer(BOB, {"do": "cancel", "key": "key-00004", "command": {"reservation": id_}})
    assert "it belongs to ada, and you are bob" in refused["error"]
    assert "add user" in lab.actions(id_)


def test_a_service_that_does_not_ask_github_says_so() -> None:
    source = GithubSource(None, lambda: 0)
    with pytest.raises(InvalidInput, match="does not ask GitHub"):
        source.resolve(["ada"], DOING)
    assert source.resolve([], DOING) == ()


def test_a_reading_for_a_refused_command_takes_a_removed_key_away_too() -> None:
    lab = Lab()
    id_ = lab.submit(github="ada")["reservation"]["id"]
    lab.github.users["ada"] = (7, "")
    lab.now += FRESH_S
    assert lab.submit("key-00009", github="ada")["exit_code"] == 2
    lab.service.refresh_keys()
    assert lab.keys_of(id_) == {"ada": ""}
    assert lab.github.readings == ["ada", "ada"]


def test_an_older_answer_that_comes_late_replaces_no_newer_one() -> None:
    now = 1_700_000_000

    def read(login: str, _: float) -> tuple[int, str]:
        calls.append(login)
        if len(calls) == 1:  # while this one is on its way, a second one is answered
            source.resolve([login], DOING)
            return 7, KEY
        return 7, OTHER

    calls: list[str] = []
    source = GithubSource(read, lambda: now)
    for _ in range(2):
        assert OTHER.split()[1] in source.resolve(["ada"], DOING)[0].keys
    assert calls == ["ada", "ada"]


def test_a_user_whose_reading_fails_stops_no_revocation_of_others() -> None:
    lab = Lab()
    id_ = lab.submit(github="ada bobgh")["reservation"]["id"]
    lab.github.failures["ada"] = Unreachable("read the GitHub user ada", "GitHub answers with HTTP status 500")
    lab.github.users["bobgh"] = (8, "")
    lab.now += FRESH_S
    lab.service.refresh_keys()
    assert lab.github.readings[2:] == ["ada", "bobgh"]
    keys = lab.keys_of(id_)
    assert (bool(keys["ada"]), keys["bobgh"]) == (True, "")
    assert "HTTP status 500" in lab.row()["github_trouble"]
    lab.service.refresh_keys()
    assert len(lab.github.readings) == 4


def test_without_any_answer_the_others_are_tried_in_later_passes() -> None:
    lab = Lab()
    lab.submit(github="ada bobgh")
    lab.github.failure = NoAnswer("read", "no route to host")
    lab.now += FRESH_S
    for number in (3, 4, 4):
        lab.service.refresh_keys()
        assert len(lab.github.readings) == number
    assert lab.github.readings[2:] == ["ada", "bobgh"]


def test_many_users_are_read_one_after_another_and_none_starves() -> None:
    lab = Lab()
    names = [f"u{number:02}" for number in range(20)]
    lab.github.users = {name: (number, KEY) for number, name in enumerate(names)}
    for at in (0, 10):
        lab.submit(f"key-0000{at}", github=" ".join(names[at : at + 10]))
    for _ in range(2):
        lab.now += FRESH_S
        lab.github.readings.clear()
        for _ in range(4):
            lab.service.refresh_keys()
        assert sorted(lab.github.readings) == names


def test_where_not_all_can_be_read_the_oldest_readings_are_the_next() -> None:
    lab = Lab()
    names = [f"u{number}" for number in range(10)]
    lab.github.users = {name: (number, KEY) for number, name in enumerate(names)}
    lab.submit(github=" ".join(names))
    lab.github.readings.clear()
    for _ in range(2):
        lab.now += FRESH_S
        lab.service.refresh_keys()
    assert lab.github.readings == names


def test_a_pass_does_not_wait_for_github() -> None:
    lab = Lab()
    lab.submit(github="ada")
    lab.now += FRESH_S
    lab.service.pass_once()
    assert lab.github.readings == ["ada"]


def test_a_command_ends_before_its_sender_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    monkeypatch.setattr(github_keys, "COMMAND_S", 0)
    answer = lab.submit(github="ada")
    assert ("GitHub needs more than 0 s" in answer["error"], lab.github.readings) == (True, [])


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ({"reservation": "r-none"}, "no live reservation has this id"),
        ({"reservation": "ID"}, "it belongs to ada, and you are bob"),
    ],
)
def test_a_command_that_is_refused_anyway_asks_nothing_of_github_and_is_in_the_history(
    command: dict[str, str], wrong: str
) -> None:
    lab = Lab()
    id_ = lab.submit(keys=KEY)["reservation"]["id"]
    subject = id_ if command["reservation"] == "ID" else command["reservation"]
    answer = lab.add(BOB, **{**command, "reservation": subject, "person": "bob", "github": "bobgh"})
    assert (wrong in answer["error"], lab.github.readings) == (True, [])
    assert lab.actions(subject)[-1] == "refuse adduser"


def test_a_request_that_the_site_cannot_grant_asks_nothing_of_github() -> None:
    lab = Lab()
    assert "9999" in lab.submit(gpus=9999, github="ada")["error"]
    assert "there is no account eve" in lab.submit(github="ada", users="eve=bobgh")["error"]
    assert lab.github.readings == []
    assert lab.actions("") == ["refuse submit", "refuse submit"]


def test_nobody_uses_up_the_readings_of_the_others() -> None:
    lab = Lab()
    lab.github.users = {f"u{number}": (number, KEY) for number in range(MOST_AN_HOUR + 1)}
    for number in range(MOST_AN_HOUR):
        lab.service.github.resolve([f"u{number}"], DOING, "bob")
    for refused in (True, False):
        last = f"u{MOST_AN_HOUR}"
        if refused:
            with pytest.raises(InvalidInput, match=f"have named {MOST_AN_HOUR} users of GitHub in an hour"):
                lab.service.github.resolve([last], DOING, "bob")
        else:
            assert lab.service.github.resolve([last], DOING, "ada")[0].id == MOST_AN_HOUR
    lab.now += HOUR
    assert lab.service.github.resolve(["u1"], DOING, "bob")[0].id == 1


def test_a_user_with_too_many_keys_opens_nothing_with_the_reason() -> None:
    lab = Lab()
    id_ = lab.submit(github="ada")["reservation"]["id"]
    lab.github.users["ada"] = 7, "".join(f"{pair()[1]}\n" for _ in range(MOST_KEYS // 80))
    lab.now += FRESH_S
    for _ in range(2):
        lab.service.refresh_keys()
    assert lab.keys_of(id_) == {"ada": ""}
    entries = lab.service.answer(ADA, {"do": "history", "subject": id_})["entries"]
    reasons = [entry["reason"] for entry in entries if entry["action"] == "change keys"]
    assert reasons == [f"the keys of the GitHub user ada have more than {MOST_KEYS} characters"]
    assert "more than" in lab.submit("key-00009", github="ada")["error"]
