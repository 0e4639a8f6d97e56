"""HTTP requests to a Kubernetes API, through the client library.

Requests to a cluster that does not answer are retried for `patience_s`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import urllib3

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.core.sizes import size as size_text
from gpuctl.domain.kube_errors import NotACluster, NotLoggedIn, error_of, unreachable
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.library import ApiClient, Configuration
from gpuctl.edges.kube.login import Credentials
from gpuctl.engine import typed_json

CONNECT_S, ANSWER_S = 5.0, 30.0
JSON = "application/json"
LONGEST_LINE = 2**24  # bytes; the server takes no objects of more than 3 MiB
MOST_OF_AN_ANSWER = 2**27  # bytes: a page of 500 pods has some 10 MiB
MOST_OF_AN_ERROR = 2**20  # bytes; one line of it is shown
CHECK_URL = "check the URL in the kubeconfig: a proxy or login page may answer instead of the cluster"
Object = dict[str, Any]
Query = Sequence[tuple[str, str]]


class Budget:
    """Bytes that an answer may have, or all answers to requests that share it."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def spend(self, doing: str, server: str, size: int) -> None:
        """Subtract bytes; `GpuctlError` if fewer were left."""
        self.left -= size
        if self.left < 0:
            raise too_much(doing, f"{server} sent more than {size_text(self.most)}")


def too_much(doing: str, wrong: str) -> GpuctlError:
    """The error for a server that sends more than a cluster does."""
    return GpuctlError(doing, f"{wrong}, and was not read further", CHECK_URL)


@dataclass(frozen=True)
class Request:
    """One request. `doing` completes "cannot …". `stream`: bytes to send as they arrive, instead of a body.

    `budget`: bytes that the answer may have; None for MOST_OF_AN_ANSWER. `whole_lines`: a streaming answer with a line
    longer than LONGEST_LINE is an error.
    """

    doing: str
    method: str
    path: str
    query: Query = ()
    body: Object | None = None
    form: str = JSON
    stream: Iterable[bytes] | None = None
    budget: Budget | None = None
    whole_lines: bool = False


class Client(ApiClient):
    """The library's client; `credentials`: what the kubeconfig holds for its user, if there is one."""

    def __init__(self, settings: Configuration, credentials: Credentials | None = None) -> None:
        super().__init__(settings)
        self.credentials = credentials

    def address(self, path: str, query: Sequence[tuple[str, Any]]) -> str:
        """URL of a path with a query."""
        encoded = urlencode(list(query), quote_via=quote)
        return f"{self.configuration.host}{path}" + (f"?{encoded}" if encoded else "")

    def login_headers(self) -> dict[str, str]:
        """The library's headers and the credential, which is refreshed if it has expired."""
        credential = self.configuration.auth_settings().get("BearerToken")
        token = {credential["key"]: credential["value"]} if credential and credential["value"] else {}
        return {**self.default_headers, **token}


def client(doing: str, paths: Sequence[Path], context: str) -> Client:
    """Return the library's client for a context of these kubeconfigs; `doing` completes "cannot …"."""
    # With many threads the connection pool overflows, which is harmless; urllib3 would warn about it.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    credentials = Credentials(doing, paths, context)
    settings = credentials.settings
    settings.retries = False  # the library retries silently, and ignores our patience
    _refuse_no_url(doing, str(settings.host))
    return Client(settings, credentials)


def _refuse_no_url(doing: str, server: str) -> None:
    try:
        _ = urlsplit(server).port  # Python validates the port only on access
    except ValueError as error:
        raise InvalidInput(
            doing, f"the kubeconfig's server {server} is not a valid URL: {error}", "correct the server's address there"
        ) from error


