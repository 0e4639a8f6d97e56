"""A stand-in for what runs in the pods of a test: launchers print a text and end as the test says.

The pods and all else are real objects of a real API; tests/rig/kube/kubelet.py makes pods run and ends deleted ones.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.rig.kube.plane import Plane

PODS = "/api/v1/namespaces/default/pods"
DATA = Path(__file__).parents[3] / "data/nccl"


def with_times(text: str) -> str:
    """A log as kubelets give it when asked for times."""
    moments = (f"2026-01-01T00:00:{number // 10**6:02}.{number % 10**6:06}001Z" for number in itertools.count())
    return "".join(f"{at} {line}\n" for at, line in zip(moments, text.splitlines(), strict=False))


@dataclass
class Script:
    """What launchers print, and how they end; `code` None: they go on for ever."""

    text: str = ""
    code: int | None = 0
    reason: str = ""
    seen: list[str] = field(default_factory=list)


class Containers:
    """Within its block launchers act by the script."""

    def __init__(self, cluster: Plane, script: Script) -> None:
        self.cluster, self.script = cluster, script
        self.launchers = cluster.follower(PODS, self._act, "labelSelector=app.kubernetes.io/component%3Dlauncher")

    def __enter__(self) -> Script:
        self.launchers.start()
        return self.script

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.launchers.stop()

    def _act(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        if name in self.script.seen or pod["status"].get("phase") != "Running":
            return
        log = {"metadata": {"annotations": {"standin/log": with_times(self.script.text)}}}
        self.cluster.api("PATCH", f"{PODS}/{name}", log)
        if self.script.code is not None:
            self.cluster.status(name, ended(pod, self.script.code, self.script.reason))
        self.script.seen.append(name)


def ended(pod: dict[str, Any], code: int, reason: str = "") -> dict[str, Any]:
    """The status of a pod whose container ended."""
    how = {"exitCode": code, "reason": reason or ("Completed" if code == 0 else "Error")}
    told = {**pod["status"]["containerStatuses"][0], "ready": False, "state": {"terminated": how, "running": None}}
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [told]}
