"""Facts of a host as values, from the dict that the probe returns (`gpuhost/facts/stack.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from gpuctl.gpu_node.model import HostGpuFacts, PciGpu, Repository, RepositoryKey


def host_gpu_facts(plain: Mapping[str, Any]) -> HostGpuFacts:
    """Build the facts; KeyError for a missing key, TypeError for an unknown one or a value of another type."""
    unknown = plain.keys() - {field.name for field in fields(HostGpuFacts)}
    if unknown:
        raise TypeError(f"unknown facts: {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {}
    for field in fields(HostGpuFacts):
        value = plain[field.name]
        values[field.name] = None if value is None else SHAPES.get(field.name, _text)(field.name, value)
    if values["unread"] is None:
        raise TypeError("unread is null")
    return HostGpuFacts(**values)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, not a text")
    return value


def _text_or_none(name: str, value: object) -> str | None:
    return None if value is None else _text(name, value)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, not true or false")
    return value


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{name} is {value!r}, not a count")
    return value


def _list(name: str, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{name} is {value!r}, not a list")
    return value


def _texts(name: str, value: object) -> tuple[str, ...]:
    return tuple(_text(name, item) for item in _list(name, value))


def _mapping(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is {value!r}, not an object")
    return value


def _text_by_text(name: str, value: object) -> dict[str, str]:
    return {_text(name, key): _text(name, item) for key, item in _mapping(name, value).items()}


def _texts_by_text(name: str, value: object) -> dict[str, tuple[str, ...]]:
    return {_text(name, key): _texts(name, item) for key, item in _mapping(name, value).items()}


def _gpus(name: str, value: object) -> tuple[PciGpu, ...]:
    rows = (_mapping(name, row) for row in _list(name, value))
    return tuple(
        PciGpu(
            _text(name, row["address"]),
            _text(name, row["device"]),
            _text_or_none(name, row["subvendor"]),
            _text_or_none(name, row["subdevice"]),
        )
        for row in rows
    )


def _repositories(name: str, value: object) -> tuple[Repository, ...]:
    rows = (_mapping(name, row) for row in _list(name, value))
    return tuple(
        Repository(
            _text(name, row["file"]), _text(name, row["uri"]), _texts(name, row["keys"]), _flag(name, row["verified"])
        )
        for row in rows
    )


def _keys(name: str, value: object) -> tuple[RepositoryKey, ...]:
    rows = (_text_by_text(name, row) for row in _list(name, value))
    return tuple(RepositoryKey(row["name"], row["fingerprint"], row["unusable"]) for row in rows)


# The shape of each fact that is no plain text.
SHAPES: Mapping[str, Callable[[str, object], Any]] = {
    "gpus": _gpus,
    "repositories": _repositories,
    "keys": _keys,
    "offers": _texts_by_text,
    "packages": _text_by_text,
    "unread": _text_by_text,
    "smi_gpus": _count,
    "lists_age_days": _count,
    **dict.fromkeys(("headers", "secure_boot", "mok_enrolled", "running_open", "installed_open"), _flag),
    **dict.fromkeys(
        ("nvswitches", "infiniband_vpd", "efa_devices", "holds", "pins", "foreign_modules", "busy"), _texts
    ),
}
