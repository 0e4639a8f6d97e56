"""python -m bench: time gpuctl beside plain Ansible, mitogen, pyinfra and bare ssh, on the same kind of hosts."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

from bench import peers, report
from bench.fleet import Fleet, NotDone, fleet
from bench.measure import Timing, run
from bench.settings import Setting, settings
from bench.sides import GPUCTL, PEERS, Side, sides

# The package ansible contains ansible.posix for sysctls. A separate environment keeps versions apart.
INSTALLED_PEERS = ("ansible>=12,<13", "mitogen>=0.3.25", "pyinfra>=3.2")
OURS = "/etc/sysctl.d/99-zz-gpuctl.conf"
Row = report.Row


def main() -> int:
    """Run the selected measurements and print the tables."""
    options = _arguments()
    if PEER_SIDES & set(options.only):
        _install_peers()
    desired = settings()
    rows = _floor(options.hosts, options.repeat, desired) if "floor" in options.only else []
    for name in options.only:
        if name not in ("floor", "growth"):
            rows += _side(name, options, desired)
    text = report.table(rows, options.hosts, len(desired))
    if "growth" in options.only:
        text += report.growth(_growth(options.growth, options.repeat, desired))
    text += report.other(statistics.median(_help(options.repeat)))
    sys.stdout.write(text)
    if options.write:
        report.write(text, options.hosts)
    return 0


def _arguments() -> argparse.Namespace:
    names = ["floor", "gpuctl", "pyinfra", "mitogen", "tuned", "defaults", "growth"]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--hosts", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=3, help="runs per row; the tables show medians")
    parser.add_argument("--first", type=int, default=3, help="first runs per side, each on fresh hosts")
    parser.add_argument("--slow-runs", type=int, default=3, help="runs and first runs of sides that take minutes")
    parser.add_argument("--growth", type=int, nargs="*", default=[5, 10, 20, 50])
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--write", action="store_true", help="write the tables to bench/README.md")
    return parser.parse_args()


def _install_peers() -> None:
    if not (PEERS / "pyinfra").exists():
        venv.create(PEERS.parent, with_pip=True)
        subprocess.run([PEERS / "python", "-m", "pip", "install", "--quiet", *INSTALLED_PEERS], check=True)


def _sides(ground: Fleet, desired: list[Setting]) -> dict[str, Side]:
    hosts = {host.name: host.facts.ip for host in ground.hosts}
    return {side.name: side for side in sides(ground.folder, ground.inventory, desired, hosts, forks=50)}


def _go(ground: Fleet, side: Side, watch: bool = False) -> Timing:
    report.progress(f"{side.name}, {len(ground.hosts)} hosts")
    return ground.timed(side.argv, ground.folder, side.environment, watch)


NAMES = {"pyinfra": "pyinfra", "mitogen": "mitogen", "tuned": "Ansible, tuned", "defaults": "Ansible, defaults"}
PEER_SIDES = frozenset(NAMES)
SLOW = ("mitogen", "tuned", "defaults")


def _side(name: str, options: argparse.Namespace, desired: list[Setting]) -> list[Row]:
    """First runs on fresh hosts, then runs with nothing to change; for gpuctl also drift and memory."""
    full = NAMES.get(name, "gpuctl tune-nodes")
    firsts, agains, rows, over_ssh = [], [], [], []
    first, repeat = (options.slow_runs, options.slow_runs) if name in SLOW else (options.first, options.repeat)
    for number in range(first):
        with fleet(options.hosts) as ground:
            side = _sides(ground, desired)[full]
            firsts.append(_go(ground, side))
            ground.check(desired)
            if number == first - 1:
                ground.forget_writes()
                agains = [_go(ground, side) for _ in range(repeat)]
                rows = _ours(ground, options, desired) if name == "gpuctl" else []
                ground.check_untouched()
        if name == "gpuctl":
            over_ssh.append(_first_run(options.hosts, "gpuctl tune-nodes --via ssh", desired))
    if over_ssh:
        rows.append(Row("gpuctl tune-nodes --via ssh, first run", over_ssh))
    return [Row(f"{full}, first run", firsts), Row(f"{full}, nothing to change", agains), *rows]


def _first_run(count: int, name: str, desired: list[Setting]) -> Timing:
    """A first run on fresh hosts, checked."""
    with fleet(count) as ground:
        timing = _go(ground, _sides(ground, desired)[name])
        ground.check(desired)
        return timing


def _ours(ground: Fleet, options: argparse.Namespace, desired: list[Setting]) -> list[Row]:
    by_name = _sides(ground, desired)
    drift = Row("gpuctl drift", [_go(ground, by_name["gpuctl drift"]) for _ in range(options.repeat)])
    watched = _go(ground, by_name["gpuctl tune-nodes"], watch=True)
    report.remember_memory(watched.pss, len(ground.hosts))
    return [drift]


def _floor(count: int, repeat: int, desired: list[Setting]) -> list[Row]:
    """Bare ssh on hosts that gpuctl has tuned, so that all sides read the same files."""
    with fleet(count) as ground:
        _go(ground, _sides(ground, desired)["gpuctl tune-nodes"])
        return list(_floor_rows(ground, repeat, desired))


def _floor_rows(ground: Fleet, repeat: int, desired: list[Setting]) -> Iterator[Row]:
    master = f"-oControlMaster=auto -oControlPersist=600 -oControlPath={ground.folder}/%C".split()
    paths = " ".join([*(s.path for s in desired if s.kind != "unit"), OURS])
    python = ("/usr/bin/python3 -IS -", peers.reader(desired, OURS))
    variants = [
        ("ssh that reads with Python, cold (the floor)", *python, []),
        ("ssh that reads with Python, multiplexed", *python, master),
        ("ssh that runs cat, cold", f"cat {paths}", "", []),
        ("ssh that runs cat, multiplexed", f"cat {paths}", "", master),
    ]
    for name, command, program, options in variants:
        argv = [sys.executable, "-m", "bench.floor", str(ground.inventory), command, *options]
        root = Path(__file__).parents[1]
        timings = [ground.timed(argv, root, {}, stdin=program) for _ in range(repeat + bool(options))]
        yield Row(name, timings[bool(options) :])  # without the run that opens the connections


def _growth(counts: list[int], repeat: int, desired: list[Setting]) -> list[tuple[int, Row, Row, Row]]:
    rows = []
    for count in counts:
        with fleet(count) as ground:
            by_name = _sides(ground, desired)
            _go(ground, by_name["gpuctl tune-nodes"])
            ground.forget_writes()
            again = Row("", [_go(ground, by_name["gpuctl tune-nodes"]) for _ in range(repeat)])
            drift = Row("", [_go(ground, by_name["gpuctl drift"]) for _ in range(repeat)])
            ground.check_untouched()
            rows.append((count, next(_floor_rows(ground, repeat, desired)), again, drift))
    return rows


def _help(repeat: int) -> list[float]:
    return [run([GPUCTL, "--help"], Path(), {}).wall for _ in range(repeat + 1)][1:]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}\n{error.output}")
    except NotDone as error:
        sys.exit(str(error))
