"""Nodes of a Kubernetes cluster as nodes of the reservation service: each session is a pod on its node."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.domain import kube_nodes, public_keys
from gpuctl.domain.findings import Verdict
from gpuctl.domain.kube_errors import Conflict, Forbidden
from gpuctl.domain.pod_status import ending, last_termination, runs, statuses
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube import config, pod_exec, port_stream
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Request, name_of
from gpuctl.edges.kube.pod_exec import Command
from gpuctl.edges.ssh_keys import pair
from gpuctl.eks.gpu_pod import model, objects, scripts, ssh_files
from gpuctl.engine import printable
from gpuctl.nodes.api_view import gpus_of
from gpuctl.reservations.agent import (
    Delivery,
    InUse,
    NodeSession,
    NotObeyed,
    NotReady,
    PodAgent,
    PodLogin,
    PodValues,
    Unable,
)
from gpuctl.reservations.rules.idle import Use
from gpuctl.reservations.rules.model import Node, Site
from gpuctl.reservations.rules.reconcile import Observation, Session
from gpuctl.reservations.rules.reports import Order, OrderKind
from gpuctl.reservations.rules.requests import ALIASES
from gpuctl.reservations.serve import Fleet, Stored, type_of
from gpuctl.workflows import eks_pod, eks_pod_jupyter, reservations_pod_objects
from gpuctl.workflows.eks_access import Place
from gpuctl.workflows.reservations_pod_objects import ATTEMPT, GPUS, NODE, PERSON, RESERVATION, SERVICE, Pod, Sizes

Object = dict[str, Any]
DOING = "serve reservations of a cluster"
ZONE, INSTANCE, PRODUCT = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "nvidia.com/gpu.product"
ANSWER_S, GREETING_S = 10.0, 3.0
PATIENCE_S = 10.0  # with an API that does not answer; people wait for half a minute
CLOSED_S = 60.0  # for a node on which the cluster did not start a pod
LOG_LINES, LOG_BYTES = 200, 1 << 18
MOST_AT_ONCE = 8  # pods of a node that are asked at the same time
START_S = 1800  # for a pod: images of tens of gigabytes are pulled
STUCK_S = 90  # that a container may not start: kubelets try again after 10, 20 and 40 s
AS_GPUCTL = (("fieldManager", "gpuctl"),)


@dataclass(frozen=True)
class PodsRequest:
    """`labels`: of the nodes to share; none for all that have GPUs. `image`: of sessions."""

    context: str
    namespace: str
    image: str
    labels: Mapping[str, str]
    sizes: Sizes
    files: Sequence[Path] = ()


def connect(request: PodsRequest) -> Cluster:
    """The cluster; `InvalidInput` for values that Kubernetes would not take, before anything is asked."""
    model.check_options(request.sizes.options(request.image))
    return kube.connect(request.context, request.namespace, request.files, PATIENCE_S)


def kubeconfig() -> Path:
    """The file that kubectl reads now; `InvalidInput` unless it is one."""
    files = config.files()
    if len(files) != 1:
        wrong = f"kubectl reads {len(files)} kubeconfigs"
        raise InvalidInput(DOING, wrong, "name the one for the service with --kubeconfig")
    return files[0].absolute()


def fleet(
    cluster: Cluster, request: PodsRequest, gpu_type: str | None, stored: Stored, notify: Callable[[str], None]
) -> Fleet:
    """Nodes of the cluster that have GPUs. One with reservations that the cluster lacks now stays, and is unknown.

    `notify`: receives what the operator has to know. `InvalidInput` if there is no node, or GPUs cannot be shared.
    """
    nodes = [node for node in cluster.find(cluster.kind("v1", "Node"), request.labels) if kube_nodes.has_gpus(node)]
    if not nodes:
        chosen = f" with {kube.selector(request.labels)}" if request.labels else ""
        raise InvalidInput(DOING, f"the cluster has no node{chosen} with GPUs", "`kubectl get nodes --show-labels`")
    place = _namespace_uid(cluster)
    rows = _rows(nodes, gpu_type, stored, notify)
    names = {row.name for row in rows}
    for name, known in stored.nodes.items():
        if name not in names and len(known.free) < len(known.allocated):
            notify(f"{name}: the cluster does not have this node, and it has reservations; nobody gets its GPUs")
            rows.append(known)
    site = ClusterSite(cluster, stored, request, _rooms(nodes))
    agents: dict[str, PodAgent] = {row.name: PodNode(row.name, len(row.allocated), site) for row in rows}
    # Without the right to see all pods of a node, nobody would know who has its GPUs.
    cluster.find_everywhere(cluster.kind("v1", "Pod"), f"spec.nodeName={rows[0].name}")
    return Fleet([replace(row, place=place) for row in rows], agents, site=Site(pods=True))


def _namespace_uid(cluster: Cluster) -> str:
    """The uid of the namespace of the pods: no other namespace has it, of no other cluster."""
    namespace = cluster.get(cluster.kind("v1", "Namespace"), cluster.namespace)
    if namespace is None:
        wrong = f"the cluster has no namespace {cluster.namespace}"
        raise InvalidInput(DOING, wrong, "make it, or name another one with --namespace")
    return str(namespace["metadata"]["uid"])


def _rows(nodes: Sequence[Object], gpu_type: str | None, stored: Stored, notify: Callable[[str], None]) -> list[Node]:
    """Nodes by their objects. One that was read before and offers no GPUs now keeps those it had.

    A new one is left out; `InvalidInput` if none is left.
    """
    rows, wrong = list[Node](), list[InvalidInput]()
    for node in nodes:
        known = stored.nodes.get(node["metadata"]["name"])
        try:
            row = node_of(node, gpu_type)
        except InvalidInput as error:
            if known is None:
                notify(f"{error.wrong}; it is left out: restart the service once that is repaired")
                wrong.append(error)
                continue
            row = known
        rows.append(row)
        if why := _withdrawn(node, len(row.allocated)):
            notify(f"{row.name}: {why}; its GPUs are given to nobody until that is repaired")
    if not rows:
        raise wrong[0]
    return rows


def node_of(node: Object, gpu_type: str | None) -> Node:
    """A node by its object; `InvalidInput` if it offers parts of GPUs, or its GPU type is not clear."""
    meta, capacity = node["metadata"], (node.get("status") or {}).get("capacity") or {}
    name, labels = str(meta["name"]), meta.get("labels") or {}
    whole = str(capacity.get(kube_nodes.GPU, "0"))
    if not whole.isdigit() or int(whole) != kube_nodes.gpus(capacity) or int(whole) == 0:
        wrong = f"{name}: it offers parts of GPUs, or none: MIG devices, time slices, or no device plugin"
        raise InvalidInput(DOING, wrong, "reservations share whole GPUs: choose other nodes with --node-label")
    return Node(
        name,
        gpu_type.casefold() if gpu_type else _type(name, labels),
        (None,) * int(whole),
        zone=str(labels.get(ZONE, "")),
    )


def _type(name: str, labels: Mapping[str, str]) -> str:
    if PRODUCT in labels:
        return type_of({labels[PRODUCT].replace("-", " ")})
    instance = str(labels.get(INSTANCE, ""))
    if (known := ALIASES.get(instance.partition(".")[0])) is not None:
        return known
    wrong = f"{name}: neither the label {PRODUCT} nor {INSTANCE} names its GPU type"
    raise InvalidInput(DOING, wrong, "name it with --type, such as --type h100")


def _withdrawn(node: Object, gpus: int) -> str:
    """The reason why not all GPUs of a node can be given to pods; "" if they can."""
    offered = kube_nodes.gpus((node.get("status") or {}).get("allocatable"))
    if offered != gpus:
        return f"it offers {offered} of {gpus} GPUs to pods: the device plugin has withdrawn the others as unhealthy"
    return "it is cordoned" if (node.get("spec") or {}).get("unschedulable") else ""


def _rooms(nodes: Sequence[Object]) -> dict[str, Mapping[str, str]]:
    """Allocatable resources by the names of the nodes."""
    return {str(node["metadata"]["name"]): (node.get("status") or {}).get("allocatable") or {} for node in nodes}


@dataclass(frozen=True)
class ClusterSite:
    """Values that all nodes share. `rooms`: allocatable resources by node."""

    cluster: Cluster
    stored: Stored
    request: PodsRequest
    rooms: Mapping[str, Mapping[str, str]]
    clock: Callable[[], float] = time.monotonic


class PodNode:
    """A node of a cluster. Its sessions are the pods with the labels of this service that are meant for it.

    The highest fence is kept in memory: no other process serves the database, and one that was restarted begins with
    a higher fence. Pods of others that have GPUs close the node: which GPUs are theirs is known to the kubelet alone.
    So does a cluster that refuses a pod or does not start it, for `CLOSED_S`: no fault of who waits.
    """

    def __init__(self, name: str, gpus: int, site: ClusterSite) -> None:
        self.name, self._gpus, self._site = name, gpus, site
        self._fence = 0
        self._closed: tuple[str, float] | None = None  # why the node takes no session, and until when
        self._since: dict[tuple[str, str], float] = {}  # state and uid of a pod -> when it was first read in it

    # ---- orders -----------------------------------------------------------------------------------------------------

    def obey(
        self, order: Order, person: str, variables: Mapping[str, str] | None = None, pod: PodValues | None = None
    ) -> None:
        self._check(order.fence)
        with _as_a_node():
            if order.kind is OrderKind.PREPARE:
                self._prepare(order, person, variables or {}, pod)
            elif order.kind is OrderKind.CLEAR:
                self._end([one for one in self._ours() if _session(one) == (order.reservation, order.attempt)])
            else:
                keep = set(order.keep)
                self._end([one for one in self._ours() if _session(one) not in keep])

    def _prepare(self, order: Order, person: str, variables: Mapping[str, str], values: PodValues | None) -> None:
        """Return once the session is ready; `NotReady` before that."""
        if values is None or not values.keys:
            raise NotObeyed("the request has no public key: reserve again")
        mine = [one for one in self._ours() if _session(one) == (order.reservation, order.attempt)]
        if mine:
            self._check_start(mine[0], values)
            return
        if others := self._others():
            raise InUse(f"{others[0]}; end it first")
        try:
            self._make(order, person, variables, values)
        except Unreachable:
            raise
        except GpuctlError as error:
            self._fail(str(error), values)
        raise NotReady("its pod was made")

    def _check_start(self, pod: Object, values: PodValues) -> None:
        """Return if a pod is ready and its sshd answers; `NotReady` while it may become so."""
        state = eks_pod.progress_of(self._site.cluster, pod)
        words = printable(state.summary + (f": {state.trouble}" if state.trouble else ""))
        if eks_pod.lacks_sshd(pod):
            self._fail("the image has no sshd: it needs openssh-server", values)
        if state.ready and self._greets(pod):
            words = self._without_jupyter(pod, values)
            if not words:
                return
        if _has_ended(pod):
            self._fail(f"the pod has ended: {_why_ended(pod)}", values)
        # The service would give up at START_S, and has no words for the reason.
        stuck_s = self._for_s("stuck", pod, holds=state.stuck)
        late = self._for_s("start", pod) > START_S - 60 or stuck_s > STUCK_S
        if state.hopeless or late:
            self._fail(f"the pod {words}", values)
        raise NotReady(f"the pod {words}")

    def _fail(self, reason: str, values: PodValues) -> NoReturn:
        """The request fails if it names an image of its person; else the site is at fault, and the request waits."""
        if values.image:
            raise NotObeyed(reason)
        self._closed = reason, self._site.clock() + CLOSED_S
        raise InUse(reason)

    def _make(self, order: Order, person: str, variables: Mapping[str, str], values: PodValues) -> None:
        cluster, request = self._site.cluster, self._site.request
        keys = public_keys.parse(values.keys, "reservation", f"make the session {order.reservation}")
        room = self._site.rooms.get(self.name, {})
        image = values.image or request.image
        form = request.sizes.form(image, len(order.gpus), self._gpus, room, jupyter=values.jupyter)
        made = Pod(self._site.stored.identity, self.name, order, person, dict(variables), values)
        if values.disk:
            self._make_disk(values.disk, person)
        private, public = pair()
        needed = reservations_pod_objects.prerequisites(made, form, keys, private)
        for part in needed:
            cluster.apply(part)
        body = reservations_pod_objects.pod(made, form, needed, public)
        path = cluster.path_of(cluster.kind("v1", "Pod"))
        with contextlib.suppress(Conflict):  # made by an earlier try whose answer was lost: the next order reads it
            cluster.once(Request(f"make {name_of(body)}", "POST", path, AS_GPUCTL, body))

    def _make_disk(self, disk: str, person: str) -> None:
        """The claim of a disk, which no session owns: it stays."""
        cluster = self._site.cluster
        service = self._site.stored.identity
        claim = reservations_pod_objects.claim(service, disk, person, self._site.request.sizes)
        kind = cluster.kind("v1", "PersistentVolumeClaim")
        present = cluster.get(kind, claim["metadata"]["name"])
        if present is None:
            with contextlib.suppress(Conflict):
                cluster.ask(Request(f"make {name_of(claim)}", "POST", cluster.path_of(kind), AS_GPUCTL, claim))
        elif not reservations_pod_objects.is_disk(present, service, disk):
            raise NotObeyed(f"{name_of(present)} was not made for the disk {disk} of these reservations")

    def _end(self, pods: Sequence[Object]) -> None:
        """Delete pods, and what belongs to them once they are gone."""
        cluster = self._site.cluster
        for pod in pods:
            if "deletionTimestamp" not in pod["metadata"]:
                cluster.delete(pod)
        if pods:
            raise NotReady(f"{name_of(pods[0])} ends")
        alive = {_session(pod) for pod in self._ours()}
        for kind in ("Secret", "ConfigMap", "Service"):
            for part in cluster.find(cluster.kind("v1", kind), self._labels()):
                if _note(part, NODE) == self.name and _session(part) not in alive:
                    cluster.delete(part)

    def _greets(self, pod: Object) -> bool:
        """True sshd behind the port forward: it speaks first."""
        try:
            name = pod["metadata"]["name"]
            greeting = port_stream.first_bytes(self._site.cluster, name, scripts.SSH_PORT, GREETING_S)
        except Forbidden:
            raise
        except GpuctlError:
            return False
        return greeting.startswith(b"SSH-2.0")

    def _without_jupyter(self, pod: Object, values: PodValues) -> str:
        """The reason why a pod is not ready although its sshd answers; "" if it is."""
        for finding in eks_pod_jupyter.wait(self._site.cluster, _place(pod), pod, 0):
            if finding.message == eks_pod_jupyter.NOT_IN_IMAGE:
                self._fail(finding.message, values)
            if finding.verdict is not Verdict.OK:
                return f"is ready, and {finding.message}"
        return ""

    def _for_s(self, state: str, pod: Object, *, holds: bool = True) -> float:
        """Seconds for which a pod is in a state by all readings; 0 if it is not."""
        now, key = self._site.clock(), (state, str(pod["metadata"]["uid"]))
        if not holds:
            self._since.pop(key, None)
            return 0.0
        return now - self._since.setdefault(key, now)

    # ---- readings ---------------------------------------------------------------------------------------------------

    def observe(self, fence: int) -> Observation:
        self._check(fence)
        with _as_a_node():
            cluster = self._site.cluster
            node = cluster.get(cluster.kind("v1", "Node"), self.name)
            if node is None:
                raise OSError("the cluster does not have this node")
            conditions = {str(one.get("type")): one for one in (node.get("status") or {}).get("conditions") or ()}
            ready = conditions.get(kube_nodes.READY, {})
            if ready.get("status") != "True":
                raise OSError(f"its kubelet is not ready: {kube_nodes.reason(ready)}")
            ours = self._ours()
            sessions = [_as_session(pod) for pod in ours if not _has_ended(pod)]
            ends = {_label(pod, RESERVATION): _why_ended(pod) for pod in ours if _has_ended(pod)}
            return Observation(self.name, fence, sessions, self._others(), self._why_closed(node), ends)

    def _why_closed(self, node: Object) -> str:
        if self._closed is not None and self._site.clock() >= self._closed[1]:
            self._closed = None
        return _withdrawn(node, self._gpus) or (self._closed[0] if self._closed else "")

    def use(self, sessions: Sequence[NodeSession]) -> Mapping[str, Use]:
        with _as_a_node():
            names = {_label(pod, RESERVATION): pod["metadata"]["name"] for pod in self._ours()}
        with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
            uses = pool.map(lambda one: self._use(names.get(one.reservation)), sessions)
            return dict(zip((one.reservation for one in sessions), uses, strict=True))

    def _use(self, name: str | None) -> Use:
        if name is None:
            return Use(None, None)
        try:
            output = self._run(name, ["sh", "-c", reservations_pod_objects.USE])
        except GpuctlError:
            return Use(None, None)
        return reservations_pod_objects.read_use(output)

    def warn(self, person: str, text: str) -> Delivery:
        with _as_a_node():
            pods = [pod for pod in self._ours() if _note(pod, PERSON) == person and runs(pod, objects.CONTAINER)]
        terminals, missed = list[int](), f"{person} has no pod there"
        for pod in pods:
            name = pod["metadata"]["name"]
            try:
                number = self._run(name, ["sh", "-c", reservations_pod_objects.WARN, "sh", text]).strip()
            except GpuctlError as error:
                missed = str(error)
                continue
            terminals.append(int(number) if reservations_pod_objects.NUMBER.fullmatch(number) else 0)
        if not terminals:
            raise NotObeyed(missed)
        return Delivery(sum(terminals))

    def _run(self, name: str, argv: Sequence[str]) -> str:
        done, output = pod_exec.read(self._site.cluster, name, Command(argv, objects.CONTAINER, ANSWER_S))
        if done.code != 0:
            raise GpuctlError(f"run {argv[0]} in the pod {name}", done.err.strip() or f"exit code {done.code}")
        return output.decode(errors="replace")

    # ---- logins -----------------------------------------------------------------------------------------------------

    def login(self, reservation: str, attempt: int) -> PodLogin:
        with _as_a_node():
            pod = self._pod(reservation, attempt)
            meta = pod["metadata"]
            key = str(meta["annotations"].get(model.HOST_KEY, ""))
            has_jupyter = eks_pod_jupyter.has_jupyter(pod)
            token = eks_pod_jupyter.token(self._site.cluster, _place(pod), pod) if has_jupyter else ""
            return PodLogin(scripts.SSH_PORT, key, ssh_files.alias(meta["uid"]), token)

    def logs(self, reservation: str, attempt: int) -> Sequence[str]:
        cluster = self._site.cluster
        with _as_a_node():
            pod = self._pod(reservation, attempt)
            found = cluster.find_by(cluster.kind("v1", "Event"), f"involvedObject.uid={pod['metadata']['uid']}")
            events = [f"{one.get('type')} {one.get('reason')}: {one.get('message')}" for one in found]
            path = f"{cluster.path_of(cluster.kind('v1', 'Pod'), pod['metadata']['name'])}/log"
            query = [("container", objects.CONTAINER), ("tailLines", str(LOG_LINES)), ("limitBytes", str(LOG_BYTES))]
            request = Request(f"read the log of {name_of(pod)}", "GET", path, query)
            try:
                lines = list(cluster.lines(request, Stop(), ANSWER_S))
            except Unreachable:
                raise
            except GpuctlError as error:  # such as a container that has not started yet
                lines = [f"no log: {error.wrong}"]
        return [printable(line) for line in (*events, *lines)]

    def tunnel(self, reservation: str, attempt: int) -> Callable[[int], None]:
        with _as_a_node():
            name = self._pod(reservation, attempt)["metadata"]["name"]
            stream = port_stream.connect(self._site.cluster, name, scripts.SSH_PORT)

        def pump(descriptor: int) -> None:
            with contextlib.closing(stream):
                stream.pump(descriptor, descriptor)

        return pump

    def _pod(self, reservation: str, attempt: int) -> Object:
        for pod in self._ours():
            if _session(pod) == (reservation, attempt):
                return pod
        raise NotObeyed(f"{self.name} has no pod of reservation {reservation}")

    # ---- the cluster ------------------------------------------------------------------------------------------------

    def _check(self, fence: int) -> None:
        if fence < self._fence:
            raise NotObeyed(f"order {fence} is older than {self._fence}")
        self._fence = fence

    def _labels(self) -> dict[str, str]:
        return {SERVICE: self._site.stored.identity}

    def _ours(self) -> list[Object]:
        """Pods of this service that are meant for this node, whether it has taken them or not."""
        cluster = self._site.cluster
        pods = cluster.find(cluster.kind("v1", "Pod"), self._labels())
        return [pod for pod in pods if reservations_pod_objects.node_of(pod) == self.name]

    def _others(self) -> list[str]:
        """Pods that have GPUs of this node, and are not sessions of this service."""
        cluster = self._site.cluster
        pods = cluster.find_everywhere(cluster.kind("v1", "Pod"), f"spec.nodeName={self.name}")
        texts = []
        for pod in pods:
            here = pod["metadata"]["namespace"] == cluster.namespace
            ours = here and _label(pod, SERVICE) == self._site.stored.identity
            gpus = gpus_of(pod)
            if gpus and not ours and not _has_ended(pod):
                where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                texts.append(f"the pod {where} has {gpus} GPUs without a session")
        return texts


@contextlib.contextmanager
def _as_a_node() -> Iterator[None]:
    """Errors of the API as those of a node: without an answer of the API, the node is not lost."""
    try:
        yield
    except Unreachable as error:
        raise Unable(str(error)) from error
    except GpuctlError as error:
        raise NotObeyed(str(error)) from error


def _place(pod: Object) -> Place:
    """The place of a pod for functions that need no more than its name."""
    return Place("", pod["metadata"]["name"], "", "", ())


def _label(item: Object, name: str) -> str:
    return str((item["metadata"].get("labels") or {}).get(name, ""))


def _note(item: Object, name: str) -> str:
    return str((item["metadata"].get("annotations") or {}).get(name, ""))


def _session(item: Object) -> tuple[str, int]:
    """Reservation and attempt of an object of a session; -1 if somebody has changed the label."""
    attempt = _label(item, ATTEMPT)
    return _label(item, RESERVATION), int(attempt) if attempt.isdigit() else -1


def _as_session(pod: Object) -> Session:
    return Session(*_session(pod), reservations_pod_objects.numbers(_note(pod, GPUS)))


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _why_ended(pod: Object) -> str:
    """Why a pod does not run any more, such as an eviction."""
    status = pod.get("status") or {}
    if status.get("reason"):
        return printable(f"{status['reason']}: {status.get('message') or 'no message'}")
    endings = [ending(one) for one in map(last_termination, statuses(pod)) if one is not None]
    return printable("; ".join(endings) or "its pod has ended")
