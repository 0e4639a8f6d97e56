"""Limits of numbers in requests, by AWS's own description of its operations: moto takes any."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qs

from tests.rig.aws_endpoint import ERROR, Answer

SERVICES = {"2016-11-15": "ec2", "2010-05-08": "iam", "2015-12-01": "elbv2", "2012-06-01": "elb"}


def beyond_limits(body: bytes) -> Answer | None:
    """AWS's refusal of a request with a number, such as a page size, that it does not take; None for another one."""
    query = {key: values[0] for key, values in parse_qs(body.decode(errors="replace")).items()}
    service = SERVICES.get(query.get("Version", ""))
    if service is None:
        return None
    for name, (least, most) in _limits(service, query["Action"]).items():
        if name in query and not least <= int(query[name]) <= most:
            shown = f"Value ( {query[name]} ) for parameter {name} is invalid"
            message = f"{shown}. Expecting a value between {least} and {most}."
            return 400, ERROR.format(code="InvalidParameterValue", message=message)
    return None


@cache
def _limits(service: str, operation: str) -> Mapping[str, tuple[int, int]]:
    """Least and most of each number of an operation whose most is described."""
    model = _model(service)
    if operation not in model.operation_names:
        return {}
    shape = model.operation_model(operation).input_shape
    members = shape.members if shape else {}
    return {
        name: (int(one.metadata.get("min", 0)), int(one.metadata["max"]))
        for name, one in members.items()
        if one.type_name in ("integer", "long") and "max" in one.metadata
    }


@cache
def _model(service: str) -> Any:
    from botocore.session import Session

    return Session().get_service_model(service)
