"""Options of a sweep: sizes, GPUs per node, environment and nccl-tests settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import options

if TYPE_CHECKING:
    from gpuctl.nccl.model import Sweep

# Source: test_typenames and test_opnames in nccl-tests, src/common.cu.
DATATYPES = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64"),
    *("half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2", "all"),
)
OPS = ("sum", "prod", "max", "min", "avg", "mulsum", "all")


class Size(click.ParamType[int]):
    """Message size in the notation of nccl-tests: 8, 512K, 64M, 8G."""

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
    """Network under any of its names: efa, ib, InfiniBand, RoCEv2, tcp, gIB; NET/NAME for other plugins."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from difflib import get_close_matches

        from gpuctl.nccl.networks import NETWORKS, network

        name = network(str(value))
        if name is None:
            close = get_close_matches(str(value).lower(), NETWORKS, 1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            known = "efa, ib, roce, socket, or a name that NCCL prints: gIB, FasTrak; NET/NAME for any other plugin"
            self.fail(f"unknown network {value!r}{meant}: use {known}", param, ctx)
        return name


@dataclass(frozen=True)
class SweepRequest:
    """Sizes and settings of a sweep. `timeout` in seconds for one launch; `gpus`: None for the target's number.

    `verify`: iterations whose values are checked, 0 for none.
    """

    begin: int
    end: int
    gpus: int | None
    env: tuple[tuple[str, str], ...]
    timeout: float
    factor: int = 2
    iters: int = 20
    warmup_iters: int = 5
    verify: int = 1
    datatype: str = "float"
    op: str = "sum"
    per_iter_timing: bool = False

    def sweep(self, gpus: int) -> Sweep:
        """The sweep on nodes with this number of GPUs, unless the request has a number itself."""
        from gpuctl.nccl.model import Sweep

        return Sweep(
            begin_bytes=self.begin,
            end_bytes=self.end,
            factor=self.factor,
            gpus_per_node=self.gpus or gpus,
            iterations=self.iters,
            warmup=self.warmup_iters,
            check=self.verify,
            datatype=self.datatype,
            op=self.op,
            per_iteration=self.per_iter_timing,
            env=dict(self.env),
            limit_s=self.timeout,
        )


def sizes(begin: str, end: str) -> Callable[[options.Command], options.Command]:
    """Options --begin and --end with these defaults."""
    return options.together(
        click.option("--begin", "-b", type=Size(), default=begin, show_default=True, help="Smallest message."),
        click.option("--end", "-e", type=Size(), default=end, show_default=True, help="Largest message."),
    )


def ranks(timeout: float) -> Callable[[options.Command], options.Command]:
    """Options for the GPUs per node, the environment of the ranks and the timeout, with this default in seconds."""
    hang = "Seconds until a launch counts as hung and is stopped on all nodes."
    return options.together(
        click.option(
            "--gpus-per-node",
            "gpus",
            type=click.IntRange(1),
            metavar="N",
            help="GPUs per node.  [default: 8, or as in the cluster file]",
        ),
        click.option(
            "--env", "env", type=Pair(), multiple=True, help="Environment variable of every rank; repeatable."
        ),
        click.option("--timeout", type=options.Finite(1), default=timeout, show_default=True, help=hang),
    )


sweep_options = options.together(  # named like those of nccl-tests, except where gpuctl has other uses for a name
    sizes("8", "8G"),
    click.option(
        "--factor", "-f", type=click.IntRange(2), default=2, show_default=True, help="Factor from size to size."
    ),
    click.option("--iters", "-n", type=click.IntRange(1), default=20, show_default=True, help="Timed iterations."),
    click.option(
        "--warmup-iters", "-w", type=click.IntRange(0), default=5, show_default=True, help="Iterations before those."
    ),
    click.option(
        "--verify",
        "-c",
        type=click.IntRange(0),
        default=1,
        show_default=True,
        metavar="N",
        help="Iterations whose values are checked; 0 is faster, but finds no corruption.",
    ),
    click.option(
        "--per-iter-timing", "-I", is_flag=True, help="Time each iteration, to find jitter; needs a recent nccl-tests."
    ),
    click.option(
        "--datatype", "-d", type=click.Choice(DATATYPES), default="float", show_default=True, help="Type of the values."
    ),
    click.option("--op", type=click.Choice(OPS), default="sum", show_default=True, help="Reduction (nccl-tests -o)."),
    ranks(600),
)
