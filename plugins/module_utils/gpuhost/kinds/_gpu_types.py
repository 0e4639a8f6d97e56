"""Types of the values of GPU settings: clock ranges, MIG layouts and MPS daemons."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..gpu_rules import ALL
from ..mig_layout import OFF, ON, PROFILE, text_of

MOST_INSTANCES = 7
MIG_EXAMPLE, MPS_EXAMPLE = "[{gpus: all, instances: {1g.10gb: 7}}]", "[{name: train, gpus: [0, 1]}]"


class ClockRange(NamedTuple):
    """One clock in MHz, or a range "MIN-MAX"; the normal text is "MIN,MAX"."""

    def check(self, value: object) -> str:
        match = re.fullmatch(r"(\d{2,5})(?: ?[-,] ?(\d{2,5}))?", str(value))
        if match is None or isinstance(value, bool):
            raise ValueError(f'must be a clock in MHz, or a range such as "1410-1980", not {value!r}')
        low, high = int(match[1]), int(match[2] or match[1])
        if low > high:
            raise ValueError(f"must be a range from the lower to the higher clock, not {value!r}")
        return f"{low},{high}"


class MigLayouts(NamedTuple):
    """Entries {gpus, filter, instances}; the normal text is JSON with the layout of each entry."""

    def check(self, value: object) -> str:
        return _normal(
            [_mig_entry(entry, f"entry {number}") for number, entry in enumerate(_listed(value, MIG_EXAMPLE), 1)]
        )


class MpsDaemons(NamedTuple):
    """Entries {name, gpus, active_thread_percentage, memory}; the normal text is JSON."""

    def check(self, value: object) -> str:
        if value in ([], "[]"):
            return "[]"
        entries = [_mps_entry(entry, f"entry {number}") for number, entry in enumerate(_listed(value, MPS_EXAMPLE), 1)]
        names = [entry["name"] for entry in entries]
        if len(set(names)) < len(names):
            raise ValueError(f"has two daemons of one name: {', '.join(names)}")
        indexes = [index for entry in entries for index in ([ALL] if entry["gpus"] == ALL else entry["gpus"])]
        if len(set(indexes)) < len(indexes) or (ALL in indexes and len(entries) > 1):
            raise ValueError("gives a GPU to two daemons, and a GPU can have one: list other `gpus`")
        return _normal(entries)


def _normal(entries: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps(entries, sort_keys=True, separators=(",", ":"))


def _listed(value: object, example: str) -> list[object]:
    if isinstance(value, str):  # its normal text, as in a compiled profile
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, list) or not value:
        raise ValueError(f"must be a list of entries, as in {example}")
    return value


def _fields(entry: object, place: str, known: Sequence[str]) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        raise ValueError(f"{place} must be a mapping of {', '.join(known)}")
    strange = [str(name) for name in entry if name not in known]
    if strange:
        raise ValueError(f"{place} has {', '.join(strange)}; it takes {', '.join(known)}")
    return {str(name): item for name, item in entry.items()}


def _gpus(value: object, place: str) -> str | list[int]:
    if value == ALL:
        return ALL
    indexes = value if isinstance(value, list) else [value]
    if not indexes or not all(re.fullmatch(r"\d{1,2}", str(index)) and index is not True for index in indexes):
        raise ValueError(f"{place} gpus must be all, or numbers of nvidia-smi such as [0, 1], not {value!r}")
    numbers = sorted(int(str(index)) for index in indexes)
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{place} gpus names a GPU twice")
    return numbers


def _mig_entry(entry: object, place: str) -> dict[str, Any]:
    fields = _fields(entry, place, ("gpus", "filter", "instances", "layout"))
    patterns = fields.get("filter", [])
    patterns = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(patterns, list) or not all(isinstance(text, str) and text for text in patterns):
        raise ValueError(f'{place} filter must list models or PCI ids, such as ["*H100*", "0x233010DE"]')
    if "layout" in fields:
        layout = str(fields["layout"])
    elif "instances" in fields:
        layout = _layout(fields["instances"], place)
    else:
        raise ValueError(f"{place} needs instances, such as {{1g.10gb: 7}}, or off")
    return {"gpus": _gpus(fields.get("gpus", ALL), place), "filter": patterns, "layout": layout}


def _layout(value: object, place: str) -> str:
    if value is False or str(value).lower() == OFF:  # YAML reads `off` as false
        return OFF
    if value is True or str(value).lower() == ON:
        return ON
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"{place} instances must be profiles with their counts, such as {{1g.10gb: 7}}, on, or off")
    instances = {}
    for name, count in value.items():
        if not PROFILE.fullmatch(str(name)):
            raise ValueError(f"{place} instances: {name!r} is no name of a MIG profile, such as 1g.10gb or 1g.10gb+me")
        if not re.fullmatch(r"\d", str(count)) or not 1 <= int(count) <= MOST_INSTANCES:
            raise ValueError(f"{place} instances: {name} must be a count from 1 to {MOST_INSTANCES}, not {count!r}")
        if "+me" in str(name) and ".all" not in str(name) and int(count) > 1:
            raise ValueError(f"{place} instances: {name} exists once per GPU, not {count} times")
        instances[str(name)] = int(count)
    return text_of(instances)


def _mps_entry(entry: object, place: str) -> dict[str, Any]:
    fields = _fields(entry, place, ("name", "gpus", "active_thread_percentage", "memory"))
    name = str(fields.get("name", ""))
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
        raise ValueError(f"{place} name must be lower-case letters, digits and hyphens, not {name!r}")
    result: dict[str, Any] = {"name": name, "gpus": _gpus(fields.get("gpus", ALL), place)}
    share, memory = fields.get("active_thread_percentage"), fields.get("memory")
    if share is not None:
        if not re.fullmatch(r"\d{1,3}", str(share)) or not 1 <= int(share) <= 100:
            raise ValueError(f"{place} active_thread_percentage must be from 1 to 100, not {share!r}")
        result["active_thread_percentage"] = int(share)
    if memory is not None:
        if not re.fullmatch(r"[1-9]\d{0,6}[MG]", str(memory)):
            raise ValueError(f"{place} memory must be a limit for each client, such as 10G or 512M, not {memory!r}")
        result["memory"] = str(memory)
    return result
