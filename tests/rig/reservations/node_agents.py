"""Nodes of both back ends in folders of a test: devices are plain files, access lists and the engine are real."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpuctl.engine import answers, gpu_sessions, gpuhost_host
from gpuctl.engine import gpuhost_api as api
from gpuctl.reservations.agent import NotObeyed, VisitedNode
from gpuctl.reservations.local_node import local_node
from gpuctl.reservations.rules.model import Node
from gpuctl.reservations.rules.reconcile import Observation
from gpuctl.reservations.rules.reports import Order, OrderKind
from tests.rig.reservations.world import Agent

SERVICE = "desk:/state"
END_S = 0.2
ACCOUNT = "daemon"
NodeFactory = Callable[..., VisitedNode]


def folder(root: Path, gpus: int) -> Path:
    """The root of a host with device files that everybody can open, as the driver makes them."""
    for name in ("dev/pts", "state"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for minor in range(gpus):
        (root / f"dev/nvidia{minor}").touch()
        (root / f"dev/nvidia{minor}").chmod(0o666)
    return root


def in_process(root: Path, gpus: int, service: str = SERVICE) -> VisitedNode:
    """The node of `serve` without an inventory."""
    return local_node("gpu-1", gpus, service, root, END_S)


def by_visits(root: Path, gpus: int, service: str = SERVICE) -> VisitedNode:
    """The node of `serve --inventory`: requests and answers are JSON, checked like those of a host; without ssh."""

    def visit(request: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = api.visit(json.loads(json.dumps(request)), gpuhost_host.Host(root))
        checked = answers.checked(json.loads(json.dumps(answer)), request)
        if "error" in checked:
            raise OSError(checked["error"]["wrong"])
        act: Mapping[str, Any] = checked["act"]
        return act

    return VisitedNode("gpu-1", gpus, service, visit, {"end_s": END_S})


BACK_ENDS: Mapping[str, NodeFactory] = {"this host": in_process, "inventory": by_visits}


def access(root: Path, gpus: int) -> list[list[int]]:
    """Users on the access list of each GPU."""
    return [gpu_sessions.users_of(root / f"dev/nvidia{minor}") for minor in range(gpus)]


class RealAgent(Agent):
    """An agent of the random histories whose orders a real node carries out. `sessions` is what the node reports."""

    def __init__(self, node: Node, factory: NodeFactory, root: Path) -> None:
        super().__init__(node.name)
        self.gpus, self.root = len(node.allocated), folder(root / node.name, len(node.allocated))
        self.real = factory(self.root, self.gpus)

    def obey(self, order: Order, fails: bool) -> tuple[str, Order] | None:
        if not self.reachable:
            return None
        try:
            result, observed = self._carry_out(order, fails)
        except NotObeyed as refusal:
            lacks = order.kind is OrderKind.ACCESS and ("no account" in str(refusal) or "no session" in str(refusal))
            if "is older than" in str(refusal) or lacks:
                return None
            raise AssertionError(f"double booking on {self.node}: {refusal}") from refusal
        self.fence = order.fence
        observation = observed or self.real.observe(order.fence)  # after an order, nothing refuses it
        self.sessions = {one.reservation: (one.attempt, one.gpus) for one in observation.sessions}
        users = [sum(minor in gpus for _, gpus in self.sessions.values()) for minor in range(self.gpus)]
        assert [min(len(uids), 1) for uids in access(self.root, self.gpus)] == users, "access differs from the sessions"
        return result, order

    def _carry_out(self, order: Order, fails: bool) -> tuple[str, Observation | None]:
        if order.kind is OrderKind.OBSERVE:
            return "observed", self.real.observe(order.fence)
        if order.kind is OrderKind.PREPARE and fails:
            return "failed", self.real.observe(order.fence)
        self.real.obey(order, ACCOUNT)
        result = {
            OrderKind.PREPARE: "ready",
            OrderKind.CLEAR: "cleared",
            OrderKind.CLEAN_NODE: "clean",
            OrderKind.ACCESS: "has access",
        }[order.kind]
        return result, None
