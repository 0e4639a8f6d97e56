"""The logs of an environment's pods: what their containers print."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from gpuctl.cluster import pod_selection
from gpuctl.cluster.environment import CONTAINER, Object
from gpuctl.cluster.selection import LogsRequest
from gpuctl.cluster.shell.exec_all import CommandResult, Print, in_all
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Request

SILENT_S = 30.0
FOLLOWED_S = 86400.0  # a followed log may be silent for so long


def query(request: LogsRequest) -> list[tuple[str, str]]:
    """Return the query of the API's log endpoint."""
    return [
        ("container", CONTAINER),
        ("tailLines", str(request.tail)),
        *([("follow", "true")] if request.follow else []),
        *([("previous", "true")] if request.previous else []),
        *([("sinceSeconds", str(ceil(request.since)))] if request.since else []),
    ]


def read(
    cluster: Cluster, pods: list[Object], request: LogsRequest, show: Print, broken_off: Callable[[], bool]
) -> list[CommandResult]:
    """Print the lines of every pod as they come; a result with `code` None if a log could not be read to its end."""

    def one(pod: Object, stop: Stop, print_line: Print) -> CommandResult:
        name = pod_selection.name_of(pod)
        path = f"{cluster.path_of(cluster.kind('v1', 'Pod'), name)}/log"
        log = Request(f"read the log of {name}", "GET", path, query(request))
        try:
            for line in cluster.lines(log, stop, FOLLOWED_S if request.follow else SILENT_S):
                print_line(name, line)
        except GpuctlError as error:
            return CommandResult(name, 0 if stop.is_set() else None, error.wrong)
        return CommandResult(name, 0)

    return in_all(pods, one, show, broken_off)
