"""Output of cluster diff, deploy, status and destroy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import findings, output

if TYPE_CHECKING:
    from gpuctl.cluster.deploy.destroy import EnvironmentObjects
    from gpuctl.cluster.deploy.model import Change, Plan
    from gpuctl.cluster.deploy.status import Pod, Status
    from gpuctl.cluster.environment import Environment, Object
    from gpuctl.domain.report import Report

MOST_FIELDS = 12


def plan_document(command: str, deployment: Plan, code: int) -> Report:
    """Build the report of a plan that is only shown; `code`: the exit code."""
    from gpuctl.cluster.deploy.model import plan_as_dict
    from gpuctl.domain.report import Report

    details = {name: value for name, value in plan_as_dict(deployment).items() if name != "findings"}
    return Report(command, {deployment.env.name: deployment.findings}, details, code=code)


def deployed_document(command: str, deployed: Mapping[str, Any]) -> Report:
    """Build the report of a deployment that succeeded, from the module's result."""
    from gpuctl.cluster.deploy import via_ansible
    from gpuctl.domain.report import Report

    details = {name: value for name, value in deployed.items() if name != "findings"}
    return Report(command, {deployed["environment"]: via_ansible.findings(deployed)}, details, code=0)


def plan(deployment: Plan, err: bool = False) -> None:
    """Print a plan for people; `err`: on standard error, because standard output is for a program."""
    env = deployment.env
    pods = output.plural(env.nodes, "pod")
    click.echo(f"{env.name}: {pods} on {env.cluster.cluster.name}, by {env.mode.upper()}", err=err)
    if deployment.fell_back:
        click.echo(f"TCP, not RDMA: {deployment.fell_back}", err=err)
    findings.show([finding for finding in deployment.findings if finding.verdict != "OK"], err=err)
    if not deployment.failed:
        _changes(deployment.changes, err)


def _changes(changes: Sequence[Change], err: bool) -> None:
    for change in changes:
        if change.action == "same":
            continue
        word = change.action.upper() if change.action in ("take-over", "recreate", "refused") else change.action
        click.echo(f"{word} {change.subject}" + (f": {change.note}" if change.note else ""), err=err)
        for field in change.fields[:MOST_FIELDS]:
            for line in _differs(field.path, field.before, field.after):
                click.echo(f"  {line}", err=err)
        if len(change.fields) > MOST_FIELDS:
            click.echo(f"  and {len(change.fields) - MOST_FIELDS} more; --output json has all of them", err=err)
    if all(change.action == "same" for change in changes):
        click.echo("nothing changes", err=err)


def _differs(path: str, before: Any, after: Any) -> list[str]:
    """Format a value before and after; of multi-line text, only the lines that differ."""
    if isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        from difflib import ndiff

        lines = ndiff(before.splitlines(), after.splitlines())
        return [f"{path}:", *(f"  {line}" for line in lines if line.startswith(("- ", "+ ")))]
    return [f"{path}: {_value(before)} -> {_value(after)}"]


def _value(value: Any) -> str:
    """Format a value as JSON in one line."""
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}..."


def status(current: Status) -> None:
    mode = current.mode.upper() if current.mode else "not deployed"
    click.echo(
        f"{current.name} in {current.namespace}: {current.verdict}, {mode}, {output.plural(current.nodes, 'pod')}"
    )
    rows = [(p.name, p.node or "-", "yes" if p.ready else "no", p.restarts, _words(p)) for p in current.pods]
    output.table(("POD", "NODE", "READY", "RESTARTS", ""), rows)
    lists = {
        "volume": current.volumes,
        "open": current.addresses,
        "MISSING": current.missing,
        "NOT OURS": current.foreign,
    }
    for label, entries in {**lists, "BEING DELETED": current.terminating, "UNKNOWN": current.unread}.items():
        for line in entries:
            click.echo(f"{label} {line}")


def _words(pod: Pod) -> str:
    return f"{pod.summary}: {pod.trouble}" if pod.trouble else str(pod.summary)


def removing(existing: EnvironmentObjects, env: Environment, stay: Sequence[Object]) -> None:
    """Print what is removed of an environment, what stays, and what could not be listed."""
    from gpuctl.cluster.deploy.model import subject_of

    for word, objects in (("remove", existing.objects), ("remove, with its data,", existing.volumes)):
        for obj in objects:
            click.echo(f"{word} {subject_of(obj)}")
    for obj in stay:
        size = obj["spec"]["resources"]["requests"]["storage"]
        click.echo(f"stays: {subject_of(obj)}, {size}: --volumes removes it, with its data")
    any_found = existing.objects or existing.volumes or stay
    for why in existing.unread:
        click.echo(f"UNKNOWN whether {'more' if any_found else 'anything'} exists: {why}")
    if not (any_found or existing.unread):
        click.echo(f"{env.name} has no objects in {env.namespace}")
