"""Read a cluster file strictly: all that is wrong with it at once, each with its line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpuctl.cluster.clusterfile import rules
from gpuctl.cluster.clusterfile.fields import Part
from gpuctl.cluster.clusterfile.model import Cluster
from gpuctl.core.errors import InvalidInput
from gpuctl.core.strict_yaml import At, EmptyFile, Mistake, Mistakes, Node, read

EXAMPLE = "`gpuctl cluster schema` lists what it can hold; two examples come with gpuctl: `gpuctl cluster list`"
EMPTY = EmptyFile("cluster file", EXAMPLE)
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
    """Read a file without raising, for callers that show the mistakes in a way of their own."""
    mistakes = Mistakes()
    node = read(path, mistakes.items, EMPTY)
    return Read(None, tuple(mistakes.items)) if node is None else understood(node, mistakes)


def understood(node: Node, mistakes: Mistakes) -> Read:
    """The cluster that a document describes."""
    cluster: Cluster = Part(Cluster).read(node, At("", mistakes))
    for path, wrong, hint in rules.broken(cluster, mistakes.paths):
        mistakes.add(path, _line(path, mistakes, node.where), wrong, hint)
    return Read(None, mistakes.by_line()) if mistakes.items else Read(cluster, ())


def _line(path: str, mistakes: Mistakes, top: str) -> str:
    """The line of a field, or of the nearest section around it that the file has."""
    while path and path not in mistakes.lines:
        path = path.rpartition(".")[0]
    return mistakes.lines.get(path, top)
