"""The template of a deployment: limits that belong together, and policies that allow what is needed and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpuctl.reservations.aws_template import Deployment, function_statements, people_statements, template
from gpuctl.reservations.queue_calls import RESERVE_S

NAME = "gpu-reservations"
QUEUE = f"arn:aws:sqs:eu-west-1:111122223333:{NAME}"
TABLE = f"arn:aws:dynamodb:eu-west-1:111122223333:table/{NAME}"
TEXT = template(Deployment(NAME, ["gpu-users"], ["ada"], "gpu-service"))
RESOURCES: dict[str, Any] = TEXT["Resources"]


def properties(name: str) -> dict[str, Any]:
    return dict(RESOURCES[name]["Properties"])


def statements() -> Iterator[dict[str, Any]]:
    """All statements of all policies, but those of trust."""
    for resource in RESOURCES.values():
        content = resource["Properties"]
        documents = [content.get("PolicyDocument"), *(one["PolicyDocument"] for one in content.get("Policies", ()))]
        yield from (row for document in documents if document for row in document["Statement"])


def test_cfn_lint_has_no_complaint() -> None:
    from cfnlint.api import lint_all

    assert [str(match) for match in lint_all(json.dumps(TEXT)) if match.rule.id[0] in "EW"] == []
    broken = json.dumps(TEXT).replace('"VisibilityTimeout"', '"VisibilityTimeuot"')
    assert lint_all(broken) != []


def test_a_message_is_not_delivered_again_while_the_function_may_run() -> None:
    assert properties("Queue")["VisibilityTimeout"] >= 6 * properties("Function")["Timeout"]


def test_the_function_has_time_for_messages_beside_its_reserve() -> None:
    assert properties("Function")["Timeout"] >= RESERVE_S + 20


def test_failed_messages_alone_come_again_and_dead_letters_outlive_the_queue() -> None:
    assert properties("Mapping")["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert properties("Queue")["RedrivePolicy"]["deadLetterTargetArn"] == {"Fn::GetAtt": ["DeadLetters", "Arn"]}
    assert properties("DeadLetters")["MessageRetentionPeriod"] > properties("Queue")["MessageRetentionPeriod"]
    assert properties("DeadLettersAlarm")["Dimensions"][0]["Value"] == {"Fn::GetAtt": ["DeadLetters", "QueueName"]}


def test_the_log_and_the_table_stay_and_the_log_has_a_limit() -> None:
    assert properties("Log")["LogGroupName"] == f"/aws/lambda/{NAME}"
    assert properties("Log")["RetentionInDays"] > 0
    assert {RESOURCES[name]["DeletionPolicy"] for name in ("Log", "Table")} == {"Retain"}
    assert properties("Table")["DeletionProtectionEnabled"]


def test_nobody_is_allowed_everything() -> None:
    allows = [row for row in statements() if row["Effect"] == "Allow"]
    assert allows
    for row in allows:
        actions = row["Action"] if isinstance(row["Action"], list) else [row["Action"]]
        assert not [action for action in actions if "*" in action]
        assert "*" not in json.dumps(row["Resource"])
        assert not {action for action in actions if action.startswith(("eks:", "iam:", "sts:"))}


def test_people_send_and_read_the_answers_to_themselves_and_nothing_else() -> None:
    rows = people_statements(QUEUE, TABLE)
    allowed = {action for row in rows if row["Effect"] == "Allow" for action in row["Action"]}
    assert allowed == {"sqs:SendMessage", "sqs:GetQueueUrl", "dynamodb:GetItem"}
    [read] = [row for row in rows if row["Action"] == ["dynamodb:GetItem"]]
    assert read["Condition"] == {
        "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["answers/${aws:userid}"]},
        "Null": {"dynamodb:LeadingKeys": "false"},
    }
    [denied] = [row for row in rows if row["Effect"] == "Deny"]
    assert "dynamodb:Scan" in denied["Action"]


def test_the_function_scans_nothing_and_sends_nothing() -> None:
    actions = {action for row in function_statements(QUEUE, TABLE, "log") for action in row["Action"]}
    assert not actions & {"dynamodb:Scan", "sqs:SendMessage", "logs:CreateLogGroup"}


def test_both_queues_refuse_connections_without_tls() -> None:
    [row] = properties("QueuePolicy")["PolicyDocument"]["Statement"]
    assert (row["Effect"], row["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert len(row["Resource"]) == 2


@pytest.mark.parametrize(("policy", "kind", "names"), [("PeoplePolicy", "Users", ["ada"]),
                                                        ("PeoplePolicy", "Roles", ["gpu-users"]),
                                                        ("ServicePolicy", "Roles", ["gpu-service"])])  # fmt: skip
def test_policies_are_attached_to_who_was_named(policy: str, kind: str, names: list[str]) -> None:
    assert properties(policy)[kind] == names
