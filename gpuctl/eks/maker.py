"""One run of making a cluster: an object is looked for by its tag before it is made, and made once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.aws import Aws, NoAnswer, Request, code_of
from gpuctl.eks import health
from gpuctl.eks import state as states
from gpuctl.eks.model import EksCluster
from gpuctl.eks.node_template import NodeNetwork
from gpuctl.eks.objects import (
    EXPIRES,
    MEMBERS,
    Kind,
    Object,
    State,
    tag_list,
    tags,
    token,
)
from gpuctl.eks.wait import ROLE_KNOWN, TimeUp, Wait, Waiter

ATTEMPTS = 4  # of a change without an answer: the state is read before each
LOOKS = 6  # after a lost answer, ten seconds apart: EC2 and IAM list a new object up to a minute late
# Kinds whose requests AWS recognizes by a token: a repeat makes nothing twice.
WITH_TOKEN = frozenset({Kind.NAT, Kind.ROUTES, Kind.TEMPLATE, Kind.CLUSTER, Kind.GROUP, Kind.ENTRY})
BUSY = ("CREATING", "UPDATING", "DELETING")
# What AWS answers to a request that an attempt without an answer has carried out.
DONE_BEFORE = ("Resource.AlreadyAssociated", "RouteAlreadyExists")


@dataclass(frozen=True)
class Design:
    """A cluster with what only AWS knows about its types. `needed_zones`: node group -> zones that it can use.
    `strategies`: placement group -> its strategy."""

    cluster: EksCluster
    networks: Mapping[str, NodeNetwork]  # by node group
    needed_zones: Mapping[str, frozenset[str]]
    strategies: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Maker:
    """One run of making a cluster."""

    aws: Aws
    design: Design
    state: State
    waiter: Waiter
    vpc: str = ""  # known once its subnets are

    @property
    def cluster(self) -> EksCluster:
        return self.design.cluster

    @property
    def partition(self) -> str:
        first = self.state.first_role
        return str(first.data["Arn"]).split(":")[1] if first else "aws"

    def tags(self, part: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Tags of an object; the end of the time to live is that of the first role."""
        plain = {**self.cluster.tags, **(more or {})}
        first = self.state.first_role
        if first is not None and first.tags.get(EXPIRES):
            plain[EXPIRES] = first.tags[EXPIRES]
        return tags(self.cluster.name, self.cluster.region, part, plain)

    def token(self, part: str, content: Any = "") -> str:
        first = self.state.first_role
        if first is None:
            raise GpuctlError(f"make {part}", "the first role is missing", "run the command again")
        return token(str(first.data["RoleId"]), part, content)

    def ensure(self, kind: Kind, part: str, request: Callable[[], Request], member: str) -> Object:
        """The object of a part, made if it does not exist. Without an answer, the state is read before a repeat."""
        for attempt in range(1, ATTEMPTS + 1):
            found = self.state.get(kind, part)
            if found is not None:
                return self.checked(found)
            send = request()
            try:
                answer = self.sent(send)
            except NoAnswer:
                if attempt == ATTEMPTS:
                    raise
                self.waiter.progress(f"{send.doing}: no answer; looking whether it was done")
                self.look(kind, part)
                continue
            data = answer.get(member, answer) if member else answer
            name = str(data.get(MEMBERS[kind][0]) or part)
            state = str(data.get(MEMBERS[kind][1] or "-") or "")
            made = Object(kind, name, part, state, ours=True, tags=self.tags(part), data=data)
            self.state.add(made)
            self.waiter.progress(f"made {made}")
            return made
        raise AssertionError("unreachable")

    def look(self, kind: Kind, part: str) -> None:
        """Look for an object whose answer was lost. What was confirmed stays known: AWS may not list it yet."""
        for _ in range(1 if kind in WITH_TOKEN else LOOKS):
            self.waiter.sleep(self.waiter.every_s)
            known = {(one.kind, one.name) for one in self.state.objects}
            for one in states.read(self.aws, self.cluster.name).objects:
                if (one.kind, one.name) not in known:
                    self.state.add(one)
            if self.state.get(kind, part) is not None:
                return

    def needed(self, kind: Kind, part: str) -> Object:
        """The object of a part that an earlier step has made."""
        found = self.state.get(kind, part)
        if found is None:
            raise GpuctlError(f"use the {kind} {part}", "it was made, and is not known", "run the command again")
        return found

    def checked(self, item: Object) -> Object:
        """The object, if it is ours; GpuctlError for one that only has its name."""
        if not item.ours:
            hint = "choose another name for the cluster, or remove it yourself"
            raise GpuctlError(f"make {item}", "it exists, and does not have gpuctl's tags of this cluster", hint)
        return item

    def act(self, doing: str, service: str, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Send a change that can be repeated."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self.sent(Request(doing, service, operation, "", parameters))
            except NoAnswer:
                if attempt == ATTEMPTS:
                    raise
                self.waiter.sleep(self.waiter.every_s)
            except GpuctlError as error:
                if attempt == 1 or code_of(error) not in DONE_BEFORE:
                    raise
                return {}  # by the attempt without an answer
        raise AssertionError("unreachable")

    def sent(self, request: Request) -> dict[str, Any]:
        """AWS's answer; repeated while AWS does not know an object yet that it has just made."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self.aws.act(request)
            except GpuctlError as error:
                if attempt == ATTEMPTS or not states.is_absent(error):
                    raise
                self.waiter.sleep(self.waiter.every_s)
        raise AssertionError("unreachable")

    def ec2(self, kind: Kind, part: str, operation: str, member: str, type_: str, **parameters: Any) -> Object:
        """An object of EC2, with its tags from its first moment on."""
        more = parameters.pop("more", None)

        def request() -> Request:
            tagged = [{"ResourceType": type_, "Tags": tag_list(self.tags(part, more))}]
            return Request(f"make the {kind} {part}", "ec2", operation, "", {**parameters, "TagSpecifications": tagged})

        return self.ensure(kind, part, request, member)

    def settled(
        self, kind: Kind, names: Collection[str], wait: Wait, on_row: Callable[[Object], None] = lambda _: None
    ) -> dict[str, Object | None]:
        """Each of these addons or node groups once none changes any more; None for one that AWS does not list."""
        last: dict[str, Object] = {}

        def poll() -> tuple[bool | None, str]:
            last.clear()
            for one in states.in_cluster(self.aws, self.state, [kind]):
                if one.name in names:
                    last[one.name] = one
                    self.state.add(one)
                    on_row(one)
            shown = {name: last[name].state if name in last else "not listed" for name in names}
            busy = [f"{name} {state}" for name, state in shown.items() if state in (*BUSY, "not listed")]
            return (None if busy else True), ", ".join(busy)

        try:
            self.waiter.until(wait, poll)
        except TimeUp:
            if any(one.state in BUSY for one in last.values()):
                raise
        return {name: last.get(name) for name in names}

    def removed(self, kind: Kind, name: str, wait: Wait, doing: str) -> None:
        """Wait until an object inside the cluster is gone; a failed deletion ends it with its cause."""

        def poll() -> tuple[bool | None, str]:
            rows = states.in_cluster(self.aws, self.state, [kind])
            left = next((one for one in rows if one.name == name), None)
            if left is not None and left.state == "DELETE_FAILED":
                wrong = "; ".join(map(str, health.issues(left.data))) or "AWS names no reason"
                raise GpuctlError(doing, wrong, "remove the cause, and resume")
            return (True if left is None else None), left.state if left else ""

        self.waiter.until(wait, poll)
        self.state.objects = [one for one in self.state.objects if (one.kind, one.name) != (kind, name)]

    def once_role_is_known(self, make: Callable[[], Object]) -> Object:
        """Repeat a request that AWS refuses as it does not know the new role yet."""

        def poll() -> tuple[Object | None, str]:
            try:
                return make(), ""
            except GpuctlError as error:
                is_role = "role" in error.wrong.lower() and code_of(error) in (
                    *("InvalidParameterException", "InvalidRequestException", "AccessDeniedException"),
                )
                if not is_role:
                    raise
                last.append(error)
                return None, "not known"

        last: list[GpuctlError] = []
        try:
            return self.waiter.until(ROLE_KNOWN, poll)
        except TimeUp:
            raise last[-1] from last[-1].__cause__
