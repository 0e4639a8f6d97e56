"""The load balancer of a GPU pod: its Service, sshd's port for it, and the wait until it answers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.domain.findings import Finding, fail, ok, unknown, warn
from gpuctl.domain.kube_errors import Conflict, Forbidden, NotFound
from gpuctl.edges import ports
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cluster import Cluster, Request, name_of
from gpuctl.edges.kube.pod_exec import Command
from gpuctl.eks.gpu_pod import exposure, model, objects, scripts
from gpuctl.eks.gpu_pod.exposure import Exposure
from gpuctl.eks.gpu_pod.ssh_files import HostEntry
from gpuctl.workflows import eks_ssh
from gpuctl.workflows.eks_access import Place
from gpuctl.workflows.eks_pod_read import LOOK_S, MERGE, ours, touch

Object = dict[str, Any]
Progress = Callable[[str], object]
AS_GPUCTL = (("fieldManager", "gpuctl"),)
CHECK, KIND = "expose", "Service"
ANSWER_S = 20.0
SYNC_S = 180.0  # kubelets refresh mounted ConfigMaps within two minutes, and sooner when the pod changes
UNTAKEN_S = 60.0  # a controller that runs takes a Service within seconds
REACH_S = 300.0  # a new load balancer takes minutes until it has a name and healthy targets
GONE_S = 600.0
MEANWHILE = "ssh works through the API meanwhile: `gpuctl eks connect`"


def live(cluster: Cluster, place: Place) -> Object | None:
    """The pod's Service; None if it does not exist. `InvalidInput` if gpuctl did not make it."""
    return ours(cluster, place, KIND, exposure.service_name(place.pod))


def live_or_refused(cluster: Cluster, place: Place) -> Object | None:
    """The pod's Service; `InvalidInput` also without the right to read it."""
    try:
        return live(cluster, place)
    except Forbidden as error:
        hint = "have get, create, patch and delete of services allowed"
        raise InvalidInput(f"expose the pod {place.pod}", error.wrong, hint) from error


def live_if_permitted(cluster: Cluster, place: Place) -> Object | None:
    """The pod's Service; None also without the right to read it, or if somebody else made it: a login needs neither."""
    with contextlib.suppress(Forbidden, InvalidInput):
        return live(cluster, place)
    return None


def entry(cluster: Cluster, place: Place, pod: Object) -> HostEntry:
    """Write the pod's entry for ssh: by its load balancer if that has an address, else through the API."""
    return eks_ssh.write_entry(cluster, place, pod, exposure.address(live_if_permitted(cluster, place)))


def plan(before: Object | None, desired: Exposure, place: Place) -> list[str]:
    """Lines about the load balancer that would be made or changed; none if it exists with these ranges."""
    if before is not None and exposure.of(before) == desired:
        return []
    verb = "made" if before is None else "changed"
    reach = {exposure.INTERNET: "with public addresses", exposure.INTERNAL: "inside the VPC's network"}
    allowed = ", ".join(desired.ranges)
    lines = [
        f"a Network Load Balancer {reach[desired.scheme]} is {verb} for {place.pod} in {place.namespace}",
        f"port {scripts.EXPOSED_AS} is open to {allowed}, for the keys of the pod alone",
    ]
    if desired.ranges == ("0.0.0.0/0",):
        lines.append("that is the whole internet: everybody may try to log in")
    lines.append("cost: UNKNOWN USD an hour beside the cluster, as gpuctl has no price of load balancers; AWS bills")
    lines.append("its hours and traffic until `gpuctl eks pod --expose none` or `gpuctl eks destroy` removes it")
    return lines


def begin(cluster: Cluster, place: Place, choice: str | None, desired: Exposure | None, progress: Progress) -> bool:
    """Remove the load balancer if it is no longer desired. True if sshd of a new pod is to listen for one."""
    if choice == exposure.NONE:
        withdraw(cluster, place, progress)
        return False
    return desired is not None or live_if_permitted(cluster, place) is not None


