"""VS Code and Jupyter of an environment: whether one runs in the first pod, its address, and its password."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Literal

from gpuctl.cluster import pod_selection
from gpuctl.cluster.deploy.model import is_ours
from gpuctl.cluster.environment import CONTAINER, Environment, Object
from gpuctl.cluster.manifests.secret import JUPYTER, VSCODE
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Verdict
from gpuctl.domain.kube_errors import Forbidden, NotFound
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Request
from gpuctl.edges.kube.pod_exec import Command

SILENT_S, LOG_LINES = 20.0, 2000
PRESENT, NONE = "there", "none"
HEAD, LISTENS = "local_address", "0A"  # of /proc/net/tcp; 0A: TCP_LISTEN of linux/include/net/tcp_states.h


@dataclass(frozen=True)
class Editor:
    """An editor of the first pod. `name`: that of its port, Service and Route; `secret`: the key of its password."""

    name: str
    title: str
    program: str
    secret: str

    @property
    def probe(self) -> str:
        """Return the shell program that looks for its program and lists all listening ports."""
        return f"""
if command -v {self.program} >/dev/null; then echo {PRESENT}; else echo {NONE}; fi
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null
:"""

    def port(self, env: Environment) -> int:
        return int(getattr(env.cluster.ports, self.name))


VS_CODE = Editor("vscode", "VS Code", "code-server", VSCODE)
JUPYTER_LAB = Editor("jupyter", "Jupyter", "jupyter-lab", JUPYTER)


@dataclass(frozen=True)
class EditorStatus:
    """`verdict`: OK if it runs; `why`: why not, or why that is UNKNOWN. `address` "" if only a forward reaches it.

    `closed`: why the expected Route or Ingress leads nowhere.
    """

    pod: str
    verdict: Verdict
    why: str
    access: Literal["route", "ingress", "forward"]
    address: str = ""
    closed: str = ""


def inspect(cluster: Cluster, env: Environment, editor: Editor) -> EditorStatus:
    """Read its status; `GpuctlError` if the first pod does not exist."""
    pod = pod_selection.pod_of_rank(cluster, env, f"look for {editor.title} of {env.name}")
    verdict, why = _runs(cluster, env, editor, pod)
    if editor.name not in env.cluster.ports.expose:
        return EditorStatus(pod_selection.name_of(pod), verdict, why, "forward")
    kind: Literal["route", "ingress"] = "route" if env.openshift else "ingress"
    try:
        host, closed = _external_access(cluster, env, editor)
    except (Forbidden, NotFound) as error:
        host, closed = "", error.wrong
    return EditorStatus(
        pod_selection.name_of(pod), verdict, why, kind, f"https://{host}" if host and not closed else "", closed
    )


# ---- does it run ----------------------------------------------------------------------------------------------------


def _runs(cluster: Cluster, env: Environment, editor: Editor, pod: Object) -> tuple[Verdict, str]:
    name, port = pod_selection.name_of(pod), editor.port(env)
    if why := pod_selection.why_not(pod):
        return Verdict.FAIL, f"{name} does not run: {why}"
    try:
        _, output = pod_exec.read(cluster, name, Command(["sh", "-c", editor.probe], CONTAINER, SILENT_S))
        listing = output.decode(errors="replace")
    except GpuctlError as error:
        return Verdict.UNKNOWN, f"cannot determine whether it runs: {error.wrong}"
    verdict = judge(listing, port)
    if verdict is Verdict.OK:
        return verdict, ""
    if verdict is Verdict.UNKNOWN:
        return verdict, f"cannot read the listening ports of {name} (/proc/net/tcp)"
    if listing.startswith(NONE):
        return verdict, f"the image {_image(pod)} has no {editor.program}"
    return verdict, f"{editor.program} does not listen on port {port} of {name}{_exits(cluster, name, editor)}"


def judge(listing: str, port: int) -> Verdict:
    """Decide from the pod's output whether the editor runs; missing output is UNKNOWN."""
    if listing.startswith(NONE):
        return Verdict.FAIL
    if not listing.startswith(PRESENT) or HEAD not in listing:
        return Verdict.UNKNOWN
    return Verdict.OK if listens(listing, port) else Verdict.FAIL


