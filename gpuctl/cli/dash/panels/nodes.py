"""Nodes: `gpuctl nodes`, read again and again; a node that does not answer leaves only its row waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpuctl.cli.dash.model import NEVER, CommandLine, Detail, Line, PanelKey, View, command_line, shell_text
from gpuctl.cli.dash.request import DashRequest
from gpuctl.cli.nodes import command, draw
from gpuctl.cli.nodes.reading import Content, NodesRequest, check, content_of, source
from gpuctl.cli.shared import findings
from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import plural
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.engine import printable
from gpuctl.hosts import plan as host_plan
from gpuctl.nodes import summary
from gpuctl.nodes.judge import judge
from gpuctl.nodes.model import Node, User
from gpuctl.workflows.nodes_live import LiveNodes, of_hosts

BATCH_S = 1.0  # answers of so much time are drawn together
TIMEOUT_S = 60.0  # of `gpuctl nodes`
LATE_S = 10.0  # after so much time, earlier values are UNKNOWN
IDLE = "1h"
MOST_SUMMARY = 4
CLOCK = "%H:%M:%S"


class NodesPanel:
    """Nodes with their users, in the form of `gpuctl nodes`."""

    name, title = "nodes", "Nodes"

    def __init__(self, request: DashRequest, live: LiveNodes | None = None) -> None:
        self._dash = request
        self._line = request.command_line("nodes")
        self._line.set("--via", request.via or "")
        self._line.set("--timeout", f"{request.timeout:g}" if request.timeout != TIMEOUT_S else "")
        check(self._request, "table")
        self._with_users = True
        self._notes: list[str] = []
        self._nodes: Sequence[Node] = ()
        self._read_at = ""
        self._live = live or self._hosts()
        self._next = 0.0
        self._drawn: dict[str, tuple[Node, draw.Cells]] = {}
        self.keys: Sequence[PanelKey] = (
            PanelKey("t", "only nodes of a type, such as p5 or H100", self._of_type, prompt="type"),
            PanelKey(
                "m", "only your own processes, or all", lambda _: self._change(lambda line: line.toggle("--mine"))
            ),
            PanelKey("i", f"only GPUs idle for {IDLE}, or all", self._toggle_idle),
            PanelKey("s", "next order: name, most idle, most used, …", self._sort),
            PanelKey("u", "rows of users and unused GPUs, or none", self._toggle_users),
        )

    @property
    def _request(self) -> NodesRequest:
        return self._line.request(command.nodes, NodesRequest)

    def _hosts(self) -> LiveNodes | None:
        """Hosts of the inventory; None if the nodes are recorded, or those of Kubernetes or Slurm."""
        request = self._request
        if request.recorded or request.context or request.slurm:
            return None
        hosts = host_plan.targets(host_plan.find_inventory(request.inventory), request.limit)
        return of_hosts(hosts, request.forks, request.timeout)

    @property
    def command(self) -> str:
        return str(self._line)

    def _change(self, change: Callable[[CommandLine], None]) -> None:
        """Change the command; one that gpuctl refuses is an error, and the command stays as it was."""
        line = replace(self._line)
        change(line)
        check(line.request(command.nodes, NodesRequest), "table")
        self._line = line

    def _of_type(self, text: str) -> None:
        self._change(lambda line: line.set("--type", text.strip()))

    def _toggle_idle(self, _: str) -> None:
        self._change(lambda line: line.toggle("--idle", IDLE))

    def _sort(self, _: str) -> None:
        orders = command.SORTS
        at = orders.index(self._line.options.get("--sort") or orders[0])
        following = orders[(at + 1) % len(orders)]
        self._change(lambda line: line.set("--sort", following if following != orders[0] else ""))

    def _toggle_users(self, _: str) -> None:
        self._with_users = not self._with_users

    def read(self) -> float:
        """One reading; of hosts, the answers of the next second, so that one that hangs delays no other."""
        if self._live is None:
            self._nodes, notes = source(self._request)()
            self._notes, self._read_at = list(notes), time.strftime(CLOCK)
            return NEVER if self._dash.sources else self._dash.every
        if not self._live.waiting or time.monotonic() >= self._next:
            self._next = time.monotonic() + self._dash.every
            self._notes = []
            self._live.start()
        self._live.collect(BATCH_S, self._notes.append)
        if self._live.read_at is not None or not self._live.waiting:
            self._read_at = _clock(time.time() if self._live.read_at is None else self._live.read_at)
        self._nodes = [node for node in self._live.nodes.values() if node is not None]
        return 0.0 if self._live.waiting else max(0.0, self._next - time.monotonic())

    def view(self) -> View:
        waiting = {} if self._live is None else self._live.waiting
        unread = [] if self._live is None else [name for name, node in self._live.nodes.items() if node is None]
        if not self._nodes and (unread or not self._read_at):
            return View(list(self._unread_lines(unread)), read_at=self._read_at, waiting=len(waiting))
        try:
            content = content_of(self._request, self._nodes)
        except InvalidInput:
            if not unread:
                raise
            return View(list(self._unread_lines(unread)), read_at=self._read_at, waiting=len(waiting))
        late = self._late()
        lines = [*self._lines(content, late), *self._unread_lines(unread)]
        if content.typed and not lines:
            lines.append(Line("no node matches the options of the command"))
        lines += self._finding_lines(content)
        return View(lines, "", self._summary(content, late), self._read_at, len(waiting))

    def _late(self) -> Mapping[str, str]:
        """Nodes that have answered before, but not to the last question: name -> text with both times."""
        if self._live is None:
            return {}
        asked_at, answered_at = self._live.waiting, self._live.answered_at
        with_values = {node.name for node in self._nodes if not node.why} & set(answered_at)
        now = time.time()
        return {
            name: f"UNKNOWN: values of {_clock(answered_at[name])}; {_since(asked)}"
            for name, asked in asked_at.items()
            if name in with_values and now - asked > LATE_S
        }

    def _lines(self, content: Content, late: Mapping[str, str]) -> Iterator[Line]:
        for text, node in draw.entries(content.shown, self._cells):
            level = "UNKNOWN" if node.why or node.name in late else ""
            if not text.startswith(" "):
                more = f"  ({late[node.name]})" if node.name in late else ""
                yield Line(text + more, node.name, level)
            elif self._with_users:
                yield Line(text, node.name, level)

    def _cells(self, node: Node) -> draw.Cells:
        """Cells of a node, drawn once for each reading of it: a key must not draw a thousand nodes again."""
        drawn = self._drawn.get(node.name)
        if drawn is None or drawn[0] is not node:
            drawn = self._drawn[node.name] = (node, draw.cells(node))
        return drawn[1]

    def _unread_lines(self, names: Sequence[str]) -> Iterator[Line]:
        asked_at = {} if self._live is None else self._live.waiting
        for name in names:
            text = f"waiting: {_since(asked_at[name])}" if name in asked_at else "not asked yet"
            yield Line(printable(f"{name}  {text}"), name, "UNKNOWN")

    def _finding_lines(self, content: Content) -> Iterator[Line]:
        wrong = [finding for finding in content.findings if finding.verdict is not Verdict.OK]
        if wrong or self._notes or content.notes:
            yield Line("")
        yield from finding_lines(wrong)
        for note in [*self._notes, *content.notes]:
            yield Line(printable(f"note: {note}"))

    def _summary(self, content: Content, late: Mapping[str, str]) -> list[str]:
        """Counts of the nodes with current values, and the number of the others."""
        known = [node for node in content.typed if node.name not in late]
        groups = [printable(str(group)) for group in (summary.groups(known) if late else content.groups)]
        most = MOST_SUMMARY - bool(late)
        if len(groups) > most:
            groups = [*groups[: most - 1], f"and {len(groups) - most + 1} more types"]
        old = [node.name for node in content.typed if node.name in late]
        return [*groups, *self._late_summary(old)]

    def _late_summary(self, names: Sequence[str]) -> Iterator[str]:
        if names and self._live is not None:
            times = sorted(self._live.answered_at[name] for name in names)
            span = " to ".join(dict.fromkeys(map(_clock, (times[0], times[-1]))))
            yield f"UNKNOWN: {plural(len(names), 'node')} late, values from {span}, not counted above"

    def detail(self, subject: str) -> Detail | None:
        """Users, processes and findings of a node, and the commands that act on it."""
        node = next((node for node in self._nodes if node.name == subject), None)
        if node is None:
            return None
        late = self._late().get(node.name)
        lines = [Line(late, level="UNKNOWN"), Line("")] if late else []
        lines += [Line(text) for text, _ in draw.entries([node])]
        lines += [Line(text) for user in node.users for text in _processes(node, user)]
        if found := [finding for finding in judge(node) if finding.verdict is not Verdict.OK]:
            lines += [Line(""), *finding_lines(found)]
        if acts := list(self._acts(node)):
            lines += [Line(""), Line("Commands for this node:")]
            lines += [command_line(text) for text in acts]
        return Detail(node.name, lines, self._command_of(node))

    def _command_of(self, node: Node) -> str:
        line = replace(self._line)
        if self._live is not None:
            line.set("--limit", node.name)
        elif self._dash.slurm:
            line.set("--nodes", node.name)
        return str(line)

    def _acts(self, node: Node) -> Iterator[str]:
        if self._live is None:
            return
        place = ["--inventory", self._dash.inventory] if self._dash.inventory is not None else []
        yield shell_text(["audit", *place, "--limit", node.name])
        yield shell_text(["nodes", "ssh", *place, node.name])
        yield shell_text(["nodes", "nvitop", *place, node.name])
        for user in node.users:
            if user.processes and not user.daemon:
                yield shell_text(["nodes", "kill", *place, node.name, f"pid:{user.processes[0].pid}"])


def _since(asked_at: float) -> str:
    return f"asked at {_clock(asked_at)}, no answer yet"


def _clock(at: float) -> str:
    return time.strftime(CLOCK, time.localtime(at))


def _processes(node: Node, user: User) -> Iterator[str]:
    if user.processes:
        yield ""
        yield printable(f"{user.who} {user.what}".rstrip() + f": {_count(user)}")
    for one in user.processes:
        memory = "? GiB" if one.used_mib is None else f"{one.used_mib / 1024:.1f} GiB"
        since = "?" if one.since is None or node.now is None else draw.duration(node.now - one.since)
        where = f"GPU {draw.ranges(one.gpus)}" if one.gpus else "no GPU"
        yield printable(f"  pid {one.pid}  {where}  {memory}  for {since}  {one.command or one.name}").replace(
            "\n", " "
        )


def _count(user: User) -> str:
    count = len(user.processes)
    return "1 process" if count == 1 else f"{count} processes"


def finding_lines(wrong: Sequence[Finding]) -> Iterator[Line]:
    """Findings as each command prints them."""
    for text, finding in findings.entries(wrong):
        yield Line(printable(text), finding.subject, str(finding.verdict))
