"""Events of a cluster from `kubectl get --watch`; the stream restarts after a break."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.background import end, tied
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.edges.programs import gist, need


class Events:
    """A stream of `kubectl get --watch` events that starts again, with all that there is, whenever it breaks.

    Each pause between two tries is longer than the one before, up to half a minute. `told` gets (type, object); the
    type LIST comes first after every start and carries the whole list, since a break hides what was deleted meanwhile.
    `lost` hears why the stream broke.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        what: Sequence[str],
        on_event: Callable[[str, dict[str, Any]], None],
        on_loss: Callable[[str], None],
    ) -> None:
        self._kubectl, self._what, self._on_event, self._on_loss = kubectl, list(what), on_event, on_loss
        self._stopped = threading.Event()
        self._running: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def start(self) -> None:
        need("kubectl")
        self._thread.start()

    def stop(self) -> None:
        """End the stream and each kubectl of it."""
        self._stopped.set()
        self._end_all()
        self._thread.join(5)

    def _end_all(self) -> None:
        with self._lock:
            for process in self._running:
                end(process)
            self._running.clear()

    def _go_on(self) -> None:
        tries = 0
        while not self._stopped.is_set():
            heard = self._once()
            tries = 1 if heard else tries + 1
            self._stopped.wait(0.5 if heard else min(30, 2 ** min(tries, 5) / 2))

    def _once(self) -> bool:
        """One watch until it breaks; whether the cluster answered."""
        heard = False
        try:
            watch = self._kubectl_of("--watch", "--output-watch-events")
            # The list is asked for while the watch already runs: what is deleted between the two is still told.
            listing = self._kubectl_of("--request-timeout=20s")
            out, err = listing.communicate()
            self._on_event("LIST", listed(listing.returncode, out, err))
            heard = True
            for event in events(watch.stdout or ()):
                self._on_event(str(event.get("type", "")), event.get("object") or {})
            raise GpuctlError("go on with the watch", "kubectl ended the watch")
        except (GpuctlError, ValueError) as error:
            if not self._stopped.is_set():
                self._on_loss(error.wrong if isinstance(error, GpuctlError) else str(error))
        finally:
            self._end_all()
        return heard

    def _kubectl_of(self, *more: str) -> subprocess.Popen[str]:
        with self._lock:
            if self._stopped.is_set():
                raise GpuctlError("watch", "it was ended")
            process = subprocess.Popen(
                tied(self._kubectl.argv("get", *self._what, *more, "-o", "json")),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                # The watch's own complaints are the list's too; a pipe that nobody reads would fill up.
                stderr=subprocess.DEVNULL if "--watch" in more else subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.append(process)
            return process


def listed(code: int, out: str, err: str) -> dict[str, Any]:
    """The list printed by `kubectl get -o json`. If the server does not answer, it is empty and kubectl fails."""
    document = json.loads(out) if out.strip() and not code else None
    if not isinstance(document, dict):
        raise GpuctlError("list what to watch", gist(err))
    return document


def events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream in which each ends with a line that starts with its closing brace."""
    kept: list[str] = []
    for line in lines:
        kept.append(line)
        if line.startswith("}") or (len(kept) == 1 and line.startswith("{") and line.rstrip().endswith("}")):
            yield json.loads("".join(kept))
            kept = []
        elif not kept[0].startswith("{"):  # a warning or an error of kubectl's own
            kept = []
