"""Follow a cluster: objects as they change, and logs as they are written.

Both resume after a lost connection.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypedDict

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.core.sizes import size as size_text
from gpuctl.domain.kube_errors import Forbidden, NotFound, error_of
from gpuctl.edges.kube.api import too_much
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import MOST_OF_A_LIST, Cluster, Kind, Object, Request, selector
from gpuctl.engine import typed_json

# The server ends a watch after this time; a connection that died silently is noticed a little later.
WATCH_S = 240
# A silent log is requested again after this time. A kubelet that rotates a log (at 10 MiB, checked every 10 s) may
# silently continue with the old file; after the next rotation, everything written in between is lost.
SILENT_S = 5.0
PAUSE_S = 0.5
MOST_OF_A_SECOND = 2**25  # characters of the lines of a log's last second that are remembered
When = tuple[float, str]  # whole seconds since 1970, and the fraction as it is written: ".25"
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d) ?")


class _Patience:
    """The time a cluster may stay silent before the error is raised."""

    def __init__(self, seconds: float, stop: Stop) -> None:
        self.seconds, self.stop = seconds, stop
        self.since: float | None = None

    def answered(self) -> None:
        self.since = None

    def broke(self, error: Unreachable) -> None:
        """Wait a little; raise the error if it has lasted too long."""
        now = time.monotonic()
        self.since = self.since or now
        if not self.stop.is_set() and now - self.since > self.seconds:
            raise error
        self.stop.wait(PAUSE_S)


class _Known:
    """Objects by name, bounded by the size of the events that brought them."""

    def __init__(self, doing: str, server: str) -> None:
        self.doing, self.server = doing, server
        self.objects: dict[str, Object] = {}
        self._sizes: dict[str, int] = {}

    def restart(self, objects: Iterable[Object]) -> None:
        """Replace everything by a list, which has a limit of its own."""
        self.objects, self._sizes = {item["metadata"]["name"]: item for item in objects}, {}

    def apply(self, event: Mapping[str, Any], size: int) -> bool:
        """Apply an event; return whether it changed anything. Raises errors that the server reports."""
        item = event["object"]
        if event["type"] == "ERROR":
            raise error_of("watch", int(item.get("code") or 500), json.dumps(item))
        name = item["metadata"].get("name")
        if event["type"] == "DELETED":
            self.objects.pop(name, None)
            self._sizes.pop(name, None)
        elif event["type"] != "BOOKMARK":
            self.objects[name], self._sizes[name] = item, size
        if sum(self._sizes.values()) > MOST_OF_A_LIST:
            raise too_much(self.doing, f"{self.server} sent more than {size_text(MOST_OF_A_LIST)}")
        return bool(event["type"] != "BOOKMARK")


def watch(cluster: Cluster, kind: Kind, labels: Mapping[str, str], stop: Stop) -> Iterator[dict[str, Object]]:
    """Yield all objects of a kind with these labels by name, first at once, then after each change, until `stop`.

    Deletions during a lost connection show in the next value. `Unreachable` if the cluster does not answer for longer
    than its patience.
    """
    patience = _Patience(cluster.patience_s, stop)
    known = _Known(f"watch {kind.plural}", cluster.server)
    version = ""
    while not stop.is_set():
        if not version:
            objects, version = cluster.find_with_version(kind, labels)
            known.restart(objects)
            yield dict(known.objects)
        query = [("watch", "1"), ("labelSelector", selector(labels)), ("resourceVersion", version)]
        query += [("allowWatchBookmarks", "true"), ("timeoutSeconds", str(WATCH_S))]
        try:
            request = Request(f"watch {kind.plural}", "GET", cluster.path_of(kind), query, whole_lines=True)
            for event, size in _events(cluster, request, stop, patience.answered):
                version = str(event["object"]["metadata"]["resourceVersion"]) if event["type"] != "ERROR" else version
                if known.apply(event, size):
                    yield dict(known.objects)
        except NotFound:  # the version is too old: the server forgot the events since
            version = ""
        except Unreachable as error:
            patience.broke(error)
        except ValueError:  # cut off in the middle of an event
            stop.wait(PAUSE_S)


class _Metadata(TypedDict):
    resourceVersion: str


class _Event(TypedDict):
    """A change of an object, or an error."""

    type: str
    object: dict[str, Any]


def _events(
    cluster: Cluster, request: Request, stop: Stop, opened: Callable[[], None]
) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield the events of one watch and their sizes; pause after an empty one: a proxy may end every watch at once."""
    received = False
    for line in cluster.lines(request, stop, WATCH_S + 30.0, opened):
        received = True
        event = typed_json.read(typed_json.parse(line), _Event, extra=True)
        if event["type"] != "ERROR":
            typed_json.read(event["object"].get("metadata"), _Metadata, "object.metadata", extra=True)
        yield event, len(line)
    if not received:
        stop.wait(PAUSE_S)