def listens(sockets: str, port: int) -> bool:
    """Return whether a process listens on a port, according to /proc/net/tcp."""
    rows = [line.split() for line in sockets.splitlines()]
    return any(len(row) > 3 and row[3] == LISTENS and row[1].endswith(f":{port:04X}") for row in rows)


def _image(pod: Object) -> str:
    return next(
        (str(container["image"]) for container in pod["spec"]["containers"] if container["name"] == CONTAINER),
        "of the pod",
    )


def _exits(cluster: Cluster, pod: str, editor: Editor) -> str:
    """Return what the pod's log says about its exits, if it may be read."""
    path = f"{cluster.path_of(cluster.kind('v1', 'Pod'), pod)}/log"
    query = [("container", CONTAINER), ("tailLines", str(LOG_LINES))]
    try:
        log = list(cluster.lines(Request(f"read the log of {pod}", "GET", path, query), Stop(), SILENT_S))
    except GpuctlError:
        return ""
    ended = re.compile(rf"gpuctl: {re.escape(editor.program)} ended with (\d+)")  # as the pod's start script says it
    codes = [match[1] for line in log if (match := ended.search(line))]
    if not codes:
        return ""
    times = f"{len(codes)} times, last with" if len(codes) > 1 else "with"
    return f": it ended {times} exit code {codes[-1]}; the pod's log says more"


# ---- how it is reached ----------------------------------------------------------------------------------------------


def _external_access(cluster: Cluster, env: Environment, editor: Editor) -> tuple[str, str]:
    """Return the host, and why it leads nowhere."""
    service = f"{env.name}-{editor.name}"
    if env.openshift:
        return route(cluster.get(cluster.kind("route.openshift.io/v1", "Route"), service))
    return ingress(cluster.get(cluster.kind("networking.k8s.io/v1", "Ingress"), env.name), service)


def route(obj: Object | None) -> tuple[str, str]:
    """Return a Route's host, and why it leads nowhere: a router reports when it has admitted it."""
    if obj is None:
        return "", "its Route does not exist"
    conditions = [
        condition
        for router in (obj.get("status") or {}).get("ingress") or []
        for condition in router.get("conditions") or []
    ]
    admitted = [condition for condition in conditions if condition.get("type") == "Admitted"]
    host = str((obj.get("spec") or {}).get("host") or "")
    if any(condition.get("status") == "True" for condition in admitted):
        return host, "" if host else "its Route has no host"
    why = str(admitted[0].get("message") or admitted[0].get("reason") or "") if admitted else ""
    return host, "no router has admitted its Route" + (f": {why}" if why else "")


def ingress(obj: Object | None, service: str) -> tuple[str, str]:
    """Return the host of the Ingress rule for a Service, and why it leads nowhere: the controller sets its address."""
    if obj is None:
        return "", "its Ingress does not exist"
    for rule in obj["spec"].get("rules") or []:
        backends = [path["backend"] for path in (rule.get("http") or {}).get("paths") or []]
        if any((backend.get("service") or {}).get("name") == service for backend in backends):
            taken = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress")
            return str(rule.get("host") or ""), "" if taken else "no controller has taken its Ingress"
    return "", "its Ingress has no rule for it"


# ---- the password ---------------------------------------------------------------------------------------------------


def password(cluster: Cluster, env: Environment, editor: Editor) -> str:
    """Read its generated password, Jupyter's token; printed to standard output only, on request."""
    doing = f"read the password of {editor.title} of {env.name}"
    secret = cluster.get(cluster.kind("v1", "Secret"), env.name)
    value = ((secret or {}).get("data") or {}).get(editor.secret)
    if secret is None or not is_ours(env, secret) or not value:
        wrong = f"the namespace {env.namespace} has no Secret {env.name} with it"
        raise GpuctlError(doing, wrong, "`gpuctl cluster deploy` makes it")
    return base64.b64decode(value).decode()
