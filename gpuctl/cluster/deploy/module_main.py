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

from gpuctl.cluster.clusterfile import locate as files
from gpuctl.cluster.deploy import destroy, flow
from gpuctl.cluster.deploy.apply import Applied
from gpuctl.cluster.deploy.destroy import Found
from gpuctl.cluster.deploy.flow import Wish
from gpuctl.cluster.deploy.model import Change, Plan, told
from gpuctl.cluster.environment import Asked, Environment, environment
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.run_history import current_user
from gpuctl.edges.kube.cluster import name_of
from gpuctl.engine import report_progress

Answer = dict[str, Any]
LOOK_S = 0.5


def main() -> None:
    asked = json.load(sys.stdin)
    _end_with_parent()
    applied = Applied()
    try:
        _go_to(asked["folder"])
        answer = absent(asked, applied) if asked["state"] == "absent" else present(asked, applied)
    except GpuctlError as error:
        answer = {**_failed(error), "changed": bool(applied.done), "applied": applied.done}
    json.dump(answer, sys.stdout)


def present(asked: Mapping[str, Any], applied: Applied) -> Answer:
    """Deploy it; the whole answer of the module."""
    file = files.cluster(asked["cluster"])
    cluster = flow.connect(file, asked["context"])
    wish = Wish(asked["mode"], asked["nodes"], asked["environment"], asked["by"] or current_user(), asked["single"])
    plan = flow.plan(cluster, file, wish)
    try:
        flow.refuse(plan)
        if not asked["recreate"] and (anew := plan.changes_of("recreate")):
            names = ", ".join(each.subject for each in anew)
            hint = "recreate: true does it; volumes stay"
            raise GpuctlError(f"deploy {plan.env.name}", f"{names} would have to be made anew: {anew[0].note}", hint)
        found = [] if asked["check"] else flow.deploy(cluster, plan, _tell, asked["timeout"], applied)
    except GpuctlError as error:
        return {**_failed(error), "changed": bool(applied.done), "cluster": _told(plan, applied)}
    shown = _told(plan, applied)
    asked_again = {each.check for each in found}  # what only a pod could tell, and by now has
    shown["findings"] = [each for each in shown["findings"] if each["check"] not in asked_again]
    shown["findings"] += [finding.as_dict() for finding in found]
    diff = [difference(each) for each in plan.changes if each.action != "same"]
    return {"changed": bool(diff), "cluster": shown, "diff": diff}


def absent(asked: Mapping[str, Any], applied: Applied) -> Answer:
    """Remove it; the whole answer of the module."""
    file = files.cluster(asked["cluster"])
    cluster = flow.connect(file, asked["context"])
    env = environment(file, Asked(name=asked["environment"], single=asked["single"]))
    there = destroy.find(cluster, env)
    todo = Found(there.objects, there.volumes if asked["volumes"] else (), there.unread)

    def gone(subject: str, words: str) -> None:
        applied.done.append(subject)
        _tell(subject, words)

    if not asked["check"]:
        destroy.remove(cluster, env, todo, gone, asked["timeout"] or 1)
    return removed(env, todo, applied)


def removed(env: Environment, todo: Found, applied: Applied) -> Answer:
    """What was removed, or would be; failed where nobody knows whether more of it is there."""
    listed = [*todo.objects, *todo.volumes]
    changes = [Change(each["kind"], each["metadata"]["name"], "remove") for each in listed]
    shown = {"environment": env.name, "namespace": env.namespace, "unread": list(todo.unread)}
    answer: Answer = {
        "changed": bool(listed),
        "cluster": {**shown, "changes": [asdict(each) for each in changes], "applied": applied.done},
        "diff": [{"before": f"{name_of(each)}\n", "after": "", "before_header": name_of(each)} for each in listed],
    }
    if not todo.unread:
        return answer
    unknown = f"UNKNOWN whether more of it is there: {'; '.join(todo.unread)}"
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
        (f"{each.path}: {json.dumps(each.before)}", f"{each.path}: {json.dumps(each.after)}") for each in change.fields
    ]
    before, after = ("".join(f"{line}\n" for line in side) for side in zip(*lines, strict=True)) if lines else ("", "")
    if change.action == "create":
        after = f"{change.subject}\n"
    if change.action == "remove":
        before = f"{change.subject}\n"
    return {"before": before, "after": after, "before_header": header, "after_header": header}


def _tell(subject: str, words: str) -> None:
    report_progress(f"{subject}: {words}")


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
