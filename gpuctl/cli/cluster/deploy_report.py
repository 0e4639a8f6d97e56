"""How cluster diff, deploy, status and destroy show what they found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import output
from gpuctl.cli.shared.output import Output

if TYPE_CHECKING:
    from gpuctl.cluster.deploy.destroy import Found
    from gpuctl.cluster.deploy.model import Change, Plan
    from gpuctl.cluster.deploy.status import Pod, Status
    from gpuctl.cluster.environment import Environment, Object
    from gpuctl.domain.findings import Finding

MOST_FIELDS = 12


def plan(found: Plan, form: Output) -> None:
    if form != "table":
        from gpuctl.cluster.deploy.model import told

        output.data(told(found), form)
        return
    env = found.env
    click.echo(f"{env.name}: {output.plural(env.nodes, 'pod')} on {env.cluster.cluster.name}, by {env.mode.upper()}")
    if found.fell_back:
        click.echo(f"TCP, not RDMA: {found.fell_back}")
    findings([each for each in found.findings if each.verdict != "OK"])
    if not found.failed:
        _changes(found.changes)


def findings(found: Sequence[Finding], *, err: bool = False) -> None:
    for each in found:
        click.echo(f"{each.verdict} {each.check}: {each.subject}: {each.message}", err=err)
        if each.hint:
            click.echo(f"  hint: {each.hint}", err=err)


def _changes(changes: Sequence[Change]) -> None:
    for each in changes:
        if each.action == "same":
            continue
        word = each.action.upper() if each.action in ("recreate", "refused") else each.action
        click.echo(f"{word} {each.subject}" + (f": {each.note}" if each.note else ""))
        for field in each.fields[:MOST_FIELDS]:
            for line in _differs(field.path, field.before, field.after):
                click.echo(f"  {line}")
        if len(each.fields) > MOST_FIELDS:
            click.echo(f"  and {len(each.fields) - MOST_FIELDS} more; --output json has all of them")
    if all(each.action == "same" for each in changes):
        click.echo("nothing changes")


def _differs(path: str, before: Any, after: Any) -> list[str]:
    """A value before and after; of a text only the lines that differ."""
    if isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        from difflib import ndiff

        lines = ndiff(before.splitlines(), after.splitlines())
        return [f"{path}:", *(f"  {line}" for line in lines if line.startswith(("- ", "+ ")))]
    return [f"{path}: {_value(before)} -> {_value(after)}"]


def _value(value: Any) -> str:
    """In one line, as JSON."""
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}..."


def status(found: Status) -> None:
    mode = found.mode.upper() if found.mode else "not deployed"
    click.echo(f"{found.name} in {found.namespace}: {found.verdict}, {mode}, {output.plural(found.nodes, 'pod')}")
    rows = [(p.name, p.node or "-", "yes" if p.ready else "no", p.restarts, _words(p)) for p in found.pods]
    output.table(("POD", "NODE", "READY", "RESTARTS", ""), rows)
    lists = {"volume": found.volumes, "open": found.ways_in, "MISSING": found.missing, "NOT OURS": found.not_ours}
    for word, each in {**lists, "BEING DELETED": found.going, "UNKNOWN": found.unread}.items():
        for line in each:
            click.echo(f"{word} {line}")


def _words(pod: Pod) -> str:
    return f"{pod.words}: {pod.trouble}" if pod.trouble else str(pod.words)


def removing(found: Found, env: Environment, stay: Sequence[Object]) -> None:
    """What is removed of an environment, what stays, and what nobody knows of."""
    from gpuctl.edges.kube.cluster import name_of

    for word, objects in (("remove", found.objects), ("remove, with its data,", found.volumes)):
        for each in objects:
            click.echo(f"{word} {name_of(each)}")
    for each in stay:
        size = each["spec"]["resources"]["requests"]["storage"]
        click.echo(f"stays: {name_of(each)}, {size}: --volumes removes it, with its data")
    for why in found.unread:
        click.echo(f"UNKNOWN whether more is there: {why}")
    if not (found.objects or found.volumes or stay):
        click.echo(f"nothing of {env.name} is in {env.namespace}")
