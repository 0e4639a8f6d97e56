"""Judge a build's status: build.openshift.io/v1, BuildStatus (openshift/api, build/v1/types.go)."""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.cluster.environment import Object
from gpuctl.core.errors import GpuctlError
from gpuctl.core.redact import removed

NEW, PENDING, RUNNING, COMPLETE, CANCELLED = "New", "Pending", "Running", "Complete", "Cancelled"
FAILED, ERROR = "Failed", "Error"
BEGUN = (RUNNING, COMPLETE, FAILED)  # phases that have a log
OVER = (COMPLETE, FAILED, ERROR, CANCELLED)
# Hints by status.reason.
HINTS = {
    "DockerBuildFailed": "a step of the Dockerfile failed: the end of the log is above; --follow shows all",
    "FetchSourceFailed": "is the repository's URL right, and may the cluster read it? image.build.git, image.build.ref",
    "InvalidContextDirectory": "the folder image.build.folder does not exist",
    "PullBuilderImageFailed": "can the cluster pull the image after FROM? The account `builder` needs its pull secret",
    "PushImageToRegistryFailed": "is the cluster's internal registry up, and does it have space?",
    "OutOfMemoryKilled": "raise image.build.memory",
    "BuildPodEvicted": "the node had too little disk or memory: raise image.build.memory, or try again",
    "BuildPodDeleted": "somebody deleted its pod; run the same command again",
    "ExceededRetryTimeout": "its pod could not be created in time: is a node free for image.build.cpu and memory?",
    "CannotCreateBuildPod": "does a quota of the namespace prevent it? `kubectl describe quota`",
    "InvalidOutputReference": "the ImageStream is gone, or the cluster has no registry: run the same command again",
}


class NotBuilt(GpuctlError):
    """The build ended without an image."""


@dataclass(frozen=True)
class Built:
    """A built image; `digest` is empty if the registry reported none."""

    build: str
    image: str
    digest: str


def phase(build: Object) -> str:
    return str((build.get("status") or {}).get("phase") or NEW)


def is_over(build: Object) -> bool:
    return phase(build) in OVER


def describe(build: Object) -> str:
    """Return the phase, such as "is running", with the reason if it is waiting."""
    status = build.get("status") or {}
    about = str(status.get("message") or status.get("reason") or "")
    phrases = {NEW: "waits to be started", PENDING: "waits for its pod", RUNNING: "is running", COMPLETE: "is complete"}
    phrases |= {FAILED: "has failed", ERROR: "has failed"}
    now = phrases.get(phase(build), f"is {phase(build).lower()}")
    return f"{now}: {about}" if about else now


def hint(build: Object) -> str:
    """Return a hint for the build's reason, or ""."""
    return HINTS.get(str((build.get("status") or {}).get("reason")), "")


def result(build: Object) -> Built:
    """Return the built image; raises `NotBuilt` with the reason and the end of the log if there is none."""
    name, status = str(build["metadata"]["name"]), build.get("status") or {}
    if phase(build) != COMPLETE:
        raise failed(build)
    digest = ((status.get("output") or {}).get("to") or {}).get("imageDigest") or ""
    return Built(name, str(status.get("outputDockerImageReference") or ""), str(digest))


def failed(build: Object) -> NotBuilt:
    """Return the failure with its reason and the end of the log."""
    name, status = str(build["metadata"]["name"]), build.get("status") or {}
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    if phase(build) == CANCELLED:
        return NotBuilt(f"build {name}", "it was cancelled", "run the same command to start it again")
    why = f"{message} ({reason})" if message and reason else message or reason or "the cluster gives no reason"
    snippet = str(status.get("logSnippet") or "").strip("\n")
    last = "".join(f"\n    {line}" for line in snippet.splitlines())
    return NotBuilt(
        f"build {name}", removed(f"{why}{last}")[0], hint(build) or f"`oc describe build {name}` shows more"
    )
