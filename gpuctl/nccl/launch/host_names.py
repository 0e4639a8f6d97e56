"""Map host names and rank numbers in launch output to inventory node names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.nccl import plan
from gpuctl.nccl.model import Launch, Run

_RANK = re.compile(r"rank (\d+) on ([^\s:]+)(?=:)")  # beginning of a cause with a known rank and host
_MOST = 4  # nodes of one host name that are listed


@dataclass(frozen=True)
class Names:
    """`meant`: a host name in the output, or the name used for the launch -> the nodes it may refer to.

    Ranks fill one node after the other. `numbered`: rank numbers in NCCL's messages are those of the whole launch.
    """

    nodes: tuple[str, ...]
    ranks_a_node: int
    numbered: bool
    meant: Mapping[str, tuple[str, ...]]

    def of_number(self, rank: int) -> str | None:
        """Node of a rank of the launch; None if there is no such rank."""
        place = rank // self.ranks_a_node
        return self.nodes[place] if 0 <= place < len(self.nodes) else None

    def name_of(self, rank: int | None, host: str | None) -> str | None:
        """Node of an NCCL rank on this host; the rank number wins over a host name that others may share."""
        by_number = self.of_number(rank) if self.numbered and rank is not None else None
        return by_number or (self.word(host) if host else None)

    def word(self, host: str) -> str:
        """Node name for a host; all candidates if it is ambiguous, the word itself if it is unknown."""
        nodes = self.meant.get(host, (host,))
        if len(nodes) == 1:
            return nodes[0]
        more = f" and {len(nodes) - _MOST} more" if len(nodes) > _MOST else ""
        return f"one of {', '.join(nodes[:_MOST])}{more} (each is called {host})"

    def text(self, text: str | None) -> str | None:
        """Replace all host names in a text in one pass."""
        begin = _RANK.match(text or "")
        if text is None or begin is None:
            return None if text is None else self._replaced(text)
        place = f"rank {begin[1]} on {self.name_of(int(begin[1]), begin[2])}"
        return place + self._replaced(text[begin.end() :])

    def _replaced(self, text: str) -> str:
        if not self.meant:
            return text
        every = "|".join(re.escape(word) for word in sorted(self.meant, key=len, reverse=True))
        return re.sub(rf"(?<![\w.-])(?:{every})(?![\w-]|\.\w)", lambda match: self.word(match[0]), text)


def names(run: Run, launch: Launch, hosts: Sequence[str]) -> Names:
    """Name map of a launch whose nodes were started as `hosts`, in the same order."""
    # Each part of a split launch counts its ranks from 0.
    plain = Names(launch.nodes, launch.sweep.gpus_per_node, plan.SPLIT not in launch.sweep.env, {})
    meant: dict[str, dict[str, None]] = {}
    listed = [(rank.host, plain.of_number(rank.rank)) for rank in run.ranks]
    for word, node in [*zip(hosts, launch.nodes, strict=True), *listed]:
        if node is not None:
            meant.setdefault(word, {})[node] = None
    return Names(plain.nodes, plain.ranks_a_node, plain.numbered, {word: tuple(nodes) for word, nodes in meant.items()})
