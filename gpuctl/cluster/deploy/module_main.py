"""The module's side: deploy or remove as it is asked for, as JSON on standard input, and answer as JSON.

`python -m gpuctl.cluster.deploy.module_main` is what plugins/modules/cluster.py runs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.progress import tell

from gpuctl.cluster.clusterfile import locate as files
from gpuctl.cluster.deploy import destroy, flow
from gpuctl.cluster.deploy.apply import Applied
from gpuctl.cluster.deploy.destroy import Found
from gpuctl.cluster.deploy.flow import Wish
from gpuctl.cluster.deploy.model import Change, Plan, told, told_of
from gpuctl.cluster.environment import Asked, Environment, environment
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.run_history import who
from gpuctl.edges.kube.cluster import name_of

Answer = dict[str, Any]
LOOK_S = 0.5


def main() -> None:
    params = json.load(sys.stdin)
    _end_with_parent()
    applied = Applied()
    try:
        _go_to(params["folder"])
        answer = absent(params, applied) if params["state"] == "absent" else present(params, applied)
    except GpuctlError as error:
        answer = {**_failed(error), "changed": bool(applied.done), "applied": applied.done}
    json.dump(answer, sys.stdout)


def present(params: Mapping[str, Any], applied: Applied) -> Answer:
    """Deploy it; the whole answer of the module."""
    file = files.cluster(params["cluster"])
    cluster = flow.connect(file, params["context"])
    request = Wish(params["mode"], params["nodes"], params["environment"], params["by"] or who(), params["single"])
    plan = flow.plan(cluster, file, request)
    try:
        flow.refuse(plan)
        if not params["recreate"] and (anew := plan.changes_of("recreate")):
            names = ", ".join(change.subject for change in anew)
            hint = "recreate: true does it; volumes stay"
            raise GpuctlError(f"deploy {plan.env.name}", f"{names} would have to be made anew: {anew[0].note}", hint)
        findings = [] if params["check"] else flow.deploy(cluster, plan, _tell, params["timeout"], applied)
    except GpuctlError as error:
        return {**_failed(error), "changed": bool(applied.done), "cluster": _told(plan, applied)}
    result = _told(plan, applied)
    rechecked = {finding.check for finding in findings}  # what only a pod could tell, and by now has
    result["findings"] = [finding for finding in result["findings"] if finding["check"] not in rechecked]
    result["findings"] += told_of(findings)
    diff = [difference(change) for change in plan.changes if change.action != "same"]
    return {"changed": bool(diff), "cluster": result, "diff": diff}


def absent(params: Mapping[str, Any], applied: Applied) -> Answer:
    """Remove it; the whole answer of the module."""
    file = files.cluster(params["cluster"])
    cluster = flow.connect(file, params["context"])
    env = environment(file, Asked(name=params["environment"], single=params["single"]))
    existing = destroy.find(cluster, env)
    selected = Found(existing.objects, existing.volumes if params["volumes"] else (), existing.unread)

    def gone(subject: str, message: str) -> None:
        applied.done.append(subject)
        _tell(subject, message)

    if not params["check"]:
        destroy.remove(cluster, env, selected, gone, params["timeout"] or 1)
    return removed(env, selected, applied)


def removed(env: Environment, selected: Found, applied: Applied) -> Answer:
    """What was removed, or would be; failed where nobody knows whether more of it is there."""
    listed = [*selected.objects, *selected.volumes]
    changes = [Change(obj["kind"], obj["metadata"]["name"], "remove") for obj in listed]
    shown = {"environment": env.name, "namespace": env.namespace, "unread": list(selected.unread)}
    answer: Answer = {
        "changed": bool(listed),
        "cluster": {**shown, "changes": [asdict(change) for change in changes], "applied": applied.done},
        "diff": [{"before": f"{name_of(obj)}\n", "after": "", "before_header": name_of(obj)} for obj in listed],
    }
    if not selected.unread:
        return answer
    unknown = f"UNKNOWN whether more of it is there: {'; '.join(selected.unread)}"
    return {**answer, **_failed(GpuctlError(f"destroy {env.name}", unknown, "ask for the right to list these kinds"))}


def _go_to(folder: str | None) -> None:
    """Let relative paths begin there. Python is not started there: `-m` would import what lies in that folder."""
    if not folder:
        return
    try:
        os.chdir(folder)
    except OSError as error:
        raise InvalidInput(f"work in the folder {folder}", error.strerror or str(error)) from error


def _failed(error: GpuctlError) -> Answer:
    return {"msg": str(error), "error": {"wrong": error.wrong, "hint": error.hint}}


def _told(plan: Plan, applied: Applied) -> Answer:
    return {**told(plan), "applied": applied.done}


def difference(change: Change) -> dict[str, str]:
    """A change as Ansible shows differences."""
    header = f"{change.subject} ({change.action})"
    lines = [
        (f"{field.path}: {json.dumps(field.before)}", f"{field.path}: {json.dumps(field.after)}")
        for field in change.fields
    ]
    before, after = ("".join(f"{line}\n" for line in side) for side in zip(*lines, strict=True)) if lines else ("", "")
    if change.action == "create":
        after = f"{change.subject}\n"
    if change.action == "remove":
        before = f"{change.subject}\n"
    return {"before": before, "after": after, "before_header": header, "after_header": header}


def _tell(subject: str, message: str) -> None:
    tell(f"{subject}: {message}")


def _end_with_parent() -> None:
    """Nothing is to go on when the play was broken off: this process has no terminal that would tell it."""
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=look, daemon=True, name="parent").start()


if __name__ == "__main__":
    main()
