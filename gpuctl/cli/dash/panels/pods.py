"""Pods: `gpuctl kube pods`, the worst first; one with its events on Enter, and k9s on a key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpuctl.cli.dash.model import CommandLine, Detail, Line, PanelKey, Program, View, command_line, shell_text
from gpuctl.cli.dash.panels.nodes import finding_lines
from gpuctl.cli.dash.request import DashRequest
from gpuctl.cli.kube import pods
from gpuctl.cli.kube.pods import PodsRequest
from gpuctl.cli.shared import output
from gpuctl.core import settings
from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Verdict
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.engine import printable
from gpuctl.kube import k9s
from gpuctl.kube.pod import Scope
from gpuctl.kube.pod_list import PodReader
from gpuctl.kube.pod_rows import PodRow, summary

PAUSE_S = 10.0
CONTEXT, NAMESPACE, ALL = "--context", "--namespace", "--all-namespaces"


@dataclass(frozen=True)
class _Reading:
    """Pods of a cluster. `note`: why they are not all; `mode`: stage of the context, and of k9s; `at`: local time."""

    reader: PodReader
    rows: Sequence[PodRow]
    note: str
    mode: str
    at: str


class PodsPanel:
    """Pods of all namespaces of a context; of its namespace alone without the right to list the others."""

    name, title = "pods", "Pods"

    def __init__(self, request: DashRequest, reader: Callable[[Scope], PodReader] = PodReader) -> None:
        self._reader = reader
        self._line = CommandLine(("kube", "pods"), {CONTEXT: request.context} if request.context else {})
        self._line.toggle(ALL)
        self._last: _Reading | None = None
        self._lock = threading.Lock()  # of both: a key may change them while the cluster is asked
        self.keys: Sequence[PanelKey] = (
            PanelKey("n", "only the pods of a namespace", self._of_namespace, prompt="namespace", reads=True),
            PanelKey("o", "open k9s on the pods of the namespace under the cursor, and back", self._k9s),
        )

    @property
    def command(self) -> str:
        return str(self._line)

    def _of_namespace(self, text: str) -> None:
        """Change the command; the pods of the one before are no longer shown."""
        line = replace(self._line)
        line.set(NAMESPACE, text.strip())
        if (ALL in line.options) is bool(text.strip()):
            line.toggle(ALL)
        with self._lock:
            self._line, self._last = line, None

    def read(self) -> float:
        """Ask the cluster; an answer to a command that was changed meanwhile is dropped, and it is asked again."""
        line, last = self._line, self._last
        request = line.request(pods.pods, PodsRequest)
        reader = last.reader if last is not None else self._reader(request.scope)
        now, note = replace(line), "" if last is None else last.note
        now.set(CONTEXT, reader.context)  # a later switch of the current context changes nothing
        try:
            rows = reader.list_all() if request.all_namespaces else reader.list_namespace()
        except Forbidden as error:
            if not request.all_namespaces:
                raise
            rows, note = reader.list_namespace(), f"only the namespace {reader.namespace}: {error.wrong}"
            now.toggle(ALL)
            now.set(NAMESPACE, reader.namespace)
        made = _Reading(reader, rows, note, _mode(reader.context), time.strftime("%H:%M:%S"))
        with self._lock:
            if line is not self._line:
                return 0.0
            self._line, self._last = now, made
        return PAUSE_S

    def view(self) -> View:
        last = self._last
        if last is None:
            return View()
        head, *texts = output.columns(pods.HEAD, pods.cells(last.rows))
        lines = [
            Line(text, row.subject, "" if row.verdict is Verdict.OK else str(row.verdict))
            for text, row in zip(texts, last.rows, strict=True)
        ]
        return View(lines or [Line("no pod exists")], head, list(_summary(last)), last.at)

    def detail(self, subject: str) -> Detail | None:
        """Read a pod with its events, and return them with the commands for it."""
        last = self._last
        row = next((row for row in last.rows if row.subject == subject), None) if last else None
        if last is None or row is None:
            return None
        detail = last.reader.detail(row.name, row.namespace)
        faults = [finding for finding in detail.findings if finding.verdict is not Verdict.OK]
        lines = [*finding_lines(faults), *([Line("")] if faults else []), Line("events:")]
        lines += [Line(printable(f"  {text}")) for text in detail.events]
        place = [NAMESPACE, row.namespace, CONTEXT, last.reader.context]
        lines += [Line(""), Line("Commands for this pod:")]
        for words in (["kube", "pod", "logs"], ["kube", "logs-ai"], ["kube", "pod", "shell"]):
            lines.append(command_line(shell_text([*words, row.name, *place])))
        lines += [Line(""), *(Line(printable(text)) for text in detail.facts)]
        return Detail(subject, lines, shell_text(["kube", "pods", row.name, *place]))

    def _k9s(self, subject: str) -> Program:
        """Return k9s in the namespace of a pod; without one, in that of the panel."""
        last = self._last
        if last is None:
            raise InvalidInput("open k9s", "the pods were not read yet, so the context is not certain", "wait for them")
        namespace = subject.partition("/")[0] or self._line.options.get(NAMESPACE) or ""
        return Program(k9s.command(last.reader.context, namespace, settings.load()), pauses=False)


def _mode(context: str) -> str:
    user_settings = settings.load()
    stage = user_settings.stage(context)
    mode = "k9s opens read-only" if user_settings.k9s_is_readonly(context) else "k9s as its configuration says"
    return f"{stage}; {mode}" if stage else mode


def _summary(last: _Reading) -> Iterator[str]:
    yield printable(f"{last.reader.context} ({last.mode}): {summary(last.rows)}")
    if last.note:
        yield printable(f"note: {last.note}")
