"""Addresses and prefixes that one node takes: of its interfaces, and of the pool that the VPC CNI holds for pods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.subnets.blocks import PREFIX_SIZE
from gpuctl.subnets.node_type import NodeType, Planned

SETTING = "read a setting of the VPC CNI"


@dataclass(frozen=True)
class Cni:
    """Settings of the VPC CNI by its variables; None for one that is not set.

    Defaults are those of its manifest. WARM_IP_TARGET or MINIMUM_IP_TARGET override the other two targets.
    """

    prefix_delegation: bool = False
    subnet_discovery: bool = True
    warm_eni_target: int = 1
    warm_prefix_target: int = 1
    warm_ip_target: int | None = None
    minimum_ip_target: int | None = None
    max_eni: int | None = None


FIELDS = {
    "ENABLE_PREFIX_DELEGATION": "prefix_delegation",
    "ENABLE_SUBNET_DISCOVERY": "subnet_discovery",
    "WARM_ENI_TARGET": "warm_eni_target",
    "WARM_PREFIX_TARGET": "warm_prefix_target",
    "WARM_IP_TARGET": "warm_ip_target",
    "MINIMUM_IP_TARGET": "minimum_ip_target",
    "MAX_ENI": "max_eni",
}
SWITCHES = frozenset({"ENABLE_PREFIX_DELEGATION", "ENABLE_SUBNET_DISCOVERY"})
ZERO_COUNTS = frozenset({"WARM_ENI_TARGET", "WARM_PREFIX_TARGET"})  # for the others it means "not set"
MOST = 10_000  # addresses of any target


def settings(assignments: Iterable[str]) -> Cni:
    """Settings from assignments such as WARM_IP_TARGET=5; InvalidInput for another name or value."""
    values: dict[str, Any] = {}
    for word in assignments:
        name, _, text = word.partition("=")
        if name not in FIELDS:
            raise InvalidInput(SETTING, f"{name or word} is not among those that count here", ", ".join(FIELDS))
        if name in SWITCHES:
            if text not in ("true", "false"):
                raise InvalidInput(SETTING, f"{name} is {text!r}", "true or false")
            values[FIELDS[name]] = text == "true"
        elif re.fullmatch(r"[0-9]{1,5}", text) and int(text) <= MOST:
            values[FIELDS[name]] = int(text) if name in ZERO_COUNTS else int(text) or None
        else:
            raise InvalidInput(SETTING, f"{name} is {text!r}", f"a whole number up to {MOST}")
    return Cni(**values)


@dataclass(frozen=True)
class Pool:
    """Addresses or prefixes that the CNI asks for on one interface, beyond its primary address."""

    addresses: int
    prefixes: int


@dataclass(frozen=True)
class Demand:
    """Demand of one node. `launched`: addresses of the interfaces that it is launched with. `pools`: of the primary
    interface, then of those that the CNI adds, which also take an address each. `most_pods`: pods that can have an
    address of their own."""

    launched: int
    pools: Sequence[Pool]
    most_pods: int

    @property
    def addresses(self) -> int:
        """Single addresses."""
        return self.launched + len(self.pools) - 1 + sum(pool.addresses for pool in self.pools)

    @property
    def prefixes(self) -> int:
        return sum(pool.prefixes for pool in self.pools)


def demand(node: NodeType, planned: Sequence[Planned], cni: Cni, pods: int) -> Demand:
    """Demand of a node on which `pods` pods have an address of their own (not hostNetwork).

    Source: Amazon VPC CNI, docs/eni-and-ip-target.md and docs/prefix-and-ip-target.md.
    """
    slots = node.addresses - 1
    default = next(card for card in node.cards if card.index == node.default_card)
    beside = sum(one.card == node.default_card for one in planned) - 1  # efa-only takes a place and gives no address
    most = max(1, min(default.interfaces - beside, cni.max_eni or default.interfaces))
    each = PREFIX_SIZE if cni.prefix_delegation else 1
    units, interfaces = _units(cni, pods, slots)
    interfaces = min(interfaces, most)
    units = min(units, interfaces * slots)
    shares = [min(slots, units - slots * number) for number in range(interfaces)]
    pools = [Pool(0, share) if cni.prefix_delegation else Pool(share, 0) for share in shares]
    return Demand(sum(one.has_address for one in planned), pools, most * slots * each)


def _units(cni: Cni, pods: int, slots: int) -> tuple[int, int]:
    """Addresses or prefixes that the CNI holds for this many pods, and interfaces for them."""
    by_address = cni.warm_ip_target is not None or cni.minimum_ip_target is not None
    held = max(pods + (cni.warm_ip_target or 0), cni.minimum_ip_target or 0) if by_address else pods
    if cni.prefix_delegation:
        units = ceil(held / PREFIX_SIZE) + (0 if by_address else cni.warm_prefix_target)
        return units, max(1, ceil(units / slots))
    if by_address:
        return held, max(1, ceil(held / slots))
    interfaces = max(1, ceil(pods / slots) + cni.warm_eni_target)
    return interfaces * slots, interfaces
