"""The load balancer of a GPU pod: its Service, sshd's port for it, and the wait until it answers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.domain.findings import Finding, fail, ok, problems, unknown, warn
from gpuctl.domain.kube_errors import Conflict, Forbidden, NotFound
from gpuctl.edges import ports
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cluster import Cluster, Request, name_of
from gpuctl.edges.kube.pod_exec import Command
from gpuctl.eks.gpu_pod import exposure, model, objects, scripts
from gpuctl.eks.gpu_pod.exposure import Exposure
from gpuctl.eks.gpu_pod.ssh_files import HostEntry
from gpuctl.workflows import eks_prices, eks_ssh
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
    """Write the pod's entry for ssh: through the API, unless this machine has reached its load balancer before."""
    address = exposure.address(live_if_permitted(cluster, place))
    kept = address if address == eks_ssh.address_of_entry(place) else ""
    return eks_ssh.write_entry(cluster, place, pod, kept)


def entry_after(cluster: Cluster, place: Place, pod: Object, results: Sequence[Finding]) -> HostEntry:
    """Write the pod's entry for ssh after a choice was carried out: by the load balancer if sshd was reached there."""
    address = exposure.address(live_if_permitted(cluster, place))
    reached = bool(results) and not problems(results)
    return eks_ssh.write_entry(cluster, place, pod, address if reached else "")


def plan(before: Object | None, desired: Exposure, place: Place) -> list[str]:
    """Lines about the load balancer that would be made or changed; none if it exists with these ranges."""
    if before is not None and exposure.fits(before, desired):
        return []
    stays = before is not None and not exposure.is_ending(before)
    verb = "changed" if stays else "made"
    reach = {exposure.INTERNET: "with public addresses", exposure.INTERNAL: "inside the VPC's network"}
    allowed = ", ".join(desired.ranges)
    lines = [
        f"a Network Load Balancer {reach[desired.scheme]} is {verb} for {place.pod} in {place.namespace}",
        f"port {scripts.EXPOSED_AS} is open to {allowed}, for the keys of the pod alone",
    ]
    if before is not None and stays and exposure.scheme_of(before) != desired.scheme:
        lines[0] = lines[0].replace(" is changed ", " replaces the one that exists ")
        lines.insert(1, "that one is removed first: its address goes, and sessions through it end")
    if desired.ranges == ("0.0.0.0/0",):
        lines.append("that is the whole internet: everybody may try to log in")
    beside = "traffic and public addresses" if desired.scheme == exposure.INTERNET else "traffic"
    lines.append(f"cost: {eks_prices.of_balancer(place.region)}, and its {beside}, beside the cluster; AWS bills")
    lines.append(f"its hours, {beside} until `gpuctl eks pod --expose none` or `gpuctl eks destroy` removes it")
    return lines


def listens_at_first(cluster: Cluster, place: Place, choice: str | None) -> bool:
    """True if sshd of a new pod is to listen for a load balancer."""
    return choice == exposure.NLB or (choice is None and live_if_permitted(cluster, place) is not None)


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
            known = self._known()
            self._make(desired)
            return [self._wait(desired, known)]
        if choice == exposure.NONE:
            self.listen(pod, exposed=False)
            return []
        service = live_if_permitted(self.cluster, self.place)
        return [judge(service, events(self.cluster, service))] if service is not None else []

    # ---- the Service ----

    def _known(self) -> set[tuple[str, str, int]]:
        before = live(self.cluster, self.place)
        several = events(self.cluster, before) if before is not None else None
        return {exposure.identity(event) for event in several or ()}

    def _make(self, desired: Exposure) -> None:
        # Not by server-side apply: servers before 1.21 refuse unknown fields in it, and drop them otherwise.
        body = exposure.service(self.place.pod, desired)
        name, services = str(body["metadata"]["name"]), self.cluster.kind("v1", KIND)
        before = live(self.cluster, self.place)
        if before is not None and (exposure.is_ending(before) or exposure.scheme_of(before) != desired.scheme):
            remove(self.cluster, before, self.progress)  # the controller cannot change the scheme of one that exists
            before = None
        if before is None:
            path = self.cluster.path_of(services)
            with contextlib.suppress(Conflict):  # somebody else made it at this moment: it is changed below
                self.cluster.ask(Request(f"make {name_of(body)}", "POST", path, AS_GPUCTL, body))
                return
            before = live(self.cluster, self.place)
        if before is not None and not exposure.fits(before, desired):
            change = {
                "metadata": {"annotations": body["metadata"]["annotations"]},
                "spec": {"loadBalancerSourceRanges": body["spec"]["loadBalancerSourceRanges"]},
            }
            path = self.cluster.path_of(services, name)
            self.cluster.ask(Request(f"change {name_of(body)}", "PATCH", path, AS_GPUCTL, change, MERGE))

    def _wait(self, desired: Exposure, known: Container[tuple[str, str, int]]) -> Finding:
        start, before = time.monotonic(), ""
        subject = f"{KIND} {exposure.service_name(self.place.pod)}"
        while True:
            now = live(self.cluster, self.place)
            if now is None or exposure.is_ending(now):
                return fail(CHECK, subject, "it was deleted meanwhile", "run the command again")
            address, several = exposure.address(now), events(self.cluster, now)
            if address and (several is None or exposure.is_confirmed(now, several, datetime.now(UTC))):
                return self._reached(subject, address, desired) if several is not None else judge(now, None)
            trouble, elapsed = exposure.trouble(now, several or (), known), time.monotonic() - start
            untaken = trouble.hint == exposure.INSTALL and elapsed > UNTAKEN_S
            if trouble.lasting or untaken or elapsed > self.limit_s:
                hint = "; ".join(filter(None, (trouble.hint, MEANWHILE)))
                if address and not trouble.lasting:
                    return unknown(CHECK, subject, _unconfirmed(address, desired.ranges, trouble.cause), hint)
                message = f"the load balancer has no address after {elapsed:.0f} s: {trouble.cause}"
                message = _unconfirmed(address, desired.ranges, trouble.cause) if address else message
                return fail(CHECK, subject, message, hint)
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


