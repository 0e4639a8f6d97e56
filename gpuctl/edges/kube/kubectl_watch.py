"""The events of a watch through kubectl, which logs in as the user does; the stream restarts after a break."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.background import end, tied
from gpuctl.edges.kube.kubectl import MOST_OF_A_LIST, Kubectl, failure
from gpuctl.edges.processes import Done, Processes
from gpuctl.edges.programs import need
from gpuctl.engine import typed_json

LIST_S = 60.0
MOST_OF_AN_OBJECT = 2**24  # characters; a server takes objects of some MiB


@dataclass(frozen=True)
class WatchTarget:
    """The objects of a kind with these labels and fields, in a namespace or, if that is "", in all."""

    plural: str
    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def path(self, **options: str) -> str:
        """Return the path of the API, with the selectors and further options as its query."""
        group = "/api/v1" if self.plural in ("pods", "nodes") else "/apis/apps/v1"
        at = f"/namespaces/{quote(self.namespace)}" if self.namespace else ""
        query = {"labelSelector": self.labels, "fieldSelector": self.fields, **options}
        text = urlencode({name: value for name, value in query.items() if value})
        return f"{group}{at}/{self.plural}" + (f"?{text}" if text else "")


class Events:
    """A watch that restarts with the whole list whenever it breaks, and misses no change between the two.

    Pauses between tries grow up to half a minute. `on_event` receives (type, object); after each start the type LIST
    comes first and carries the whole list, because deletions during a break are missed. `on_loss` receives the reason
    of a break.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        what: WatchTarget,
        on_event: Callable[[str, dict[str, Any]], None],
        on_loss: Callable[[str], None],
    ) -> None:
        self._kubectl, self._what, self._on_event, self._on_loss = kubectl, what, on_event, on_loss
        self._stopped = threading.Event()
        self._listing = Processes(MOST_OF_A_LIST)
        self._running: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        need("kubectl")
        self._thread.start()

    def stop(self) -> None:
        """End the stream and its kubectl processes."""
        self._stopped.set()
        self._listing.stop()
        self._end_all()
        self._thread.join(5)

    def _end_all(self) -> None:
        with self._lock:
            for process in self._running:
                end(process)
            self._running.clear()

    def _run(self) -> None:
        tries = 0
        while not self._stopped.is_set():
            answered = self._once()
            tries = 1 if answered else tries + 1
            self._stopped.wait(0.5 if answered else min(30, 2 ** min(tries, 5) / 2))

    def _once(self) -> bool:
        """Watch until it breaks; return whether the cluster answered."""
        answered = False
        try:
            argv = self._kubectl.argv("get", "--raw", self._what.path(), "--request-timeout=20s")
            objects = listed(self._listing.run(tied(argv), b"", LIST_S))
            # From the list's own version on: `kubectl get --watch` reads a list of its own and does not say so, hence
            # what is deleted between that list and ours would stay for ever.
            watch = self._start_watch(version_of(objects))
            self._on_event("LIST", objects)
            answered = True
            for event in events(_lines(watch)):
                item = typed_json.read(event.get("object") or {}, dict[str, Any], "object")
                if event.get("type") == "ERROR":  # as a rule, the server no longer knows the version
                    raise GpuctlError("continue the watch", str(item.get("message") or "the server ended it"))
                self._on_event(str(event.get("type", "")), item)
            raise GpuctlError("continue the watch", "kubectl ended the watch")
        except (GpuctlError, ValueError) as error:
            if not self._stopped.is_set():
                self._on_loss(error.wrong if isinstance(error, GpuctlError) else str(error))
        finally:
            self._end_all()
        return answered

    def _start_watch(self, version: str) -> subprocess.Popen[str]:
        argv = self._kubectl.argv("get", "--raw", self._what.path(watch="1", resourceVersion=version))
        with self._lock:
            if self._stopped.is_set():
                raise GpuctlError("watch", "it was ended")
            process = subprocess.Popen(
                tied(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                # The list reports the same errors as the watch; a pipe without a reader would fill up.
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.append(process)
            return process


def version_of(objects: dict[str, Any]) -> str:
    """Return the version of a list from which a watch goes on; `GpuctlError` if the answer has none."""
    version = typed_json.read(objects.get("metadata") or {}, dict[str, Any], "metadata").get("resourceVersion")
    if not isinstance(version, str) or not version:
        raise GpuctlError("list what to watch", "the cluster's answer is no list: it has no resourceVersion")
    return version


def listed(done: Done) -> dict[str, Any]:
    """Parse a list of the API, whose objects get the kind that only the list names; `GpuctlError` if kubectl failed."""
    if done.excess or done.code is None:
        wrong = f"printed more than {MOST_OF_A_LIST >> 20} MiB" if done.excess else f"did not end within {LIST_S:g} s"
        raise GpuctlError("list what to watch", f"kubectl {wrong}")
    if done.code or not done.out.strip():
        raise failure("list what to watch", done.err)
    objects = typed_json.read(typed_json.parse(done.out), dict[str, Any])
    kind = str(objects.get("kind", "")).removesuffix("List")
    items = typed_json.read(objects.get("items") or [], list[dict[str, Any]], "items")
    return {**objects, "items": [{"kind": kind, **item} for item in items]}


def _lines(watch: subprocess.Popen[str]) -> Iterator[str]:
    """Yield lines; one that is too long for any object comes in parts."""
    stdout = watch.stdout
    assert stdout is not None  # noqa: S101 - for mypy: a pipe was requested
    yield from iter(lambda: stdout.readline(MOST_OF_AN_OBJECT), "")


def events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a stream in which each ends with a line that starts with its closing brace."""
    kept: list[str] = []
    size = 0
    for line in lines:
        size = len(line) + (size if kept else 0)
        kept.append(line)
        if size > MOST_OF_AN_OBJECT:
            raise GpuctlError("watch", f"kubectl printed an object of more than {MOST_OF_AN_OBJECT >> 20} MiB")
        if line.startswith("}") or (len(kept) == 1 and line.startswith("{") and line.rstrip().endswith("}")):
            yield typed_json.read(typed_json.parse("".join(kept)), dict[str, Any])
            kept = []
        elif not kept[0].startswith("{"):  # a warning or an error of kubectl's own
            kept = []
