"""The tables of the benchmark: medians, ratios to the floor, and the aims with their results."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bench.measure import Timing

PAGE = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
FLOOR = "ssh that reads with Python, cold (the floor)"
AGAIN, FIRST = "nothing to change", "first run"
_memory: list[float] = []


@dataclass(frozen=True)
class Row:
    """One measurement, repeated several times."""

    name: str
    timings: list[Timing]

    @property
    def wall(self) -> float:
        return statistics.median(t.wall for t in self.timings)

    @property
    def cpu(self) -> float:
        return statistics.median(t.cpu for t in self.timings)

    @property
    def hosts_cpu(self) -> float | None:
        """Processor seconds of all hosts together; None if they were not watched."""
        seconds = [t.hosts_cpu for t in self.timings if t.hosts_cpu is not None]
        return statistics.median(seconds) if seconds else None

    def cpu_ratio(self, floor: Row) -> float | None:
        """Processor time here and on the hosts, in times of the floor's; None if hosts were not watched."""
        if self.hosts_cpu is None or floor.hosts_cpu is None:
            return None
        return (self.cpu + self.hosts_cpu) / (floor.cpu + floor.hosts_cpu)


def progress(text: str) -> None:
    """Print the current measurement on standard error."""
    sys.stderr.write(f"[{time.strftime('%H:%M:%S')}] {text}\n")


def remember_memory(mebibytes: float, hosts: int) -> None:
    """Store the controller's peak memory per host, in a run with nothing to change."""
    _memory.append(mebibytes / hosts)


def table(rows: list[Row], hosts: int, settings: int) -> str:
    """Markdown: median, local processor time and ratio to the floor of every row."""
    floor = next((row for row in rows if row.name == FLOOR), None)
    lines = [
        f"{hosts} hosts, {settings} settings, on {_machine()}.\n",
        "| | wall s | min to max | CPU s here | CPU s on the hosts | runs | times the floor | CPU, times the floor's |",
    ]
    lines.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        walls = [t.wall for t in row.timings]
        ratio = _cell(row.wall / floor.wall if floor else None)
        cpu_ratio = _cell(row.cpu_ratio(floor) if floor else None)
        spread = f"{min(walls):.2f} to {max(walls):.2f}"
        cpu = f"{row.cpu:.2f} | {_cell(row.hosts_cpu)}"
        lines.append(f"| {row.name} | {row.wall:.2f} | {spread} | {cpu} | {len(walls)} | {ratio} | {cpu_ratio} |")
    return "\n".join(lines) + "\n\n" + _aims(rows, floor.wall if floor else None)


def _cell(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def _machine() -> str:
    names = ("ansible-core", "click")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores shared by controller and hosts, Linux {platform.release()}, {python}, {versions}"


def _aims(rows: list[Row], floor: float | None) -> str:
    """The project's aims with their results in this run; only for measured rows."""
    walls = {row.name: row.wall for row in rows}
    again, first = walls.get(f"gpuctl tune-nodes, {AGAIN}"), walls.get(f"gpuctl tune-nodes, {FIRST}")
    drift = walls.get("gpuctl drift")
    over_ssh = walls.get(f"gpuctl tune-nodes --via ssh, {FIRST}")
    pyinfra, tuned = walls.get(f"pyinfra, {FIRST}"), walls.get(f"Ansible, tuned, {FIRST}")
    aims = [
        ("a run with nothing to change within 2 times the floor", again, floor, 2.0, "times"),
        ("drift within 1.5 times the floor", drift, floor, 1.5, "times"),
        ("a first run through Ansible within 4 times the floor", first, floor, 4.0, "times"),
        ("a first run over ssh alone within 3 times the floor", over_ssh, floor, 3.0, "times"),
        ("a first run faster than pyinfra's", first, pyinfra, 1.0, "times pyinfra's"),
        ("a first run 10 times faster than tuned Ansible's", first, tuned, 0.1, "times tuned Ansible's"),
        ("less than 10 MiB here for each host", _memory[-1] if _memory else None, 1.0, 10.0, "MiB"),
    ]
    lines = ["| aim | measured | |", "|---|---:|---|"]
    for name, value, base, most, unit in aims:
        if value is not None and base:
            lines.append(f"| {name} | {value / base:.2f} {unit} | {'met' if value / base <= most else 'not met'} |")
    return "\n".join(lines) + "\n"


def growth(rows: list[tuple[int, Row, Row, Row]]) -> str:
    """Markdown: time by number of hosts."""
    lines = [
        "",
        "| hosts | floor s | nothing to change s | s a host | drift s | s a host |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for hosts, floor, again, drift in rows:
        ours = " | ".join(f"{row.wall:.2f} | {row.wall / hosts:.3f}" for row in (again, drift))
        lines.append(f"| {hosts} | {floor.wall:.2f} | {ours} |")
    fewest, most = min(rows, key=lambda row: row[0]), max(rows, key=lambda row: row[0])
    worse = max(many.wall / most[0] / (few.wall / fewest[0]) for few, many in zip(fewest[2:], most[2:], strict=True))
    met = "met" if worse <= 1 else "not met"
    lines.append(
        f"\nNo worse than linear: a host takes {worse:.2f} times as long among {most[0]} as among {fewest[0]} ({met})."
    )
    return "\n".join(lines) + "\n"


def other(help_seconds: float) -> str:
    """Figures without a table."""
    return f"\n`gpuctl --help` takes {help_seconds:.2f} s.\n"


def write(text: str, hosts: int) -> None:
    """Replace the tables between the page's markers."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    date = time.strftime("%Y-%m-%d")
    PAGE.write_text(f"{before}{BEGIN}\nMeasured on {date}.\n\n{text}\n{END}{after}")
