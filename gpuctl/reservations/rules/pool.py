"""When the GPUs of one type become free, by the allocations of now; where a request fits, and from when on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuctl.reservations.rules.model import Book, Limits, Node, NodeState, Reservation, Slot, State

FREE = 0  # free now
NEVER = 1 << 62  # not free as long as this is known


def release_at(reservation: Reservation, limits: Limits, now: int) -> int:
    """Latest instant at which its GPUs are free again. The idle end is not used: activity would withdraw it."""
    if reservation.state is State.PREPARING:
        free_at = reservation.since_at + longest_hold_s(reservation.length_s, limits)
    elif reservation.state is State.ACTIVE and reservation.expires_at is not None:
        free_at = reservation.expires_at + release_s(limits)
    else:
        free_at = reservation.since_at + limits.clear_limit_s
    return free_at if free_at > now else now + limits.clear_limit_s  # overdue: as if it began to clear now


def release_s(limits: Limits) -> int:
    """Longest time from the end of a session to the release of its GPUs."""
    return limits.grace_s + limits.pass_s + limits.clear_limit_s


def longest_hold_s(length_s: int, limits: Limits) -> int:
    """Longest time from a start to the release of its GPUs."""
    return limits.prepare_limit_s + limits.pass_s + length_s + release_s(limits)


@dataclass(frozen=True)
class Fit:
    """GPUs for a request, and the instant from which they are free."""

    at: int
    slots: tuple[Slot, ...]


class Pool:
    """Usable nodes of one GPU type. `free_at`: node -> instant at which each GPU is free, `FREE` for those of now."""

    def __init__(self, free_at: dict[str, list[int]], zones: dict[str, str], now: int) -> None:
        self.free_at, self.now = free_at, now
        self._ordered = {node: sorted(free) for node, free in free_at.items()}
        self._zones: dict[str, list[str]] = {}
        for node in free_at:
            self._zones.setdefault(zones.get(node, ""), []).append(node)

    @classmethod
    def of(cls, book: Book, gpu_type: str, now: int) -> Pool:
        """The pool of a snapshot; nodes that are lost or being cleaned are not in it."""
        usable = [node for node in book.nodes.values() if node.gpu_type == gpu_type and node.state is NodeState.READY]
        holders = {holder: _free_at(book, holder, now) for node in usable for holder in set(node.allocated)}
        free_at = {node.name: [holders[holder] for holder in node.allocated] for node in usable}
        return cls(free_at, {node.name: node.zone for node in usable}, now)

    def hold(self, silent: Mapping[str, int]) -> None:
        """Take nodes that do not answer as occupied until an instant each: what they run is unknown, so not free."""
        for node in silent.keys() & self.free_at.keys():
            free_at = self.free_at[node]
            self.restore([(node, gpu, max(free_at[gpu], silent[node])) for gpu in range(len(free_at))])

    def hold_whole(self, no_whole: Collection[str]) -> None:
        """Take one GPU of these nodes, the one that is free last, as never free: no request has all of them."""
        for node in self.free_at.keys() & set(no_whole):
            free_at = self.free_at[node]
            self.restore([(node, max(range(len(free_at)), key=free_at.__getitem__), NEVER)])

    def free_gpus(self) -> int:
        return sum(map(self._free, self.free_at))

    def fit(self, nodes: int, gpus: int, avoid: Collection[str] = ()) -> tuple[Slot, ...] | None:
        """GPUs that are free now, on the fullest nodes that take them; a gang stays in one zone."""
        for members in self._zones.values():
            free = [(self._free(node), node) for node in members if node not in avoid]
            chosen = sorted(entry for entry in free if entry[0] >= gpus)[:nodes]
            if len(chosen) == nodes:
                return tuple(self._slot(node, gpus) for _, node in chosen)
        return None

    def earliest_at(self, nodes: int, gpus: int) -> int | None:
        """The first instant from which the request fits, if nothing else starts; None if it never does."""
        first = [chosen[-1][0] for chosen in self._choices(nodes, gpus)]
        return max(min(first), self.now) if first else None

    def earliest(self, nodes: int, gpus: int) -> Fit | None:
        """The first instant from which the request fits, and the GPUs."""
        chosen = min(self._choices(nodes, gpus), key=lambda entries: entries[-1][0], default=None)
        if chosen is None:
            return None
        return Fit(max(chosen[-1][0], self.now), tuple(self._slot(node, gpus) for _, node in chosen))

    def occupy(self, slots: Sequence[Slot], until: int) -> list[tuple[str, int, int]]:
        """Mark GPUs as taken until an instant; the result undoes it (`restore`)."""
        before = [(slot.node, gpu, self.free_at[slot.node][gpu]) for slot in slots for gpu in slot.gpus]
        self.restore([(node, gpu, until) for node, gpu, _ in before])
        return before

    def restore(self, entries: Sequence[tuple[str, int, int]]) -> None:
        for node, gpu, free_at in entries:
            self.free_at[node][gpu] = free_at
        for node in {node for node, _, _ in entries}:
            self._ordered[node] = sorted(self.free_at[node])

    def _choices(self, nodes: int, gpus: int) -> Iterator[list[tuple[int, str]]]:
        """For each zone that is large enough: its nodes that are free first, with the instants."""
        for members in self._zones.values():
            ordered = ((self._ordered[node], node) for node in members)
            times = [(free[gpus - 1], node) for free, node in ordered if len(free) >= gpus and free[gpus - 1] < NEVER]
            if len(times) >= nodes:
                yield [min(times)] if nodes == 1 else sorted(times)[:nodes]

    def _free(self, node: str) -> int:
        return bisect_right(self._ordered[node], FREE)

    def _slot(self, node: str, gpus: int) -> Slot:
        free = self.free_at[node]
        return Slot(node, tuple(sorted(sorted(range(len(free)), key=free.__getitem__)[:gpus])))


def _free_at(book: Book, holder: str | None, now: int) -> int:
    if holder is None:
        return FREE
    if (reservation := book.reservations.get(holder)) is None:  # the ledger is ahead: the reconciler returns it
        return now + book.site.limits.clear_limit_s
    return release_at(reservation, book.site.limits, now)


def unusable(book: Book, gpu_type: str) -> list[Node]:
    """Nodes of a type that take no reservations now."""
    return [node for node in book.nodes.values() if node.gpu_type == gpu_type and node.state is not NodeState.READY]
