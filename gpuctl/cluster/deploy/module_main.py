"""Entry point of the Ansible module: read a request as JSON on standard input, deploy or remove, answer as JSON.

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
from dataclasses import asdict, replace
from typing import Any

from gpuctl.cluster.clusterfile import locate as files
from gpuctl.cluster.deploy import destroy, flow
from gpuctl.cluster.deploy.apply import Applied
from gpuctl.cluster.deploy.destroy import EnvironmentObjects
from gpuctl.cluster.deploy.flow import PlanRequest
from gpuctl.cluster.deploy.model import Change, Plan, digest, plan_as_dict
from gpuctl.cluster.environment import Environment, EnvironmentRequest, environment
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.run_history import current_user
from gpuctl.edges.kube.cluster import name_of
from gpuctl.engine import report_progress

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
    """Deploy the environment; returns the module's whole result."""
    file = files.cluster(params["cluster"])
    cluster = flow.connect(file, params["context"])
    request = PlanRequest(
        params["mode"], params["nodes"], params["environment"], params["actor"] or current_user(), params["single"]
    )
    plan = replace(flow.plan(cluster, file, request), take_over=params["take_over"])
    try:
        flow.refuse(plan)
        check_confirmed(plan, params.get("plan") or "")
        if not params["recreate"] and (recreated := plan.changes_of("recreate")):
            names = ", ".join(change.subject for change in recreated)
            hint = "recreate: true allows it; volumes stay"
            raise GpuctlError(
                f"deploy {plan.env.name}", f"{names} would have to be recreated: {recreated[0].note}", hint
            )
        findings = [] if params["check"] else flow.deploy(cluster, plan, _tell, params["timeout"], applied)
    except GpuctlError as error:
        return {**_failed(error), "changed": bool(applied.done), "cluster": _result(plan, applied)}
    result = _result(plan, applied)
    rechecked = {finding.check for finding in findings}  # checks that need a running pod
    result["findings"] = [finding for finding in result["findings"] if finding["check"] not in rechecked]
    result["findings"] += [finding.as_dict() for finding in findings]
    diff = [difference(change) for change in plan.changes if change.action != "same"]
    return {"changed": bool(diff), "cluster": result, "diff": diff}


def check_confirmed(plan: Plan, confirmed: str) -> None:
    """Raise `GpuctlError` if the plan is not the confirmed one; without a confirmed digest every plan passes."""
    if not confirmed or confirmed == digest(plan):
        return
    changes = ", ".join(f"{change.action} {change.subject}" for change in plan.changes if change.action != "same")
    wrong = "the cluster or the cluster file changed after the plan was shown, so nothing was applied"
    hint = f"review the new plan ({changes or 'nothing changes'}) with `gpuctl cluster diff`, then deploy again"
    raise GpuctlError(f"deploy {plan.env.name}", wrong, hint)


def absent(params: Mapping[str, Any], applied: Applied) -> Answer:
    """Remove the environment; returns the module's whole result."""
    file = files.cluster(params["cluster"])
    cluster = flow.connect(file, params["context"])
    env = environment(file, EnvironmentRequest(name=params["environment"], single=params["single"]))
    existing = destroy.find(cluster, env)
    selected = EnvironmentObjects(existing.objects, existing.volumes if params["volumes"] else (), existing.unread)

    def gone(subject: str, message: str) -> None:
        applied.done.append(subject)
        _tell(subject, message)

    if not params["check"]:
        destroy.remove(cluster, env, selected, gone, params["timeout"] or 1)
    return removed(env, selected, applied)


def removed(env: Environment, selected: EnvironmentObjects, applied: Applied) -> Answer:
    """Build the result of a removal; it is a failure if some kinds could not be listed."""
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
    unknown = f"some kinds of objects could not be listed, so objects may remain: {'; '.join(selected.unread)}"
    return {**answer, **_failed(GpuctlError(f"destroy {env.name}", unknown, "ask for the right to list these kinds"))}


def _go_to(folder: str | None) -> None:
    """Resolve relative paths against a folder. Python is not started there: `-m` would import modules from it."""
    if not folder:
        return
    try:
        os.chdir(folder)
    except OSError as error:
        raise InvalidInput(f"work in the folder {folder}", error.strerror or str(error)) from error


def _failed(error: GpuctlError) -> Answer:
    return {"msg": str(error), "error": {"wrong": error.wrong, "hint": error.hint}}


def _result(plan: Plan, applied: Applied) -> Answer:
    return {**plan_as_dict(plan), "applied": applied.done}


def difference(change: Change) -> dict[str, str]:
    """Format a change for Ansible's --diff."""
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
    report_progress(f"{subject}: {message}")


def _end_with_parent() -> None:
    """Exit with the parent process: without a terminal, an aborted play would not signal this process."""
    parent = os.getppid()

    def watch_parent() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch_parent, daemon=True, name="parent").start()


if __name__ == "__main__":
    main()
