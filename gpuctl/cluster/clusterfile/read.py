"""Read a cluster file strictly: all that is wrong with it at once, each with its line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml import Mistake, Node
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml import read as read_yaml

from gpuctl.cluster.clusterfile import rules
from gpuctl.cluster.clusterfile.field_types import At, Notes
from gpuctl.cluster.clusterfile.fields import Part
from gpuctl.cluster.clusterfile.model import Cluster
from gpuctl.core.errors import InvalidInput

EXAMPLE = "`gpuctl cluster schema` lists what it can hold; two examples come with gpuctl: `gpuctl cluster list`"
OLD = ("requests", "limits", "ib_timeout", "min_nchannels")  # names that only the older layout had


@dataclass(frozen=True)
class Read:
    """What a file came to: the cluster, or None and every mistake in the order of the lines."""

    cluster: Cluster | None
    mistakes: tuple[Mistake, ...]


def load(path: Path) -> Cluster:
    """The cluster of a file; `InvalidInput` with every mistake in it."""
    found = look(path)
    if found.cluster is None:
        told = "\n  ".join(map(str, found.mistakes))
        old = any(name in mistake.wrong for mistake in found.mistakes for name in OLD)
        hint = f"`gpuctl cluster migrate {path}` reads the older layout" if old else EXAMPLE
        raise InvalidInput(f"use the cluster file {path}", told, hint)
    return found.cluster


def look(path: Path) -> Read:
    """The same without an error: for who shows the mistakes in a way of their own."""
    notes = Notes()
    node = read_yaml(path, notes.mistakes)
    empty = [mistake.wrong for mistake in notes.mistakes] == ["is empty"]
    if node is None:
        mistakes = [Mistake(str(path), "is empty", EXAMPLE)] if empty else notes.mistakes
        return Read(None, tuple(mistakes))
    return understood(node, notes)


def understood(node: Node, notes: Notes) -> Read:
    """The cluster that a document describes."""
    cluster: Cluster = Part(Cluster).read(node, At("", notes))
    for path, wrong, hint in rules.broken(cluster, notes.wrong):
        notes.tell(path, _line(path, notes, node.where), wrong, hint)
    if notes.mistakes:
        return Read(None, tuple(sorted(dict.fromkeys(notes.mistakes), key=_place)))
    return Read(cluster, ())


def _line(path: str, notes: Notes, top: str) -> str:
    """Where a field stands, or the nearest section around it that the file has."""
    while path and path not in notes.lines:
        path = path.rpartition(".")[0]
    return notes.lines.get(path, top)


def _place(mistake: Mistake) -> int:
    line = mistake.where.rpartition(":")[2]
    return int(line) if line.isdigit() else 0
