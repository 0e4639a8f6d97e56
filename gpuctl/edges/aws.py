"""AWS's APIs: bounded reads in parallel, changes, and its errors in words. The only file that imports botocore."""

from __future__ import annotations

import base64
import os
import random
import re
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from gpuctl.core.abandonable_pool import AbandonablePool
from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.domain.kube_errors import page_line
from gpuctl.edges.programs import PAGE

if TYPE_CHECKING:
    from botocore.client import BaseClient

THREADS = 16
PAGE_SIZE = 1000  # the largest that EC2 takes, unless its description of an operation names a smaller one
MOST_ITEMS = 200_000  # of one request: more is not read, and is an error
CONNECT_S, READ_S = 5, 30
TOKEN_S, TOKEN_PREFIX = 60, "k8s-aws-v1."  # EKS accepts a token for 15 minutes after its signature
THROTTLED_ATTEMPTS = 6  # of a change
ATTEMPTS = 6  # botocore waits longer before each, up to 20 s
# Members of EC2's answers that nobody reads cost half the time of parsing them.
KEPT: Mapping[str, frozenset[str]] = {
    "NetworkInterface": frozenset(
        [
            *("NetworkInterfaceId", "SubnetId", "Description", "Status", "RequesterManaged", "RequesterId"),
            *("InterfaceType", "Attachment", "TagSet", "PrivateIpAddresses", "PrivateIpAddress", "Ipv4Prefixes"),
        ]
    ),
    "NetworkInterfacePrivateIpAddress": frozenset(["PrivateIpAddress"]),
    "NetworkInterfaceAttachment": frozenset(["InstanceId", "DeviceIndex", "NetworkCardIndex", "InstanceOwnerId"]),
}
IAM_PREFIXES = {
    "service-quotas": "servicequotas",
    "elb": "elasticloadbalancing",
    "elbv2": "elasticloadbalancing",
    "resourcegroupstaggingapi": "tag",
}
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


class NoAnswer(Unreachable):
    """AWS gave no answer, or failed: a change may have been carried out."""


@dataclass(frozen=True)
class Request:
    """A request. `operation`: as in AWS's documentation. `items`: the list in its answer that is wanted; "" for the
    answer itself. `doing` completes "cannot …". `most`: items after which no further page is read; 0 for all."""

    doing: str
    service: str
    operation: str
    items: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    most: int = 0

    @property
    def action(self) -> str:
        """The IAM action."""
        return f"{IAM_PREFIXES.get(self.service, self.service)}:{self.operation}"


@dataclass(frozen=True)
class Waits:
    """Bounds of waiting for AWS, in seconds. `attempts`: of a read. `throttled`: attempts of a change."""

    connect_s: int = CONNECT_S
    read_s: int = READ_S
    attempts: int = ATTEMPTS
    throttled: int = THROTTLED_ATTEMPTS


