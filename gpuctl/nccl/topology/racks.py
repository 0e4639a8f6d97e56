"""Racks of nodes, from Slurm's topology.conf, EC2's instance topology, or the nodes' own facts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.engine import typed_json
from gpuctl.nccl.topology.adapters import Facts, adapters
from gpuctl.nccl.topology.ring_order import Place

EC2 = "pass the output of `aws ec2 describe-instance-topology --output json`"


def read(path: Path, instances: Mapping[str, str] | None = None) -> dict[str, Place]:
    """Node -> place. JSON is EC2's format; `instances` (node -> EC2 instance ID) then maps it to node names.

    `InvalidInput` if the file is unreadable or has neither format.
    """
    doing = f"read the racks of nodes from {path}"
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            doing, getattr(error, "strerror", None) or "it is not text", "pass another file with --topology"
        ) from error
    places = _ec2(doing, text, instances or {}) if text.lstrip().startswith(("{", "[")) else _slurm(text)
    if not places:
        hint = "pass Slurm's topology.conf, or the output of `aws ec2 describe-instance-topology`"
        raise InvalidInput(doing, "it places no node", hint)
    return places


def of_facts(fleet: Mapping[str, Facts]) -> tuple[dict[str, Place], str]:
    """Node -> place, and a description of places; nodes without a known place are left out.

    A host knows the NVLink domain that its GPUs share with other machines (an NVL72 rack), or the switches at the ports
    of its RoCE fabric (LLDP). EC2 reports network nodes only through its API.
    """
    for read_one, description in (
        (_nvlink_domain, "NVLink domains, from nvidia-smi"),
        (_leaves, "leaf switches, from LLDP"),
    ):
        places = {node: place for node, facts in fleet.items() if (place := read_one(facts))}
        if places:
            return places, description
    return {}, ""


def _nvlink_domain(facts: Facts) -> Place:
    domains = {gpu.get("nvlink_domain") for gpu in facts.get("gpu", {}).get("gpus") or ()}
    domain = domains.pop() if len(domains) == 1 else None
    return (domain,) if domain else ()


def _leaves(facts: Facts) -> Place:
    """All switches at the fabric's ports: with one switch per rail, nodes that share all of them share a place."""
    ports, switches = adapters(facts), facts.get("names", {}).get("switches") or {}
    if ports is None or ports.kind != "roce":
        return ()
    ends = [switches.get(port["net"]) for port in ports.fabric]
    return ("+".join(sorted({str(end) for end in ends})),) if all(ends) else ()


def _ec2(doing: str, text: str, instances: Mapping[str, str]) -> dict[str, Place]:
    """Places from `aws ec2 describe-instance-topology`: three layers of network nodes, nearest last."""
    try:
        document: Any = typed_json.parse(text)
    except ValueError as error:
        where = f" in line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else f": {error}"
        raise InvalidInput(doing, f"it is not valid JSON{where}", EC2) from error
    rows = document.get("Instances") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise InvalidInput(doing, 'the JSON has no "Instances" list', EC2)
    places = dict(_ec2_row(doing, number, row) for number, row in enumerate(rows, 1))
    named = {node: places[instance] for node, instance in instances.items() if instance in places}
    return {**places, **named}


def _ec2_row(doing: str, number: int, row: object) -> tuple[str, Place]:
    match row:
        case {"InstanceId": str(instance), "NetworkNodes": list(nodes)}:
            return instance, tuple(map(str, nodes))
    raise InvalidInput(doing, f"its instance {number} has no InstanceId with a list of NetworkNodes", EC2)


def _slurm(text: str) -> dict[str, Place]:
    """SwitchName=s1 Nodes=n[1-4], SwitchName=top Switches=s[1-2]: (top, s1) for each of n1 … n4."""
    above: dict[str, str] = {}
    leaf: dict[str, str] = {}
    for line in text.splitlines():
        settings = {k.lower(): v for k, _, v in (word.partition("=") for word in line.split("#")[0].split()) if v}
        switch = settings.get("switchname", "")
        above.update(dict.fromkeys(expand(settings.get("switches", "")), switch) if switch else {})
        leaf.update(dict.fromkeys(expand(settings.get("nodes", "")), switch) if switch else {})
    return {node: _up(switch, above) for node, switch in leaf.items()}


def _up(switch: str, above: Mapping[str, str]) -> Place:
    """Switches from the top down to this one; a loop in the file is cut."""
    place: list[str] = []
    while switch and switch not in place:
        place.insert(0, switch)
        switch = above.get(switch, "")
    return tuple(place)


def expand(names: str) -> list[str]:
    """Expand a host list of Slurm: "n[01-03,7],login" -> n01, n02, n03, n7, login."""
    parts = re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", names)
    return [name for part in parts for name in _expand_one(part)]


def _expand_one(part: str) -> Iterator[str]:
    match = re.search(r"\[([^\]]*)\]", part)
    if match is None:
        yield part
        return
    for piece in match.group(1).split(","):
        first, dash, last = piece.partition("-")
        numbers = range(int(first), int(last) + 1) if dash and first.isdigit() and last.isdigit() else None
        numbered = [f"{n:0{len(first)}d}" for n in numbers] if numbers is not None else [piece]
        for word in numbered:
            yield from _expand_one(part[: match.start()] + word + part[match.end() :])
