"""Read a cluster file strictly; all mistakes are reported at once, with their lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuctl.cluster.clusterfile import rules
from gpuctl.cluster.clusterfile.fields import Part
from gpuctl.cluster.clusterfile.model import Cluster
from gpuctl.core.errors import InvalidInput
from gpuctl.core.strict_yaml import At, EmptyFile, Mistake, Mistakes, Node, listed, read

EXAMPLE = "`gpuctl cluster schema` lists its fields, `gpuctl cluster list` the examples that come with gpuctl"
EMPTY = EmptyFile("cluster file", EXAMPLE)
OLD = ("requests", "limits", "ib_timeout", "min_nchannels")  # field names of the older layout only


@dataclass(frozen=True)
class Parsed:
    """A parsed file: the cluster, or None and all mistakes in line order."""

    cluster: Cluster | None
    mistakes: tuple[Mistake, ...]


def load(path: Path) -> Cluster:
    """Read a cluster file; `InvalidInput` with all its mistakes."""
    parsed = parse(path)
    if parsed.cluster is None:
        advice = hint(path, parsed.mistakes)
        raise InvalidInput("use the cluster file", listed(parsed.mistakes, advice), advice)
    return parsed.cluster


def hint(path: Path, mistakes: Sequence[Mistake]) -> str:
    """Return what to try against the mistakes of a file; "" if there are none."""
    old = any(name in mistake.wrong for mistake in mistakes for name in OLD)
    migrate = f"`gpuctl cluster migrate {path}` converts the older layout"
    return "" if not mistakes else migrate if old else EXAMPLE


def parse(path: Path) -> Parsed:
    """Read a file without raising, for callers that show the mistakes themselves."""
    mistakes = Mistakes()
    node = read(path, mistakes.items, EMPTY)
    return Parsed(None, tuple(mistakes.items)) if node is None else interpret(node, mistakes)


def interpret(node: Node, mistakes: Mistakes) -> Parsed:
    """Return the cluster that a document describes, or its mistakes."""
    cluster: Cluster = Part(Cluster).read(node, At("", mistakes))
    for path, wrong, hint in rules.broken(cluster, mistakes.paths):
        mistakes.add(path, _line(path, mistakes, node.where), wrong, hint)
    return Parsed(None, mistakes.by_line()) if mistakes.items else Parsed(cluster, ())


def _line(path: str, mistakes: Mistakes, top: str) -> str:
    """Return the position of a field, or of the nearest enclosing section in the file."""
    while path and path not in mistakes.lines:
        path = path.rpartition(".")[0]
    return mistakes.lines.get(path, top)
