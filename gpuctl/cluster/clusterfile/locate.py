"""Find cluster files by name: clusters/NAME.yaml here, in the user's settings folder, or among gpuctl's examples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpuctl.cluster.clusterfile.model import Cluster
from gpuctl.cluster.clusterfile.read import Parsed, load, parse
from gpuctl.core import file_lookup
from gpuctl.core.paths import collection_dir

FOLDER, ENDINGS = "clusters", (".yaml", ".yml")


@dataclass(frozen=True)
class Listed:
    """A cluster file that can be named; `ours`: an example shipped with gpuctl."""

    name: str
    path: Path
    ours: bool
    read: Parsed


def find(name: str) -> Path:
    """Return the file of a name or path; raises `InvalidInput` if there is none, or more than one."""
    return file_lookup.find("cluster", name, FOLDER, ENDINGS)


def cluster(name: str) -> Cluster:
    """Load the cluster of a name or path; raises `InvalidInput` with every mistake in its file."""
    return load(find(name))


def all_of_them() -> list[Listed]:
    """List every file that can be named, once each, valid or not."""
    shipped = (collection_dir() / "examples" / FOLDER).resolve()
    paths = dict.fromkeys(path.resolve() for path in file_lookup.listed(FOLDER, ENDINGS) if path.is_file())
    return [Listed(path.stem, path, path.parent == shipped, parse(path)) for path in paths]
