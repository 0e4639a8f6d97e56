"""Facts of a pod, its node and its events as lines, as `kubectl describe` has them, without values of variables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from gpuctl.domain.pod_status import ending
from gpuctl.kube import model
from gpuctl.kube.logs_ai.model import Events, Object

PRESENT = ("kernelVersion", "kubeletVersion", "containerRuntimeVersion")
LABELS = ("node.kubernetes.io/instance-type", "nvidia.com/gpu.product", "topology.kubernetes.io/zone")
MOST_VARIABLES = 60
API_ACCESS = "kube-api-access-"  # volume of a pod's token, which Kubernetes adds to every pod
DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def of_pod(pod: Object) -> list[str]:
    """Describe a pod: status, owner, node, conditions and containers."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    short = model.pod(pod)
    owners = ", ".join(f"{owner.get('kind')} {owner.get('name')}" for owner in meta.get("ownerReferences") or ())
    ready = "ready" if short.ready else "not ready"
    rows = {
        "status": f"{short.status}, phase {short.phase}, {ready}, restarts: {short.restarts}, since {short.since}",
        "owner": owners or "none",
        "node": short.node or "none",
        "restart policy": spec.get("restartPolicy", ""),
        "priority": spec.get("priorityClassName", ""),
        "scheduler": "" if spec.get("schedulerName") in (None, "default-scheduler") else spec["schedulerName"],
        "node selector": _pairs(spec.get("nodeSelector") or {}),
        "tolerations": ", ".join(_toleration(item) for item in spec.get("tolerations") or () if not _is_default(item)),
        "host network": "yes" if spec.get("hostNetwork") else "",
        "volumes": ", ".join(
            _volume(item) for item in spec.get("volumes") or () if not str(item.get("name")).startswith(API_ACCESS)
        ),
    }
    lines = [f"{name}: {value}" for name, value in rows.items() if value]
    lines += [f"condition {text}" for text in _conditions(status.get("conditions") or ())]
    for kind, statuses in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
        by_name = {item["name"]: item for item in status.get(statuses) or ()}
        for container in spec.get(kind) or ():
            word = "container" if kind == "containers" else "init container"
            lines += _container(word, container, by_name.get(container["name"], {}))
    return lines


def of_node(node: Object) -> list[str]:
    """Describe a node: conditions, taints, resources, versions and type."""
    status, labels = node.get("status") or {}, node["metadata"].get("labels") or {}
    info = status.get("nodeInfo") or {}
    lines = [f"condition {text}" for text in _conditions(status.get("conditions") or ())]
    rows = {
        "taints": ", ".join(
            f"{taint.get('key')}={taint.get('value', '')}:{taint.get('effect')}"
            for taint in (node.get("spec") or {}).get("taints") or ()
        ),
        "allocatable": _pairs(status.get("allocatable") or {}),
        "type": _pairs({name: labels[name] for name in LABELS if name in labels}),
        "versions": _pairs({name: info[name] for name in PRESENT if info.get(name)}),
    }
    return lines + [f"{name}: {value}" for name, value in rows.items() if value]


def of_events(events: Events) -> list[str]:
    """List events, oldest first."""
    if events.why:
        return [f"(unknown: {events.why})"]
    return [_event(event) for event in sorted(events.items, key=_last_time)] or ["(none)"]


def _event(event: Object) -> str:
    series = event.get("series") or {}
    count = event.get("count") or series.get("count") or 1
    source = event.get("reportingComponent") or (event.get("source") or {}).get("component") or ""
    times = f" x{count}" if count > 1 else ""
    message = " ".join(str(event.get("message") or "").split())
    return f"{_last_time(event)} {event.get('type')} {event.get('reason')}{times} ({source}): {message}"


def _last_time(event: Object) -> str:
    series = event.get("series") or {}
    times = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"))
    return str(next((time for time in times if time), (event.get("metadata") or {}).get("creationTimestamp", "")))


