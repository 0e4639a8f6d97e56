"""python -m bench.versions CHECKOUT: time two versions of gpuctl and the floor, interleaved in one run.

CHECKOUT is another working tree with its build/collections; it runs in its own .venv, or else in this one. Each version
tunes its own hosts, as they install their programs there. Both are compiled first, as an installed package is. The
floor is measured beside every first run. The machine may be busy, so the ratios count, of processor seconds above all.
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from bench import peers, report
from bench.__main__ import OURS
from bench.fleet import Fleet, NotDone, fleet
from bench.measure import Timing
from bench.settings import PROFILE, Setting, settings
from bench.sides import GPUCTL

HERE = Path(__file__).parents[1]
FIRST_RUN, FIRST_OVER_SSH = "first run", "first run, --via ssh"
NOTHING_TO_CHANGE, DRIFT, HELP = "nothing to change", "drift", "`gpuctl --help`"
T = TypeVar("T")
FLOOR = "ssh that reads with Python, cold (the floor)"


class Version:
    """One version of gpuctl, with the hosts that it tunes."""

    def __init__(self, checkout: Path, hosts: Fleet) -> None:
        for folder in ("gpuctl", "plugins"):
            compileall.compile_dir(checkout / folder, quiet=1)
        own = checkout / ".venv/bin/gpuctl"
        self.program, self.hosts = str(own if own.exists() else GPUCTL), hosts
        self.environment = {"PYTHONPATH": f"{checkout}:{checkout / 'build/collections'}"}

    def run(self, *arguments: str) -> Timing:
        folders = {f"GPUCTL_{n}_DIR": str(self.hosts.folder / n.lower()) for n in ("STATE", "CACHE", "CONFIG")}
        return self.hosts.timed([self.program, *arguments], self.hosts.folder, {**self.environment, **folders})

    def on_hosts(self, *command: str) -> Timing:
        return self.run(*command, "--inventory", str(self.hosts.inventory), "--profile", str(PROFILE))

    def timings(self, desired: list[Setting]) -> dict[str, Timing]:
        """One run of each command; the hosts are tuned already."""
        self.hosts.forget_writes()
        times = {
            NOTHING_TO_CHANGE: self.on_hosts("tune-nodes"),
            DRIFT: self.on_hosts("drift"),
            HELP: self.run("--help"),
        }
        self.hosts.check_untouched()
        return times


def floor(hosts: Fleet, desired: list[Setting]) -> Timing:
    """One bare ssh per host that reads the same values."""
    argv = [sys.executable, "-m", "bench.floor", str(hosts.inventory), "/usr/bin/python3 -IS -"]
    return hosts.timed(argv, HERE, {}, stdin=peers.reader(desired, OURS))


def measure(checkouts: dict[str, Path], count: int, runs: int, first_runs: int) -> dict[tuple[str, str], list[Timing]]:
    """(what, version) -> timings; the floor has the version ""."""
    desired = settings()
    times: dict[tuple[str, str], list[Timing]] = {}
    for number in range(first_runs):
        for name, path in alternating(checkouts, number):
            with fleet(count) as hosts:
                report.progress(f"first run {number + 1} over ssh, {name}")
                times.setdefault((FIRST_OVER_SSH, name), []).append(
                    Version(path, hosts).on_hosts("tune-nodes", "--via", "ssh")
                )
                hosts.check(desired)
                times.setdefault((FLOOR, ""), []).append(floor(hosts, desired))
        with ExitStack() as stack:
            versions = {name: Version(path, stack.enter_context(fleet(count))) for name, path in checkouts.items()}
            for name, version in alternating(versions, number):
                report.progress(f"first run {number + 1}, {name}")
                times.setdefault((FIRST_RUN, name), []).append(version.on_hosts("tune-nodes"))
                version.hosts.check(desired)
                times.setdefault((FLOOR, ""), []).append(floor(version.hosts, desired))
            for again in range(runs if number == first_runs - 1 else 0):
                report.progress(f"run {again + 1}")
                for name, version in alternating(versions, again):
                    for what, timing in version.timings(desired).items():
                        times.setdefault((what, name), []).append(timing)
                    times.setdefault((FLOOR, ""), []).append(floor(version.hosts, desired))
    return times


def alternating(versions: Mapping[str, T], number: int) -> Iterator[tuple[str, T]]:
    """The items in turn forwards and backwards."""
    items = list(versions.items())
    yield from reversed(items) if number % 2 else items


def table(times: dict[tuple[str, str], list[Timing]], before: str, after: str) -> str:
    """Markdown: median and spread of both versions, the ratio of their medians, and ratios to the floor.

    Processor seconds are those here and those of all hosts together.
    """
    base = report.Row(FLOOR, times[FLOOR, ""])
    side = "wall s | min to max | CPU s here + hosts | wall, times the floor | CPU, times the floor's"
    lines = [f"| | {before}: {side} | {after}: {side} | wall, times | CPU, times |", "|---|" + "---:|" * 12]
    for what in (FIRST_RUN, FIRST_OVER_SSH, NOTHING_TO_CHANGE, DRIFT, HELP):
        old, new = (report.Row(what, times[what, name]) for name in (before, after))
        cells = " | ".join(_cells(row, base) for row in (old, new))
        lines.append(f"| {what} | {cells} | {new.wall / old.wall:.2f} | {_all_cpu(new) / _all_cpu(old):.2f} |")
    lines.append(f"\n{FLOOR}: {base.wall:.2f} s ({_spread(base)}), {_cpu(base)} CPU seconds, {len(base.timings)} runs.")
    return "\n".join(lines) + "\n"


def _cells(row: report.Row, base: report.Row) -> str:
    ratios = f"{row.wall / base.wall:.2f} | {_all_cpu(row) / _all_cpu(base):.2f}"
    return f"{row.wall:.2f} | {_spread(row)} | {_cpu(row)} | {ratios}"


def _cpu(row: report.Row) -> str:
    return f"{row.cpu:.2f} + {row.hosts_cpu or 0:.2f}"


def _all_cpu(row: report.Row) -> float:
    return row.cpu + (row.hosts_cpu or 0)


def _spread(row: report.Row) -> str:
    walls = [timing.wall for timing in row.timings]
    return f"{min(walls):.2f} to {max(walls):.2f}"


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.versions", description=__doc__)
    parser.add_argument("checkout", type=Path, help="working tree of the other version, with its .venv")
    parser.add_argument("--hosts", type=int, default=5)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--first", type=int, default=2, help="first runs of each version, each on fresh hosts")
    options = parser.parse_args()
    checkouts = {"before": options.checkout.resolve(), "after": HERE}
    times = measure(checkouts, options.hosts, options.runs, options.first)
    sys.stdout.write(table(times, "before", "after"))
    load = statistics.mean(os.getloadavg())
    sys.stdout.write(f"\n{options.hosts} hosts a version, {options.runs} runs, load of the machine about {load:.0f}.\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}\n{error.output}")
    except NotDone as error:
        sys.exit(str(error))