class Api:
    """Client of one API server."""

    def __init__(self, client: Client, patience_s: float = 60) -> None:
        self.client, self.patience_s = client, patience_s
        self.server = str(client.configuration.host)
        self.now: float | None = None  # seconds since 1970 by the cluster's clock, as of its last answer

    def ask(self, request: Request) -> Object:
        """Return the answer, with retries once the cluster has answered; before that, the kubeconfig may be wrong."""
        end, pause = time.monotonic() + self.patience_s, 0.1
        while True:
            try:
                return self.once(request)
            except (NotLoggedIn, NotACluster):
                raise
            except Unreachable:
                if self.now is None or time.monotonic() > end:
                    raise
            time.sleep(pause)
            pause = min(2, pause * 2)

    def once(self, request: Request, silent_s: float = ANSWER_S) -> Object:
        """Return the answer to a request that must not be repeated; after `Unreachable` it may have been executed."""
        with self._sent(request, silent_s) as response:
            try:
                answer = typed_json.read(typed_json.parse(self._body(request, response)), Object)
            except ValueError as error:
                wrong = f"{self.server} does not answer like a cluster"
                raise NotACluster(request.doing, wrong, CHECK_URL) from error
            return dict(answer)

    def _body(self, request: Request, response: urllib3.BaseHTTPResponse) -> bytes:
        budget = request.budget or Budget(MOST_OF_AN_ANSWER)
        body = response.read(budget.left + 1)
        budget.spend(request.doing, self.server, len(body))
        return body

    def refusal(self, doing: str, status: int, text: str) -> GpuctlError:
        """The error for an answer with this HTTP status and body."""
        error = error_of(doing, status, text)
        credentials = self.client.credentials
        return credentials.rejected(error) if credentials and isinstance(error, NotLoggedIn) else error

    @contextlib.contextmanager
    def _sent(self, request: Request, silent_s: float) -> Iterator[urllib3.BaseHTTPResponse]:
        """Send a request, and yield the response; errors while it is read become ours, too."""
        try:
            response = self._open(request, silent_s)
            with contextlib.closing(response):
                if response.status >= 400:
                    raise self.refusal(request.doing, response.status, _error_text(response))
                self._note_time(response.headers.get("Date"))
                yield response
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise unreachable(request.doing, self.server, error) from error

    def _open(self, request: Request, silent_s: float) -> Any:
        # Past the library's own call, which differs between its versions. The receiver of a stream may be slow, and
        # urllib3 applies the connection limit to writes, too.
        url, headers = self._address(request)
        connect_s = CONNECT_S if request.stream is None else silent_s
        body: Any = request.stream
        if body is None and request.body is not None:
            body = json.dumps(request.body)
        options = {"body": body, "headers": headers, "retries": False}
        limit = urllib3.Timeout(connect=connect_s, read=silent_s)
        pool = self.client.rest_client.pool_manager
        return pool.request(request.method, url, preload_content=False, timeout=limit, **options)

    def _address(self, request: Request) -> tuple[str, dict[str, str]]:
        """Return URL and headers, with the credential of the configuration."""
        headers = {"Content-Type": request.form, "Accept": "application/json"}
        return self.client.address(request.path, request.query), {**self.client.login_headers(), **headers}

    def _note_time(self, date: str | None) -> None:
        with contextlib.suppress(TypeError, ValueError):
            self.now = parsedate_to_datetime(str(date)).timestamp()

    def lines(
        self, request: Request, stop: Stop, silent_s: float, opened: Callable[[], None] = lambda: None
    ) -> Iterator[str]:
        """Yield the lines of a streaming answer until the server ends it, or `stop` is set.

        A line longer than LONGEST_LINE comes in parts, unless the request is for whole lines. With a budget, the answer
        may not be longer.
        `opened` is called when the server has accepted the request; the first line may come much later.
        """
        with self._sent(request, silent_s) as response, stop.holding(response):
            opened()
            rest = b""
            for part in response.stream(1 << 16):
                if request.budget:
                    request.budget.spend(request.doing, self.server, len(part))
                *whole, rest = (rest + part).split(b"\n")
                for line in whole:
                    yield line.decode(errors="replace")
                if len(rest) > LONGEST_LINE:
                    if request.whole_lines:
                        wrong = f"{self.server} sent a line of more than {size_text(LONGEST_LINE)}"
                        raise too_much(request.doing, wrong)
                    yield rest.decode(errors="replace")
                    rest = b""
            if rest:
                yield rest.decode(errors="replace")


def _error_text(response: urllib3.BaseHTTPResponse) -> str:
    return response.read(MOST_OF_AN_ERROR).decode(errors="replace")
