"""Network cards of an instance type, and the interfaces that its nodes get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpuctl.core.errors import GpuctlError

PLAIN, EFA, EFA_ONLY = "interface", "efa", "efa-only"
# By AWS, these carry 800 Gb/s of IP traffic with ENA on every fourth of their 32 cards.
EVERY_FOURTH = ("p5.", "p5e.")


class Layout(StrEnum):
    """Interfaces of a node.

    `EFA_ONLY`: one address a node, as efa-only interfaces have none. `BANDWIDTH`: further plain interfaces for IP
    traffic. `EFA`: every EFA interface with an address, as older tools do. `PLAIN`: no EFA.
    """

    EFA_ONLY = "efa-only"
    BANDWIDTH = "bandwidth"
    EFA = "efa"
    PLAIN = "plain"


@dataclass(frozen=True)
class Card:
    """A network card. `interfaces`: the most it takes. `types`: interface, efa, efa-only."""

    index: int
    interfaces: int
    types: frozenset[str]


@dataclass(frozen=True)
class NodeType:
    """An instance type. `addresses`: IPv4 addresses of one interface, its primary one included. `efas`: the most."""

    name: str
    cards: Sequence[Card]
    default_card: int
    addresses: int
    efas: int


@dataclass(frozen=True)
class Planned:
    """An interface of a new node; `kind`: interface, efa or efa-only."""

    card: int
    device: int
    kind: str

    @property
    def has_address(self) -> bool:
        return self.kind != EFA_ONLY


def read(answer: Mapping[str, Any]) -> NodeType:
    """An instance type from DescribeInstanceTypes; GpuctlError names what the answer lacks."""
    name = answer.get("InstanceType") or "one without a name"
    try:
        network = answer["NetworkInfo"]
        cards = [
            Card(card["NetworkCardIndex"], card["MaximumNetworkInterfaces"], frozenset(card["InterfaceTypes"]))
            for card in network["NetworkCards"]
        ]
        efas = (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0) if network.get("EfaSupported") else 0
        default = network["DefaultNetworkCardIndex"]
        return NodeType(name, cards, default, int(network["Ipv4AddressesPerInterface"]), int(efas))
    except (KeyError, ValueError, TypeError) as error:
        wrong = f"{name}: {type(error).__name__.lower()} {error}"
        raise GpuctlError("read an instance type in AWS's answer", wrong, "check AWS_ENDPOINT_URL") from error


def interfaces(node: NodeType, layout: Layout) -> list[Planned]:
    """Interfaces of a new node, the primary one first. A type without EFA gets one plain interface.

    Source: Amazon EC2 user guide, "Elastic Fabric Adapter" (accelerated instance types): one EFA interface a card; the
    primary interface cannot be efa-only.
    """
    with_efa = _efas(node, layout) if layout is not Layout.PLAIN else []
    first = [one for one in with_efa if one.card == node.default_card and one.device == 0]
    planned = first or [Planned(node.default_card, 0, PLAIN)]
    planned += [one for one in with_efa if one not in first]
    if layout is Layout.BANDWIDTH:
        planned += [Planned(card.index, 1, PLAIN) for card in node.cards if _takes_plain(node, card)]
    return planned


def _efas(node: NodeType, layout: Layout) -> list[Planned]:
    planned = []
    for card in node.cards:
        kind = EFA_ONLY if EFA_ONLY in card.types and layout is not Layout.EFA else EFA
        if kind not in card.types:
            continue
        is_default = card.index == node.default_card
        # Older tools put an interface with an address at device 1 of further cards; a card may take only one.
        beside = is_default if kind == EFA_ONLY else not is_default and card.interfaces > 1
        if beside and card.interfaces < 2:
            continue
        planned.append(Planned(card.index, int(beside), kind))
    return planned[: node.efas]


def _takes_plain(node: NodeType, card: Card) -> bool:
    if card.index == node.default_card or card.interfaces < 2 or PLAIN not in card.types:
        return False
    return card.index % 4 == 0 if node.name.startswith(EVERY_FOURTH) else True
