"""Options that select the nodes of an NCCL test, and the checks of these nodes before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import completion, findings, options, output
from gpuctl.cli.shared.option_sections import section
from gpuctl.core.errors import GpuctlError

if TYPE_CHECKING:
    from gpuctl.workflows.nccl_targets.model import NodeAccess, TargetRequest

on_hosts = section("On hosts, over ssh")
on_slurm = section("On a Slurm cluster (--slurm)")
on_cluster = section("On the cluster of a cluster file (--cluster)")
in_pods = section("In pods of a Kubernetes cluster (--image)")

search_path = click.option(
    "--search-path",
    metavar="DIR",
    multiple=True,
    help="Folder with nccl-tests or mpirun on the nodes; repeatable.",
)
rack_var = on_hosts(
    "--rack-var", metavar="NAME", default="rack", show_default=True, help="Inventory variable with a host's rack."
)
use_inventory_names = on_hosts(
    "--use-inventory-names", is_flag=True, help="Let nodes reach each other by their inventory names."
)
ssh_args = on_hosts("--ssh-args", default="", help="Additional arguments for ssh between nodes.")
context = in_pods(
    "--context",
    metavar="NAME",
    default="",
    help="Kubeconfig context.  [default: the current one]",
    shell_complete=completion.contexts,
)
namespace = in_pods("--namespace", metavar="NAME", default="", help="Namespace of the pods.  [default: the context's]")

target_options = options.together(
    options.inventory,
    options.limit,
    click.option(
        "--nodes",
        metavar="NAME,...",
        default="",
        callback=options.not_empty,
        help="Test only these nodes, ranks in this order; on Slurm also h[1-4], or a number.  [default: all]",
    ),
    search_path,
    click.option(
        "--save-output",
        metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="Save the full output of each launch in this folder.",
    ),
    click.option("--no-preflight", is_flag=True, help="Start without checking that the nodes are idle and ready."),
    rack_var,
    on_hosts(
        "--via",
        type=click.Choice(["ssh", "ansible"]),
        help="Reach the hosts only by this transport.  [default: ssh if possible]",
    ),
    use_inventory_names,
    ssh_args,
    on_hosts("--as-root", is_flag=True, help="Let mpirun run as root, if that is the login user."),
    on_slurm("--slurm", is_flag=True, help="Run as srun steps of one Slurm job, on idle nodes."),
    on_slurm("--partition", metavar="NAME", default="", help="Partition.  [default: Slurm's default partition]"),
    on_slurm("--account", metavar="NAME", default="", help="Account that the job is charged to."),
    on_slurm("--qos", metavar="NAME", default="", help="Quality of service of the job."),
    on_slurm("--reservation", metavar="NAME", default="", help="Use the nodes of this reservation."),
    on_slurm(
        "--mpi",
        type=click.Choice(["pmix", "pmi2"]),
        help="MPI type of srun.  [default: the first that it supports]",
    ),
    on_slurm("--queue-timeout", type=options.Finite(1), help="Seconds to wait in the queue.  [default: 600]"),
    on_slurm("--job-minutes", type=click.IntRange(1), help="Time limit of the job.  [default: 240]"),
    on_cluster(
        "--cluster",
        metavar="NAME|FILE",
        default="",
        callback=options.not_empty,
        help="Cluster file; uses its environment's pods if deployed, else new pods.",
    ),
    on_cluster(
        "--environment",
        metavar="NAME",
        default="",
        callback=options.not_empty,
        help="Environment of the cluster file.  [default: the file's]",
    ),
    in_pods(
        "--image",
        metavar="IMAGE",
        default="",
        callback=options.not_empty,
        help="Run in new pods of this image, which contains nccl-tests.",
    ),
    context,
    namespace,
    in_pods("--fabric", metavar="NAME=N", multiple=True, help="Resource of each pod: vpc.amazonaws.com/efa=32."),
    in_pods("--networks", metavar="NAME,...", default="", help="Secondary networks of each pod."),
    in_pods("--user", type=click.IntRange(0), help="User ID in the pods; 0 is root.  [default: 1000]"),
    in_pods("--service-account", metavar="NAME", default="", help="Service account of the pods."),
    in_pods("--pull-secret", metavar="NAME", default="", help="Secret to pull the image with."),
    in_pods("--rack-label", metavar="LABEL", default="", help="Node label with the rack.  [default: the usual ones]"),
    in_pods(
        "--mpijob/--no-mpijob",
        default=None,
        help="Run several nodes as an MPIJob of the MPI operator.  [default: if installed and permitted]",
    ),
)


def notify(message: str) -> None:
    """Print a line for the user to standard error."""
    click.echo(message, err=True)


def preflight(access: NodeAccess, target: TargetRequest, alone: bool = False, together: bool = False) -> None:
    """Refuse to start if a node is busy or not ready; nodes that do not answer are reported.

    One trip to each node. Skipped for Slurm jobs and for new pods, whose scheduler places them on free nodes. `alone`:
    each node runs a test of its own. `together`: one silent node spoils the whole test, so the test is refused.
    """
    if target.no_preflight or access.before is None:
        return
    from gpuctl.workflows import nccl_preflight

    results = access.before(alone)
    findings.show(results, err=True)
    silent = [one.subject for one in results if one.check == "reachable" and one.subject in access.queryable]
    if together and silent:
        raise GpuctlError(
            f"run a test over {output.plural(len(access.nodes), 'node')}",
            f"{output.names(silent)} gave no answer; nothing was run",
            "list the others with --nodes"
            if target.environment.cluster
            else f"leave out what is down: --limit 'all:!{silent[0]}'",
        )
    if nccl_preflight.stopping(results):
        notify("nothing was run: fix this, choose other nodes with --nodes or --limit, or use --no-preflight")
        raise click.exceptions.Exit(1)
