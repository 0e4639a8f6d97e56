"""The pods of a job: ready, of one revision, and none restarted since the job began."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.cluster.deploy import pod_progress
from gpuctl.cluster.doctor.findings import odd
from gpuctl.cluster.doctor.hang.job import is_sized, is_whole, without_part
from gpuctl.cluster.doctor.model import Facts
from gpuctl.cluster.environment import CONTAINER, Object
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn
from gpuctl.domain.pod_status import REVISION, is_ready, statuses

START = "`gpuctl cluster doctor NAME start` says why"
TOGETHER_S = 5  # tolerance: ages are whole seconds, and pods do not start ranks at the same instant
LONGER = "raise --timeout; if it never answers, a driver or a share hangs"
# Missing answers about GPUs and adapters are reported by their own checks.
SUBJECTS = {
    "jobs": "its processes",
    "nccl_logs": "the files that ranks write to",
    "variables": "its variables",
    "network": "its network",
    "machine": "its processors and memory",
    "disk": "its folders",
}


def ready(facts: Facts) -> list[Finding]:
    """Check that all pods exist and are ready."""
    check, findings = "pods", []
    for name in facts.expected_pods:
        pod = facts.pods.get(name)
        if pod is None:
            findings.append(fail(check, f"Pod {name}", "it does not exist", START))
        elif not is_ready(pod):
            state = pod_progress.state(pod, facts.events_of(pod), facts.snapshot.claims.value)
            message = f"it {state.summary}" + (f": {state.trouble}" if state.trouble else "")
            findings.append(fail(check, f"Pod {name}", message, START))
    return or_ok(check, facts.env.name, findings)


def probed(facts: Facts) -> list[Finding]:
    """Check that the probe of each pod answered, on every subject."""
    silent = {name: inside for name, inside in facts.inside.items() if inside.why}
    findings = [unknown("probe", f"Pod {n}", inside.why, inside.hint) for n, inside in silent.items()]
    for name, inside in facts.answered().items():
        for subject, subject_name in SUBJECTS.items():
            if why := inside.unread(subject):
                findings.append(unknown("probe", f"Pod {name}", f"{subject_name} cannot be read: {why}", LONGER))
    return or_ok("probe", facts.env.name, findings) if facts.inside else []


def same(facts: Facts) -> list[Finding]:
    """Check that all pods have one template and one image: ranks of two versions wait for each other forever."""
    check, hint = "same", "an update is in progress or stuck: `gpuctl cluster deploy` brings all pods to one revision"
    revisions = {name: pod["metadata"].get("labels", {}).get(REVISION) for name, pod in facts.pods.items()}
    images = _digests({name: _image(pod) for name, pod in facts.pods.items()})
    known_revisions = {name: revision for name, revision in revisions.items() if revision}
    findings = odd(check, known_revisions, "its revision is {}", hint)
    findings += odd(check, images, "it runs the image {}", hint)
    return or_ok(check, facts.env.name, findings)


def _image(pod: Object) -> str:
    return next((str(status.get("imageID") or "") for status in statuses(pod) if status["name"] == CONTAINER), "")


def _digests(images: Mapping[str, str]) -> dict[str, str]:
    """Return the images' digests, without registry names, which differ between mirrors; if none has one, the IDs."""
    digests = {name: image.rpartition("@")[2] for name, image in images.items() if "@" in image}
    return digests or {name: image for name, image in images.items() if image}


def restarted(facts: Facts) -> list[Finding]:
    """Find pods that restarted after the job began: their ranks are lost, and the others wait for them."""
    ages = {name: _oldest(inside.get("jobs", "ranks")) for name, inside in facts.answering("jobs").items()}
    ranks = {name: age for name, age in ages.items() if age is not None}
    if not ranks or is_whole(facts):
        return or_ok("restarted", facts.env.name, []) if ranks else []
    eldest, out, findings = max(ranks.values()), without_part(facts), []
    for name, inside in facts.answering("jobs").items():
        age = inside.get("jobs", "age_s")
        if age is not None and age + TOGETHER_S < eldest and name not in out:
            times = sum(inside.get("restartCount", 0) for inside in statuses(facts.pods[name]))
            why = _last_exit(facts.pods[name])
            message = f"it started {age} s ago, the job's ranks in other pods {eldest} s ago"
            message += f" ({times} restarts{why})" if times else ""
            report = fail if is_sized(facts) else warn
            findings.append(report("restarted", f"Pod {name}", message, "end the job in all pods and restart it"))
    return or_ok("restarted", facts.env.name, findings)


def job_age(facts: Facts) -> int | None:
    """Return the age of the oldest rank in seconds; None if no rank runs or their ages are unknown."""
    ages = [_oldest(inside.get("jobs", "ranks")) for inside in facts.answering("jobs").values()]
    return max((age for age in ages if age is not None), default=None)


def _oldest(ranks: object) -> int | None:
    ages = [rank["age_s"] for rank in ranks if rank["age_s"] is not None] if isinstance(ranks, list) else []
    return max(ages, default=None)


def _last_exit(pod: Object) -> str:
    for status in statuses(pod):
        before = (status.get("lastState") or {}).get("terminated") or {}
        if before:
            return f", the last after {before.get('reason') or 'exit code ' + str(before.get('exitCode'))}"
    return ""
