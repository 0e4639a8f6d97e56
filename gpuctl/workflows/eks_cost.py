"""Cost of the clusters that gpuctl made, in all regions of an account."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.aws import Aws, Request, converted
from gpuctl.eks import read as values
from gpuctl.eks import spending
from gpuctl.eks import state as states
from gpuctl.eks.objects import Kind
from gpuctl.eks.spending import Part, Spending
from gpuctl.workflows import eks_destroy, eks_prices
from gpuctl.workflows.eks_status import Living

AROUND = (Kind.INSTANCE, Kind.LOAD_BALANCER, Kind.VOLUME, Kind.ENDPOINT, Kind.LOG_GROUP, Kind.SNAPSHOT, Kind.REPOSITORY)


def chosen(clusters: Sequence[Living], cluster: str, owner: str) -> list[Living]:
    """Clusters of a name or owner, "" for any; InvalidInput if there is none."""
    several = [one for one in clusters if cluster in ("", one.cluster) and owner in ("", one.owner)]
    if several or not (cluster or owner):
        return several
    wrong = f"gpuctl made no cluster {cluster}" if cluster else f"no cluster has the tag owner={owner}"
    names = ", ".join(sorted({one.owner if owner else one.cluster for one in clusters} - {""}))
    other = "set `owner` in the file's `tags`" if owner else "`gpuctl eks status NAME` reads one that others made"
    hint = f"choose one of {names}" if names else other
    raise InvalidInput("read the cost", wrong, hint)


def read(connect: Callable[[str], Aws], clusters: Sequence[Living], now: datetime) -> list[Spending]:
    """Parts of each cluster that cost money; one that cannot be read has its error, and the others stay."""
    return [Spending(one.cluster, one.region, one.owner, one.end, _parts(connect, one, now)) for one in clusters]


def _parts(connect: Callable[[str], Aws], one: Living, now: datetime) -> list[Part] | GpuctlError:
    try:
        aws = connect(one.region)
        state = states.read(aws, one.cluster)
        around = eks_destroy.around(aws, state, AROUND)
        request = Request("list the versions of EKS", "eks", "DescribeClusterVersions", "clusterVersions")
        answers = aws.read_all({"versions": request}, lambda answer: answer)["versions"]
        versions = converted(answers, lambda rows: [values.version(row) for row in rows], "read the versions of EKS")
        return spending.parts(state, around, versions, eks_prices.read(one.region), now)
    except GpuctlError as error:
        return error
