"""Check the adapters that a user names against those of the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import named

Devices = Mapping[str, Sequence[str] | None]  # node -> its adapters; None if it did not answer
MOST = 3  # nodes named in a message


def check(rails: Sequence[str], devices: Devices) -> list[str]:
    """Warnings to print before runs over these adapters; `InvalidInput` if no node has one of them.

    A rail may name its port (mlx5_0:1), which is not checked.
    """
    silent = [node for node, adapters in devices.items() if adapters is None]
    known = {node: adapters for node, adapters in devices.items() if adapters is not None}
    lacking = {rail: [node for node, names in known.items() if rail.partition(":")[0] not in names] for rail in rails}
    nowhere = [rail for rail, nodes in lacking.items() if len(nodes) == len(known)]
    if nowhere and not silent and known:
        present = "; ".join(f"{node} has {_names(adapters)}" for node, adapters in list(known.items())[:MOST])
        hint = "choose some of these" if any(known.values()) else "leave out --rails"
        raise InvalidInput(f"run over {', '.join(nowhere)} alone", f"no node has such an adapter: {present}", hint)
    partly = ((rail, nodes) for rail, nodes in lacking.items() if nodes and rail not in nowhere)
    warnings = [f"{rail} is not on {named(nodes, MOST)}" for rail, nodes in partly]
    if silent:
        nobody = f", and no node that answered has {', '.join(nowhere)}" if nowhere and known else ""
        warnings.append(
            f"UNKNOWN whether {named(silent, MOST)} {'has' if len(silent) == 1 else 'have'} such adapters{nobody}"
        )
    return warnings


def _names(adapters: Sequence[str]) -> str:
    return ", ".join(adapters) or "none"
