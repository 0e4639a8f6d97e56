"""Drain nodes, so that they take no new work, and take back what gpuctl has drained: Slurm or Kubernetes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.run_history import current_user
from gpuctl.domain import node_drain
from gpuctl.domain.findings import Finding, Verdict, worst_first
from gpuctl.domain.kube_errors import Conflict
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube.cluster import Cluster, Object, Request
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import HostResult, Target
from gpuctl.workflows.recorded_act import Begin, Entry, no_begin, recorded

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
MANAGED = (("fieldManager", node_drain.MANAGER),)
MOST = 120  # characters of a reason
ABSENT = frozenset({"in-use"})  # checks that are no reason to drain


@dataclass(frozen=True)
class Drain:
    """A node to drain, or to take back. `state`: due, done, others, failed or unknown; `text`: about it, for people.

    `reason`: of a drain. `scheduler`: "Slurm" or "Kubernetes". `live`: object of the API. `slurm_state`: as scontrol
    prints it, such as "MIXED+DRAIN".
    """

    node: str
    scheduler: str
    state: str
    reason: str = ""
    text: str = ""
    live: Object | None = None
    slurm_state: str = ""


def reasons(findings: Sequence[Finding]) -> dict[str, str]:
    """Node -> why it is to be drained: its worst FAILs, without those that only tell who uses it."""
    texts: dict[str, list[str]] = {}
    for finding in worst_first(findings):
        if finding.verdict is Verdict.FAIL and finding.subject and finding.check not in ABSENT:
            node, _, part = finding.subject.partition(" ")
            texts.setdefault(node, []).append(" ".join(filter(None, [finding.check, part, finding.message])))
    return {node: _short(rows) for node, rows in texts.items()}


def _short(rows: Sequence[str]) -> str:
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return rows[0][: MOST - len(more)] + more


class Nodes:
    """Nodes of a scheduler that can be drained: of Kubernetes if a context is named, else of Slurm over ssh.

    `ours`: beginning of the reasons of drains that may be taken back; "" for all of gpuctl. `cause`: of the condition
    in Kubernetes.
    """

    def __init__(
        self, hosts: Sequence[Target], context: str, timeout_s: float, *, ours: str = "", cause: str = "AuditFailed"
    ) -> None:
        self.hosts = {host.name: host for host in hosts}
        self.timeout_s, self.ours, self.cause = timeout_s, ours, cause
        self.yields = "" if ours else node_drain.ROLLOUT
        self._uids: dict[str, str] = {}  # host -> uid of its node, once that is proven
        self.cluster: Cluster | None = kube.connect(context) if context else None

    def read(self, texts: Mapping[str, str], *, undo: bool) -> list[Drain]:
        """State of these nodes. `texts`: node -> reason."""
        if self.cluster is not None:
            return self._read_kube(self.cluster, texts, undo)
        results = self._slurm(texts, undo=undo, check=True)
        return [_of_slurm(result, texts[result.host]) for result in results]

    def change(self, drains: Sequence[Drain], run: str, *, undo: bool) -> list[Drain]:
        """Drain these nodes or take them back, and read them again."""
        if not drains:
            return []
        texts = {one.node: f"{one.reason} ({run})" for one in drains}
        if self.cluster is not None:
            return [self._change_kube(self.cluster, one, run, undo) for one in drains]
        return [_of_slurm(result, texts[result.host]) for result in self._slurm(texts, undo=undo, check=False)]

    def _slurm(self, texts: Mapping[str, str], *, undo: bool, check: bool) -> list[HostResult]:
        if lacking := [node for node in texts if node not in self.hosts]:
            raise InvalidInput(f"drain {', '.join(lacking)}", "the inventory does not have it")
        actor = current_user()

        def request(host: Target) -> dict[str, Any]:
            text = texts[host.name]
            ours = {"ours": self.ours} if self.ours else {"yields": self.yields}
            about = {"about": host.name, "actor": actor, "reason": text}
            return {"action": "act", "act": "slurm drain", **ours, "text": text, "undo": undo, "check": check, **about}

        targets = [self.hosts[node] for node in texts]
        return run_on_all(targets, request, forks=64, timeout_s=self.timeout_s, on_result=lambda _: None)

    def _read_kube(self, cluster: Cluster, texts: Mapping[str, str], undo: bool) -> list[Drain]:
        live = cluster.find(cluster.kind("v1", "Node"), {})
        nodes = {host: self._node(live, host) for host in texts}
        rows = []
        for host, reason in texts.items():
            one = nodes[host]
            if one is None or (wrong := self._wrong(host, nodes)):
                text = "the cluster has no node, or several, of this name" if one is None else wrong
                rows.append(Drain(host, "Kubernetes", "unknown", reason, text))
                continue
            state = node_drain.state(one, undo=undo, ours=self.ours, yields=self.yields)
            rows.append(Drain(host, "Kubernetes", state, reason, _about(one, state), dict(one)))
        return rows

    def _node(self, live: Sequence[Object], host: str) -> node_drain.Node | None:
        return node_drain.find(live, host, self.hosts[host].address if host in self.hosts else "")

    def _wrong(self, host: str, nodes: Mapping[str, node_drain.Node | None]) -> str:
        """Why a node cannot be the host's; "" if nothing speaks against it."""
        uids = {name: node["metadata"].get("uid") for name, node in nodes.items() if node is not None}
        same = [name for name, uid in uids.items() if uid and uid == uids[host]]
        if len(same) > 1:
            return f"{' and '.join(same)} are the same node of the cluster"
        if host in self._uids and uids[host] != self._uids[host]:
            return "its node was replaced by another one of this name"
        return ""

    def prove(self, drains: Sequence[Drain], boots: Mapping[str, str]) -> list[Drain]:
        """Rows of nodes that show the boot of their host; others are unknown, as many clusters have the same names.

        `boots`: host -> boot_id, as the host shows it.
        """
        rows = []
        for one in drains:
            wrong = _other_boot(one.live, boots.get(one.node, "")) if one.live is not None else ""
            if wrong:
                rows.append(replace(one, state="unknown", text=wrong, live=None))
                continue
            if one.live is not None:
                self._uids[one.node] = one.live["metadata"]["uid"]
            rows.append(one)
        return rows

    def _change_kube(self, cluster: Cluster, drain: Drain, run: str, undo: bool) -> Drain:
        live = drain.live
        if live is None:
            return drain
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        mark = {"by": current_user(), "at": at, "reason": drain.reason, "run": run}
        path = cluster.path_of(cluster.kind("v1", "Node"), live["metadata"]["name"])
        doing = f"{'take back the drain of' if undo else 'drain'} the node {drain.node}"
        patch = node_drain.uncordon(live) if undo else node_drain.cordon(live, mark)
        try:
            now = cluster.ask(Request(doing, "PATCH", path, MANAGED, patch, MERGE))
        except Conflict:
            text = "it was changed since it was shown; run this again"
            return Drain(drain.node, "Kubernetes", "failed", drain.reason, text)
        except GpuctlError as error:  # of this node; the others are changed all the same
            text = "; ".join(filter(None, [f"{error.doing}: {error.wrong}", error.hint]))
            return Drain(drain.node, "Kubernetes", "failed", drain.reason, text)
        status = node_drain.no_condition() if undo else node_drain.condition(mark, self.cause)
        text = ""
        try:
            doing = f"set a condition of {drain.node}"
            cluster.ask(Request(doing, "PATCH", f"{path}/status", body=status, form=STRATEGIC))
        except GpuctlError as error:  # the cordon is what keeps pods away
            text = f"without its condition: {error.wrong}"
        state = "done" if node_drain.is_cordoned(now) is not undo else "failed"
        return Drain(drain.node, "Kubernetes", state, drain.reason, text, now)


