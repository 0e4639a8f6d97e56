"""A node of a Kubernetes cluster as a node of the reservation service: each session is a pod on it."""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain import kube_nodes, public_keys
from gpuctl.domain.findings import Verdict
from gpuctl.domain.kube_errors import Conflict, Forbidden
from gpuctl.domain.pod_status import ending, last_termination, runs, statuses
from gpuctl.edges.kube import pod_exec, port_stream
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Request, name_of
from gpuctl.edges.kube.pod_exec import Command
from gpuctl.edges.ssh_keys import pair
from gpuctl.eks.gpu_pod import model, objects, scripts, ssh_files
from gpuctl.engine import printable
from gpuctl.reservations.agent import (
    Delivery,
    InUse,
    NodeSession,
    NotObeyed,
    NotReady,
    NoWhole,
    PodLogin,
    PodValues,
)
from gpuctl.reservations.database import Stored
from gpuctl.reservations.rules.idle import Use
from gpuctl.reservations.rules.reconcile import Observation, Session
from gpuctl.reservations.rules.reports import Order, OrderKind
from gpuctl.workflows import eks_pod, eks_pod_jupyter, eks_pod_keys, reservations_pod_objects
from gpuctl.workflows.eks_access import Place
from gpuctl.workflows.eks_pod_read import touch
from gpuctl.workflows.reservations_disk_objects import PERSON, SERVICE
from gpuctl.workflows.reservations_disks import ClusterDisks, as_a_node
from gpuctl.workflows.reservations_pod_objects import ATTEMPT, GPUS, NODE, RESERVATION, Pod, Sizes

Object = dict[str, Any]
ANSWER_S, GREETING_S = 10.0, 3.0
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


def withdrawn(node: Object, gpus: int) -> str:
    """The reason why not all GPUs of a node can be given to pods; "" if they can."""
    offered = kube_nodes.gpus((node.get("status") or {}).get("allocatable"))
    if offered != gpus:
        return f"it offers {offered} of {gpus} GPUs to pods: the device plugin has withdrawn the others as unhealthy"
    return "it is cordoned" if (node.get("spec") or {}).get("unschedulable") else ""


@dataclass(frozen=True)
class ClusterSite:
    """Values that all nodes share. `rooms`: allocatable resources by node."""

    cluster: Cluster
    stored: Stored
    request: PodsRequest
    rooms: Mapping[str, Mapping[str, str]]
    clock: Callable[[], float] = time.monotonic

    @property
    def disks(self) -> ClusterDisks:
        sizes = self.request.sizes
        return ClusterDisks(self.cluster, self.stored.identity, sizes.disk, sizes.storage_class)


