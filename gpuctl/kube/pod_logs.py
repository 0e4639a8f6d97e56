"""Follow a container's log across its restarts; while there is none, report what the container waits for."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube import kubectl
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.edges.programs import gist
from gpuctl.kube import model
from gpuctl.kube.model import Container, Pod
from gpuctl.kube.selected_pod import SelectedPod

POLL_S = 2.0
INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)
OVER = ("Succeeded", "Failed")  # phases in which no container starts again
REQUEST_LIMIT = "--request-timeout=10s"
FORBIDDEN = ("(Forbidden)", "(Unauthorized)", "must be logged in")  # of kubectl


def follow(target: SelectedPod, lines: int, report: Callable[[str], object]) -> int:
    """Show and follow the log until the pod ends or is gone, or until Ctrl-C; returns kubectl's exit code.

    A crash-looping container has no log to follow for most of the time, so this waits for its next start.
    """
    kube = Kubectl(target.context, target.namespace)
    container = ("--container", target.container) if target.container else ()
    tail = lines
    while True:
        code = kubectl.show(kube.argv("logs", target.pod, *container, f"--tail={tail}", "--follow"))
        if code in INTERRUPTED:
            return INTERRUPTED[1]
        if code:
            _raise_if_forbidden(kube, target.pod, container)
        before = _read(kube, target.pod)
        if before is None or before.phase in OVER:
            report(
                f"{target.pod}: {'it no longer exists' if before is None else describe_end(before, target.container)}"
            )
            return code
        report(f"{target.pod}: {describe_wait(before, target.container)}; Ctrl-C ends")
        has_log = code == 0
        if not _wait_for_start(kube, target, before):
            report(f"{target.pod}: it no longer exists")
            return code
        tail = -1 if has_log else lines  # the new container's log is new from its first line


def container_of(pod: Pod, container: str) -> Container:
    """Return the named container, or the first one; raises `GpuctlError` if the pod has none of that name."""
    candidates = (*pod.containers, *pod.init_containers)
    matches = [candidate for candidate in candidates if container in ("", candidate.name)]
    if not matches:
        raise GpuctlError(f"follow the log of {pod.name}", f"it has no container {container}")
    return matches[0]


def describe_end(pod: Pod, container: str) -> str:
    """Describe the end of a pod whose containers are not started again."""
    state = container_of(pod, container)
    code = "" if state.exit_code is None else f" with exit code {state.exit_code}"
    return f"{state.name} ended{code} ({state.why or pod.phase})"


def describe_wait(pod: Pod, container: str) -> str:
    """Describe why there is no log to follow at this moment."""
    state = container_of(pod, container)
    if not state.why and pod.phase == "Running":
        return f"the connection to the log of {state.name} ended; following it again"
    init = pod.failing_init
    if init is not None and state in pod.containers:
        again = f" after {init.restarts} restarts" if init.restarts else ""
        hint = f"`gpuctl kube pod logs {pod.name} -c {init.name}` shows its log"
        return f"{state.name} waits for the init container {init.name}, which is in {init.why}{again}; {hint}"
    code = "" if state.exit_code is None else f" with exit code {state.exit_code}"
    restarts = f" after {state.restarts} restarts" if state.restarts else ""
    return f"{state.name} is not running{code}: {state.why or pod.phase}{restarts}; waiting for its next start"


def has_started(before: Container, now: Container, phase: str) -> bool:
    """True if the container runs now, or ran and ended meanwhile."""
    return (not now.why and phase == "Running") or now.restarts > before.restarts or now.exit_code != before.exit_code


def _wait_for_start(kube: Kubectl, target: SelectedPod, before: Pod) -> bool:
    """Wait for the container's next start; False if the pod is gone."""
    while True:
        time.sleep(POLL_S)
        now = _read(kube, target.pod)
        if now is None:
            return False
        if now.phase in OVER or has_started(
            container_of(before, target.container), container_of(now, target.container), now.phase
        ):
            return True


def _raise_if_forbidden(kube: Kubectl, pod: str, container: Sequence[str]) -> None:
    """Raise `GpuctlError` if the user may not read the log: it cannot be followed, however often it is tried."""
    code, _, stderr = kube.try_to("logs", pod, *container, "--tail=1", REQUEST_LIMIT)
    if code and any(word in stderr for word in FORBIDDEN):
        hint = "`kubectl auth can-i get pods --subresource=log` shows your rights"
        raise GpuctlError(f"follow the log of {pod}", gist(stderr), hint)


def _read(kube: Kubectl, name: str) -> Pod | None:
    """Read the pod; None if it does not exist."""
    pods = kube.json(f"read the pod {name}", "get", "pods", f"--field-selector=metadata.name={name}", REQUEST_LIMIT)
    return next(iter(model.pods(pods)), None)
