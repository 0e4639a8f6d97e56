"""The adapters that a user names, against those that the nodes have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import named

Devices = Mapping[str, Sequence[str] | None]  # node -> its adapters; None where it could not be asked
MOST = 3  # nodes that are named


def check(rails: Sequence[str], devices: Devices) -> list[str]:
    """What is to be told before runs over these adapters; `InvalidInput` where no node has one of them.

    A rail may name the port, too (mlx5_0:1), which is not looked at.
    """
    silent = [node for node, own in devices.items() if own is None]
    told = {node: own for node, own in devices.items() if own is not None}
    lack = {rail: [node for node, own in told.items() if rail.partition(":")[0] not in own] for rail in rails}
    nowhere = [rail for rail, nodes in lack.items() if len(nodes) == len(told)]
    if nowhere and not silent and told:
        there = "; ".join(f"{node} has {_names(own)}" for node, own in list(told.items())[:MOST])
        hint = "name some of these" if any(told.values()) else "leave out --rails"
        raise InvalidInput(f"run over {', '.join(nowhere)} alone", f"no node has such an adapter: {there}", hint)
    words = [f"{rail} is not on {named(nodes, MOST)}" for rail, nodes in lack.items() if nodes and rail not in nowhere]
    if silent:
        unseen = f", and no node that was asked has {', '.join(nowhere)}" if nowhere and told else ""
        words.append(
            f"UNKNOWN whether {named(silent, MOST)} {'has' if len(silent) == 1 else 'have'} such adapters{unseen}"
        )
    return words


def _names(own: Sequence[str]) -> str:
    return ", ".join(own) or "none"
