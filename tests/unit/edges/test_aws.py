"""AWS's errors in words: each of them says what was done, what is wrong and what to try."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.edges.aws import Aws, NoAnswer, Request, _Translated, code_of
from tests.rig.aws_endpoint import LOGIN

LIST = Request("list subnets", "ec2", "DescribeSubnets", "Subnets")


def translated(code: str, message: str = "a message", retries: int = 0) -> GpuctlError:
    answer: dict[str, Any] = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"RetryAttempts": retries},
    }
    return _Translated("list subnets", "ec2:DescribeSubnets", "lab").refused(answer)


@pytest.mark.parametrize(
    ("code", "kind", "wrong"),
    [
        ("RequestLimitExceeded", Unreachable, "AWS still throttles ec2:DescribeSubnets after 6 attempts"),
        ("ThrottlingException", Unreachable, "AWS still throttles"),
        ("ExpiredToken", Unreachable, "the credentials have expired"),
        ("ExpiredTokenException", Unreachable, "the credentials have expired"),
        ("RequestExpired", Unreachable, "the credentials have expired"),
        ("AuthFailure", Unreachable, "AWS does not accept the credentials"),
        ("InvalidClientTokenId", Unreachable, "AWS does not accept the credentials"),
        ("SignatureDoesNotMatch", Unreachable, "AWS does not accept the signature"),
        ("UnauthorizedOperation", Unreachable, "no permission for ec2:DescribeSubnets"),
        ("AccessDeniedException", Unreachable, "no permission for ec2:DescribeSubnets"),
        ("OptInRequired", Unreachable, "this account may not use the region"),
        ("InvalidSubnetID.NotFound", InvalidInput, "a message"),
        ("ResourceNotFoundException", InvalidInput, "a message"),
        ("InternalError", GpuctlError, "a message"),
    ],
)
def test_a_code_is_told_in_words(code: str, kind: type[GpuctlError], wrong: str) -> None:
    error = translated(code, retries=5)
    assert type(error) is kind
    assert error.wrong.startswith(wrong)
    assert code in error.wrong
    assert error.doing == "list subnets"


def test_an_expired_login_names_the_profile_to_log_in_with() -> None:
    assert translated("ExpiredToken").hint == "log in again, such as with `aws sso login --profile lab`"


def test_a_message_with_braces_stays_as_it_is() -> None:
    assert "{x}" in translated("InvalidSubnetID.NotFound", "no {x}").wrong


PAGE = "<html>\n<head><title>502 Bad Gateway</title></head>\n<body>\n<h1>502 Bad Gateway</h1>\n</body>\n</html>"


def test_the_error_page_of_a_proxy_is_one_line() -> None:
    assert translated("502", PAGE).wrong == "502 Bad Gateway (502)"
    unread = ResponseParserError(f"Unable to parse response, invalid XML received.\n{PAGE.encode()!r}")
    with (
        pytest.raises(Unreachable, match=r"the answer is not from AWS: 502 Bad Gateway$"),
        _Translated("list subnets", "ec2:DescribeSubnets", ""),
    ):
        raise unread


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return monkeypatch


def test_no_region_and_no_profile_are_invalid_input(login: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="no profile nobody"):
        Aws(profile="nobody")
    login.delenv("AWS_DEFAULT_REGION")
    login.delenv("AWS_REGION")
    with pytest.raises(InvalidInput, match="no region is set"):
        Aws()


def test_no_credentials_and_a_refused_connection_are_unreachable(login: pytest.MonkeyPatch) -> None:
    login.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    login.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(Unreachable, match="AWS could not be reached"):
        Aws().read(LIST, str)
    login.delenv("AWS_ACCESS_KEY_ID")
    login.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(Unreachable, match="no credentials are set"):
        Aws().read(LIST, str)


class StandInClient:
    """A client whose operation answers with errors of these codes first."""

    def __init__(self, *codes: str, status: int = 400) -> None:
        self.codes, self.status, self.calls = list(codes), status, 0

    def create_vpc(self, **_: Any) -> dict[str, Any]:
        self.calls += 1
        if not self.codes:
            return {"Vpc": {}}
        answer = {"Error": {"Code": self.codes.pop(0)}, "ResponseMetadata": {"HTTPStatusCode": self.status}}
        raise ClientError(answer, "CreateVpc")


def changing(monkeypatch: pytest.MonkeyPatch, client: StandInClient) -> Aws:
    aws = Aws("us-east-1")
    monkeypatch.setattr(aws, "_client", lambda *_, **__: client)
    monkeypatch.setattr("gpuctl.edges.aws.time.sleep", lambda _: None)
    return aws


CHANGE = Request("make a VPC", "ec2", "CreateVpc")


def test_a_change_is_repeated_only_if_it_was_throttled(login: pytest.MonkeyPatch) -> None:
    client = StandInClient("RequestLimitExceeded", "Throttling")
    assert changing(login, client).act(CHANGE) == {"Vpc": {}}
    assert client.calls == 3


@pytest.mark.parametrize(
    ("code", "status", "kind"), [("InternalError", 500, NoAnswer), ("VpcLimitExceeded", 400, GpuctlError)]
)
def test_a_change_that_may_have_been_carried_out_is_an_error_of_its_own(
    login: pytest.MonkeyPatch, code: str, status: int, kind: type[GpuctlError]
) -> None:
    client = StandInClient(code, status=status)
    with pytest.raises(GpuctlError) as caught:
        changing(login, client).act(CHANGE)
    assert (type(caught.value), code_of(caught.value), client.calls) == (kind, code, 1)
    assert code_of(GpuctlError("do it", "no")) == ""


def test_the_region_is_that_of_either_variable(login: pytest.MonkeyPatch) -> None:
    login.delenv("AWS_DEFAULT_REGION", raising=False)
    login.setenv("AWS_REGION", "eu-west-1")
    assert Aws().region == "eu-west-1"


def test_a_refusal_names_the_action_that_is_not_allowed() -> None:
    message = "User: arn:aws:iam::1:user/a is not authorized to perform: iam:PassRole on resource: role/x"
    error = {"Error": {"Code": "AccessDeniedException", "Message": message}}
    refused = _Translated("make it", "eks:CreateCluster", "").refused(error)
    assert (refused.wrong, refused.hint) == (
        "no permission for iam:PassRole (AccessDeniedException)",
        "have iam:PassRole allowed for this login",
    )