def logs(cluster: Cluster, pod: str, is_finished: Callable[[], bool], stop: Stop, container: str = "") -> Iterator[str]:
    """Yield the lines of a container, each once: see `Log`."""
    return Log(cluster, pod, container).lines(is_finished, stop)


class Log:
    """Reads a container's log; each line once, across several requests.

    After a lost connection, reading resumes at the time that the kubelet writes before each line. Requests only accept
    whole seconds, and lines may have equal times: `last_second` counts the lines of the last second. Lines without a
    time (no real kubelet sends them) are not recognised. Of a second with more than MOST_OF_A_SECOND, lines may be read
    twice after a lost connection.

    A log that is rotated in the middle of a line has one half in each file, each with its own time. A kubelet that
    follows both sends them as one line (1.20 with both times in it); in a new request, it sends the second half alone.
    """

    def __init__(self, cluster: Cluster, pod: str, container: str = "", of: Kind | None = None) -> None:
        """`of`: another kind that has logs; `pod` is then the name of such an object."""
        self.cluster, self.pod, self.container, self.of = cluster, pod, container, of
        self.newest: When = (0.0, "")
        self.last_second: Counter[str] = Counter()
        self._remembered = 0  # characters

    def lines(self, is_finished: Callable[[], bool], stop: Stop) -> Iterator[str]:
        """Yield lines as they are written, until `is_finished` or `stop`; `NotFound` if the pod is gone."""
        patience = _Patience(self.cluster.patience_s, stop)
        while not stop.is_set():
            over = is_finished()
            try:
                yield from self._answer(stop, patience, over=over)
            except NotFound as error:  # a kubelet may not yet know a container that has just started
                if self.cluster.get(self._kind(), self.pod) is None:
                    raise
                patience.broke(Unreachable(error.doing, error.wrong))
                continue
            except Forbidden:
                raise
            except GpuctlError as error:  # includes a kubelet that does not answer the API
                patience.broke(Unreachable(error.doing, error.wrong))
                continue
            if over:
                return
            stop.wait(PAUSE_S)

    def rest(self, stop: Stop) -> Iterator[str]:
        """Read the lines that exist by now and were not read; one try."""
        with contextlib.suppress(GpuctlError):
            yield from self._answer(stop, _Patience(0, stop), over=True)

    def _kind(self) -> Kind:
        return self.of or self.cluster.kind("v1", "Pod")

    def _answer(self, stop: Stop, patience: _Patience, *, over: bool) -> Iterator[str]:
        """Yield the lines of one request that were not read before."""
        path = f"{self.cluster.path_of(self._kind(), self.pod)}/log"
        newest, again = self.newest, Counter(self.last_second)
        request = Request(f"read the log of {self.pod}", "GET", path, self._query(over=over))
        for line in self.cluster.lines(request, stop, SILENT_S, patience.answered):
            when, text = _split(line)
            if again[line] > 0:
                again[line] -= 1
            elif not (when and when < newest and self._ends_a_known_line(text)):
                self._remember(when, line)
                yield text

    def _query(self, *, over: bool) -> list[tuple[str, str]]:
        since = f"{datetime.fromtimestamp(self.newest[0], UTC):%Y-%m-%dT%H:%M:%SZ}"
        more = [("container", self.container)] if self.container else []
        more += [("sinceTime", since)] if self.newest[0] else []
        return [("timestamps", "true"), *more, *([] if over else [("follow", "true")])]

    def _ends_a_known_line(self, text: str) -> bool:
        """True if the text is the end of a known line, and not the whole."""
        return any(line.endswith(text) and _split(line)[1] != text for line in self.last_second)

    def _remember(self, when: When | None, line: str) -> None:
        if when is None:
            return
        if when[0] > self.newest[0] or self._remembered > MOST_OF_A_SECOND:
            self.last_second.clear()
            self._remembered = 0
        self.newest = max(self.newest, when)
        if when[0] == self.newest[0]:  # older lines are not sent again
            self.last_second[line] += 1
            self._remembered += len(line)


def _split(line: str) -> tuple[When | None, str]:
    """Split a line into its time, None if it has none, and its text."""
    match = _STAMP.match(line)
    if not match:
        return None, line
    return (datetime.fromisoformat(f"{match[1]}{match[3]}").timestamp(), match[2] or ""), line[match.end() :]
