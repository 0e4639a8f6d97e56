"""The pods of a job: ready, alike, and none of them younger than the job."""

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
TOGETHER_S = 5  # clocks and starts are not known better
LONGER = "--timeout gives it longer; one that never answers has a driver or a share that hangs"
# GPUs and adapters have checks that say so themselves.
SUBJECTS = {
    "jobs": "its processes",
    "words": "the files that ranks write to",
    "variables": "its variables",
    "network": "its network",
    "machine": "its processors and memory",
    "room": "its folders",
}


def ready(facts: Facts) -> list[Finding]:
    """All that are wanted are there and ready."""
    check, findings = "pods", []
    for name in facts.wanted:
        pod = facts.pods.get(name)
        if pod is None:
            findings.append(fail(check, f"Pod {name}", "it does not exist", START))
        elif not is_ready(pod):
            state = pod_progress.state(pod, facts.of(pod), facts.there.claims.value)
            message = f"it {state.summary}" + (f": {state.trouble}" if state.trouble else "")
            findings.append(fail(check, f"Pod {name}", message, START))
    return or_ok(check, facts.env.name, findings)


def asked(facts: Facts) -> list[Finding]:
    """Each tells of itself, and of every subject."""
    silent = {name: inside for name, inside in facts.inside.items() if inside.why}
    findings = [unknown("asked", f"Pod {n}", inside.why, inside.hint) for n, inside in silent.items()]
    for name, inside in facts.asked().items():
        for subject, subject_name in SUBJECTS.items():
            if why := inside.unread(subject):
                findings.append(unknown("asked", f"Pod {name}", f"{subject_name} cannot be looked at: {why}", LONGER))
    return or_ok("asked", facts.env.name, findings) if facts.inside else []


def same(facts: Facts) -> list[Finding]:
    """All pods have one template and one image: ranks of two versions wait for each other forever."""
    check, hint = "same", "an update goes on, or stands still: `gpuctl cluster deploy` brings all to one form"
    forms = {name: pod["metadata"].get("labels", {}).get(REVISION) for name, pod in facts.pods.items()}
    images = _digests({name: _image(pod) for name, pod in facts.pods.items()})
    known_forms = {name: form for name, form in forms.items() if form}
    findings = odd(check, known_forms, "its form is {}", hint)
    findings += odd(check, images, "it runs the image {}", hint)
    return or_ok(check, facts.env.name, findings)


def _image(pod: Object) -> str:
    return next((str(status.get("imageID") or "") for status in statuses(pod) if status["name"] == CONTAINER), "")


def _digests(images: Mapping[str, str]) -> dict[str, str]:
    """Nodes may have pulled the same from different mirrors; an image without a digest has another kind of number."""
    digests = {name: image.rpartition("@")[2] for name, image in images.items() if "@" in image}
    return digests or {name: image for name, image in images.items() if image}


def restarted(facts: Facts) -> list[Finding]:
    """A pod that began again after the job did has lost its ranks; the others wait for them."""
    ages = {name: _oldest(inside.get("jobs", "ranks")) for name, inside in facts.telling("jobs").items()}
    ranks = {name: age for name, age in ages.items() if age is not None}
    if not ranks or is_whole(facts):
        return or_ok("restarted", facts.env.name, []) if ranks else []
    eldest, out, findings = max(ranks.values()), without_part(facts), []
    for name, inside in facts.telling("jobs").items():
        age = inside.get("jobs", "age_s")
        if age is not None and age + TOGETHER_S < eldest and name not in out:
            times = sum(inside.get("restartCount", 0) for inside in statuses(facts.pods[name]))
            why = _how(facts.pods[name])
            message = f"it began {age} s ago, and the job's ranks in other pods {eldest} s ago"
            message += f" ({times} restarts{why})" if times else ""
            say = fail if is_sized(facts) else warn
            findings.append(say("restarted", f"Pod {name}", message, "end the job everywhere and begin it anew"))
    return or_ok("restarted", facts.env.name, findings)


def job_age(facts: Facts) -> int | None:
    """Seconds since the eldest rank began; None where none runs, or nobody knows."""
    ages = [_oldest(inside.get("jobs", "ranks")) for inside in facts.telling("jobs").values()]
    return max((age for age in ages if age is not None), default=None)


def _oldest(ranks: object) -> int | None:
    ages = [rank["age_s"] for rank in ranks if rank["age_s"] is not None] if isinstance(ranks, list) else []
    return max(ages, default=None)


def _how(pod: Object) -> str:
    for status in statuses(pod):
        before = (status.get("lastState") or {}).get("terminated") or {}
        if before:
            return f", the last after {before.get('reason') or 'exit code ' + str(before.get('exitCode'))}"
    return ""
