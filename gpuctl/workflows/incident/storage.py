"""Measure the storage of nodes over ssh, or of pods by exec, all at the same time."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.text import named
from gpuctl.domain import pod_status
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cluster import Object
from gpuctl.engine import fact_types, typed_json, visit_failures
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import HostResult, Target
from gpuctl.remote import connection, packing
from gpuctl.remote.model import PodTarget

MODULES = (*packing.host_modules(*packing.STORAGE_FACTS), "gpuctl.incident.pod.storage")
DOING = "measure the storage"
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
FLEET_MIB = 16 * 1024  # of all trials together: a trial of a large fleet must not be its load
SPARE_S = 75.0  # beyond the window and the trial: for a path or a server that does not answer


@dataclass(frozen=True)
class StorageOptions:
    """`path`: data to read for the trial; "" for counters only. `window_s`: seconds in which counters are compared.

    `read_s`, `read_mib`: limits of the trial on each node. `limit_s`: for one node, beyond the other two.
    """

    path: str = ""
    window_s: float = 5.0
    read_s: float = 8.0
    read_mib: int = 512
    forks: int = 64
    limit_s: float = SPARE_S

    def shared(self, nodes: int) -> StorageOptions:
        """Options with the part of FLEET_MIB that each of several nodes may read."""
        return replace(self, read_mib=max(1, min(self.read_mib, FLEET_MIB // max(1, nodes))))

    @property
    def whole_s(self) -> float:
        """Seconds after which a node counts as not answering."""
        return self.limit_s + self.window_s + self.read_s

    def request(self) -> dict[str, Any]:
        """Request to a node."""
        values = {"path": self.path, "window_s": self.window_s, "read_s": self.read_s, "read_mib": self.read_mib}
        return {"action": "facts", "subjects": "storage load", **values}


@dataclass(frozen=True)
class Answers:
    """`fleet`: facts by node. `missing`: node -> why it gave none."""

    fleet: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


def ask_hosts(hosts: Sequence[Target], options: StorageOptions, on_result: Callable[[HostResult], None]) -> Answers:
    """Measure on every host at the same time; Ctrl-C ends all connections, and the programs with them."""
    request = options.request()
    direct = [host for host in hosts if not host.needs_ansible]
    results = run_on_all(direct, lambda _: request, forks=options.forks, timeout_s=options.whole_s, on_result=on_result)
    missing = {host.name: f"only Ansible can reach it: {host.needs_ansible}" for host in hosts if host.needs_ansible}
    fleet = {}
    for result in results:
        facts = (result.answer or {}).get("facts")
        if facts is None:
            missing[result.host] = result.wrong or "its answer has no facts"
        else:
            fleet[result.host] = facts["storage_load"]
    return Answers(fleet, missing)


@dataclass(frozen=True)
class PodChoice:
    """Pods of a namespace by name or by labels, and their container; "" for the default one."""

    context: str
    namespace: str = ""
    names: Sequence[str] = ()
    selector: str = ""
    container: str = ""


def pods(choice: PodChoice) -> list[PodTarget]:
    """The chosen pods that run. `InvalidInput` for a name or labels without a pod, or a pod that does not run."""
    cluster = kube.connect(choice.context, choice.namespace)
    listed = cluster.find(cluster.kind("v1", "Pod"), _labels(choice.selector))
    by_name = {pod["metadata"]["name"]: pod for pod in listed}
    if unknown := [name for name in choice.names if name not in by_name]:
        hint = f"it has {named(by_name, 8) or 'none'}"
        raise InvalidInput(DOING, f"no pod {named(unknown)} in the namespace {cluster.namespace}", hint)
    chosen = [by_name[name] for name in dict.fromkeys(choice.names)] or listed
    if not chosen:
        wrong = f"no pod with the labels {choice.selector} in the namespace {cluster.namespace}"
        raise InvalidInput(DOING, wrong, "check --selector and --namespace")
    targets = [PodTarget(cluster, pod["metadata"]["name"], _container(pod, choice.container)) for pod in chosen]
    resting = [t.pod for t, pod in zip(targets, chosen, strict=True) if not pod_status.runs(pod, t.container)]
    if len(resting) == len(targets) or (resting and choice.names):
        raise InvalidInput(DOING, f"not running: {named(resting, 8)}", "name pods that run: kubectl get pods")
    return [target for target in targets if target.pod not in resting]


def _labels(selector: str) -> dict[str, str]:
    labels = {}
    for part in filter(None, selector.split(",")):
        name, equals, value = part.partition("=")
        if not (name and equals):
            raise InvalidInput(DOING, f"--selector {selector}: {part!r} is not NAME=VALUE", "such as app=trainer")
        labels[name] = value.removeprefix("=")
    return labels


def _container(pod: Object, name: str) -> str:
    names = [container["name"] for container in pod["spec"]["containers"]]
    if name and name not in names:
        wrong = f"the pod {pod['metadata']['name']} has no container {name}"
        raise InvalidInput(DOING, wrong, f"it has {named(names)}")
    return name or str((pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER) or names[0])


def ask_pods(targets: Sequence[PodTarget], options: StorageOptions) -> Answers:
    """Measure in every pod at the same time; Ctrl-C ends the programs in the pods."""
    answers = connection.run_in_all(targets, lambda target: _ask_pod(target, options))
    by_pod = dict(zip((target.pod for target in targets), answers, strict=True))
    missing = {name: answer for name, answer in by_pod.items() if isinstance(answer, str)}
    return Answers({name: answer for name, answer in by_pod.items() if not isinstance(answer, str)}, missing)


def _ask_pod(target: PodTarget, options: StorageOptions) -> Mapping[str, Any] | str:
    """Facts of a pod, or why there are none."""
    token = f"gpuctl-{secrets.token_hex(8)} "
    text = json.dumps({**options.request(), "token": token, "limit_s": options.whole_s}).encode()
    output = bytearray()
    command = pod_exec.Command(packing.command(target.python), target.container, options.whole_s + 10, target.stop)
    try:
        with contextlib.closing(target.start(target.cluster, target.pod, command)) as running:
            with contextlib.suppress(EOFError):  # the program ended before it read everything
                running.send(packing.packed(MODULES) + b"%10d" % len(text) + text)
            while part := running.read():
                output += part
                if len(output) > visit_failures.MOST_OUTPUT:
                    return visit_failures.TOO_MUCH_OUTPUT
            done = running.done()
    except pod_exec.NotStarted as error:
        return connection.no_python(DOING, target.python, error.wrong).wrong
    except pod_exec.BrokenOff:
        raise
    except GpuctlError as error:
        return error.wrong
    return _decoded(bytes(output), token) or connection.explain_exit(done, DOING, target.python).wrong


def _decoded(output: bytes, token: str) -> Mapping[str, Any] | str | None:
    """Facts in the output, why they make no sense, or None without an answer."""
    _, marker, rest = output.rpartition(b"\n" + token.encode())
    line, newline, _ = rest.partition(b"\n")
    if not (marker and newline):
        return None
    shape: object = fact_types.StorageLoadAnswer
    try:
        answer = typed_json.read({"storage_load": typed_json.parse(line)}, shape, extra=True)
    except typed_json.Misfit as error:
        return f"its answer makes no sense: {error}"
    except ValueError:
        return "its answer is not valid JSON"
    facts: Mapping[str, Any] = answer["storage_load"]
    return facts