def _other_boot(live: Object, boot: str) -> str:
    """Why a node is not proven to be the host that booted so; "" if it is."""
    name, shown = live["metadata"]["name"], ((live.get("status") or {}).get("nodeInfo") or {}).get("bootID", "")
    if not boot:
        return f"whether it is the node {name} is unknown: the host's boot_id cannot be read"
    if shown == boot:
        return ""
    why = f"has the boot {shown}, the host {boot}" if shown else "shows no boot"
    return f"the cluster's node {name} {why}: is it another cluster, or has its kubelet not started since the boot?"


def _about(node: node_drain.Node, state: str) -> str:
    mark = node_drain.mark_of(node)
    if mark is not None and node_drain.is_drained_by_us(node):
        return f"drained by {mark.get('by', '?')} at {mark.get('at', '?')}: {mark['reason']}"
    return "somebody else has cordoned it" if state == "others" else ""


def _of_slurm(result: HostResult, reason: str) -> Drain:
    if result.answer is None:
        return Drain(result.host, "Slurm", "unknown", reason, f"{result.wrong}; {result.hint}".removesuffix("; "))
    answer = result.answer["act"]
    more = f" ({answer['slurm_reason']})" if answer["slurm_reason"] else ""
    text = answer["reason"] or f"Slurm has it {answer['slurm_state']}{more}"
    slurm_state = answer["slurm_state"] or ""
    return Drain(result.host, "Slurm", answer["state"], reason, text, slurm_state=slurm_state)


def carry_out(
    nodes: Nodes, drains: Sequence[Drain], command: Sequence[str], *, undo: bool, begin: Begin = no_begin
) -> tuple[list[Drain], str]:
    """Change those that are due, with a record around it; results, and the name of the run."""
    due = [one for one in drains if one.state == "due"]
    act = "undrain" if undo else "drain"
    shown = {
        one.node: {"act": act, "reason": one.reason, "scheduler": one.scheduler, "before": one.text} for one in due
    }
    with recorded(command, shown) as entry:
        begin(entry.name)
        results = nodes.change(due, entry.name, undo=undo)
        _note(entry, results)
        entry.exit_code = exit_code(results)
    return results, entry.name


def _note(entry: Entry, results: Sequence[Drain]) -> None:
    for one in results:
        entry.update(one.node, status=one.state, after=one.text)


def exit_code(results: Sequence[Drain]) -> int:
    """0 if all are as requested, 3 otherwise."""
    return 0 if all(one.state == "done" for one in results) else 3
