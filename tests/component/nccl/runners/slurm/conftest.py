"""A machine with programs that stand in for Slurm's."""

from __future__ import annotations

from tests.rig.nccl.slurm_site import site

__all__ = ["site"]
