"""A run of nccl-tests: the request, the printed results, and the outcome.

Units everywhere: sizes in bytes, times in microseconds, bandwidths in GB/s (decimal: 10**9 bytes a second, as
nccl-tests prints them). None is "was not printed"; nothing is ever filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """Outcome of a run. `complete`: it printed its summary or all its sizes, without a wrong value.

    Rows may still be missing from the kept text: see `sizes_announced` and `not_numbers` of a run.
    """

    COMPLETE = "complete"
    CORRUPT = "corrupt"  # it ended, and values were wrong
    FAILED = "failed"  # a rank gave up with an error
    KILLED = "killed"  # by a signal: out of memory, a scheduler, a timeout of ours
    HUNG = "hung"  # it stood still, with no error
    TRUNCATED = "truncated"  # the text ends early, without a cause
    EMPTY = "empty"  # no test began


@dataclass(frozen=True)
class Iterations:
    """Times of single iterations (nccl-tests -I), of the slowest process each; only the JSON report has the median."""

    min_us: float
    median_us: float | None
    p99_us: float
    max_us: float
    cv_percent: float  # the standard deviation as a part of the mean


@dataclass(frozen=True)
class Timing:
    """One half of a row. `wrong`: number of wrong values; None if they were not checked."""

    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    wrong: float | None
    per_iteration: Iterations | None = None


@dataclass(frozen=True)
class Row:
    """Measurement at one message size."""

    size_bytes: int
    count: int | None
    type: str | None
    redop: str | None
    root: int | None
    out_of_place: Timing | None
    in_place: Timing | None


@dataclass(frozen=True)
class NoNumber:
    """Text in place of a number: "nan" at 2097152 bytes, in_place, busbw_gbs."""

    size_bytes: int
    half: str  # "out_of_place", "in_place"
    column: str  # "time_us", "algbw_gbs", "busbw_gbs", "wrong"
    printed: str


@dataclass(frozen=True)
class Rank:
    """A process (or one of its GPUs) in the list "Using devices".

    `bus_id` is the GPU's whole PCI address ("0000:19:00"). Builds before 2.14 print the bus alone ("0x10"), which two
    GPUs may share: it is left out.
    """

    rank: int
    host: str
    pid: int | None
    device: int | None
    gpu: str | None
    bus_id: str | None = None


@dataclass(frozen=True)
class Transport:
    """Network of one rank, as reported when NCCL starts (NCCL_DEBUG=INFO, subsystems INIT and NET).

    `network` is NCCL's word ("IB", "Socket", "AWS Libfabric", "OFI"); `provider` libfabric's ("efa"); `nics` the
    devices it opened, in its order ("mlx5_5:1/RoCE", "rdmap16s27"); `gdr`: whether data bypasses host memory.
    None or empty: not reported.
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
    """One run of one test, as far as its output shows.

    `cause`: the first real reason of an outcome other than complete, naming rank and host where known.
    `algorithms`: those NCCL reports using ("Ring", "Tree", "NVLS", "NVLSTree"). `forced_algorithms`: those
    requested by the environment (NCCL_ALGO): the same names, "^NVLS" for all but that one, "allreduce:Ring" for one
    collective alone. Both are empty if nothing was reported.

    `sizes_announced`: the number of message sizes in the heading. `left_out`: the text has "..." in place of lines,
    before the summary. `not_numbers`: cells that are not numbers; a half without its time and bandwidths is None,
    an unreadable count of wrong values is None. `warning`: NCCL's first warning, if no failure was printed.
    `origin`: the pod, log stream or host that printed the table, if a collector wrote it beside each line.
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
    warning: str | None = None
    origin: str | None = None


@dataclass(frozen=True)
class Sweep:
    """One nccl-tests program over message sizes, with its settings.

    `check`: iterations whose values are checked, 0 for none. `per_iteration`: times of single iterations are printed
    (-I, which old builds do not have). `env` is passed to every rank (NCCL_ALGO, NCCL_IB_HCA).
    """

    collective: str = "all_reduce"
    begin_bytes: int = 8
    end_bytes: int = 8 << 30
    factor: int = 2
    iterations: int = 20
    warmup: int = 5
    check: int = 1
    gpus_per_node: int = 8
    env: Mapping[str, str] = field(default_factory=dict)
    limit_s: float = 600.0  # after this long without an end it is a hang
    datatype: str = "float"  # or "all": every type, one after the other
    op: str = "sum"  # or "all"
    per_iteration: bool = False


@dataclass(frozen=True)
class Launch:
    """A sweep on some nodes. `rail`: the one adapter per node it is restricted to, empty for all of them."""

    nodes: tuple[str, ...]
    sweep: Sweep
    rail: str = ""


@dataclass(frozen=True)
class LaunchResult:
    """A launch that has ended, in any way.

    `lost`: nodes that did not answer during cleanup. `waiting`: for a hang, node -> "waiting" (a rank still waits
    there), "gone" (no rank is left) or "unknown". `left`: objects that could not be removed from the cluster, and
    until when they stay; empty if all were.
    """

    launch: Launch
    run: Run
    seconds: float
    lost: tuple[str, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)
    left: str = ""
