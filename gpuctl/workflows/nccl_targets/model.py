"""Requested target of NCCL tests, one group of options for each kind of target, and the access to its nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.nccl.runner import Runner
    from gpuctl.workflows.nccl_preflight import Layout

Notify = Callable[[str], None]  # prints a line for the user, beside the output


@dataclass(frozen=True)
class HostOptions:
    """Hosts of an inventory, reached over ssh or by Ansible. `inventory`: None for this machine."""

    inventory: str | None = None
    limit: str = ""
    via: str | None = None
    use_inventory_names: bool = False
    ssh_args: str = ""
    as_root: bool = False


@dataclass(frozen=True)
class SlurmOptions:
    """A Slurm job. None and "" leave the choice to Slurm, or to the defaults of the runner."""

    slurm: bool = False
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    mpi: str | None = None
    queue_timeout: float | None = None
    job_minutes: int | None = None


@dataclass(frozen=True)
class EnvironmentOptions:
    """Cluster file, and one of its environments; "" for the one that the file names."""

    cluster: str = ""
    environment: str = ""


@dataclass(frozen=True)
class PodOptions:
    """Pods created for the test. `fabric`: resources of each pod as NAME=N. `mpijob`: None if the cluster decides."""

    image: str = ""
    context: str = ""
    namespace: str = ""
    fabric: tuple[str, ...] = ()
    networks: str = ""
    user: int | None = None
    service_account: str = ""
    pull_secret: str = ""
    rack_label: str = ""
    mpijob: bool | None = None


@dataclass(frozen=True)
class TargetRequest:
    """Nodes to test and how to reach them.

    `nodes`: names separated by commas, in rank order; "" for all. `search_path`: folders with nccl-tests or mpirun on
    the nodes. `save_output`: folder for the output of each launch. `rack_var`: inventory variable with a host's rack.
    """

    nodes: str = ""
    search_path: tuple[str, ...] = ()
    save_output: Path | None = None
    no_preflight: bool = False
    rack_var: str = "rack"
    hosts: HostOptions = field(default_factory=HostOptions)
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    environment: EnvironmentOptions = field(default_factory=EnvironmentOptions)
    pods: PodOptions = field(default_factory=PodOptions)


@dataclass(frozen=True)
class NodeAccess:
    """Nodes in rank order, the runner that tests them, and the target's name in the run history (`where`).

    `racks`: node -> rack, for nodes whose rack is known. `env`: variables that this target adds to every rank.
    If nodes can be queried, `queryable` lists them, `before` returns what would stop a run (its argument: whether each
    node runs alone), and `layout` reads the fabric as the nodes report it.
    """

    runner: Runner
    nodes: list[str]
    where: str
    racks: Mapping[str, str]
    env: Mapping[str, str] = field(default_factory=dict)
    queryable: Sequence[str] = ()
    before: Callable[[bool], list[Finding]] | None = None
    layout: Callable[[], Layout] | None = None


def set_options(group: HostOptions | SlurmOptions | EnvironmentOptions | PodOptions) -> list[str]:
    """Names of the options of a group that differ from their defaults; an empty string counts as not set."""
    return [one.name for one in fields(group) if getattr(group, one.name) not in _unset(one.default)]


def _unset(default: object) -> tuple[object, ...]:
    return ("", default) if default is not None else ("", None)


def flags(names: Sequence[str]) -> str:
    """Options as they are typed: "--pull-secret, --user"."""
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def split_names(text: str) -> list[str]:
    """Names of a comma-separated list; blanks and empty entries are dropped."""
    return [name.strip() for name in text.split(",") if name.strip()]
