"""Read the records of pods with kubectl, remove secrets from them, and make one text of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.core.redact import Known, removed
from gpuctl.core.text import named, plural
from gpuctl.domain.findings import SEVERITY, Finding, overall
from gpuctl.domain.pod_status import statuses
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.edges.programs import gist
from gpuctl.engine import printable
from gpuctl.kube import model
from gpuctl.kube.logs_ai import bundle, facts, judge
from gpuctl.kube.logs_ai.model import Bundle, Events, Log, Object, Records, Section, name_of
from gpuctl.kube.pod_secrets import literals, secrets_of, values_of

MOST_PODS = 5  # whose logs are read; of the others, one line
MOST_LOG = 2**20  # characters of a log that are searched, a few seconds of work
TIMEOUT = "--request-timeout=15s"
NODE_EVENTS = "default"  # the namespace of events about nodes
# Escape sequences by ECMA-48: control sequences, strings with their end, and those of two or more characters.
ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[PX^_][^\x1b]*\x1b\\"
    r"|\x1b[ -/]+[0-~]|\x1b[0-OQ-WYZ\\`-~]"
)
# Characters that are not seen (Unicode's category Cf).
UNSEEN = re.compile(
    "[\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)


@dataclass(frozen=True)
class Request:
    """Pods to read: one by name, or all with the labels of a selector.

    `lines`: of each log; `most`: characters of the text; `question`: instead of the one made from the findings.
    """

    pod: str = ""
    selector: str = ""
    container: str = ""
    lines: int = 2000
    most: int = 24_000
    question: str = ""


class Redactor:
    """Removes secrets from texts, and counts them."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = Known(known)
        self.count = 0

    def text(self, text: str) -> str:
        """Return the text without secrets, escape sequences and characters that are not seen."""
        # Colours may stand inside a secret, and would hide it.
        clean, count = removed(UNSEEN.sub("", ESCAPES.sub("", text)), self._known)
        self.count += count
        return clean

    def lines(self, lines: Iterable[str]) -> list[str]:
        """Return lines that can be printed, without secrets. Of a line that a progress bar rewrote, the last state."""
        texts = self.text("\n".join(lines)).split("\n")
        return [printable(line.rstrip("\r").rpartition("\r")[2]) for line in texts]

    def record(self, value: Any) -> Any:
        """Return an object of the API whose messages and annotations have no secrets; `Any`: JSON of any shape."""
        if isinstance(value, list):
            return [self.record(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        return {
            name: self.text(item)
            if name == "message" and isinstance(item, str)
            else {key: self.text(str(text)) for key, text in item.items()}
            if name == "annotations" and isinstance(item, Mapping)
            else self.record(item)
            for name, item in value.items()
        }

    def finding(self, finding: Finding) -> Finding:
        return replace(finding, message=printable(self.text(finding.message)))


def gather(kube: Kubectl, request: Request) -> Bundle:
    """Read the pods, and make the text; `GpuctlError` if a pod or the cluster cannot be read."""
    pods = _worst_first(_pods(kube, request))
    read, others = pods[:MOST_PODS], pods[MOST_PODS:]
    values, unread = _secret_values(kube, pods)  # messages of the others are in the text, too
    redactor = Redactor([*values, *(value for pod in pods for value in literals(pod))])
    # Before any message is cut or joined to one line, which would hide a value.
    read, others = [[redactor.record(pod) for pod in some] for some in (read, others)]
    records = [_records(kube, pod, request, redactor) for pod in read]
    findings = [redactor.finding(finding) for one in records for finding in judge.of_records(one)]
    findings += [redactor.finding(finding) for pod in others for finding in judge.of_status(pod)]
    subject = bundle.subject_of([name_of(pod) for pod in pods], request.selector)
    head = redactor.text(bundle.question(subject, findings, request.question))
    sections = [bundle.section("findings of gpuctl", bundle.as_lines(findings)), *_sections(records, redactor)]
    if others:
        rows = [f"{name_of(pod)}: {model.pod(pod).status}, node {model.pod(pod).node or 'none'}" for pod in others]
        sections.append(bundle.section("other pods, whose logs were not read", redactor.lines(rows)))
    text, omitted = bundle.fitted(head, sections, request.most)
    return Bundle(text, redactor.count, findings, _notes(unread, omitted, [name_of(pod) for pod in others]))


def _notes(unread: Sequence[str], omitted: int, others: Sequence[str]) -> list[str]:
    notes = []
    if unread:
        names = ", ".join(unread)
        notes.append(f"these Secrets could not be read, so their values may be in the text: {names}")
    if omitted:
        notes.append(f"{plural(omitted, 'line')} omitted; --most makes room for more")
    if others:
        notes.append(f"logs were read of the {MOST_PODS} worst pods, and not of {named(others)}")
    return notes


def _pods(kube: Kubectl, request: Request) -> list[Object]:
    if request.pod:
        return [kube.json(f"read the pod {request.pod}", "get", "pod", request.pod, TIMEOUT)]
    doing = f"read the pods with the labels {request.selector}"
    items: list[Object] = kube.json(doing, "get", "pods", f"--selector={request.selector}", TIMEOUT).get("items") or []
    if not items:
        raise GpuctlError(doing, f"the namespace {kube.namespace} has none", "`kubectl get pods --show-labels`")
    return items


def _worst_first(pods: Sequence[Object]) -> list[Object]:
    """Sort by the worst finding, then by the time of the first failure: the others may only follow from it."""

    def key(pod: Object) -> tuple[bool, int, str, str]:
        findings = judge.of_status(pod)
        return not findings, -SEVERITY.index(overall(findings)), judge.earliest_end(pod), name_of(pod)

    return sorted(pods, key=key)


def _secret_values(kube: Kubectl, pods: Sequence[Object]) -> tuple[list[str], list[str]]:
    return values_of(kube, sorted({name for pod in pods for name in secrets_of(pod)}))


def _records(kube: Kubectl, pod: Object, request: Request, redactor: Redactor) -> Records:
    node_name = (pod.get("spec") or {}).get("nodeName")
    node, why = _node(kube, node_name) if node_name else (None, "")
    of_pod = _events(kube, "Pod", pod["metadata"]["name"], str(pod["metadata"].get("uid") or ""))
    of_node = _events(replace(kube, namespace=NODE_EVENTS), "Node", node_name) if node_name else Events()
    return Records(
        pod,
        [_log(kube, pod, name, before, request.lines, redactor) for name, before in _runs(pod, request.container)],
        replace(of_pod, items=redactor.record(of_pod.items)),
        redactor.record(node),
        why,
        replace(of_node, items=redactor.record(of_node.items)),
    )


def _runs(pod: Object, container: str) -> list[tuple[str, bool]]:
    """List (container, before) of the logs; a container that has not started yet has none.

    While a container waits for its restart, the kubelet has one log for both: that of the run that ended last.
    """
    status = pod.get("status") or {}
    states = [*(status.get("initContainerStatuses") or ()), *statuses(dict(pod))]
    if container and container not in {state["name"] for state in states}:
        raise GpuctlError(f"read the logs of {name_of(pod)}", f"it has no container {container} that was started")
    runs = list[tuple[str, bool]]()
    for state in states:
        if container not in ("", state["name"]):
            continue
        if "terminated" in (state.get("lastState") or {}):
            runs.append((state["name"], True))
        if {"running", "terminated"} & set(state.get("state") or {}):
            runs.append((state["name"], False))
    return runs


def _log(kube: Kubectl, pod: Object, container: str, before: bool, lines: int, redactor: Redactor) -> Log:  # noqa: PLR0913, PLR0917
    arguments = ["logs", pod["metadata"]["name"], f"--container={container}", f"--tail={lines}", TIMEOUT]
    code, out, err = kube.try_to(*arguments, *(["--previous"] if before else []))
    if code:
        return Log(container, before=before, why=printable(gist(redactor.text(err))))
    text = out if len(out) <= MOST_LOG else _last_part(out)
    texts = redactor.lines(text.removesuffix("\n").split("\n")) if text else []
    is_cut = len(out) > MOST_LOG or out.removesuffix("\n").count("\n") + 1 >= lines
    return Log(container, texts, before, is_cut=is_cut)


def _last_part(out: str) -> str:
    """Return the end of a log from a line on; of one endless line, from a state of a progress bar, or from a word."""
    end = out[-MOST_LOG:]
    parts = (end.partition(mark)[2] for mark in ("\n", "\r", " "))
    return next((part for part in parts if part.strip()), "")


def _events(kube: Kubectl, kind: str, name: str, uid: str = "") -> Events:
    selector = f"involvedObject.kind={kind},involvedObject.name={name}" + (f",involvedObject.uid={uid}" if uid else "")
    try:
        found = kube.json(f"read the events of {name}", "get", "events", f"--field-selector={selector}", TIMEOUT)
    except GpuctlError as error:
        return Events(why=error.wrong)
    return Events(found.get("items") or [])


def _node(kube: Kubectl, name: str) -> tuple[Mapping[str, Any] | None, str]:
    try:
        return kube.json(f"read the node {name}", "get", "node", name, TIMEOUT), ""
    except GpuctlError as error:
        return None, error.wrong


def _sections(records: Sequence[Records], redactor: Redactor) -> list[Section]:
    sections = list[Section]()
    nodes = dict[str, Records]()
    for one in records:
        sections.append(bundle.section(f"pod {one.name}", redactor.lines(facts.of_pod(one.pod))))
        sections.append(bundle.newest(f"events of {one.name}", redactor.lines(facts.of_events(one.events))))
        for log in one.logs:
            first = judge.first_failure(log)
            sections.append(bundle.log_section(one.name, log, first.line if first else None))
        if node_name := (one.pod.get("spec") or {}).get("nodeName"):
            nodes.setdefault(node_name, one)
    for name, one in nodes.items():
        lines = facts.of_node(one.node) if one.node else [f"(unknown: {one.node_why})"]
        sections.append(bundle.section(f"node {name}", redactor.lines(lines)))
        sections.append(bundle.newest(f"events of node {name}", redactor.lines(facts.of_events(one.node_events))))
    return sections
