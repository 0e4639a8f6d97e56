"""VS Code of an environment: whether it runs in the first pod, where it is reached, and its password."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Literal

from gpuctl.cluster import pod_selection
from gpuctl.cluster.deploy.model import is_ours
from gpuctl.cluster.environment import CONTAINER, Environment, Object
from gpuctl.cluster.manifests.secret import VSCODE
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Verdict
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Request
from gpuctl.edges.kube.errors import Forbidden, NotThere
from gpuctl.edges.kube.pod_exec import Command

NAME = "vscode"
SILENT_S, LOG_LINES = 20.0, 2000
THERE, NONE = "there", "none"
HEAD, LISTENS = "local_address", "0A"  # of /proc/net/tcp; 0A: TCP_LISTEN of linux/include/net/tcp_states.h
LOOK = f"""
if command -v code-server >/dev/null; then echo {THERE}; else echo {NONE}; fi
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null
:"""
ENDED = re.compile(r"gpuctl: code-server ended with (\d+)")  # as the pod's start script says it


@dataclass(frozen=True)
class Standing:
    """`verdict`: OK where it runs; `why` not, or why that is UNKNOWN. `address` "" where only a forward leads there.

    `closed`: why the Route or Ingress that there should be leads nowhere.
    """

    pod: str
    verdict: Verdict
    why: str
    way: Literal["route", "ingress", "forward"]
    address: str = ""
    closed: str = ""


def look(cluster: Cluster, env: Environment) -> Standing:
    """How it stands now; `GpuctlError` where there is no first pod."""
    pod = pod_selection.pod_of_rank(cluster, env, f"look for VS Code of {env.name}")
    verdict, why = _runs(cluster, env, pod)
    if NAME not in env.cluster.ports.expose:
        return Standing(pod_selection.name_of(pod), verdict, why, "forward")
    kind: Literal["route", "ingress"] = "route" if env.openshift else "ingress"
    try:
        host, closed = _way_in(cluster, env)
    except (Forbidden, NotThere) as error:
        host, closed = "", error.wrong
    return Standing(
        pod_selection.name_of(pod), verdict, why, kind, f"https://{host}" if host and not closed else "", closed
    )


# ---- does it run ----------------------------------------------------------------------------------------------------


def _runs(cluster: Cluster, env: Environment, pod: Object) -> tuple[Verdict, str]:
    name, port = pod_selection.name_of(pod), env.cluster.ports.vscode
    if why := pod_selection.why_not(pod):
        return Verdict.FAIL, f"{name} does not run: {why}"
    told: list[bytes] = []
    try:
        pod_exec.run(cluster, name, Command(["sh", "-c", LOOK], CONTAINER, SILENT_S), out=told.append)
        found = b"".join(told).decode(errors="replace")
    except GpuctlError as error:
        return Verdict.UNKNOWN, f"whether it runs cannot be looked at: {error.wrong}"
    verdict = judge(found, port)
    if verdict is Verdict.OK:
        return verdict, ""
    if verdict is Verdict.UNKNOWN:
        return verdict, f"{name} does not tell who listens there: its /proc/net/tcp cannot be read"
    if found.startswith(NONE):
        return verdict, f"the image {_image(pod)} has no code-server"
    return verdict, f"code-server does not listen on port {port} of {name}{_ended(cluster, name)}"


def judge(found: str, port: int) -> Verdict:
    """Whether it runs, by what the pod told of itself; what it did not tell is unknown."""
    if found.startswith(NONE):
        return Verdict.FAIL
    if not found.startswith(THERE) or HEAD not in found:
        return Verdict.UNKNOWN
    return Verdict.OK if listens(found, port) else Verdict.FAIL


def listens(sockets: str, port: int) -> bool:
    """Whether somebody listens on a port, by what /proc/net/tcp says."""
    rows = [line.split() for line in sockets.splitlines()]
    return any(len(row) > 3 and row[3] == LISTENS and row[1].endswith(f":{port:04X}") for row in rows)


def _image(pod: Object) -> str:
    return next((str(each["image"]) for each in pod["spec"]["containers"] if each["name"] == CONTAINER), "of the pod")


def _ended(cluster: Cluster, pod: str) -> str:
    """What the pod's log says of it, as far as it may be read."""
    path = f"{cluster.path_of(cluster.kind('v1', 'Pod'), pod)}/log"
    query = [("container", CONTAINER), ("tailLines", str(LOG_LINES))]
    try:
        log = list(cluster.lines(Request(f"read the log of {pod}", "GET", path, query), Stop(), SILENT_S))
    except GpuctlError:
        return ""
    codes = [found[1] for line in log if (found := ENDED.search(line))]
    if not codes:
        return ""
    times = f"{len(codes)} times, last with" if len(codes) > 1 else "with"
    return f": it ended {times} exit code {codes[-1]}; the pod's log says more"


# ---- how it is reached ----------------------------------------------------------------------------------------------


def _way_in(cluster: Cluster, env: Environment) -> tuple[str, str]:
    """The host, and why it leads nowhere."""
    if env.openshift:
        return route(cluster.get(cluster.kind("route.openshift.io/v1", "Route"), f"{env.name}-{NAME}"))
    return ingress(cluster.get(cluster.kind("networking.k8s.io/v1", "Ingress"), env.name), f"{env.name}-{NAME}")


def route(found: Object | None) -> tuple[str, str]:
    """The host of a Route, and why it leads nowhere: a router says when it has taken it."""
    if found is None:
        return "", "its Route is not there"
    told = [each for way in (found.get("status") or {}).get("ingress") or [] for each in way.get("conditions") or []]
    admitted = [each for each in told if each.get("type") == "Admitted"]
    host = str((found.get("spec") or {}).get("host") or "")
    if any(each.get("status") == "True" for each in admitted):
        return host, "" if host else "its Route has no host"
    why = str(admitted[0].get("message") or admitted[0].get("reason") or "") if admitted else ""
    return host, "no router has admitted its Route" + (f": {why}" if why else "")


def ingress(found: Object | None, service: str) -> tuple[str, str]:
    """The same for the rule of an Ingress that leads to a Service: its controller gives it an address."""
    if found is None:
        return "", "its Ingress is not there"
    for rule in found["spec"].get("rules") or []:
        backends = [path["backend"] for path in (rule.get("http") or {}).get("paths") or []]
        if any((each.get("service") or {}).get("name") == service for each in backends):
            taken = ((found.get("status") or {}).get("loadBalancer") or {}).get("ingress")
            return str(rule.get("host") or ""), "" if taken else "no controller has taken its Ingress"
    return "", "its Ingress has no rule for it"


# ---- the password ---------------------------------------------------------------------------------------------------


def password(cluster: Cluster, env: Environment) -> str:
    """The password that was made for it; for standard output alone, when somebody asks for it."""
    doing = f"read the password of {env.name}"
    found = cluster.get(cluster.kind("v1", "Secret"), env.name)
    value = ((found or {}).get("data") or {}).get(VSCODE)
    if found is None or not is_ours(env, found) or not value:
        wrong = f"the namespace {env.namespace} has no Secret {env.name} with it"
        raise GpuctlError(doing, wrong, "`gpuctl cluster deploy` makes it")
    return base64.b64decode(value).decode()
