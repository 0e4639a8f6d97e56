"""The plan's predictions against refusals: each injected cause is predicted and happens, and good plans come up.

The account is moto with eks_endpoint.py and eks_refusing_account.py; `python -m tests.rig.eks_trial` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuctl.eks import cluster_file
from gpuctl.workflows import eks_plan
from tests.rig import eks_trial
from tests.rig.aws_endpoint import Answer
from tests.rig.eks_causes import CAUSES, GOOD
from tests.rig.eks_endpoint import XML, Forward, Received
from tests.rig.eks_trial import Cause, World, misses, outcome, restored, text


@pytest.fixture(scope="module")
def account() -> Iterator[World]:
    with eks_trial.world() as made:
        yield made


@pytest.mark.parametrize("cause", CAUSES, ids=lambda one: one.name)
def test_a_cause_is_predicted_and_happens(account: World, cause: Cause) -> None:
    with restored(account):
        assert misses(cause, outcome(account, cause.inject(account), cause.later)) == []


@pytest.mark.parametrize("name", GOOD)
def test_a_good_plan_has_no_alarm_and_comes_up(account: World, name: str) -> None:
    with restored(account):
        made = outcome(account, GOOD[name](account))
        assert (list(made.predicted), made.happened) == ([], "")


@pytest.mark.parametrize("pairs", ["<entry><key>Roles</key><value>3</value></entry>", None])
def test_a_limit_that_aws_does_not_name_is_unknown(
    account: World, pairs: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = "" if pairs is None else f"<SummaryMap>{pairs}</SummaryMap>"
    answer = XML.format("GetAccountSummary", f"<GetAccountSummaryResult>{summary}</GetAccountSummaryResult>")
    monkeypatch.setattr(account.account, "_summary", lambda _: answer)
    made = eks_plan.plan(account.aws, cluster_file.check(text(account), "read it"))
    assert [(one.check, one.subject, one.verdict) for one in made.findings if one.verdict != "OK"] == [
        ("limit", "IAM roles", "UNKNOWN")
    ]


def test_an_administrator_of_another_account_is_unknown_and_not_asked_for(
    account: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, asked = account.account.respond, list[bytes]()

    def respond(request: Received, forward: Forward) -> Answer:
        asked.append(request.body)
        return answer(request, forward)

    monkeypatch.setattr(account.account, "respond", respond)
    admins = ["arn:aws:iam::999999999999:role/Admin"]
    made = eks_plan.plan(account.aws, cluster_file.check(text(account, admins=admins), "read it"))
    [one] = [one for one in made.findings if one.verdict != "OK"]
    assert (one.check, one.verdict) == ("admins", "UNKNOWN")
    assert "it is of another account" in one.message
    assert not any(b"RoleName=Admin" in body for body in asked)


def test_there_are_as_many_causes_and_good_plans_as_promised() -> None:
    assert len({one.name for one in CAUSES}) == len(CAUSES)
    assert sum(one.refused_by == "AWS" for one in CAUSES) >= 40
    assert len(GOOD) >= 20
