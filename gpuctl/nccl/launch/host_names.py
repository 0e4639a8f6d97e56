"""What we call the nodes that the words of a launch speak of: hosts have other names, ranks have numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.nccl import plan
from gpuctl.nccl.model import Launch, Run

_RANK = re.compile(r"rank (\d+) on ([^\s:]+)(?=:)")  # how a cause begins where both are known
_MOST = 4  # of several nodes with one name that are listed


@dataclass(frozen=True)
class Names:
    """`meant`: what a host is called by itself or by whoever started the launch -> the nodes that it may mean.

    Ranks fill one node after the other. `numbered`: the numbers in NCCL's messages are those of the whole launch.
    """

    nodes: tuple[str, ...]
    ranks_a_node: int
    numbered: bool
    meant: Mapping[str, tuple[str, ...]]

    def of_number(self, rank: int) -> str | None:
        """The node of a rank of the launch; None where it has no such rank."""
        place = rank // self.ranks_a_node
        return self.nodes[place] if 0 <= place < len(self.nodes) else None

    def of(self, rank: int | None, host: str | None) -> str | None:
        """The node that a rank of NCCL's on this host is on: its number tells more than a name others may have, too."""
        by_number = self.of_number(rank) if self.numbered and rank is not None else None
        return by_number or (self.word(host) if host else None)

    def word(self, host: str) -> str:
        """Our name for a host; several nodes that are called so are all named, and an unknown word stays."""
        nodes = self.meant.get(host, (host,))
        if len(nodes) == 1:
            return nodes[0]
        more = f" and {len(nodes) - _MOST} more" if len(nodes) > _MOST else ""
        return f"one of {', '.join(nodes[:_MOST])}{more} (each is called {host})"

    def text(self, text: str | None) -> str | None:
        """The same text with our names, all replaced at once: what stands there after that is read by nobody again."""
        begin = _RANK.match(text or "")
        if text is None or begin is None:
            return None if text is None else self._replaced(text)
        place = f"rank {begin[1]} on {self.of(int(begin[1]), begin[2])}"
        return place + self._replaced(text[begin.end() :])

    def _replaced(self, text: str) -> str:
        if not self.meant:
            return text
        every = "|".join(re.escape(word) for word in sorted(self.meant, key=len, reverse=True))
        return re.sub(rf"(?<![\w.-])(?:{every})(?![\w-]|\.\w)", lambda found: self.word(found[0]), text)


def names(run: Run, launch: Launch, hosts: Sequence[str]) -> Names:
    """Of a launch whose nodes were started by the names or addresses `hosts`, in the same order."""
    # The parts of a launch that was split count their ranks anew, each from 0.
    plain = Names(launch.nodes, launch.sweep.gpus_per_node, plan.SPLIT not in launch.sweep.env, {})
    meant: dict[str, dict[str, None]] = {}
    listed = [(rank.host, plain.of_number(rank.rank)) for rank in run.ranks]
    for word, node in [*zip(hosts, launch.nodes, strict=True), *listed]:
        if node is not None:
            meant.setdefault(word, {})[node] = None
    return Names(plain.nodes, plain.ranks_a_node, plain.numbered, {word: tuple(nodes) for word, nodes in meant.items()})
