"""Rules of the audit: each judges {node: facts} and gives at least one finding."""

from __future__ import annotations

from collections.abc import Callable

from gpuctl.audit.rules import gpus, links, system
from gpuctl.domain.findings import Finding
from gpuctl.domain.node_facts import Fleet

Rule = Callable[[Fleet], list[Finding]]
OF_GPUS: tuple[Rule, ...] = (
    gpus.persistence,
    gpus.compute_mode,
    gpus.sram,
    gpus.temperature,
    gpus.memory_temperature,
    gpus.pcie_speed,
    gpus.power_limit,
)
RULES: tuple[Rule, ...] = (
    *OF_GPUS,
    links.nvlink,
    links.pcie,
    links.counters,
    system.disks,
    system.memory,
    system.clock,
    system.processes,
    system.services,
)
