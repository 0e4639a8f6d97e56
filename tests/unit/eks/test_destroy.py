"""A removal against a stand-in of AWS that answers as AWS does while something is busy, held or protected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Verdict
from gpuctl.edges.aws import Aws, Request
from gpuctl.eks import destroy
from gpuctl.eks.destroy import Choice, Remover
from gpuctl.eks.objects import Kind, Object, State
from gpuctl.eks.removal import Belongings
from gpuctl.eks.wait import Waiter

Answer = dict[str, Any] | Exception


class Refusal(Exception):
    """As botocore's error: with AWS's code."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message)
        self.response = {"Error": {"Code": code, "Message": message}}


def refused(code: str, message: str = "it is in use") -> GpuctlError:
    error = GpuctlError("change it", f"{message} ({code})")
    error.__cause__ = Refusal(code, message)
    return error


@dataclass
class StandInAws(Aws):
    """Answers by operation: the next of a list, the last again and again. What has no answer is absent or empty."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    acts: list[str] = field(default_factory=list)
    parameters: list[Any] = field(default_factory=list)
    region: str = "us-east-1"

    def _answer(self, operation: str) -> Any:
        several = self.answers.get(operation) or []
        one = several.pop(0) if len(several) > 1 else several[0] if several else None
        if isinstance(one, Exception):
            raise one
        return one

    def read(self, request: Request, convert: Callable[[Any], Any]) -> list[Any]:
        answer = self._answer(request.operation)
        if request.items:
            return [convert(one) for one in (answer or {}).get(request.items) or ()]
        if answer is None:
            raise refused("ResourceNotFoundException", "not found")
        return [convert(answer)]

    def act(self, request: Request) -> dict[str, Any]:
        self.acts.append(request.operation)
        self.parameters.append(request.parameters)
        return self._answer(request.operation) or {}


def remover(aws: Aws, state: State, around: Belongings | None = None, limit: float = 10.0) -> Remover:
    """With a clock that every look moves by `limit`."""
    clock = iter(range(0, 10**9, int(limit)))
    waiter = Waiter(lambda _: None, lambda _: None, lambda: float(next(clock)), 0.0)
    return Remover(aws, state, lambda *_: around or Belongings(), Choice(), waiter)


def lab(*objects: Object) -> State:
    return State("lab", "us-east-1", list(objects))


def test_objects_that_something_holds_share_one_limit_of_waiting() -> None:
    aws = StandInAws({"DeleteSecurityGroup": [refused("DependencyViolation")]})
    run = remover(aws, lab(), limit=100)
    for number in range(20):
        run.delete(Object(Kind.SECURITY_GROUP, f"sg-{number}"))
    assert len(run.findings) == 20
    assert len(aws.acts) < 60  # each with a limit of its own: about 200


def test_volumes_of_the_nodes_are_tagged_before_the_nodes_go() -> None:
    disk = Object(Kind.VOLUME, "vol-1", tags={"ebs.csi.aws.com/cluster": "true"})
    aws = StandInAws()
    state = lab(Object(Kind.GROUP, "gpu", state="ACTIVE"))
    found = destroy.destroy(remover(aws, state), Belongings([disk], unassigned=frozenset({"vol-9"})))
    assert aws.acts[:2] == ["CreateTags", "DeleteNodegroup"]
    assert aws.parameters[0]["Resources"] == ["vol-1"]
    assert [(one.subject, one.verdict) for one in found] == [("vol-9", Verdict.UNKNOWN)]
