"""CPU and memory of a namespace's pods over time, as `kubectl top` measures them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.kubectl import Kubectl

LEVELS = "▁▂▃▄▅▆▇█"
SAMPLES = 20  # shown of each pod
HEAD = ("POD", "CPU", "MOST", "OVER TIME", "MEMORY", "MOST", "OVER TIME")
# kubectl prints millicores and MiB, whatever the size: pkg/metricsutil/metrics_printer.go.
ROW = re.compile(r"(?P<pod>\S+)\s+(?P<cpu>\d+)m\s+(?P<memory>\d+)Mi\s*")


class Usage:
    """Samples of each pod that still runs: millicores and MiB, the oldest first, and the highest of each."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[int, int]]] = {}
        self._most: dict[str, tuple[int, int]] = {}

    def add(self, text: str) -> None:
        """Add the output of `kubectl top pods --no-headers`; pods that it does not list are dropped."""
        now = dict(map(_parse, text.splitlines()))
        self._samples = {
            pod: deque([*self._samples.get(pod, ()), sample], maxlen=SAMPLES) for pod, sample in now.items()
        }
        self._most = {
            pod: (max(cpu, self._most.get(pod, (0, 0))[0]), max(memory, self._most.get(pod, (0, 0))[1]))
            for pod, (cpu, memory) in now.items()
        }

    def table(self) -> str:
        """Format the pods as columns, the one with the highest memory first."""
        pods = sorted(self._samples, key=lambda pod: (-self._most[pod][1], pod))
        rows = [HEAD, *(self._row(pod) for pod in pods)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def _row(self, pod: str) -> tuple[str, ...]:
        cpus, memories = zip(*self._samples[pod], strict=True)
        most_cpu, most_memory = self._most[pod]
        cpu = (f"{cpus[-1]}m", f"{most_cpu}m", graph(cpus, most_cpu))
        return (pod, *cpu, f"{memories[-1]}Mi", f"{most_memory}Mi", graph(memories, most_memory))

    def page(self, kube: Kubectl) -> str:
        """Add a sample and return the table; `GpuctlError` if there are no metrics."""
        doing = f"measure the pods of the namespace {kube.namespace}"
        self.add(kube.ask(doing, "top", "pods", "--no-headers", "--request-timeout=10s"))
        return self.table() if self._samples else f"no pod of the namespace {kube.namespace} has metrics\n"


def _parse(line: str) -> tuple[str, tuple[int, int]]:
    match = ROW.fullmatch(line)
    if match is None:
        raise GpuctlError("read the output of kubectl top", f"{line.strip()!r} is not a pod with millicores and MiB")
    return match["pod"], (int(match["cpu"]), int(match["memory"]))


def graph(samples: Sequence[int], most: int) -> str:
    """Draw each sample as a bar between 0 and `most`."""
    return "".join(LEVELS[round(sample / most * (len(LEVELS) - 1)) if most else 0] for sample in samples)