class Aws:
    """A login and a region. Clients are made once and are shared by all threads."""

    _waits = Waits()

    def __init__(self, region: str = "", profile: str = "", waits: Waits = Waits()) -> None:
        from botocore.config import Config
        from botocore.session import Session

        self.profile, self._waits = profile, waits
        self._clients: dict[str, BaseClient] = {}
        self._making_client = threading.Lock()  # a session is not safe in threads, its clients are
        # An explicit environment variable AWS_MAX_ATTEMPTS or AWS_RETRY_MODE would be ignored by a Config with retries.
        retries = (
            {}
            if "AWS_MAX_ATTEMPTS" in os.environ
            else {"retries": {"mode": "standard", "max_attempts": waits.attempts}}
        )
        self._config = Config(
            connect_timeout=waits.connect_s,
            read_timeout=waits.read_s,
            max_pool_connections=4 * THREADS,  # several lists of requests are read at the same time
            user_agent_extra="gpuctl",
            **retries,
        )
        with self._translated("log in to AWS", ""):
            self._session = Session(profile=profile or None)
            self._session.get_scoped_config()  # raises if the profile or the file is not usable
            self.region = region or os.environ.get("AWS_REGION") or self._session.get_config_variable("region") or ""
        if not self.region:
            raise InvalidInput("ask AWS", "no region is set", "set --region, or AWS_REGION, or region in ~/.aws/config")

    def read(self, request: Request, convert: Callable[[Any], Item]) -> list[Item]:
        """All items of all pages. Items are converted page by page, so that no two answers are in memory at once."""
        with self._translated(request.doing, request.action):
            return [convert(item) for item in self._items(request)]

    def read_all(
        self, requests: Mapping[Key, Request], convert: Callable[[Any], Item]
    ) -> dict[Key, list[Item] | GpuctlError]:
        """Read in parallel; a request that fails gets its error as its value."""
        with AbandonablePool(min(THREADS, max(1, len(requests)))) as pool:
            running = {key: pool.submit(self._attempt, request, convert) for key, request in requests.items()}
            return {key: future.result() for key, future in running.items()}

    def act(self, request: Request) -> dict[str, Any]:
        """Send a request that changes something, once: botocore repeats it only if AWS throttled it for certain.

        `NoAnswer` if AWS may have carried it out: read the state before it is sent again.
        """
        from botocore import xform_name

        client = self._client(request.service, changes=True)
        for attempt in range(1, self._waits.throttled + 1):
            try:
                with self._translated(request.doing, request.action):
                    answer: dict[str, Any] = getattr(client, xform_name(request.operation))(**request.parameters)
                    return answer
            except GpuctlError as error:
                if code_of(error) not in THROTTLED or attempt == self._waits.throttled:
                    raise
                time.sleep(min(20.0, 2.0**attempt * random.uniform(0.5, 1)))  # noqa: S311 - spreads requests
        raise AssertionError("unreachable")

    def cluster_token(self, cluster: str) -> str:
        """A token for an EKS cluster, valid for 15 minutes: a signed request for our identity, which EKS sends to STS.

        As aws-iam-authenticator makes it (README, API authorization from outside a cluster). No request is sent.
        """
        from botocore.signers import RequestSigner

        with self._translated(f"log in to the cluster {cluster}", ""):
            client = self._client("sts")
            credentials = self._session.get_credentials()
            if credentials is None:
                from botocore.exceptions import NoCredentialsError

                raise NoCredentialsError
            events = self._session.get_component("event_emitter")
            signer = RequestSigner(client.meta.service_model.service_id, self.region, "sts", "v4", credentials, events)
            request = {
                "method": "GET",
                "url": f"{client.meta.endpoint_url}/?Action=GetCallerIdentity&Version=2011-06-15",
                "body": {},
                "headers": {"x-k8s-aws-id": cluster},
                "context": {},
            }
            url = signer.generate_presigned_url(request, "GetCallerIdentity", TOKEN_S, self.region)
        return TOKEN_PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")

    def _attempt(self, request: Request, convert: Callable[[Any], Item]) -> list[Item] | GpuctlError:
        try:
            return self.read(request, convert)
        except GpuctlError as error:
            return error

    def _items(self, request: Request) -> Iterator[Any]:
        count = 0
        for page in self._pages(request):
            items: Sequence[Any] = (page.get(request.items) or ()) if request.items else (page,)
            count += len(items)
            if count > MOST_ITEMS:
                wrong = f"AWS lists more than {MOST_ITEMS:,} objects"
                raise GpuctlError(request.doing, wrong, "ask for fewer, such as one VPC")
            yield from items
            if 0 < request.most <= count:
                return

    def _pages(self, request: Request) -> Iterator[Mapping[str, Any]]:
        from botocore import xform_name

        client, name = self._client(request.service), xform_name(request.operation)
        if client.can_paginate(name):
            sized = "Filters" in request.parameters and request.service == "ec2"
            config = {"PageSize": _page_size(client, request.operation)} if sized else {}
            yield from client.get_paginator(name).paginate(**request.parameters, PaginationConfig=config)
            return
        tokens, token = set[str](), ""
        while token not in tokens:
            tokens.add(token)
            page = getattr(client, name)(**request.parameters, **({"NextToken": token} if token else {}))
            yield page
            token = page.get("NextToken") or ""
            if not token:
                return
        raise GpuctlError(request.doing, "AWS sent the same page again", "run the command again")

    def _client(self, service: str, changes: bool = False) -> BaseClient:
        from botocore.config import Config

        key = f"{service} changes" if changes else service
        with self._making_client, self._translated("log in to AWS", ""):
            if key not in self._clients:
                if service == "ec2":
                    _drop_members(self._session.get_component("data_loader").load_service_model("ec2", "service-2"))
                config = self._config.merge(Config(retries={"total_max_attempts": 1})) if changes else self._config
                self._clients[key] = self._session.create_client(service, region_name=self.region, config=config)
            return self._clients[key]

    def _translated(self, doing: str, action: str) -> _Translated:
        return _Translated(doing, action, self.profile)