def judge(service: Object, several: list[Object] | None) -> Finding:
    """State of a load balancer, without a connection to it. `several`: its events; None if they may not be read."""
    subject, ranges, address = name_of(service), exposure.of(service).ranges, exposure.address(service)
    if exposure.is_ending(service):
        hint = "wait until it is gone: its load balancer costs until then"
        return warn(CHECK, subject, "it is being removed with its load balancer", hint)
    if address and several is None:
        message = _unconfirmed(address, ranges, "its events may not be read")
        return unknown(CHECK, subject, message, "have list of events allowed")
    several = several or []
    if address and exposure.is_confirmed(service, several, datetime.now(UTC)):
        return ok(CHECK, subject, f"ssh by the load balancer {address}, open to {', '.join(ranges)}")
    trouble = exposure.trouble(service, several)
    hint = "; ".join(filter(None, (trouble.hint, MEANWHILE)))
    if not address:
        return (fail if trouble.lasting else warn)(CHECK, subject, f"no load balancer yet: {trouble.cause}", hint)
    message = _unconfirmed(address, ranges, trouble.cause)
    return (fail if trouble.lasting else unknown)(CHECK, subject, message, hint)


def _unconfirmed(address: str, ranges: Sequence[str], cause: str) -> str:
    return f"the load balancer {address} may be open to others than {', '.join(ranges)}: {cause}"


def events(cluster: Cluster, service: Object) -> list[Object] | None:
    """Events of a Service, the newest last, a Warning after others of its second; None without the right to read."""
    with contextlib.suppress(Forbidden):
        several = cluster.find_by(cluster.kind("v1", "Event"), f"involvedObject.uid={service['metadata']['uid']}")
        return sorted(several, key=lambda event: (exposure.at(event), event.get("type") == "Warning"))
    return None


# ---- removal ---------------------------------------------------------------------------------------------------------


def withdraw(cluster: Cluster, place: Place, progress: Progress) -> bool:
    """Delete the Service, and wait until its controller has removed the load balancer. False if it did not exist."""
    service = live(cluster, place)
    if service is None:
        return False
    remove(cluster, service, progress)
    return True


def withdraw_alone(cluster: Cluster, place: Place, progress: Progress) -> list[Finding]:
    """Remove the load balancer of a pod that does not exist; no pod is made."""
    state = "its load balancer is removed" if withdraw(cluster, place, progress) else "it has no load balancer"
    return [ok(CHECK, f"Pod {place.pod}", f"{state}; the pod does not exist, and none was made")]


def remove(cluster: Cluster, service: Object, progress: Progress, limit_s: float = GONE_S) -> None:
    """Delete a Service, and wait until it is gone: its controller then has removed the load balancer."""
    progress(f"deleting {name_of(service)}, and waiting until its load balancer is removed")
    cluster.delete(service)
    _await_removal(cluster, service, limit_s)


def _await_removal(cluster: Cluster, service: Object, limit_s: float) -> None:
    name, end = name_of(service), time.monotonic() + limit_s
    while (now := _still(cluster, service)) is not None:
        if time.monotonic() > end:
            newest = [event for event in events(cluster, now) or () if event.get("type") == "Warning"][-1:]
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
