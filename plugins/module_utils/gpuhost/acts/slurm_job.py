"""Cancel a Slurm job that was shown to somebody: neither its array, nor the run of it that was queued again since."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from ..host import Host

LIMIT_S = 30.0
PAUSE_S = 0.5
# Of a job that holds no resources any more, or waits for them.
ACTIVE = ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING")
FILTERS = ("RUNNING", "SUSPENDED")  # states that scancel's --state takes, besides PENDING
# What makes one run of a job: a job that is queued again keeps its number, and starts at another time.
IDENTITY = ("JobId", "ArrayJobId", "ArrayTaskId", "HetJobId", "JobName", "UserId", "StartTime", "Restarts", "NodeList")
SHOWN = (*IDENTITY, "Account", "Partition", "JobState", "NumNodes", "TresPerNode", "TRES", "AllocTRES")
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w/:]*)=")


def run(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{job, state, reason}: see `answer_types.CancelledJob`.

    Request: `job` (number), `shown` (fields of an earlier answer), `grace_s`, `check`.
    """
    job, why = read(host, request["job"])
    if request.get("check"):
        return {"job": job, "state": "unknown" if job is None and why else "runs" if job else "gone", "reason": why}
    if job is None:
        return {"job": None, "state": "unknown" if why else "gone", "reason": why}
    if difference := differs(request["shown"], job):
        return {"job": job, "state": "changed", "reason": difference}
    # The filter spares a job that is queued again between the comparison and the cancellation.
    only = [f"--state={job['JobState']}"] if job["JobState"] in FILTERS else []
    result = host.run("scancel", *only, identifier(job), changes=True, limit=LIMIT_S)
    if not result.ok:
        return {"job": job, "state": "denied", "reason": result.last_line}
    return {"job": job, **_outcome(host, job, float(request["grace_s"]))}


def read(host: Host, number: str) -> tuple[dict[str, str] | None, str]:
    """Fields of a job by the number of its control group; None without one, with the reason unless Slurm forgot it."""
    result = host.run("scontrol", "--oneliner", "show", "job", number, limit=LIMIT_S)
    if not result.ok:
        return None, "" if "Invalid job id" in f"{result.out}{result.err}" else result.last_line
    for line in result.out.splitlines():  # one for each task of an array
        names = [match.group(1) for match in _PAIR.finditer(line)]
        fields = parse(line)
        if fields.get("JobId") != number:
            continue
        if twice := [name for name in (*IDENTITY, "JobState") if names.count(name) > 1]:
            return None, f"scontrol prints {twice[0]} twice: the name or comment of the job imitates it"
        return {name: fields[name] for name in SHOWN if name in fields}, ""
    return None, f"scontrol printed no job {number}"


def parse(line: str) -> dict[str, str]:
    """KEY=VALUE pairs of one line, of a key that occurs twice the first; values may have blanks."""
    places = list(_PAIR.finditer(line))
    ends = [match.start() for match in places[1:]] + [len(line)]
    rows = [(match.group(1), line[match.end() : end].strip()) for match, end in zip(places, ends)]
    return dict(reversed(rows))


def differs(shown: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Difference of a job from the shown run of it; "" if it is the same."""
    if now["JobState"] not in ACTIVE:
        return f"it is {now['JobState']} now: it was queued again, or has ended"
    names = [name for name in IDENTITY if shown.get(name) != now.get(name)]
    if not names:
        return ""
    changes = ", ".join(f"{name} was {shown.get(name, 'absent')}, is {now.get(name, 'absent')}" for name in names)
    return f"it is another run of the job now: {changes}"


def identifier(job: Mapping[str, str]) -> str:
    """JOB, or ARRAY_TASK: the number of an array's task may be that of the whole array, too."""
    if job.get("ArrayJobId") and job.get("ArrayTaskId", "").isdigit():
        return f"{job['ArrayJobId']}_{job['ArrayTaskId']}"
    return job["JobId"]


def _outcome(host: Host, job: Mapping[str, str], grace_s: float) -> dict[str, str]:
    end = time.monotonic() + grace_s
    while True:
        now, why = read(host, job["JobId"])
        if now is None and not why:
            return {"state": "ended", "reason": ""}
        if now is not None and differs(job, now):
            return {"state": "ended", "reason": now["JobState"]}
        if time.monotonic() > end:
            return {"state": "left", "reason": why or f"it is {now['JobState'] if now else 'unknown'} after scancel"}
        time.sleep(PAUSE_S)