class PodNode:
    """A node of a cluster. Its sessions are the pods with the labels of this service that are meant for it.

    The highest fence is kept in memory: no other process serves the database, and one that was restarted begins with
    a higher fence. Pods of others that have GPUs close the node: which GPUs are theirs is known to the kubelet alone.
    So does a cluster that refuses a pod or does not start it, for `CLOSED_S`: no fault of who waits. A node that offers
    fewer EFA adapters than it had takes no session of all of its GPUs for that time.
    """

    def __init__(self, name: str, gpus: int, site: ClusterSite) -> None:
        self.name, self._gpus, self._site = name, gpus, site
        self._fence = 0
        self._closed: tuple[str, float] | None = None  # why the node takes no session, and until when
        self._no_whole: tuple[str, float] | None = None  # why it takes no whole one
        self._since: dict[tuple[str, str], float] = {}  # state and uid of a pod -> when it was first read in it

    # ---- orders -----------------------------------------------------------------------------------------------------

    def obey(
        self, order: Order, person: str, variables: Mapping[str, str] | None = None, pod: PodValues | None = None
    ) -> None:
        self._check(order.fence)
        with as_a_node():
            if order.kind is OrderKind.PREPARE:
                self._prepare(order, person, variables or {}, pod)
            elif order.kind is OrderKind.ACCESS:
                self._give_access(order, values=pod)
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
        if values.efa and (offered := self._adapters()) < values.efa:
            reason = (
                f"it offers {offered} of {values.efa} EFA adapters to pods: its device plugin has withdrawn the others"
            )
            self._no_whole = reason, self._site.clock() + CLOSED_S
            raise NoWhole(reason)
        try:
            self._make(order, person, variables, values)
        except Unreachable:
            raise
        except GpuctlError as error:
            self._fail(str(error), values)
        raise NotReady("its pod was made")

    def _adapters(self) -> int:
        """EFA adapters that the node offers now."""
        node = self._site.cluster.get(self._site.cluster.kind("v1", "Node"), self.name) or {}
        return kube_nodes.adapters((node.get("status") or {}).get("allocatable"))

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
        keys = public_keys.read(values.keys).keys
        room = self._site.rooms.get(self.name, {})
        image = values.image or request.image
        form = request.sizes.form(image, len(order.gpus), self._gpus, room, jupyter=values.jupyter)
        made = Pod(self._site.stored.identity, self.name, order, person, dict(variables), values, room)
        if values.disk:
            self._site.disks.make_claim(values.disk, person, existed=values.disk_made)
        private, public = pair()
        needed = reservations_pod_objects.prerequisites(made, form, keys, private)
        for part in needed:
            cluster.apply(part)
        body = reservations_pod_objects.pod(made, form, needed, public)
        path = cluster.path_of(cluster.kind("v1", "Pod"))
        with contextlib.suppress(Conflict):  # made by an earlier try whose answer was lost: the next order reads it
            cluster.once(Request(f"make {name_of(body)}", "POST", path, AS_GPUCTL, body))

    def _give_access(self, order: Order, values: PodValues | None) -> None:
        """Write the keys of everybody to the Secret of a session; `NotReady` until its pod has them."""
        cluster, pod = self._site.cluster, self._pod(order.reservation, order.attempt)
        meta = pod["metadata"]
        secret = cluster.get(cluster.kind("v1", "Secret"), model.keys_name(meta["name"]))
        if secret is None or values is None or _session(secret) != (order.reservation, order.attempt):
            raise NotObeyed("the Secret of its keys was deleted: only those who are logged in stay")
        encoded = base64.b64encode(values.keys.encode()).decode()
        if (secret.get("data") or {}).get(scripts.AUTHORIZED) != encoded:
            eks_pod_keys.write_keys(cluster, secret, public_keys.read(values.keys).keys, None)
            with contextlib.suppress(Forbidden):  # without the right to change pods it takes a minute longer
                touch(cluster, _place(pod), pod, model.KEYS, values.keys)
        if self._run(meta["name"], ["cat", f"{scripts.KEYS}/{scripts.AUTHORIZED}"]) != values.keys:
            raise NotReady("its pod does not have the new keys yet, which takes up to two minutes")

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
        with as_a_node():
            cluster = self._site.cluster
            node = cluster.get(cluster.kind("v1", "Node"), self.name)
            if node is None:
                raise OSError("the cluster does not have this node")
            conditions = {str(one.get("type")): one for one in (node.get("status") or {}).get("conditions") or ()}
            ready = conditions.get(kube_nodes.READY, {})
            if ready.get("status") != "True":
                raise OSError(f"its kubelet is not ready: {kube_nodes.reason(ready)}")
            ours = self._ours()
            # One that ends already is no session: an order to end it would be given in each pass.
            over = [pod for pod in ours if _has_ended(pod) or "deletionTimestamp" in pod["metadata"]]
            sessions = [_as_session(pod) for pod in ours if pod not in over]
            ends = {_label(pod, RESERVATION): _why_ended(pod) for pod in over}
            if self._no_whole is not None and self._site.clock() >= self._no_whole[1]:
                self._no_whole = None
            no_whole = self._no_whole[0] if self._no_whole else ""
            return Observation(self.name, fence, sessions, self._others(), self._why_closed(node), ends, no_whole)

    def _why_closed(self, node: Object) -> str:
        if self._closed is not None and self._site.clock() >= self._closed[1]:
            self._closed = None
        return withdrawn(node, self._gpus) or (self._closed[0] if self._closed else "")

    def use(self, sessions: Sequence[NodeSession]) -> Mapping[str, Use]:
        with as_a_node():
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
        with as_a_node():
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
        with as_a_node():
            pod = self._pod(reservation, attempt)
            meta = pod["metadata"]
            key = str(meta["annotations"].get(model.HOST_KEY, ""))
            has_jupyter = eks_pod_jupyter.has_jupyter(pod)
            token = eks_pod_jupyter.token(self._site.cluster, _place(pod), pod) if has_jupyter else ""
            return PodLogin(scripts.SSH_PORT, key, ssh_files.alias(meta["uid"]), token)

    def logs(self, reservation: str, attempt: int) -> Sequence[str]:
        cluster = self._site.cluster
        with as_a_node():
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
        with as_a_node():
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
            gpus = kube_nodes.gpus_of_pod(pod)
            if gpus and not ours and not _has_ended(pod):
                where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                texts.append(f"the pod {where} has {gpus} GPUs without a session")
        return texts


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
    """Why a pod does not run any more, such as an eviction, or will not."""
    status = pod.get("status") or {}
    if not _has_ended(pod):
        return "its pod was deleted"
    if status.get("reason"):
        return printable(f"{status['reason']}: {status.get('message') or 'no message'}")
    endings = [ending(one) for one in map(last_termination, statuses(pod)) if one is not None]
    return printable("; ".join(endings) or "its pod has ended")
