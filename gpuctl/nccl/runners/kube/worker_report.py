"""Report of our scripts in a launcher's log: memory limits of workers, and the state of their ranks in a hang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.domain.ranks import Process
from gpuctl.nccl.runners.kube.hang_probe import LOOK, LOOKED
from gpuctl.nccl.runners.kube.scripts import MEMLOCK

# RDMA needs far more; a container's default is 8 MiB, that of older kernels 64 KiB.
ENOUGH_KIB = 1 << 20
_Look = tuple[str, str, str]  # state letter, counters that change if the process does anything, rank


@dataclass
class WorkerReport:
    """Collected report; hosts have the launcher's names ("w0")."""

    looks: dict[str, list[dict[int, _Look]]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    looked: bool = False
    memlock: dict[str, str] = field(default_factory=dict)

    def take(self, line: str) -> bool:
        """Take a line of the log; returns False for a line that is not from our scripts."""
        fields = line.split()
        if line.startswith(LOOK) and len(fields) >= 4:
            self._look(fields[2], fields[3:])
        elif line.startswith(MEMLOCK) and len(fields) == 4:
            self.memlock[fields[2]] = fields[3]
        elif line.startswith(LOOKED):
            self.looked = True
        else:
            return False
        return True

    def _look(self, host: str, fields: list[str]) -> None:
        passes = self.looks.setdefault(host, [{}, {}])
        if fields[0] == "end":
            self.whole.add(host)
        elif len(fields) >= 4 and fields[0] in ("0", "1") and fields[1].isdigit():
            passes[int(fields[0])][int(fields[1])] = (fields[2], fields[3], "".join(fields[4:5]))

    def ranks(self, host: str, name: str) -> list[Process] | None:
        """Ranks of a host at the limit; None if its answer is missing or incomplete."""
        if host not in self.whole:
            return None
        before, after = self.looks[host]
        return [_process(pid, name, before[pid], now) for pid, now in after.items() if pid in before]

    def too_little(self, names: Mapping[str, str]) -> str:
        """Nodes whose memory limit is too low for RDMA, with the limit; empty if there are none."""
        little = {host: limit for host, limit in self.memlock.items() if limit.isdigit() and int(limit) < ENOUGH_KIB}
        return ", ".join(f"{names.get(host, host)} ({limit} KiB)" for host, limit in sorted(little.items()))


def _process(pid: int, name: str, before: _Look, now: _Look) -> Process:
    state, moved, rank = now
    return Process(pid, name, state, int(rank) if rank.isdigit() else None, still=moved == before[1])
