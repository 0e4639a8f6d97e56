"""Report crashes and finished rollouts as they happen: as tmux messages and as plain lines."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpuctl.edges.kube.kubectl import Kubectl, tmux
from gpuctl.edges.kube.kubectl_watch import Events, WatchTarget
from gpuctl.kube import notices
from gpuctl.kube.notices import Thresholds
from gpuctl.kube.signals import stop_on_signal
from gpuctl.kube.watch import Objects

KINDS = ("pods", "deployments", "statefulsets", "daemonsets")
NODES = "nodes"
SHOWN = 8000  # how long tmux shows a notice, in milliseconds


class NoticeTracker:
    """Turns watch events into notices."""

    def __init__(self, thresholds: Thresholds) -> None:
        self.thresholds = thresholds
        self.known = {kind: Objects() for kind in (*KINDS, NODES)}
        self.complete: dict[str, int] = {}  # uid -> the generation whose rollout was complete
        self.late: set[str] = set()

    def apply(self, what: str, kind: str, event: Mapping[str, Any]) -> list[str]:
        """Process a watch event; a LIST event yields the changes since the watch broke."""
        objects, messages = self.known[what], []
        for item in (event.get("items") or ()) if kind == "LIST" else (event,):
            if kind in ("LIST", "ADDED", "MODIFIED"):
                before = objects.by_uid.get(item["metadata"]["uid"])
                if before is None and objects.known and item.get("kind") == "Pod":
                    before = {**item, "status": {}}  # created since: all that it did is new
                messages += self._news(before, item) if objects.is_newer(item) else []
        objects.apply(kind, event)
        return messages

    def _news(self, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[str]:
        if after.get("kind") == "Node":
            return notices.node_notices(before, after)
        if after.get("kind") not in notices.ROLLED:
            return notices.pod_notices(before, after, self.thresholds)
        meta = after["metadata"]
        done = notices.rolled_out(after) and self.complete.get(meta["uid"]) != meta.get("generation", 0)
        if done:
            self.complete[meta["uid"]] = meta.get("generation", 0)
        return [notices.rollout_notice(after)] if done and before is not None else []

    def overdue(self, now: float) -> list[str]:
        """Return notices for pods that are pending or not ready for too long, once until they recover."""
        if not (self.thresholds.pending or self.thresholds.not_ready):
            return []
        messages = {
            uid: notices.overdue_notice(item, self.thresholds, now) for uid, item in self.known["pods"].by_uid.items()
        }
        new = [text for uid, text in messages.items() if text and uid not in self.late]
        self.late = {uid for uid, text in messages.items() if text}
        return new


def run(
    kube: Kubectl, all_namespaces: bool, nodes: bool, thresholds: Thresholds, report: Callable[[str], None]
) -> None:
    """Watch until the user interrupts; watching `nodes` requires permission to list them."""
    events: queue.Queue[tuple[str, str, Any]] = queue.Queue()
    namespace = "" if all_namespaces else kube.namespace
    watched = [WatchTarget(kind, namespace) for kind in KINDS] + ([WatchTarget(NODES)] if nodes else [])
    streams = [
        Events(kube, what, partial(_put, events, what.plural), partial(_put, events, what.plural, "LOST"))
        for what in watched
    ]
    tracker = NoticeTracker(thresholds)
    lost = ""
    with stop_on_signal() as stopped, contextlib.ExitStack() as running:
        for stream in streams:
            stream.start()
            running.callback(stream.stop)
        while not stopped.is_set():
            with contextlib.suppress(queue.Empty):
                what, kind, payload = events.get(timeout=0.5)
                if kind != "LOST":
                    for text in tracker.apply(what, kind, payload):
                        report(text)
                elif payload != lost:
                    report(f"cannot watch the {what}: {payload}; retrying")
                lost = payload if kind == "LOST" else ""
            for text in tracker.overdue(time.time()):
                report(text)


def _put(events: queue.Queue[tuple[str, str, Any]], what: str, kind: str, payload: Any) -> None:
    events.put((what, kind, payload))


def to_tmux(text: str) -> bool:
    """Show a notice on every client attached to this tmux server; False if there is none."""
    clients = tmux("list-clients", "-F", "#{client_name}")
    # Names from elsewhere must not be interpreted as tmux formats, times or commands.
    plain = "".join(letter if letter.isprintable() else "?" for letter in text).replace("#", "##").replace("%", "%%")
    shown = [tmux("display-message", "-d", str(SHOWN), "-c", client, plain) for client in (clients or "").split()]
    return any(answer is not None for answer in shown)
