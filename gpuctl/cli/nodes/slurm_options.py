"""Options that choose the nodes of a Slurm cluster."""

from __future__ import annotations

import click

from gpuctl.cli.shared import options

slurm = options.together(
    click.option("--slurm", is_flag=True, help="Show the nodes of the Slurm cluster that this machine belongs to."),
    click.option(
        "--partition", metavar="NAME", default="", callback=options.not_empty, help="With --slurm: of this partition."
    ),
    click.option(
        "--nodes",
        metavar="NAME,...",
        default="",
        callback=options.not_empty,
        help="With --slurm: only these, or h[1-4].",
    ),
    click.option(
        "--via",
        type=click.Choice(["srun", "ssh", "scontrol"]),
        help="With --slurm: how to query the nodes: in your own jobs there, by ssh, or not at all.  "
        "[default: ssh with --inventory, else srun]",
    ),
)