def _container(word: str, container: Object, status: Object) -> Iterator[str]:
    ready = "ready" if status.get("ready") else "not ready"
    restarts = status.get("restartCount", 0)
    yield f"{word} {container['name']}: {ready}, restarts: {restarts}, image {container.get('image')}"
    for name, state in (("state", status.get("state")), ("last state", status.get("lastState"))):
        if state:
            yield f"  {name}: {_state(state)}"
    resources = container.get("resources") or {}
    rows = {
        "requests": _pairs(resources.get("requests") or {}),
        "limits": _pairs(resources.get("limits") or {}),
        "variables (values are not shown)": _variables(container),
        "mounts": ", ".join(
            str(item.get("mountPath"))
            for item in container.get("volumeMounts") or ()
            if not str(item.get("name")).startswith(API_ACCESS)
        ),
    }
    yield from (f"  {name}: {value}" for name, value in rows.items() if value)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if container.get(probe):
            yield f"  {probe}: {json.dumps(_probe(container[probe]), sort_keys=True)}"
    for field in ("command", "args"):
        yield from _arguments(field, container.get(field) or ())


def _probe(probe: Object) -> Object:
    """Return a probe with the names of its HTTP headers only; their values may be credentials."""
    http = probe.get("httpGet") or {}
    if not http.get("httpHeaders"):
        return probe
    names = [header.get("name") for header in http["httpHeaders"]]
    return {**probe, "httpGet": {**http, "httpHeaders": names}}


def _arguments(field: str, values: Sequence[str]) -> Iterator[str]:
    """List arguments in one line; the lines of a script stay lines, so that what belongs to a name stays beside it."""
    if not values:
        return
    if not any("\n" in value for value in values):
        yield f"  {field}: {json.dumps(list(values), ensure_ascii=False)}"
        return
    yield f"  {field}:"
    for value in values:
        yield from (f"    {line}" for line in value.splitlines())


def _state(state: Mapping[str, Object]) -> str:
    if "running" in state:
        return f"running since {(state['running'] or {}).get('startedAt', 'an unknown time')}"
    if waiting := state.get("waiting"):
        message = f": {' '.join(str(waiting['message']).split())}" if waiting.get("message") else ""
        return f"waiting ({waiting.get('reason')}){message}"
    end = dict(state.get("terminated") or {})
    times = f"; from {end.get('startedAt')} to {end.get('finishedAt')}" if end.get("finishedAt") else ""
    message = f"; it wrote: {' '.join(str(end['message']).split())}" if end.get("message") else ""
    return f"terminated ({end.get('reason')}, exit code {end.get('exitCode')}): it {ending(end)}{times}{message}"


def _variables(container: Object) -> str:
    names = [_variable(variable) for variable in container.get("env") or ()]
    for source in container.get("envFrom") or ():
        names += [
            f"all of {kind} {source[field].get('name')}"
            for field, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap"))
            if source.get(field)
        ]
    more = f" and {len(names) - MOST_VARIABLES} more" if len(names) > MOST_VARIABLES else ""
    return ", ".join(names[:MOST_VARIABLES]) + more


def _variable(variable: Object) -> str:
    source = variable.get("valueFrom") or {}
    for field, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        if source.get(field):
            return f"{variable.get('name')} (of {kind} {source[field].get('name')})"
    return str(variable.get("name"))


def _volume(volume: Object) -> str:
    kind = next((name for name in volume if name != "name"), "")
    source = volume.get(kind) or {}
    name = source.get("claimName") or source.get("secretName") or source.get("name") or source.get("path") or ""
    return f"{volume.get('name')} ({' '.join(part for part in (kind, str(name)) if part)})"


def _conditions(conditions: Sequence[Object]) -> Iterator[str]:
    for condition in conditions:
        why = ": ".join(str(condition[key]) for key in ("reason", "message") if condition.get(key))
        yield f"{condition.get('type')}={condition.get('status')}" + (f" ({' '.join(why.split())})" if why else "")


def _toleration(item: Object) -> str:
    value = f"={item['value']}" if item.get("value") else ""
    return f"{item.get('key') or 'everything'}{value}:{item.get('effect') or 'all effects'}"


def _is_default(toleration: Object) -> bool:
    """True for those that Kubernetes adds to every pod."""
    return toleration.get("tolerationSeconds") == 300 and toleration.get("key") in DEFAULT_TOLERATIONS


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