def code_of(error: BaseException) -> str:
    """AWS's code of an error, such as DependencyViolation; "" if AWS did not answer with one."""
    response = getattr(error.__cause__, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, Mapping) else ""


def cancellation_reasons(error: BaseException) -> Sequence[str]:
    """Codes of the actions of a transaction that DynamoDB has cancelled, in their order; "None" for a good one.

    Empty if the error is another one.
    """
    response = getattr(error.__cause__, "response", None)
    reasons = response.get("CancellationReasons", ()) if isinstance(response, Mapping) else ()
    return [str(reason.get("Code", "None")) for reason in reasons]


def converted(answers: list[Any] | GpuctlError, convert: Callable[[list[Any]], Item], doing: str) -> Item | GpuctlError:
    """A value from answers; the error of a request that failed, or of an answer that lacks something."""
    if isinstance(answers, GpuctlError):
        return answers
    try:
        return convert(answers)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        wrong = f"AWS's answer does not fit: {type(error).__name__.lower()} {error}"
        return GpuctlError(doing, wrong, "check AWS_ENDPOINT_URL: this is not what AWS answers")


def _page_size(client: BaseClient, operation: str) -> int:
    """Items of a page that EC2 takes for an operation: it refuses more."""
    shape = client.meta.service_model.operation_model(operation).input_shape
    limit = shape.members["MaxResults"] if shape and "MaxResults" in shape.members else None
    return min(PAGE_SIZE, int(limit.metadata.get("max", PAGE_SIZE))) if limit else PAGE_SIZE


def _drop_members(model: Mapping[str, Any]) -> None:
    """Drop members from the description of EC2 (which the loader caches), so that they are not parsed."""
    for shape, kept in KEPT.items():
        members = model["shapes"][shape]["members"]
        for name in members.keys() - kept:
            del members[name]


# ---- errors ----------------------------------------------------------------------------------------------------------

