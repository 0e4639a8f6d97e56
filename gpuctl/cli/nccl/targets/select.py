"""Select the target of a test: hosts over ssh or Ansible, a Slurm job, or pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.nccl.targets import environment, pods, slurm
from gpuctl.cli.nccl.targets import hosts as nccl_hosts
from gpuctl.cli.nccl.targets.hosts import on_hosts
from gpuctl.cli.shared import findings, options, output
from gpuctl.core.errors import GpuctlError

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.nccl.runners.base import Runner
    from gpuctl.workflows.nccl_preflight import Layout

GPUS = 8  # of a node, where nobody says

way_options = options.together(
    options.inventory,
    options.limit,
    click.option(
        "--nodes",
        metavar="A,B,…",
        default="",
        callback=options.not_empty,
        help="Only these, their ranks in this order; on Slurm also h[1-4], or how many.  [default: all]",
    ),
    nccl_hosts.folders,
    click.option(
        "--texts", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="Keep what each run prints."
    ),
    click.option(
        "--no-preflight", is_flag=True, help="Begin without asking first whether hosts or pods are idle and ready."
    ),
    nccl_hosts.rack_var,
    on_hosts("--via", type=click.Choice(["ssh", "ansible"]), help="Force one way to the hosts."),
    nccl_hosts.by_name,
    nccl_hosts.ssh_args,
    on_hosts("--as-root", is_flag=True, help="Let mpirun run as root, where that is who logs in."),
    slurm.slurm_options,
    environment.cluster_options,
    pods.kube_options,
)


@dataclass(frozen=True)
class NodeAccess:
    """Nodes in rank order, the runner that tests them, and the name the history uses for the place (`where`).

    `racks`: node -> rack, for nodes whose rack is known. `env`: variables that this kind of access adds to every rank.
    If nodes can be queried, `queryable` lists them, `before` returns what would stop a run (its argument: whether each
    node runs alone), and `layout` reads what they know of the fabric.
    """

    runner: Runner
    nodes: list[str]
    where: str
    racks: Mapping[str, str]
    env: Mapping[str, str] = field(default_factory=dict)
    queryable: Sequence[str] = ()
    before: Callable[[bool], list[Finding]] | None = None
    layout: Callable[[], Layout] | None = None


def complete(params: dict[str, Any]) -> dict[str, Any]:
    """Fill in the number of GPUs per node if it was not given."""
    if params["gpus"] is not None:
        return params
    return {**params, "gpus": environment.gpus(params["cluster"]) if params["cluster"] else GPUS}


def node_access(**params: Any) -> NodeAccess:
    """Resolve the target options; raises `InvalidInput` if they contradict each other or match nothing."""
    if slurm.chosen(**params):
        return NodeAccess(*slurm.runner(**params))
    if environment.chosen(**params):
        return _on_cluster(**params)
    if pods.chosen(**params):
        return NodeAccess(*pods.runner(**params))
    return _on_hosts(**params)


def preflight(
    access: NodeAccess, no_preflight: bool, alone: bool = False, together: bool = False, cluster: str = "", **_: Any
) -> None:
    """Refuse to start if a node is busy or not ready; nodes that do not answer are reported.

    One trip to each node. Skipped for pods of a test's own and for jobs: their scheduler checks as much. `alone`:
    each node runs a test of its own. `together`: one silent node spoils the whole test, so the test is refused.
    """
    if no_preflight or access.before is None:
        return
    from gpuctl.workflows import nccl_preflight

    results = access.before(alone)
    findings.show(results, err=True)
    if together and (
        silent := [one.subject for one in results if one.check == "asked" and one.subject in access.queryable]
    ):
        raise GpuctlError(
            f"run a test over {output.plural(len(access.nodes), 'node')}",
            f"{output.names(silent)} gave no answer; nothing was run",
            "name the others with --nodes" if cluster else f"leave out what is down: --limit 'all:!{silent[0]}'",
        )
    if nccl_preflight.stopping(results):
        click.echo("nothing was run: mend that, choose others with --nodes or --limit, or say --no-preflight", err=True)
        raise click.exceptions.Exit(1)


def _on_hosts(inventory: str | None, limit: str, nodes: str, rack_var: str, **params: Any) -> NodeAccess:
    from gpuctl.workflows import nccl_preflight

    hosts = nccl_hosts.hosts_of(inventory, limit, nodes, rack_var)
    reachable = [host for host in hosts.targets if not host.needs_ansible]
    folders, by_name, ssh_args = params["folders"], params["by_name"], params["ssh_args"]
    return NodeAccess(
        nccl_hosts.runner(hosts, **params),
        hosts.names,
        inventory or "localhost",
        hosts.racks,
        queryable=[host.name for host in reachable],
        before=lambda alone: nccl_preflight.before(
            hosts.targets, folders=folders, by_name=by_name, ssh_args=ssh_args, alone=alone
        ),
        layout=lambda: nccl_preflight.layout(reachable),
    )


def _on_cluster(**params: Any) -> NodeAccess:
    from gpuctl.workflows import nccl_in_pods
    from gpuctl.workflows import nccl_on_cluster as joined

    at = environment.place(**params)
    if at.count is None and params["environment"]:
        raise environment.not_there(at)
    if at.count is None:
        return NodeAccess(*environment.in_own_pods(at, **params), env=joined.variables_of(at))
    runner, carrier, racks = environment.in_its_pods(at, **params)
    nodes = list(carrier.pods)
    return NodeAccess(
        runner,
        nodes,
        at.where,
        racks,
        queryable=nodes,
        before=lambda alone: nccl_in_pods.before(carrier, nodes, params["ssh_args"], alone),
        layout=lambda: nccl_in_pods.layout(carrier, nodes),
    )
