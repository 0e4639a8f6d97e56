"""Remove a cluster in the order that finishes; each step can be repeated. A search for what remains ends it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.edges.aws import Aws, Request
from gpuctl.eks import removal
from gpuctl.eks import state as states
from gpuctl.eks.objects import ROLE_PATH, Kind, State
from gpuctl.eks.removal import Belongings, Row
from gpuctl.eks.remover import Remover
from gpuctl.eks.wait import TimeUp, Wait

SEARCHED = Wait("AWS's lists to leave out what is gone", "10 s", 60)


def destroy(remover: Remover, around: Belongings) -> list[Finding]:
    """Remove everything that `removal.rows` names, and search for what remains."""
    state, choice = remover.state, remover.choice
    remover.unassigned, remover.named_by = around.unassigned, around.named_by
    remover.foreign = bool(removal.foreigners(state, around))
    rows = [row for row in removal.rows(state, around, choice) if row.goes]

    def of(*kinds: Kind) -> list[Row]:
        return [row for row in rows if row.item.kind in kinds]

    claimed = [*removal.claims(around), *removal.snapshots(around)]
    remover.mark([one for one in claimed if not one.ours and not removal.is_tagged(one, state.cluster)])
    remover.workers()
    remover.sweep()
    remover.control_plane()
    # Controllers may have made some since, as for a Service that Argo CD or Flux made again: now nothing does.
    around = remover.renewed(around)
    remover.named_by, remover.foreign = around.named_by, bool(removal.foreigners(state, around))
    rows = [row for row in removal.rows(state, around, choice) if row.goes]
    remover.balancers(of(Kind.LOAD_BALANCER))
    remover.target_groups(of(Kind.TARGET_GROUP))
    for row in of(Kind.VOLUME, Kind.TEMPLATE, Kind.PLACEMENT):
        remover.delete(row.item)
    remover.sweep()  # of nodes that ended last
    remover.security_groups(of(Kind.SECURITY_GROUP))
    remover.nat([row.item for row in of(Kind.NAT)])
    remover.network(of(Kind.ADDRESS, Kind.SUBNET, Kind.ROUTES, Kind.GATEWAY, Kind.VPC))
    remover.snapshots(of(Kind.SNAPSHOT))
    remover.log_groups(of(Kind.LOG_GROUP))
    for row in of(Kind.ROLE):
        if row.item.part != "cluster":
            remover.role(row.item)
    return [*remover.findings, *_last(remover)]


def _last(remover: Remover) -> list[Finding]:
    """Search again; the first role goes only when nothing else is left, as it is the mark that something may be."""
    known = {one.subject for one in remover.findings}
    left, findings = State(remover.state.cluster, remover.state.region), list[Finding]()
    unsure = list[str]()

    def poll() -> tuple[bool | None, str]:
        nonlocal left, findings, unsure
        left = states.read(remover.aws, remover.state.cluster)
        around = remover.look(remover.aws, left)
        if around.leaked:
            remover.sweep()
        around = replace(around, unassigned=around.unassigned | remover.unassigned)
        findings = removal.remaining(left, around, remover.choice)
        unsure = [
            removal.named_kind(kind)
            for kind, error in around.unread.items()
            if kind in removal.MAY_COST and not states.is_denied(error)
        ]
        listed = [one.subject for one in findings if one.verdict is Verdict.FAIL and one.subject not in known]
        return (None if listed or unsure else True), named([*listed, *unsure])

    with suppress(TimeUp):
        remover.waiter.until(replace(SEARCHED, limit_s=remover.search_s), poll)
    first = left.first_role
    if first is not None and first.ours and all(one.verdict is not Verdict.FAIL for one in findings):
        if unsure:
            remover.waiter.progress(f"{first} stays, as {named(unsure)} were not searched: run this again")
        else:
            remover.role(first)
    return findings


def clusters(aws: Aws) -> list[Mapping[str, Any]]:
    """First roles of all clusters of the account that gpuctl made, with their tags, of every region."""
    listing = Request("list the roles of clusters", "iam", "ListRoles", "Roles", {"PathPrefix": ROLE_PATH})
    roles = aws.read(listing, lambda answer: answer)
    requests = {
        one["RoleName"]: Request(
            f"read the tags of {one['RoleName']}", "iam", "ListRoleTags", "", {"RoleName": one["RoleName"]}
        )
        for one in roles
    }
    tags = states.described(aws, requests)
    return [{**one, "Tags": (tags[one["RoleName"]] or [{}])[0].get("Tags") or ()} for one in roles]
