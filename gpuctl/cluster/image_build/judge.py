"""How a build stands, in words: build.openshift.io/v1, BuildStatus (openshift/api, build/v1/types.go)."""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.cluster.environment import Object
from gpuctl.core.errors import GpuctlError

NEW, PENDING, RUNNING, COMPLETE, CANCELLED = "New", "Pending", "Running", "Complete", "Cancelled"
FAILED, ERROR = "Failed", "Error"
BEGUN = (RUNNING, COMPLETE, FAILED)  # of these there is a log
OVER = (COMPLETE, FAILED, ERROR, CANCELLED)
# What to try, by status.reason.
HINTS = {
    "DockerBuildFailed": "a step of the Dockerfile failed: the lines above are the last of the log; --follow shows all",
    "FetchSourceFailed": "is the repository's URL right, and may the cluster read it? image.build.git, image.build.ref",
    "InvalidContextDirectory": "the folder that image.build.folder names is not there",
    "PullBuilderImageFailed": "can the cluster pull the image after FROM? The account `builder` needs its pull secret",
    "PushImageToRegistryFailed": "is the cluster's own registry up, and has it room?",
    "OutOfMemoryKilled": "raise image.build.memory",
    "BuildPodEvicted": "the node had too little disk or memory: raise image.build.memory, or try again",
    "BuildPodDeleted": "somebody deleted its pod; the same command tries again",
    "ExceededRetryTimeout": "its pod could not be made in time: is there room for image.build.cpu and memory?",
    "CannotCreateBuildPod": "does a quota of the namespace stand in its way? `kubectl describe quota`",
    "InvalidOutputReference": "the ImageStream is gone, or the cluster has no registry: the same command looks again",
}


class NotBuilt(GpuctlError):
    """The build ended without an image."""


@dataclass(frozen=True)
class Built:
    """An image; `digest` is empty where the registry told none."""

    build: str
    image: str
    digest: str


def phase(build: Object) -> str:
    return str((build.get("status") or {}).get("phase") or NEW)


def is_over(build: Object) -> bool:
    return phase(build) in OVER


def words(build: Object) -> str:
    """As in "is running", with the reason where it waits for something."""
    status = build.get("status") or {}
    about = str(status.get("message") or status.get("reason") or "")
    phrases = {NEW: "waits to be begun", PENDING: "waits for its pod", RUNNING: "is running", COMPLETE: "is complete"}
    phrases |= {FAILED: "has failed", ERROR: "has failed"}
    now = phrases.get(phase(build), f"is {phase(build).lower()}")
    return f"{now}: {about}" if about else now


def hint(build: Object) -> str:
    """What to try about the reason that it gives; empty where nobody knows."""
    return HINTS.get(str((build.get("status") or {}).get("reason")), "")


def result(build: Object) -> Built:
    """The image that it made; `NotBuilt` with the reason, and the last lines of its log, where it made none."""
    name, status = str(build["metadata"]["name"]), build.get("status") or {}
    if phase(build) != COMPLETE:
        raise failed(build)
    digest = ((status.get("output") or {}).get("to") or {}).get("imageDigest") or ""
    return Built(name, str(status.get("outputDockerImageReference") or ""), str(digest))


def failed(build: Object) -> NotBuilt:
    """Why it made no image, with the last lines of its log."""
    name, status = str(build["metadata"]["name"]), build.get("status") or {}
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    if phase(build) == CANCELLED:
        return NotBuilt(f"build {name}", "it was cancelled", "the same command begins it again")
    why = f"{message} ({reason})" if message and reason else message or reason or "the cluster gives no reason"
    snippet = str(status.get("logSnippet") or "").strip("\n")
    last = "".join(f"\n    {line}" for line in snippet.splitlines())
    return NotBuilt(f"build {name}", f"{why}{last}", hint(build) or f"`oc describe build {name}` tells more")
