"""Findings on a cluster that exists, and its cost until now: at least that of what runs now, since its start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Number, Verdict, fail, ok, unknown, unknown_because, warn
from gpuctl.eks import health, prediction
from gpuctl.eks.cost import CONTROL_PLANE_USD, EXTENDED_USD, Cost, Prices
from gpuctl.eks.facts import Version
from gpuctl.eks.objects import Kind, Object, State, expires
from gpuctl.eks.removal import GROUP_TAG

BUSY = ("CREATING", "UPDATING", "PENDING", "DELETING")
RUNNING = ("pending", "running")
Versions = Sequence[Version] | GpuctlError


def judge(state: State, instances: Sequence[Object], versions: Versions, now: datetime) -> list[Finding]:
    """Findings on the control plane, its version, node groups, addons and time to live."""
    clusters = state.of(Kind.CLUSTER)
    if not clusters:
        message = f"there is no control plane, and {len(state.objects)} other objects of it exist"
        hint = "`gpuctl eks resume` goes on, `gpuctl eks destroy` removes them"
        return [fail("cluster", state.cluster, message, hint), *lifetime(state, now)]
    plane = clusters[0]
    findings = [_judged("cluster", plane, plane.name), *version(plane, versions, now)]
    for group in state.of(Kind.GROUP):
        findings += node_group(group, plane, instances)
    findings += [_judged("addon", one, f"addon {one.name}") for one in state.of(Kind.ADDON)]
    return [*findings, *lifetime(state, now)]


def _judged(check: str, item: Object, subject: str) -> Finding:
    """State and health issues of one object."""
    issues = health.issues(item.data)
    text = "; ".join([item.state, *map(str, issues)])
    hint = next((action for action in map(health.hint, issues) if action), "")
    if item.state == "ACTIVE":
        return warn(check, subject, text, hint) if issues else ok(check, subject, item.state)
    if item.state in BUSY or (item.state == "DEGRADED" and item.kind is Kind.ADDON):
        return warn(check, subject, text, hint)
    return fail(check, subject, text, hint or "remove the cause, then `gpuctl eks resume` or `gpuctl eks destroy`")


def version(plane: Object, versions: Versions, now: datetime) -> list[Finding]:
    """The version of the control plane, by the ends of its support."""
    name = str(plane.data.get("version") or "")
    if isinstance(versions, GpuctlError):
        return [unknown_because("version", name, versions)]
    known = {one.name: one for one in versions}
    if name not in known:
        return [unknown("version", name, "EKS does not list this version")]
    return [prediction.support(known[name], now.date(), prediction.newest_of(known))]


def node_group(group: Object, plane: Object, instances: Sequence[Object]) -> Iterator[Finding]:
    """State, issues, running instances and version of a node group."""
    yield _judged("node-group", group, group.name)
    desired = int(group.data.get("scalingConfig", {}).get("desiredSize") or 0)
    running = [one for one in instances if one.tags.get(GROUP_TAG) == group.name and _runs(one)]
    numbers: dict[str, Number] = {"running_nodes": len(running), "desired_nodes": desired}
    if len(running) < desired:
        message = f"{len(running)} of {desired} desired instances run"
        yield warn("nodes", group.name, message, "wait, or look at the issues of the group", **numbers)
    else:
        yield Finding("nodes", group.name, Verdict.OK, f"{len(running)} instances run, {desired} are desired", numbers)
    own, cluster = group.data.get("version"), plane.data.get("version")
    if own != cluster:
        message = f"nodes have version {own}, the control plane {cluster}"
        yield warn("version", group.name, message, "`aws eks update-nodegroup-version`, when no job runs")


def _runs(instance: Object) -> bool:
    return instance.data.get("State", {}).get("Name") in RUNNING


def lifetime(state: State, now: datetime) -> list[Finding]:
    """The time to live, by the tag of the first role."""
    first = state.first_role
    if first is None or not first.ours:
        return [unknown("ttl", state.cluster, "gpuctl did not make it, so that it has no time to live")]
    end = expires(first)
    if end is None:
        return [warn("ttl", state.cluster, "no time to live is set: it costs until it is destroyed", "set `ttl`")]
    hours = (end - now).total_seconds() / 3600
    if hours <= 0:
        message = f"its time to live ended at {end:%Y-%m-%d %H:%M} UTC"
        return [
            fail("ttl", state.cluster, message, "`gpuctl eks destroy`, or `gpuctl eks reap`", hours=round(hours, 1))
        ]
    message = f"lives until {end:%Y-%m-%d %H:%M} UTC, {hours:.1f} hours more"
    return [Finding("ttl", state.cluster, Verdict.OK, message, {"hours": round(hours, 1)})]


# ---- cost ------------------------------------------------------------------------------------------------------------


def costs(
    state: State, instances: Sequence[Object], versions: Versions, prices: Prices, now: datetime
) -> list[tuple[Cost, float | None]]:
    """Cost of each part an hour, and until now in USD; None where a price is not known."""
    rows: list[tuple[Cost, float | None]] = []
    for plane in state.of(Kind.CLUSTER):
        end, start = _standard_end(plane, versions), plane.data.get("createdAt")
        if end is None:
            why = "whether its version has standard support is not known"
            rows.append((Cost("control plane", None, why), None))
            continue
        plane_usd = EXTENDED_USD if end <= now.date() else CONTROL_PLANE_USD
        rows.append((Cost("control plane", plane_usd, "Amazon EKS pricing"), _plane_until(start, end, now)))
    kinds: dict[tuple[str, bool], list[Object]] = {}
    for one in filter(_runs, instances):
        kinds.setdefault((str(one.data.get("InstanceType")), _is_plain(one.data)), []).append(one)
    for (name, is_plain), several in sorted(kinds.items()):
        price = prices.of(state.region, name) if is_plain else None
        why = price.origin(now.date()) if price is not None else _no_price(is_plain, name, state.region)
        usd = None if price is None else price.usd
        spent = [until_now(usd, one.data.get("LaunchTime"), now) for one in several]
        known = [one for one in spent if one is not None]
        hourly = None if usd is None else usd * len(several)
        rows.append((Cost(f"{len(several)} {name}", hourly, why), sum(known) if len(known) == len(spent) else None))
    return rows


def _is_plain(instance: Mapping[str, Any]) -> bool:
    """True for an on-demand instance on shared hardware, with Linux that needs no licence: the prices are of these."""
    if any(instance.get(key) for key in ("InstanceLifecycle", "CapacityReservationId", "Platform")):
        return False
    tenancy = (instance.get("Placement") or {}).get("Tenancy") or "default"
    return tenancy == "default" and instance.get("PlatformDetails") in (None, "", "Linux/UNIX")


def _no_price(is_plain: bool, name: str, region: str) -> str:
    return (
        f"no price of it in {region} is known"
        if is_plain
        else "on spot, a reservation, a block, dedicated hardware or with a licence"
    )


def _standard_end(plane: Object, versions: Versions) -> date | None:
    known = {} if isinstance(versions, GpuctlError) else {one.name: one for one in versions}
    one = known.get(str(plane.data.get("version")))
    return None if one is None else one.standard_end


def _plane_until(start: Any, standard_end: date, now: datetime) -> float | None:
    """USD of a control plane until now: extended support costs more only after the last day of standard support."""
    if not isinstance(start, datetime):
        return None
    split = datetime.combine(standard_end + timedelta(days=1), time(), UTC)
    extended_h = (now - max(start, split)).total_seconds() / 3600
    standard_h = (min(now, split) - start).total_seconds() / 3600
    return max(0.0, standard_h) * CONTROL_PLANE_USD + max(0.0, extended_h) * EXTENDED_USD


def until_now(hourly: float | None, start: Any, now: datetime) -> float | None:
    if hourly is None or not isinstance(start, datetime):
        return None
    return max(0.0, (now - start).total_seconds() / 3600) * hourly


def summary(state: State) -> str:
    """Objects of the cluster by kind, in one line."""
    counts: dict[str, int] = {}
    for one in state.objects:
        counts[str(one.kind)] = counts.get(str(one.kind), 0) + 1
    return named([f"{count} {kind}" for kind, count in counts.items()], 20)


def plain(item: Object) -> Mapping[str, Any]:
    """An object for JSON."""
    return {"kind": str(item.kind), "name": item.name, "part": item.part, "state": item.state, "ours": item.ours}
