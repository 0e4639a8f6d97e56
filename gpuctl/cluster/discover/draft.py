"""Turn the facts of a cluster into a cluster file: every value with its origin, nothing invented."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuctl.cluster.discover import adapters, cluster_section, draft_yaml, gpus, rights, volumes
from gpuctl.cluster.discover.draft_yaml import UNKNOWN, Line, known, unknown
from gpuctl.cluster.discover.facts import Facts
from gpuctl.cluster.discover.fleet import fleet

HEAD = (
    "Drafted by `gpuctl cluster discover` from the cluster's API. A comment gives the origin of each value.",
    f"Values that could not be determined are comments with {UNKNOWN}, the reason, and what to fill in.",
    "`gpuctl cluster validate FILE` checks it; `gpuctl cluster schema -o table` lists all fields.",
)


@dataclass(frozen=True)
class Draft:
    """The text of a cluster file, and the fields to fill in before it can be used, with a hint each."""

    text: str
    left: tuple[tuple[str, str], ...]


def draft(facts: Facts, image: str = "") -> Draft:
    """Draft the file; `image`: the pods' image, which cannot be discovered."""
    lines = tuple(_lines(facts, image))
    left = tuple((line.path, line.fill) for line in lines if line.needed)
    return Draft(draft_yaml.text(HEAD, lines), left)


def _lines(facts: Facts, image: str) -> Iterator[Line]:
    gpu_fleet = fleet(facts.nodes.value)
    rdma = adapters.rdma(facts, gpu_fleet)
    first = list(cluster_section.about(facts))
    flavour = next(line.value for line in first if line.path == "cluster.flavour")
    yield from first
    yield from gpus.nodes(facts, gpu_fleet, flavour, rdma.names)
    yield from volumes.storage(facts)
    yield from adapters.network(facts, gpu_fleet, rdma)
    yield from rights.security(facts, rdma)
    yield from gpus.gpus(facts, gpu_fleet)
    yield from gpus.resources(facts, gpu_fleet, rdma.fabric)
    yield _image(image, flavour)


def _image(image: str, flavour: str) -> Line:
    if image:
        return known("image.name", image, "From --image.")
    built = "; or `build:`, and OpenShift builds it" if flavour == "openshift" else ""
    fill = f"the pods' image, with a tag or digest (--image){built}"
    return unknown("image.name", "the image cannot be discovered", fill, needed=True)
