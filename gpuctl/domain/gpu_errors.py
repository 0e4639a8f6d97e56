"""Catalogues of GPU errors as values: Xids, SXids, rules for NVLink 5, reasons for low clocks, DCGM error ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuctl.domain.findings import Verdict


@dataclass(frozen=True)
class Xid:
    """An error number of the driver. `immediate`, `investigatory`: buckets of NVIDIA's page; None if it has none.

    `assumed`: the bucket gpuctl uses where the page has none.
    """

    code: int
    name: str
    meaning: str
    source: str
    immediate: str | None = None
    investigatory: str | None = None
    assumed: str | None = None


@dataclass(frozen=True)
class SXid:
    """An error number of an NVSwitch. `severity`: always_fatal, fatal, warning, maybe, ignore, unlisted."""

    code: int
    name: str
    meaning: str
    severity: str
    source: str


@dataclass(frozen=True)
class NvlinkRule:
    """A row of NVIDIA's tables for Xid 144 to 150.

    `v1`, `v2`: 32 binary digits of the first number, the highest bit first, - is any; v1 for drivers before 575.
    """

    code: int
    unit: str
    v1: str
    v2: str
    errorstatus: int
    immediate: str
    investigatory: str
    severity: str
    source: str
    if_fatal: str | None = None


@dataclass(frozen=True)
class ThrottleBit:
    """A reason for lowered clocks, as a bit of clocks_event_reasons.active."""

    bit: int
    name: str
    label: str
    meaning: str
    verdict: Verdict
    source: str
    hint: str = ""


@dataclass(frozen=True)
class DcgmError:
    """An error id of `dcgmi diag` and `dcgmi health`."""

    id: int
    name: str
    meaning: str
    severity: str
    category: str
    source: str


@dataclass(frozen=True)
class Catalogue:
    """Rows that kernel logs and results of DCGM are judged by."""

    xids: Mapping[int, Xid] = field(default_factory=dict)
    sxids: Mapping[int, SXid] = field(default_factory=dict)
    nvlink_rules: Sequence[NvlinkRule] = ()
    dcgm_errors: Mapping[int, DcgmError] = field(default_factory=dict)
