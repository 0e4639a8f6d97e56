"""nccl on inventory hosts: options that choose them and how they are reached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpuctl.cli.nccl import log_files
from gpuctl.cli.shared import output
from gpuctl.cli.shared.option_sections import section
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.hosts.model import Target
    from gpuctl.nccl.runner import Runner
    from gpuctl.nccl.runners.mpirun import MpirunOptions

on_hosts = section("On hosts, over ssh")
folders = click.option(
    "--folder", "folders", metavar="DIR", multiple=True, help="Where nccl-tests or mpirun are on nodes."
)
rack_var = on_hosts(
    "--rack-var", metavar="NAME", default="rack", show_default=True, help="The variable naming a host's rack."
)
by_name = on_hosts("--by-name", is_flag=True, help="Nodes reach each other by their inventory names.")
ssh_args = on_hosts("--ssh-args", default="", help="More arguments for the ssh between nodes.")


class Hosts(NamedTuple):
    """Inventory hosts in rank order; `racks` has those whose rack is known."""

    source: Path
    targets: list[Target]
    racks: dict[str, str]

    @property
    def names(self) -> list[str]:
        return [host.name for host in self.targets]


def hosts_of(inventory: str | None, limit: str, nodes: str, rack_var: str) -> Hosts:
    """Return the chosen hosts; raises `InvalidInput` if an option names an unknown one."""
    from gpuctl.edges import inventory_cache
    from gpuctl.hosts.inventory import DEFAULT, find, target

    source = find(DEFAULT if inventory is None else inventory)
    variables = inventory_cache.read(source, limit, also=rack_var)
    chosen = {name: variables[name] for name in named(nodes, variables)}
    racks = {
        name: str(host_variables[rack_var])
        for name, host_variables in chosen.items()
        if host_variables.get(rack_var) is not None
    }
    return Hosts(source, [target(name, host_variables) for name, host_variables in chosen.items()], racks)


def named(nodes: str, known: Iterable[str]) -> list[str]:
    """Hosts listed in --nodes, in that order; all hosts if it is empty."""
    known = list(known)
    names = [word.strip() for word in nodes.split(",") if word.strip()]
    if unknown := [name for name in names if name not in known]:
        wrong = f"{', '.join(unknown)}: no such host there"
        raise InvalidInput("choose the nodes that --nodes names", wrong, f"the hosts are {output.names(known, 32)}")
    if len(set(names)) < len(names):
        raise InvalidInput("choose the nodes that --nodes names", "a host is named twice", "name each once")
    return names or known


def runner(hosts: Hosts, via: str | None, **params: Any) -> Runner:
    """Return the ssh runner, or the Ansible runner if a host needs it."""
    if via == "ansible" or (any(host.needs_ansible for host in hosts.targets) and via != "ssh"):
        return _through_ansible(hosts, **params)
    return _over_ssh(hosts.targets, **params)


def _over_ssh(hosts: Sequence[Target], texts: Path | None, **params: Any) -> Runner:
    from gpuctl.edges.ssh import Login
    from gpuctl.nccl.runners.mpirun import MpiRunner
    from gpuctl.remote.transport import OverSsh

    for host in hosts:
        if host.needs_ansible:
            wrong = f"{host.name} is reached through Ansible only: {host.needs_ansible}"
            raise InvalidInput("run NCCL tests over ssh", wrong, "leave out --via, or the host with --limit")
    logins = {
        host.name: Login(
            host.address or host.name,
            host.port,
            host.user,
            host.key,
            host.ssh_args,
            python=host.python,
            local=host.local,
        )
        for host in hosts
    }
    return MpiRunner(OverSsh(logins), _way(log_files.made(texts), **params))


def _through_ansible(hosts: Hosts, texts: Path | None, **params: Any) -> Runner:
    from gpuctl.nccl.runners.ansible import AnsibleRunner

    addresses = {host.name: host.address or host.name for host in hosts.targets}
    return AnsibleRunner(hosts.source, addresses, _way(log_files.made(texts), **params))


def _way(
    texts: Path | None, folders: Sequence[str], by_name: bool, ssh_args: str, as_root: bool, **_: Any
) -> MpirunOptions:
    from gpuctl.nccl.runners.mpirun import MpirunOptions

    return MpirunOptions(tuple(folders), by_name, as_root, ssh_args, texts)
