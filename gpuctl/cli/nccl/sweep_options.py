"""Options of a sweep: sizes, GPUs per node, environment and nccl-tests settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import options

if TYPE_CHECKING:
    from gpuctl.nccl.model import Sweep


class Size(click.ParamType[int]):
    """A message size as nccl-tests takes it: 8, 512K, 64M, 8G."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d{1,18})([KMG]?)", str(value).upper())
        if match is None or not int(match[1]):
            self.fail(f"{value!r} is not a size such as 8, 512K, 64M or 8G", param, ctx)
        return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


class Pair(click.ParamType[tuple[str, str]]):
    """NAME=VALUE."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        match = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", value, re.DOTALL) if isinstance(value, str) else None
        if match is None:
            self.fail(f"{value!r} is not of the form NAME=VALUE", param, ctx)
        return match[1], match[2]


class Network(click.ParamType[str]):
    """A network under any of its names: efa, ib, InfiniBand, RoCEv2, tcp, gIB; NET/NAME for other plugins."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from difflib import get_close_matches

        from gpuctl.nccl.networks import NETWORKS, network

        name = network(str(value))
        if name is None:
            close = get_close_matches(str(value).lower(), NETWORKS, 1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            known = "efa, ib, roce, socket, or what NCCL prints: gIB, FasTrak; NET/NAME is any other plugin's"
            self.fail(f"no network is called {value!r}{meant}: it can be {known}", param, ctx)
        return name


def sizes(begin: str, end: str) -> Callable[[options.Command], options.Command]:
    """Options --begin and --end with these defaults."""
    return options.together(
        click.option("--begin", "-b", type=Size(), default=begin, show_default=True, help="Smallest message."),
        click.option("--end", "-e", type=Size(), default=end, show_default=True, help="Largest message."),
    )


def ranks(limit_s: float) -> Callable[[options.Command], options.Command]:
    """Options for the environment of ranks, the GPUs per node and the default timeout."""
    late = "A run that has not ended by then hangs: it is ended on every node."
    return options.together(
        click.option(
            "--gpus", type=click.IntRange(1), help="GPUs of a node.  [default: 8, or as the cluster file says]"
        ),
        click.option("--env", "env", type=Pair(), multiple=True, help="For every rank; may be given again."),
        click.option("--limit-s", type=options.Finite(1), default=limit_s, show_default=True, help=late),
    )


sweep_options = options.together(
    sizes("8", "8G"),
    click.option("--factor", "-f", type=click.IntRange(2), default=2, show_default=True, help="From size to size."),
    ranks(600),
    click.option("--no-verify", is_flag=True, help="Do not check the values: faster, and finds no corruption."),
)


def sweep_of(
    begin: int,
    end: int,
    gpus: int,
    env: Sequence[tuple[str, str]],
    limit_s: float,
    factor: int = 2,
    no_verify: bool = False,
    **_: Any,
) -> Sweep:
    """Build the sweep from the options that a command has."""
    from gpuctl.nccl.model import Sweep

    return Sweep(
        begin_bytes=begin,
        end_bytes=end,
        factor=factor,
        gpus_per_node=gpus,
        check=not no_verify,
        env=dict(env),
        limit_s=limit_s,
    )