THROTTLED = frozenset(
    [
        *("Throttling", "ThrottlingException", "ThrottledException", "EC2ThrottledException", "RequestThrottled"),
        *("RequestThrottledException", "RequestLimitExceeded", "Client.RequestLimitExceeded"),
        *("TooManyRequestsException", "SlowDown", "ProvisionedThroughputExceededException"),
    ]
)
DENIED = re.compile(r"not authorized to perform: ([a-z0-9-]+:[A-Za-z]+)")
LOGIN = "{login}"  # of a hint: how to log in again
# Codes, error, what is wrong and what to try. The codes are parts of AWS's, so that a.b.NotFound is one, too.
ANSWERS: tuple[tuple[tuple[str, ...], type[GpuctlError], str, str], ...] = (
    (("ExpiredToken", "RequestExpired", "TokenRefreshRequired"), Unreachable, "the credentials have expired", LOGIN),
    (
        ("AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "MissingAuthent"),
        Unreachable,
        "AWS does not accept the credentials",
        LOGIN,
    ),
    (
        ("SignatureDoesNotMatch", "RequestTimeTooSkewed", "IncompleteSignature", "InvalidSignatureException"),
        Unreachable,
        "AWS does not accept the signature",
        "compare this machine's clock (`date -u`) with the time, then check the secret key",
    ),
    (
        ("UnauthorizedOperation", "AccessDenied"),
        Unreachable,
        "no permission for {action}",
        "have {action} allowed for this login",
    ),
    (
        ("LimitExceeded",),
        GpuctlError,
        "{message}",
        "a limit of the account is reached: remove what is not used, or ask for more in Service Quotas",
    ),
    (("OptInRequired",), Unreachable, "this account may not use the region", "enable it, or set --region"),
    (
        ("NotFound", "Malformed", "InvalidInstanceType", "InvalidParameterValue"),
        InvalidInput,
        "{message}",
        "check the name and the region",
    ),
)


class _Translated:
    """Context in which botocore's errors become errors of gpuctl, in words."""

    def __init__(self, doing: str, action: str, profile: str) -> None:
        self.doing, self.action, self.profile = doing, action, profile

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        if isinstance(error, ResponseParserError):
            hint = "a proxy or another server answered: check the proxy and AWS_ENDPOINT_URL"
            raise NoAnswer(self.doing, f"the answer is not from AWS: {page_line(str(error))}", hint) from error
        if isinstance(error, ClientError):
            raise self.refused(error.response) from error
        if isinstance(error, BotoCoreError):
            raise self.not_reached(error) from error

    @property
    def login(self) -> str:
        named = f" --profile {self.profile}" if self.profile else ""
        return f"log in again, such as with `aws sso login{named}`"

    def refused(self, response: Mapping[str, Any]) -> GpuctlError:
        """The error that AWS answered."""
        error = response.get("Error", {})
        code, message = str(error.get("Code", "")), str(error.get("Message", "")).strip()
        if page := PAGE.search(message):  # of a proxy
            message = page_line(page[0])
        if code in THROTTLED:
            attempts = response.get("ResponseMetadata", {}).get("RetryAttempts", 0) + 1
            wrong = f"AWS still throttles {self.action} after {attempts} attempts ({code})"
            return Unreachable(self.doing, wrong, "wait a minute; other programs of this account and region count, too")
        for parts, kind, wrong, hint in ANSWERS:
            if any(part in code for part in parts):
                denied = DENIED.search(message)  # another action that the request needs, such as iam:PassRole
                action = denied[1] if denied else self.action
                words = {"action": action, "message": message or code, "login": self.login}
                return kind(self.doing, f"{wrong.format(**words)} ({code})", hint.format(**words))
        failed = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500
        kind = NoAnswer if failed else GpuctlError
        return kind(self.doing, f"{message or 'no message'} ({code or 'no code'})", "try again" if failed else "")

    def not_reached(self, error: Exception) -> GpuctlError:
        """The error that kept AWS from being asked."""
        from botocore import exceptions as boto

        unset = "set AWS_PROFILE or --aws-profile, or log in, such as with `aws configure sso`"
        login = (boto.UnauthorizedSSOTokenError, boto.SSOTokenLoadError, boto.TokenRetrievalError)
        rows: tuple[tuple[type[Exception] | tuple[type[Exception], ...], type[GpuctlError], str, str], ...] = (
            (boto.NoCredentialsError, Unreachable, "no credentials are set", unset),
            (boto.PartialCredentialsError, Unreachable, "the credentials are incomplete", unset),
            (login, Unreachable, "the login has expired", self.login),
            (boto.CredentialRetrievalError, Unreachable, "the source of the credentials failed", self.login),
            (boto.ProfileNotFound, InvalidInput, f"no profile {self.profile or os.environ.get('AWS_PROFILE', '')}",
             "`aws configure list-profiles` lists them"),
            (boto.ConfigParseError, InvalidInput, "~/.aws/config or credentials cannot be parsed", "correct the file"),
            (boto.InvalidRegionError, InvalidInput, "the region is not valid", "set --region, such as us-east-1"),
            ((boto.ConnectTimeoutError, boto.ReadTimeoutError), NoAnswer, "AWS gave no answer in time",
             "check the region, the proxy and AWS_ENDPOINT_URL"),
            ((boto.HTTPClientError, boto.ConnectionError), NoAnswer, "AWS could not be reached",
             "check the region, the network, the proxy and AWS_ENDPOINT_URL"),
        )  # fmt: skip
        for kinds, kind, wrong, hint in rows:
            if isinstance(error, kinds):
                return kind(self.doing, wrong, hint)
        return GpuctlError(self.doing, f"{type(error).__name__}: {error}".splitlines()[0])
