"""Zones where EKS places no control plane; nodes may run there."""

from __future__ import annotations

# By their ids, as letters differ between accounts. Source: Amazon EKS user guide, network requirements.
NO_CONTROL_PLANE = frozenset({"use1-az3", "usw1-az2", "cac1-az3"})
