"""Acts on objects of a test's cluster when they change, as controllers do.

A stand-in that asked ten times a second instead would take more of the processors than most tests do.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import urllib3

Object = dict[str, Any]
# The errors of a request that was refused, or whose connection broke.
REFUSED = (OSError, AssertionError, urllib3.exceptions.HTTPError)
# Seconds after which all is listed anew: what could not be done before is tried again.
ANEW = 3


class Follower:
    """Within its block a thread calls `act(object)` for each object of a kind, and again whenever one changes.

    `watch(url)` opens a request whose answer has no end yet. What `act` is refused is tried again a moment later, after
    the objects that follow.
    """

    def __init__(
        self,
        api: Callable[..., Object],
        watch: Callable[[str], urllib3.BaseHTTPResponse],
        url: str,
        act: Callable[[Object], None],
        selector: str = "",
    ) -> None:
        self._api, self._watch, self._act = api, watch, act
        self._url, self._selector = url, selector
        self._answer: urllib3.BaseHTTPResponse | None = None
        self._refused, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"follower of {url}")

    def start(self) -> None:
        self._thread.start()

    def __enter__(self) -> Follower:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Act no more."""
        self._ended.set()
        answer = self._answer
        if answer is not None:
            with contextlib.suppress(ValueError, RuntimeError, OSError):  # it ended by itself
                answer.shutdown()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            self._refused.clear()
            with contextlib.suppress(*REFUSED):
                for each in self._objects():
                    if self._ended.is_set():
                        return
                    try:
                        self._act(each)
                    except REFUSED:  # one that is refused again and again does not keep the others waiting
                        self._refused.set()

    def _objects(self) -> Iterator[Object]:
        """All there are, then each that is added or changed, until the server ends the watch or one was refused."""
        listed = self._api("GET", f"{self._url}?{self._selector}")
        yield from listed["items"]
        if self._refused.is_set():
            return
        since = f"resourceVersion={listed['metadata']['resourceVersion']}&timeoutSeconds={ANEW}"
        self._answer = self._watch(f"{self._url}?{self._selector}&watch=true&{since}")
        with contextlib.closing(self._answer) as answer:
            assert answer.status < 400, answer.data
            rest = b""
            for part in answer.stream(None):
                *lines, rest = (rest + part).split(b"\n")
                events = [json.loads(line) for line in lines]
                yield from (event["object"] for event in events if event["type"] in {"ADDED", "MODIFIED"})
                if self._refused.is_set():
                    return
