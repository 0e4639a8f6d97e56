"""A run of nccl-tests: what was asked for, what was printed, and how it ended.

Units everywhere: sizes in bytes, times in microseconds, bandwidths in GB/s (decimal: 10**9 bytes a second, as
nccl-tests prints them). None is "was not printed"; nothing is ever filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How a run ended. `complete`: to its summary, or through all its sizes, and no wrong value was seen.

    Rows may still be missing from what was kept of it: see `sizes_announced` and `not_numbers` of a run.
    """

    COMPLETE = "complete"
    CORRUPT = "corrupt"  # it ended, and values were wrong
    FAILED = "failed"  # a rank gave up with an error
    KILLED = "killed"  # by a signal: out of memory, a scheduler, a timeout of ours
    HUNG = "hung"  # it stood still, with no error
    TRUNCATED = "truncated"  # the text ends early, and nothing says why
    EMPTY = "empty"  # no test began


@dataclass(frozen=True)
class Iterations:
    """How long single iterations took (nccl-tests -I), of each the slowest process; the median is in its JSON alone."""

    min_us: float
    median_us: float | None
    p99_us: float
    max_us: float
    cv_percent: float  # the standard deviation as a part of the mean


@dataclass(frozen=True)
class Timing:
    """One of the two halves of a row. `wrong`: values that were wrong; None where they were not checked."""

    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    wrong: float | None
    per_iteration: Iterations | None = None


@dataclass(frozen=True)
class Row:
    """What was measured at one message size."""

    size_bytes: int
    count: int | None
    type: str | None
    redop: str | None
    root: int | None
    out_of_place: Timing | None
    in_place: Timing | None


@dataclass(frozen=True)
class NoNumber:
    """What was printed in a row where a number belongs: "nan" at 2097152 bytes, in_place, busbw_gbs."""

    size_bytes: int
    half: str  # "out_of_place", "in_place"
    column: str  # "time_us", "algbw_gbs", "busbw_gbs", "wrong"
    printed: str


@dataclass(frozen=True)
class Rank:
    """A process (or a GPU of one) as the list "Using devices" names it."""

    rank: int
    host: str
    pid: int | None
    device: int | None
    gpu: str | None


@dataclass(frozen=True)
class Transport:
    """What one rank said about its network when NCCL began (NCCL_DEBUG=INFO, subsystem INIT and NET).

    `network` is NCCL's word ("IB", "Socket", "AWS Libfabric", "OFI"); `provider` libfabric's ("efa"); `nics` the
    devices it opened, in its order ("mlx5_5:1/RoCE", "rdmap16s27"); `gdr` whether data goes to the GPU's memory
    without the host. None or empty: it did not say.
    """

    rank: int | None
    host: str | None
    network: str | None = None
    provider: str | None = None
    nics: tuple[str, ...] = ()
    gdr: bool | None = None


@dataclass(frozen=True)
class Versions:
    """As printed: `nccl` "2.26.2", `nccl_tests` "2.17.9", `cuda` "12.4", `plugin` "aws-ofi-nccl 1.14.0"."""

    nccl: str | None = None
    nccl_tests: str | None = None
    cuda: str | None = None
    plugin: str | None = None


@dataclass(frozen=True)
class Run:
    """One run of one test, as far as its output tells.

    `cause`: the first real reason of an end other than complete, naming rank and host where they are known.
    `algorithms`: those NCCL said it used ("Ring", "Tree", "NVLS", "NVLSTree"). `forced_algorithms`: those the
    environment asked for (NCCL_ALGO): the same names, "^NVLS" for all but that one, "allreduce:Ring" for one collective
    alone. Both empty where nothing was said.
    `sizes_announced`: how many message sizes the heading promised. `left_out`: whoever made the text left lines out,
    and wrote "..." in their place, before the summary. `not_numbers`: what was printed in rows where
    numbers belong; a half without its time and bandwidths is None, a count of wrong values that is none is None.
    """

    outcome: Outcome
    cause: str | None
    collective: str | None  # "all_reduce", "sendrecv"
    rows: tuple[Row, ...]
    avg_busbw_gbs: float | None
    out_of_bounds: int | None
    ranks: tuple[Rank, ...] = ()
    transports: tuple[Transport, ...] = ()
    algorithms: tuple[str, ...] = ()
    versions: Versions = field(default_factory=Versions)
    forced_algorithms: tuple[str, ...] = ()
    sizes_announced: int | None = None
    not_numbers: tuple[NoNumber, ...] = ()
    left_out: bool = False


@dataclass(frozen=True)
class Sweep:
    """One nccl-tests program over message sizes, and how it is called.

    `env` is given to every rank (NCCL_ALGO, NCCL_IB_HCA).
    """

    collective: str = "all_reduce"
    begin_bytes: int = 8
    end_bytes: int = 8 << 30
    factor: int = 2
    iterations: int = 20
    warmup: int = 5
    check: bool = True
    gpus_per_node: int = 8
    env: Mapping[str, str] = field(default_factory=dict)
    limit_s: float = 600.0  # after this long without an end it is a hang


@dataclass(frozen=True)
class Launch:
    """A sweep on some nodes. `rail` is the one adapter of each node that it is kept to, empty for all of them."""

    nodes: tuple[str, ...]
    sweep: Sweep
    rail: str = ""


@dataclass(frozen=True)
class LaunchResult:
    """A launch that ended, one way or another.

    `lost`: nodes that were gone when it was cleaned up (no answer). `waiting`: for a hang, which nodes still had a
    rank that waited, and which had none any more: node -> "waiting" | "gone" | "unknown". `left`: what of it could not
    be removed from the cluster, and until when it stays there; empty where all was.
    """

    launch: Launch
    run: Run
    seconds: float
    lost: tuple[str, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)
    left: str = ""
