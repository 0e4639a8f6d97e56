"""Names of the panels; apart, so that `--help` does not load the panels."""

from __future__ import annotations

NAMES = ("nodes", "checks", "pods", "runs", "reservations", "subnets", "nccl")
