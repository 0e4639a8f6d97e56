"""Expected bandwidths: rows with their sources, and how a row is matched to a run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuctl.nccl.context import DEFAULT, RunContext

_MODEL = re.compile(r"\b(?:V100|A10G?|A100|A800|L4|L40S?|H20|H100|H200|H800|GH200|B200|B300|GB200|GB300)\b")


# Boards for a PCI slot have fewer NVLinks and no NVSwitch: none of the machine types with SXM boards has them.
_SLOT = re.compile(r"\b(?:PCIE|NVL)\b", re.IGNORECASE)
_SLOT_NAMES = {"pcie": "PCIe", "nvl": "NVL"}


def gpu_models(text: str) -> list[str]:
    """Models in the name of a GPU: H100 in "NVIDIA H100 80GB HBM3", "H100 PCIe" in "NVIDIA H100 PCIe".

    None if it is not a model of data centres.
    """
    slot = _SLOT.search(text)
    form = f" {_SLOT_NAMES[slot[0].lower()]}" if slot else ""
    return [model + form for model in _MODEL.findall(text)]


@dataclass(frozen=True)
class System:
    """A machine type. `line_rate_gbs`: all its network adapters together, one direction, decimal GB/s.

    `gpu`: model as device lists name it (H100); None if not known.
    """

    name: str
    gpus: int
    line_rate_gbs: float
    network: str
    source: str
    gpu: str | None = None


@dataclass(frozen=True)
class Baseline:
    """One row: sizes in bytes, inclusive; limits are out-of-place busbw in GB/s, None if the row has none.

    A row without `fail` finds what is worth a look, and fails no run; one that is derived from others has none.
    `site`: measured here by calibrate. `below_published`: the published fail limit that this row was forced below.
    """

    systems: tuple[str, ...]
    gpus_per_node: int
    processes_per_node: int | None  # None: any
    nodes: tuple[int, int | None]  # from, to; None: any number above
    collective: str
    algorithms: tuple[str, ...]
    from_bytes: int
    to_bytes: int
    expect: float | None
    warn: float | None
    fail: float | None
    kind: str
    source: str
    why: str
    measured: Mapping[str, str] = field(default_factory=dict)
    below_published: float | None = None
    site: bool = False
    where: str = ""

    def fits(self, about: RunContext) -> bool:
        """Return True if the row applies to such runs at some size.

        Unknown values match nothing, with two exceptions: an algorithm nobody named counts as NCCL's own
        choice, and processes count only if the row names them.
        """
        low, high = self.nodes
        return (
            about.system in self.systems
            and about.collective == self.collective
            and about.gpus_per_node == self.gpus_per_node
            and self.processes_per_node in (None, about.processes_per_node)
            and about.nodes is not None
            and low <= about.nodes <= (high or about.nodes)
            and (about.algorithm or DEFAULT) in self.algorithms
        )

    def covers(self, size_bytes: int) -> bool:
        return self.from_bytes <= size_bytes <= self.to_bytes

    @property
    def least(self) -> float:
        """The lowest limit: a row has `fail` or `warn`."""
        return self.fail if self.fail is not None else self.warn or 0.0

    @property
    def origin(self) -> str:
        """Short source note for a finding."""
        if not self.site:
            return f"{self.kind}: {self.source}"
        mark = "" if self.below_published is None else f", FORCED below the published limit {self.below_published:g}"
        return f"this site's own of {self.measured.get('date', 'an unknown day')}{mark}"


@dataclass(frozen=True)
class Book:
    """All rows, the site's first; the first that fits wins."""

    systems: Mapping[str, System]
    rows: Sequence[Baseline]

    def fitting(self, about: RunContext) -> list[Baseline]:
        return [row for row in self.rows if row.fits(about)]

    def row_for(self, about: RunContext, size_bytes: int) -> Baseline | None:
        """Row that judges one message size."""
        return next((row for row in self.fitting(about) if row.covers(size_bytes)), None)

    def gpus(self, name: str) -> set[str]:
        """GPU models of a machine type: from the list of systems, else from the site's own measurements."""
        system = self.systems.get(name)
        if system and system.gpu:
            return {system.gpu}
        measured = (row.measured.get("gpu", "") for row in self.rows if name in row.systems)
        return {model for text in measured for model in gpu_models(text)}

    @property
    def known(self) -> list[str]:
        """Every system name, from rows and from the list of systems."""
        return sorted({*self.systems, *(name for row in self.rows for name in row.systems)})
