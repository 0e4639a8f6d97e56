"""Have a plan's transaction resolved on its host, and judge it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, problems, unknown
from gpuctl.gpu_node import transaction
from gpuctl.gpu_node.model import HostGpuFacts, StackPlan
from gpuctl.gpu_node.offers import ONE_VERSION, REPOSITORY
from gpuctl.gpu_node.package_check import judge_transaction
from gpuctl.gpu_node.rows import Knowledge
from gpuctl.gpu_node.transaction import Transaction
from gpuctl.gpu_node.version import driver_version, upstream

CHECK = "transaction"
# Dependencies that must not come in another version, beside the packages that are named with theirs.
PINNED = "*nvidia* cuda-drivers* libcuda1 libnvsdm*"
PARSERS: Mapping[str, Callable[[str], Transaction]] = {"apt": transaction.apt, "dnf": transaction.dnf}


def question(made: StackPlan) -> dict[str, Any] | None:
    """The request for `gpuhost/facts/transaction.py`; None if nothing would change, or no versions were chosen.

    Other refusals do not matter: the report of a busy host has a mixed set, too.
    """
    undecided = any(finding.check in {ONE_VERSION, REPOSITORY} for finding in problems(made.findings))
    removes = [f"{name}-" for part in made.components for name in part.removes]
    if undecided or not (made.packages or removes):
        return None
    # dnf's install cannot remove; its packages obsolete what they replace.
    by_apt = not made.packages or any("=" in spec for spec in made.packages)
    return {
        "packages": [*made.packages, *(removes if by_apt else ())],
        "pins": pins(made.driver),
        "hotfixes": bool(made.module_stream),
        **_added(made),
    }


def _added(made: StackPlan) -> dict[str, Any]:
    fields = ("name", "file", "text", "key_file", "key")
    rows = [{name: getattr(row, name) for name in fields} for row in made.additions]
    return {"additions": rows} if rows else {}


def pins(driver: str) -> str:
    """Preferences of apt that keep all parts at a driver's full version; "" without one."""
    version = driver_version(driver)
    return f"Package: {PINNED}\nPin: version {version}*\nPin-Priority: 1000\n" if version else ""


def unresolved(made: StackPlan, why: str) -> StackPlan:
    """The plan of a host that did not resolve its transaction."""
    hint = "plan again without --from" if not why else "look at the reason, and plan again"
    message = f"the packages could not be resolved on the host{f': {why}' if why else ''}"
    return _with(made, unknown(CHECK, made.host, message, hint))


def resolved(made: StackPlan, answer: Mapping[str, Any], facts: HostGpuFacts, known: Knowledge) -> StackPlan:
    """The plan with the transaction that its host resolved, judged. `answer`: see `gpuhost/facts/transaction.py`."""
    output, parse = answer.get("output"), PARSERS.get(str(answer.get("manager")))
    if not isinstance(output, str) or parse is None:
        unread = answer.get("unread")
        reason = unread.get("output") if isinstance(unread, Mapping) else ""
        return unresolved(made, str(reason or "its answer has no output"))
    try:
        change = parse(output)
    except transaction.Unresolvable as error:
        return _with(
            made, fail(CHECK, made.host, str(error), "look at the host's repositories, pins and held packages")
        )
    except ValueError as error:
        return _with(
            made, unknown(CHECK, made.host, str(error), "resolve it on the host by hand, and report the output")
        )
    findings = _removals(made, change, facts, known)
    version = driver_version(made.driver)
    if version is not None and any(part.name == "driver" for part in made.components):
        findings += judge_transaction(made.host, change, facts.packages, version, known.one_version)
    return replace(_with(made, *findings), installs=dict(change.installs), removes=dict(change.removes))


def _removals(made: StackPlan, change: Transaction, facts: HostGpuFacts, known: Knowledge) -> list[Finding]:
    """Refuse to remove packages that are no part of the driver, which changes as a whole, and that no site lists.

    Other packages of NVIDIA that have the version of a driver which goes are built with it, such as libnvidia-gl-570.
    """
    expected = {name for component in made.components for name in component.removes} | {*made.removable}
    before = {**(facts.packages or {}), **change.removes}
    parts = [name for name in before if any(part.fits(name) for part in known.one_version)]
    going = {upstream(before[name]) for name in parts if name in {**change.removes, **change.installs}} - {None}
    others = [
        f"{name} {version}"
        for name, version in change.removes.items()
        if name not in {*expected, *parts} and not ("nvidia" in name and upstream(version) in going)
    ]
    hint = "keep them by another driver; or list them as removable in its gpu_stack, if they may go"
    return [fail(CHECK, made.host, f"would also remove {named(others)}", hint)] if others else []


def _with(made: StackPlan, *findings: Finding) -> StackPlan:
    return replace(made, findings=(*made.findings, *findings))
