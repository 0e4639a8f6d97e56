"""Hosts of an inventory as the target of NCCL tests, reached over ssh or by Ansible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import named as join_names
from gpuctl.edges import inventory_cache
from gpuctl.edges.ssh import Login
from gpuctl.hosts.inventory import DEFAULT, find, target
from gpuctl.hosts.model import Target
from gpuctl.nccl.launch.output import create_folder
from gpuctl.nccl.runner import Runner
from gpuctl.nccl.runners.ansible import AnsibleRunner
from gpuctl.nccl.runners.mpirun import MpiRunner, MpirunOptions
from gpuctl.remote.transport import OverSsh
from gpuctl.workflows import nccl_preflight
from gpuctl.workflows.nccl_targets.model import NodeAccess, TargetRequest, split_names


class Hosts(NamedTuple):
    """Inventory hosts in rank order; `racks` has those whose rack is known."""

    source: Path
    targets: list[Target]
    racks: dict[str, str]

    @property
    def names(self) -> list[str]:
        return [host.name for host in self.targets]


def access(request: TargetRequest) -> NodeAccess:
    """Access to the hosts; `InvalidInput` if an option names an unknown one."""
    options = request.hosts
    hosts = hosts_of(options.inventory, options.limit, request.nodes, request.rack_var)
    reachable = [host for host in hosts.targets if not host.needs_ansible]
    before = nccl_preflight.BeforeOptions(request.search_path, options.use_inventory_names, options.ssh_args)
    return NodeAccess(
        runner(hosts, request),
        hosts.names,
        options.inventory or "localhost",
        hosts.racks,
        queryable=[host.name for host in reachable],
        before=lambda alone: nccl_preflight.before(hosts.targets, before, alone=alone),
        layout=lambda: nccl_preflight.layout(reachable),
    )


def hosts_of(inventory: str | None, limit: str, nodes: str, rack_var: str) -> Hosts:
    """Return the chosen hosts; `InvalidInput` if an option names an unknown one."""
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
    names = split_names(nodes)
    if unknown := [name for name in names if name not in known]:
        wrong = f"{', '.join(unknown)}: no such host"
        raise InvalidInput("select the nodes of --nodes", wrong, f"the hosts are {join_names(known, 32)}")
    if len(set(names)) < len(names):
        raise InvalidInput("select the nodes of --nodes", "a host is named twice", "list each one once")
    return names or known


def runner(hosts: Hosts, request: TargetRequest) -> Runner:
    """The ssh runner, or the Ansible runner if a host needs it; --via forces one of the two."""
    via, options = request.hosts.via, request.hosts
    mpirun_options = MpirunOptions(
        request.search_path,
        options.use_inventory_names,
        options.as_root,
        options.ssh_args,
        create_folder(request.save_output),
    )
    if via == "ansible" or (any(host.needs_ansible for host in hosts.targets) and via != "ssh"):
        addresses = {host.name: host.address or host.name for host in hosts.targets}
        return AnsibleRunner(hosts.source, addresses, mpirun_options)
    return MpiRunner(OverSsh(logins(hosts.targets)), mpirun_options)


def logins(hosts: Sequence[Target]) -> dict[str, Login]:
    """Login of each host by its name; `InvalidInput` if only Ansible can reach one."""
    for host in hosts:
        if host.needs_ansible:
            wrong = f"{host.name} is reached through Ansible only: {host.needs_ansible}"
            raise InvalidInput("run NCCL tests over ssh", wrong, "leave out --via, or the host with --limit")
    return {
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
