"""CloudFormation template of a deployment: queue, function, table, schedule, and the policies of people and service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 60  # of the function, which takes no further message when too little of it is left
VISIBILITY_S = 6 * TIMEOUT_S  # AWS's advice for a queue that a function reads
KEPT_S, DEAD_KEPT_S = 4 * 86_400, 14 * 86_400  # dead letters keep the age of their first sending
MOST_RECEIVES = 5  # also those that were not taken in time count
LOG_DAYS = 90
WRITES = ("GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem")
RETAINED = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}  # when the stack is deleted
Plain = dict[str, Any]


@dataclass(frozen=True)
class Deployment:
    """Names in IAM. `roles` and `users`: may send messages. `service_role`: of the machine of the service, or ""."""

    name: str
    roles: Sequence[str] = ()
    users: Sequence[str] = ()
    service_role: str = ""


def template(deployment: Deployment) -> Plain:
    """The template as JSON. Its queue, function and table have the name of the deployment."""
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "Reservations of GPUs: calls of people by a queue, decided on one table. Written by gpuctl.",
        "Parameters": {
            "CodeBucket": {"Type": "String", "Description": "Bucket with function.zip"},
            "CodeKey": {"Type": "String", "Description": "Key of function.zip; a new one for each version of it"},
        },
        "Resources": {
            **_queues(deployment.name),
            **_table(deployment.name),
            **_function(deployment.name),
            **_schedule(deployment.name),
            **_policies(deployment),
        },
        "Outputs": {
            "Address": {"Value": f"aws:{deployment.name}", "Description": "For GPUCTL_RESERVATIONS_SOCKET of people"},
            "PeoplePolicy": {"Value": {"Ref": "PeoplePolicy"}, "Description": "Attach it to who may send"},
            "ServicePolicy": {"Value": {"Ref": "ServicePolicy"}, "Description": "Attach it to the service's machine"},
        },
    }


def people_statements(queue: Any, table: Any) -> list[Plain]:
    """Statements of people: send to the queue, and read the answers to themselves."""
    leading = {"dynamodb:LeadingKeys": ["answers/${aws:userid}"]}
    return [
        {"Effect": "Allow", "Action": ["sqs:SendMessage", "sqs:GetQueueUrl"], "Resource": queue},
        {
            "Effect": "Allow",
            "Action": ["dynamodb:GetItem"],
            "Resource": table,
            # ForAllValues is true for a request without keys: Null demands that there is one.
            "Condition": {"ForAllValues:StringEquals": leading, "Null": {"dynamodb:LeadingKeys": "false"}},
        },
        # Also against other policies of the same people: LeadingKeys does not limit these.
        {"Effect": "Deny", "Action": ["dynamodb:Scan", "dynamodb:PartiQLSelect"], "Resource": table},
    ]


def function_statements(queue: Any, table: Any, log: Any) -> list[Plain]:
    """Statements of the function."""
    receive = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]
    return [
        {"Effect": "Allow", "Action": receive, "Resource": queue},
        *service_statements(table),
        {"Effect": "Allow", "Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": log},
    ]


def service_statements(table: Any) -> list[Plain]:
    """Statements of the service that has the nodes."""
    return [{"Effect": "Allow", "Action": [f"dynamodb:{one}" for one in WRITES], "Resource": table}]


def _queues(name: str) -> Plain:
    encrypted = {"SqsManagedSseEnabled": True}
    redrive = {"deadLetterTargetArn": _arn("DeadLetters"), "maxReceiveCount": MOST_RECEIVES}
    plain = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sqs:*",
        "Resource": [_arn("Queue"), _arn("DeadLetters")],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    dead = {"QueueName": f"{name}-dead-letters", "MessageRetentionPeriod": DEAD_KEPT_S, **encrypted}
    queue = {
        "QueueName": name,
        "VisibilityTimeout": VISIBILITY_S,
        "MessageRetentionPeriod": KEPT_S,
        "RedrivePolicy": redrive,
        **encrypted,
    }
    queues = [{"Ref": "Queue"}, {"Ref": "DeadLetters"}]
    alarm = {
        "AlarmDescription": "Calls that failed five times: see the log of the function, then move them back",
        "Namespace": "AWS/SQS",
        "MetricName": "ApproximateNumberOfMessagesVisible",
        "Dimensions": [{"Name": "QueueName", "Value": {"Fn::GetAtt": ["DeadLetters", "QueueName"]}}],
        "Statistic": "Maximum",
        "Period": 300,
        "EvaluationPeriods": 1,
        "Threshold": 0,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
    }
    return {
        "DeadLetters": _resource("SQS::Queue", dead),
        "Queue": _resource("SQS::Queue", queue),
        "QueuePolicy": _resource("SQS::QueuePolicy", {"Queues": queues, "PolicyDocument": _document([plain])}),
        "DeadLettersAlarm": _resource("CloudWatch::Alarm", alarm),
    }


def _table(name: str) -> Plain:
    keys = [("pk", "HASH"), ("sk", "RANGE")]
    table = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": [{"AttributeName": key, "KeyType": kind} for key, kind in keys],
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"} for key, _ in keys],
        "TimeToLiveSpecification": {"AttributeName": "expires", "Enabled": True},
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "SSESpecification": {"SSEEnabled": True},
        "DeletionProtectionEnabled": True,
    }
    return {
        "Table": {**_resource("DynamoDB::Table", table), "DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
    }


def _function(name: str) -> Plain:
    log = {"LogGroupName": f"/aws/lambda/{name}", "RetentionInDays": LOG_DAYS}
    policy = {
        "PolicyName": "function",
        "PolicyDocument": _document(function_statements(_arn("Queue"), _arn("Table"), _arn("Log"))),
    }
    role = {"AssumeRolePolicyDocument": _trust("lambda.amazonaws.com", {}), "Policies": [policy]}
    function = {
        "FunctionName": name,
        "Runtime": "python3.13",
        "Handler": "gpuctl.reservations.on_lambda.handler",
        "Code": {"S3Bucket": {"Ref": "CodeBucket"}, "S3Key": {"Ref": "CodeKey"}},
        "Role": _arn("FunctionRole"),
        "Timeout": TIMEOUT_S,
        "MemorySize": 512,
        "Environment": {"Variables": {"GPUCTL_TABLE": {"Ref": "Table"}, "GPUCTL_QUEUE_ARN": _arn("Queue")}},
    }
    mapping = {
        "EventSourceArn": _arn("Queue"),
        "FunctionName": {"Ref": "Function"},
        "BatchSize": 10,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "ScalingConfig": {"MaximumConcurrency": 2},  # decisions exclude each other anyway
    }
    return {
        "Log": {**_resource("Logs::LogGroup", log), **RETAINED},
        "FunctionRole": _resource("IAM::Role", role),
        "Function": {**_resource("Lambda::Function", function), "DependsOn": "Log"},
        "Mapping": _resource("Lambda::EventSourceMapping", mapping),
    }


def _schedule(name: str) -> Plain:
    invoke = {"Effect": "Allow", "Action": "lambda:InvokeFunction", "Resource": _arn("Function")}
    source = {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    role = {
        "AssumeRolePolicyDocument": _trust("scheduler.amazonaws.com", source),
        "Policies": [{"PolicyName": "schedule", "PolicyDocument": _document([invoke])}],
    }
    schedule = {
        "Name": name,
        "ScheduleExpression": "rate(1 minute)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": _arn("Function"),
            "RoleArn": _arn("ScheduleRole"),
            "Input": '{"do": "pass"}',
            "RetryPolicy": {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60},
        },
    }
    return {"ScheduleRole": _resource("IAM::Role", role), "Schedule": _resource("Scheduler::Schedule", schedule)}


def _policies(deployment: Deployment) -> Plain:
    people: Plain = {"PolicyDocument": _document(people_statements(_arn("Queue"), _arn("Table")))}
    people |= {"Roles": list(deployment.roles)} if deployment.roles else {}
    people |= {"Users": list(deployment.users)} if deployment.users else {}
    service: Plain = {"PolicyDocument": _document(service_statements(_arn("Table")))}
    service |= {"Roles": [deployment.service_role]} if deployment.service_role else {}
    return {
        "PeoplePolicy": _resource("IAM::ManagedPolicy", people),
        "ServicePolicy": _resource("IAM::ManagedPolicy", service),
    }


def _resource(kind: str, properties: Mapping[str, Any]) -> Plain:
    return {"Type": f"AWS::{kind}", "Properties": dict(properties)}


def _arn(resource: str) -> Plain:
    return {"Fn::GetAtt": [resource, "Arn"]}


def _document(statements: Sequence[Plain]) -> Plain:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _trust(service: str, condition: Plain) -> Plain:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return _document([{**statement, **({"Condition": condition} if condition else {})}])
