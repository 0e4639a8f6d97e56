"""Maintain port forwards: watch the pods, start and probe kubectl, report status, stop everything at the end."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.background import BackgroundProgram
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.edges.kube.kubectl_watch import Events, WatchTarget
from gpuctl.edges.ports import answers, free
from gpuctl.kube import model
from gpuctl.kube.forward import plan
from gpuctl.kube.forward.model import Request, Slot
from gpuctl.kube.forward.state_machine import Action, Line, Observation, State, moved, step
from gpuctl.kube.model import Pod
from gpuctl.kube.signals import stop_on_signal
from gpuctl.kube.watch import Pods

Show = Callable[[Sequence[Line], str], None]
TICK = 0.2
# kubectl prints the first for each port, and the second for each connection.
LISTENS, SERVES = "Forwarding from", "Handling connection for"


def run(request: Request, show: Show, probe_every: float = 5.0) -> None:
    """Forward until the user interrupts; `show` gets the lines and any watch error after every change."""
    # Before this, while kubectl lists the pods, Ctrl-C raises KeyboardInterrupt as usual.
    forwards, lines = _planned(request, probe_every)
    with forwards, stop_on_signal() as stopped:
        forwards.maintain(lines, show, stopped)


def maintain(request: Request, show: Show, stopped: threading.Event, probe_every: float = 5.0) -> None:
    """Forward until `stopped` is set; usable from any thread."""
    forwards, lines = _planned(request, probe_every)
    with forwards:
        forwards.maintain(lines, show, stopped)


def _planned(request: Request, probe_every: float) -> tuple[_Forwards, list[Line]]:
    """Plan the forwards without starting them; `GpuctlError` if there is nothing to forward."""
    kubectl = Kubectl(request.context, request.namespace)
    pods, selector = _first_look(kubectl, request)
    lines = [Line(slot) for slot in plan.slots(request, pods, free)]
    if not lines:
        where = f"in the namespace {request.namespace}"
        raise GpuctlError(
            "forward",
            f"no running pod has the label {request.selector} {where}",
            "check `kubectl get pods --show-labels`",
        )
    return _Forwards(kubectl, request, selector, probe_every), lines


def _first_look(kubectl: Kubectl, request: Request) -> tuple[list[Pod], str]:
    """Return the pods and the label selector to watch; the selector is empty for a pod watched by name."""
    if not request.pod:
        arguments = ("get", "pods", f"--selector={request.selector}")
        return model.pods(kubectl.json("list the pods", *arguments)), request.selector
    pod = model.pod(kubectl.json(f"read the pod {request.pod}", "get", "pod", request.pod))
    return [pod], plan.heirs(pod)


class _Forwards:
    """The kubectl process of each slot, keyed by its first local port, and the watch on the pods."""

    def __init__(self, kubectl: Kubectl, request: Request, selector: str, probe_every: float) -> None:
        self.kubectl, self.request, self.probe_every = kubectl, request, probe_every
        self.running: dict[int, tuple[str, BackgroundProgram]] = {}
        self.probes: dict[int, Future[bool]] = {}
        self.next_probe: dict[int, float] = {}
        self.pods = Pods()
        self.news: queue.Queue[Callable[[], None]] = queue.Queue()
        self.trouble = ""
        fields = "" if selector else f"metadata.name={request.pod}"
        what = WatchTarget("pods", kubectl.namespace, selector, fields)
        self.events = Events(kubectl, what, self._on_event, self._lost)
        self.pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="probe")

    def __enter__(self) -> _Forwards:
        self.events.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.events.stop()
        with ThreadPoolExecutor(max_workers=32) as stopping:  # in parallel: each may take seconds
            list(stopping.map(lambda entry: entry[1].stop(), self.running.values()))
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _on_event(self, kind: str, item: dict[str, object]) -> None:
        self.news.put(lambda: self._apply(kind, item))

    def _apply(self, kind: str, item: dict[str, object]) -> None:
        self.pods.apply(kind, item)
        self.trouble = ""

    def _lost(self, why: str) -> None:
        self.news.put(lambda: setattr(self, "trouble", f"cannot watch the pods: {why}"))

    def maintain(self, lines: list[Line], show: Show, stopped: threading.Event) -> None:
        """Run rounds until `stopped` is set."""
        shown = None
        while True:
            lines = self._round(lines)
            now = [(line, round(line.until - time.monotonic())) for line in lines if line.state is State.RETRYING]
            if shown != (lines, self.trouble, now):
                shown = (lines, self.trouble, now)
                show(lines, self.trouble)
            if stopped.wait(TICK):
                return

    def _round(self, lines: Sequence[Line]) -> list[Line]:
        slots = [line.slot for line in lines]
        while not self.news.empty():
            self.news.get()()
        if self.pods.known:
            slots = plan.follow(self.request, slots, self.pods.all, free)
        grown = [*lines, *(Line(slot) for slot in slots[len(lines) :])]
        return [self._step(moved(line, slot)) for line, slot in zip(grown, slots, strict=True)]

    def _step(self, line: Line) -> Line:
        key = line.slot.ports[0][0]
        after, action = step(line, self._observe(key, line.slot), time.monotonic())
        if action is Action.STOP:
            self.running.pop(key)[1].stop()
            self.probes.pop(key, None)
        elif action is Action.START:
            pairs = [f"{local}:{remote}" for local, remote in line.slot.ports]
            arguments = ("port-forward", "--address=127.0.0.1", f"pod/{line.slot.pod}", *pairs)
            self.running[key] = (
                line.slot.uid,
                BackgroundProgram(self.kubectl.argv(*arguments), LISTENS, (LISTENS, SERVES)),
            )
            self.next_probe[key] = 0.0
        return after

    def _observe(self, key: int, slot: Slot) -> Observation:
        if key not in self.running:
            return Observation()
        uid, child = self.running[key]
        if child.exited:
            return Observation(uid, exited=True, message=child.exit_error)
        if child.ready < len(slot.ports):
            return Observation(uid, message=child.current_error)
        if any(remote in self.request.unprobed for _, remote in slot.ports):
            return Observation(uid, listens=True, message=child.last_error, unprobed=True)
        return Observation(uid, listens=True, message=child.current_error, answers=self._answer(key, slot))

    def _answer(self, key: int, slot: Slot) -> bool | None:
        """Return the result of a finished probe, if there is one, and start the next probe when it is due."""
        probe = self.probes.get(key)
        if probe is not None and probe.done():
            del self.probes[key]
            return probe.result()
        if probe is None and time.monotonic() >= self.next_probe[key]:
            self.next_probe[key] = time.monotonic() + self.probe_every
            self.probes[key] = self.pool.submit(_all_answer, [local for local, _ in slot.ports])
        return None


def _all_answer(ports: Sequence[int]) -> bool:
    return all(answers(port) for port in ports)
