"""Status of EKS clusters, and the end of those whose time to live is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, Verdict, fail, ok, unknown_because, warn
from gpuctl.edges.aws import Aws, Request, converted
from gpuctl.eks import destroy, read, removal, status
from gpuctl.eks.cost import Cost
from gpuctl.eks.objects import CLUSTER, REGION, Kind, Object, State, expires, from_answer
from gpuctl.eks.removal import Choice
from gpuctl.eks.spending import owner
from gpuctl.eks.wait import Waiter
from gpuctl.workflows import eks_destroy, eks_prices

Connect = Callable[[str], Aws]  # region -> login


@dataclass(frozen=True)
class EksStatus:
    """Findings on a cluster, its objects, and the cost of its parts: an hour, and until now."""

    state: State
    findings: Sequence[Finding]
    costs: Sequence[tuple[Cost, float | None]]

    @property
    def is_reachable(self) -> bool:
        """True if the control plane runs, so that Kubernetes can be asked."""
        return any(one.state in ("ACTIVE", "UPDATING") for one in self.state.of(Kind.CLUSTER))


def read_status(aws: Aws, cluster: str) -> EksStatus:
    """The status of a cluster; InvalidInput if AWS has nothing of it."""
    state = eks_destroy.known(aws, cluster)
    nearby = eks_destroy.around(aws, state, [Kind.INSTANCE]).objects
    instances = [one for one in nearby if one.ours or removal.is_tagged(one, cluster)]  # not others in our VPC
    request = Request("list the versions of EKS", "eks", "DescribeClusterVersions", "clusterVersions")
    answers = aws.read_all({"versions": request}, lambda answer: answer)["versions"]
    versions = converted(answers, lambda rows: [read.version(one) for one in rows], "read the versions of EKS")
    now = datetime.now(UTC)
    prices = eks_prices.read(state.region)
    findings = [*status.judge(state, instances, versions, now), *eks_prices.judge(prices)]
    return EksStatus(state, findings, status.costs(state, instances, versions, prices, now))


# ---- reap ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Living:
    """A cluster that gpuctl made. `end`: of its time to live; None for none. `owner`: by its tag; "" for none."""

    cluster: str
    region: str
    end: datetime | None
    owner: str = ""

    @property
    def subject(self) -> str:
        return f"{self.cluster} in {self.region}"


def living(aws: Aws, region: str) -> list[Living]:
    """Clusters of the account that gpuctl made, by their first role; of one region, or of all."""
    roles = [_first_role(one) for one in destroy.clusters(aws)]
    found = [
        Living(one.tags[CLUSTER], one.tags[REGION], expires(one), owner(one.tags)) for one in roles if one is not None
    ]
    return sorted((one for one in found if region in ("", one.region)), key=lambda one: (one.region, one.cluster))


def _first_role(answer: object) -> Object | None:
    one = from_answer(Kind.ROLE, answer, "", "")  # type: ignore[arg-type]
    return one if one.tags.get(CLUSTER) and one.tags.get(REGION) else None


def preview(clusters: Sequence[Living], now: datetime) -> tuple[list[Living], list[Finding]]:
    """Clusters whose time is over, and a finding on each cluster."""
    late = [one for one in clusters if one.end is not None and one.end <= now]
    findings = []
    for one in clusters:
        if one.end is None:
            findings.append(warn("ttl", one.subject, "no time to live is set", "set `ttl`, or destroy it yourself"))
        elif one in late:
            findings.append(warn("ttl", one.subject, f"its time ended at {one.end:%Y-%m-%d %H:%M} UTC: it goes"))
        else:
            findings.append(ok("ttl", one.subject, f"lives until {one.end:%Y-%m-%d %H:%M} UTC"))
    return late, findings


def reap(connect: Connect, late: Sequence[Living], choice: Choice, waiter: Waiter) -> list[Finding]:
    """Remove clusters whose time is over, one after the other; a failure of one does not keep the others."""
    findings = []
    for one in late:
        try:
            findings += _reap(connect(one.region), one, choice, waiter)
        except GpuctlError as error:
            findings.append(unknown_because("reap", one.subject, error))
    return findings


def _reap(aws: Aws, one: Living, choice: Choice, waiter: Waiter) -> list[Finding]:
    state = eks_destroy.known(aws, one.cluster)
    around = eks_destroy.around(aws, state)
    rows, found = eks_destroy.preview(state, around, choice)
    if any(finding.verdict is Verdict.FAIL for finding in found):
        return found
    if foreign := [str(row.item) for row in rows if row.is_foreign]:
        message = f"gpuctl did not make {', '.join(foreign)}: it is not removed"
        hint = f"`gpuctl eks destroy {one.cluster} --region {one.region} --foreign {one.cluster} --yes`"
        return [fail("reap", one.subject, message, hint)]
    waiter.progress(f"removing {one.subject}")
    for row in (row for row in rows if row.goes):
        waiter.progress(str(row))
    return eks_destroy.run(aws, state, around, choice, waiter)