@dataclass(frozen=True)
class Exposer:
    """Opens and closes a pod. `limit_s`: of the wait for an address; `greeting`: how sshd's first bytes are read."""

    cluster: Cluster
    place: Place
    limit_s: float
    progress: Progress
    greeting: Callable[[str, int, float], bytes] = ports.greeting

    def follow(self, pod: Object, choice: str | None, desired: Exposure | None) -> list[Finding]:
        """Carry out the choice for a running pod: open it, close sshd's port, or report the load balancer it has.

        Each step can be repeated.
        """
        if desired is not None:
            self.listen(pod, exposed=True)
            self._make(desired)
            return [self._wait(desired)]
        if choice == exposure.NONE:
            self.listen(pod, exposed=False)
            return []
        service = live_if_permitted(self.cluster, self.place)
        return [judge(service, events(self.cluster, service))] if service is not None else []

    # ---- the Service ----

    def _make(self, desired: Exposure) -> None:
        # Not by server-side apply: servers before 1.21 refuse unknown fields in it, and drop them otherwise.
        body = exposure.service(self.place.pod, desired)
        name, services = str(body["metadata"]["name"]), self.cluster.kind("v1", KIND)
        before = live(self.cluster, self.place)
        if before is None:
            path = self.cluster.path_of(services)
            with contextlib.suppress(Conflict):  # somebody else made it at this moment: it is changed below
                self.cluster.ask(Request(f"make {name_of(body)}", "POST", path, AS_GPUCTL, body))
                return
            before = live(self.cluster, self.place)
        if before is not None and exposure.of(before) != desired:
            change = {
                "metadata": {"annotations": body["metadata"]["annotations"]},
                "spec": {"loadBalancerSourceRanges": body["spec"]["loadBalancerSourceRanges"]},
            }
            path = self.cluster.path_of(services, name)
            self.cluster.ask(Request(f"change {name_of(body)}", "PATCH", path, AS_GPUCTL, change, MERGE))

    def _wait(self, desired: Exposure) -> Finding:
        start, before = time.monotonic(), ""
        subject = f"{KIND} {exposure.service_name(self.place.pod)}"
        while True:
            now = live(self.cluster, self.place)
            if now is None:
                return fail(CHECK, subject, "it was deleted meanwhile", "run the command again")
            if address := exposure.address(now):
                return self._reached(subject, address, desired)
            trouble, elapsed = exposure.trouble(now, events(self.cluster, now)), time.monotonic() - start
            untaken = trouble.hint == exposure.INSTALL and elapsed > UNTAKEN_S
            if trouble.lasting or untaken or elapsed > self.limit_s:
                message = f"the load balancer has no address after {elapsed:.0f} s: {trouble.cause}"
                return fail(CHECK, subject, message, "; ".join(filter(None, (trouble.hint, MEANWHILE))))
            if trouble.cause != before:
                self.progress(f"{subject} waits for its load balancer: {trouble.cause}")
                before = trouble.cause
            time.sleep(LOOK_S)

    def _reached(self, subject: str, address: str, desired: Exposure) -> Finding:
        """Whether sshd answers behind the load balancer, from this machine."""
        end, before = time.monotonic() + min(self.limit_s, REACH_S), ""
        where, allowed = f"{address}:{scripts.EXPOSED_AS}", ", ".join(desired.ranges)
        while True:
            wrong = self._attempt(address)
            if not wrong:
                return ok(CHECK, subject, f"sshd answers at {where}, open to {allowed}")
            if time.monotonic() > end:
                hint = f"is this machine in {allowed}? `gpuctl eks pod --expose none` leads through the API again"
                return unknown(CHECK, subject, f"{where} was not reached from this machine: {wrong}", hint)
            if wrong != before:
                self.progress(f"{where}: {wrong}; a new load balancer answers after some minutes")
                before = wrong
            time.sleep(LOOK_S)

    def _attempt(self, address: str) -> str:
        """Reason why sshd does not answer; "" if it does."""
        try:
            greeting = self.greeting(address, scripts.EXPOSED_AS, ANSWER_S)
        except Unreachable as error:
            return error.wrong
        if greeting.startswith(b"SSH-2.0"):
            return ""
        return "something other than sshd answers" if greeting else "the connection is closed without an answer"

    # ---- sshd ----

    def listen(self, pod: Object, *, exposed: bool) -> None:
        """Let sshd of a running pod listen for a load balancer, or no longer; sessions go on."""
        form = model.read_form(pod["metadata"].get("annotations") or {})
        if form is None:
            wrong = "its annotation does not name the values it was made from"
            raise InvalidInput(self._doing, wrong, "add --replace to make the pod again; its workspace stays")
        body = objects.start(self.place.pod, form, exposed=exposed)
        content = str(body["data"][objects.SSHD_CONFIG])
        if self._listens() is exposed and self._has(content):
            return
        self.cluster.apply(body)
        self.progress(f"sshd of {self.place.pod} {'opens' if exposed else 'closes'} its port for the load balancer")
        touch(self.cluster, self.place, pod, model.SSHD, content)
        self._until(lambda: self._has(content))
        self._run(scripts.RELOAD)
        self._until(lambda: self._listens() is exposed)

    @property
    def _doing(self) -> str:
        return f"expose the pod {self.place.pod}"

    def _until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + SYNC_S
        while not done():
            if time.monotonic() > end:
                wrong = f"sshd of the pod does not follow after {SYNC_S:g} s"
                raise GpuctlError(self._doing, wrong, "run the command again, or add --replace")
            time.sleep(LOOK_S)

    def _has(self, content: str) -> bool:
        argv = ("cat", f"{scripts.START_AT}/{objects.SSHD_CONFIG}")
        done, output = pod_exec.read(self.cluster, self.place.pod, Command(argv, objects.CONTAINER, ANSWER_S))
        return done.code == 0 and output.decode(errors="replace") == content

    def _listens(self) -> bool:
        return self._run(scripts.listens(scripts.EXPOSED_PORT, scripts.ANY)) == 0

    def _run(self, script: str) -> int:
        command = Command(("sh", "-c", script), objects.CONTAINER, ANSWER_S)
        done, _ = pod_exec.read(self.cluster, self.place.pod, command)
        return done.code


