"""Read the catalogues of gpuctl/data: one file a family, rows with a meaning and a source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import gpuctl
from gpuctl.core.strict_yaml import (
    At,
    Choice,
    EmptyFile,
    FieldType,
    ListOf,
    Node,
    Parsed,
    Section,
    Text,
    Whole,
    load_file,
)
from gpuctl.domain.entries import Entry
from gpuctl.domain.findings import Verdict
from gpuctl.domain.gpu_errors import Catalogue, DcgmError, NvlinkRule, SXid, ThrottleBit, Xid
from gpuctl.domain.xid_actions import BUCKETS, SXID_CLASSES

DATA = Path(gpuctl.__file__).parent / "data"
EMPTY = EmptyFile("catalogue of GPU errors", "restore it from the package")


class Family(NamedTuple):
    """A file of rows: its name, the key of its rows, their type and fields, and which of them every row has.

    The first field is the number that no two rows share; None as `number`: rows have none, and no meaning either.
    """

    file: str
    rows: str
    kind: type[Any]
    fields: Mapping[str, FieldType]
    required: tuple[str, ...]
    number: str | None


@cache
def xids() -> Mapping[int, Xid]:
    """Xids by code."""
    return {row.code: row for row in load(FAMILIES["xids"])}


@cache
def sxids() -> Mapping[int, SXid]:
    """SXids by code."""
    return {row.code: row for row in load(FAMILIES["sxids"])}


@cache
def nvlink_rules() -> tuple[NvlinkRule, ...]:
    """Rules for Xid 144 to 150."""
    return tuple(load(FAMILIES["nvlink rules"]))


@cache
def throttle_bits() -> tuple[ThrottleBit, ...]:
    """Reasons for lowered clocks, by ascending bit."""
    return tuple(load(FAMILIES["throttle bits"]))


@cache
def dcgm_errors() -> Mapping[int, DcgmError]:
    """DCGM errors by id."""
    return {row.id: row for row in load(FAMILIES["dcgm errors"])}


@cache
def checks() -> tuple[Entry, ...]:
    """Names of checks, by family."""
    return tuple(load(FAMILIES["checks"]))


@cache
def settings() -> tuple[Entry, ...]:
    """Keys of settings.yml, and variables of NCCL and libfabric."""
    return tuple(load(FAMILIES["settings"]))


def catalogue() -> Catalogue:
    """All that kernel logs and results of DCGM are judged by."""
    return Catalogue(xids(), sxids(), nvlink_rules(), dcgm_errors())


def load(family: Family, folder: Path = DATA) -> list[Any]:
    """Rows as values of their type; the file's source is that of rows without one.

    Raises InvalidInput with every mistake: a row without a meaning, a row and file without a source, a number twice.
    """
    texts: dict[str, FieldType] = {"meaning": _TEXT} if family.number else {}
    row = Section({**family.fields, **texts, "source": _TEXT}, (*family.required, *texts))
    schema = Section(
        {"source": _TEXT, family.rows: ListOf(row, "rows")},
        (family.rows,),
        lambda values, node, at: _sourced(values, family, node, at),
    )
    path = folder / family.file
    plain = load_file(path, schema, "use the catalogue", EMPTY)
    return [family.kind(**_fields(row)) for row in plain]


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a value: `class` is no name for one."""
    return {"severity" if name == "class" else name: value for name, value in row.items()}


def _sourced(values: dict[str, Any], family: Family, node: Node, at: At) -> list[dict[str, Any]]:
    """Rows, each with its source; refuses rows without one, and a number that two rows have."""
    sourced, known = [], set()
    listed = node.value[family.rows].value if isinstance(node.value, dict) else []
    items = listed if isinstance(listed, list) else []
    for row, item in zip(values[family.rows], items, strict=True):
        source, number = row.get("source") or values.get("source"), row.get(family.number)
        if not source:
            at.inside(family.rows).refuse(item, "has no source, and the file has none", "state where it comes from")
        if number is not None and number in known:
            at.inside(family.rows).refuse(item, f"has the {family.number} of an earlier row: {number}", "keep one")
        known.add(number)
        sourced.append({**row, "source": source})
    return sourced


def _hexadecimal(text: str) -> int | None:
    return int(text, 16) if re.fullmatch(r"0x[0-9a-f]{1,8}", text) else None


_TEXT = Text()
_HEX = Parsed(_hexadecimal, "a hexadecimal number such as 0x40")
_BUCKET = Choice(tuple(BUCKETS))
_PATTERN = Text(r"[01-]{32}", "32 of the signs 0, 1 and -")
_XID: Mapping[str, FieldType] = {
    "code": Whole(1, 9999),
    "name": _TEXT,
    "immediate": _BUCKET,
    "investigatory": _TEXT,
    "assumed": _BUCKET,
}
_SXID: Mapping[str, FieldType] = {"code": Whole(10000, 99999), "name": _TEXT, "class": Choice(tuple(SXID_CLASSES))}
_RULE: Mapping[str, FieldType] = {
    "code": Whole(144, 150),
    "unit": _TEXT,
    "v1": _PATTERN,
    "v2": _PATTERN,
    "errorstatus": _HEX,
    "immediate": _BUCKET,
    "if_fatal": _BUCKET,
    "investigatory": _TEXT,
    "severity": _TEXT,
}
_BIT: Mapping[str, FieldType] = {
    "bit": _HEX,
    "name": _TEXT,
    "label": _TEXT,
    "verdict": Parsed(lambda text: Verdict(text) if text in tuple(Verdict) else None, "a verdict"),
    "hint": _TEXT,
}
_DCGM: Mapping[str, FieldType] = {
    "id": Whole(0, 9999),
    "name": _TEXT,
    "severity": Choice(("MONITOR", "ISOLATE", "TRIAGE", "CONFIG", "RESET", "UNKNOWN")),
    "category": _TEXT,
}
_KEY = Text(r"[a-z][a-z -]*/[A-Za-z][A-Za-z0-9_ -]*", "a family and a name, such as audit/gpu-count")
_ENTRY: Mapping[str, FieldType] = {"key": _KEY, "action": _TEXT, "read_back": _TEXT}
FAMILIES = {
    "xids": Family("xids.yml", "xids", Xid, _XID, ("code", "name"), "code"),
    "sxids": Family("sxids.yml", "sxids", SXid, _SXID, tuple(_SXID), "code"),
    "nvlink rules": Family(
        "nvlink5_rules.yml", "rules", NvlinkRule, _RULE, tuple(name for name in _RULE if name != "if_fatal"), None
    ),
    "throttle bits": Family(
        "throttle_bits.yml", "bits", ThrottleBit, _BIT, tuple(name for name in _BIT if name != "hint"), "bit"
    ),
    "checks": Family("checks.yml", "checks", Entry, _ENTRY, ("key", "action"), "key"),
    "settings": Family("settings.yml", "settings", Entry, _ENTRY, ("key",), "key"),
    "dcgm errors": Family("dcgm_errors.yml", "errors", DcgmError, _DCGM, tuple(_DCGM), "id"),
}