def judge(service: Object, events: list[Object]) -> Finding:
    """State of a load balancer, without a connection to it."""
    subject, allowed = name_of(service), ", ".join(exposure.of(service).ranges)
    if address := exposure.address(service):
        return ok(CHECK, subject, f"ssh by the load balancer {address}, open to {allowed}")
    trouble = exposure.trouble(service, events)
    hint = "; ".join(filter(None, (trouble.hint, MEANWHILE)))
    return (fail if trouble.lasting else warn)(CHECK, subject, f"no load balancer yet: {trouble.cause}", hint)


def events(cluster: Cluster, service: Object) -> list[Object]:
    """Events of a Service, the newest last; none without the right to read them."""
    with contextlib.suppress(Forbidden):
        several = cluster.find_by(cluster.kind("v1", "Event"), f"involvedObject.uid={service['metadata']['uid']}")
        return sorted(several, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    return []


# ---- removal ---------------------------------------------------------------------------------------------------------


def withdraw(cluster: Cluster, place: Place, progress: Progress) -> bool:
    """Delete the Service, and wait until its controller has removed the load balancer. False if it did not exist."""
    service = live(cluster, place)
    if service is None:
        return False
    remove(cluster, service, progress)
    return True


def remove(cluster: Cluster, service: Object, progress: Progress, limit_s: float = GONE_S) -> None:
    """Delete a Service, and wait until it is gone: its controller then has removed the load balancer."""
    name, end = name_of(service), time.monotonic() + limit_s
    progress(f"deleting {name}, and waiting until its load balancer is removed")
    cluster.delete(service)
    while (now := _still(cluster, service)) is not None:
        if time.monotonic() > end:
            newest = [event for event in events(cluster, now) if event.get("type") == "Warning"][-1:]
            why = f": {newest[0].get('message')}" if newest else ""
            hint = "does the AWS Load Balancer Controller run? it removes the load balancer, which costs until then"
            raise GpuctlError(f"remove {name}", f"it still exists after {limit_s:g} s{why}", hint)
        time.sleep(LOOK_S)


def _still(cluster: Cluster, service: Object) -> Object | None:
    """A Service that was deleted, while it still exists."""
    meta = service["metadata"]
    path = cluster.path_of(cluster.kind("v1", KIND), meta["name"], meta.get("namespace"))
    try:
        now = cluster.ask(Request(f"read {name_of(service)}", "GET", path))
    except NotFound:
        return None
    return now if now["metadata"]["uid"] == meta["uid"] else None


def remove_all(cluster: Cluster, progress: Progress, limit_s: float = GONE_S) -> None:
    """Delete the Services of `eks pod` in all namespaces, and wait until their load balancers are removed."""
    services = cluster.kind("v1", KIND)
    labels = {"app.kubernetes.io/managed-by": "gpuctl", model.PART_LABEL: "service"}
    end = time.monotonic() + limit_s
    for service in cluster.find_everywhere_by(services, labels):
        remove(cluster, service, progress, max(LOOK_S, end - time.monotonic()))
