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
from bench.measure import Took, run
from bench.sides import GPUCTL, PEERS, Side, sides
from bench.wanted import Setting, settings

# Bundles ansible.posix, which plain Ansible needs for sysctls; apart from our own environment, so that nothing mixes.
INSTALLED_PEERS = ("ansible>=12,<13", "mitogen>=0.3.25", "pyinfra>=3.2")
OURS = "/etc/sysctl.d/99-zz-gpuctl.conf"
Row = report.Row


def main() -> int:
    """Measure everything that was asked for and print the tables."""
    asked = _arguments()
    _install_peers()
    wanted = settings()
    rows = _floor(asked.hosts, asked.repeat, wanted) if "floor" in asked.only else []
    for name in asked.only:
        if name not in ("floor", "growth"):
            rows += _side(name, asked, wanted)
    text = report.table(rows, asked.hosts, len(wanted))
    if "growth" in asked.only:
        text += report.growth(_growth(asked.growth, asked.repeat, wanted))
    text += report.other(statistics.median(_help(asked.repeat)))
    sys.stdout.write(text)
    if asked.write:
        report.write(text, asked.hosts)
    return 0


def _arguments() -> argparse.Namespace:
    names = ["floor", "gpuctl", "pyinfra", "mitogen", "tuned", "defaults", "growth"]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--hosts", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the median is told")
    parser.add_argument("--first", type=int, default=3, help="first runs of each side, each on fresh hosts")
    parser.add_argument("--slow-runs", type=int, default=3, help="runs, also first ones, of those that take minutes")
    parser.add_argument("--growth", type=int, nargs="*", default=[5, 10, 20, 50])
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--write", action="store_true", help="put the tables into bench/README.md")
    return parser.parse_args()


def _install_peers() -> None:
    if not (PEERS / "pyinfra").exists():
        venv.create(PEERS.parent, with_pip=True)
        subprocess.run([PEERS / "python", "-m", "pip", "install", "--quiet", *INSTALLED_PEERS], check=True)


def _sides(ground: Fleet, wanted: list[Setting]) -> dict[str, Side]:
    hosts = {host.name: host.facts.ip for host in ground.hosts}
    return {side.name: side for side in sides(ground.folder, ground.inventory, wanted, hosts, forks=50)}


def _go(ground: Fleet, side: Side, watch: bool = False) -> Took:
    report.progress(f"{side.name}, {len(ground.hosts)} hosts")
    return run(side.argv, ground.folder, side.environment, watch)


NAMES = {"pyinfra": "pyinfra", "mitogen": "mitogen", "tuned": "Ansible, tuned", "defaults": "Ansible, defaults"}
SLOW = ("mitogen", "tuned", "defaults")


def _side(name: str, asked: argparse.Namespace, wanted: list[Setting]) -> list[Row]:
    """First runs on fresh hosts, then runs that find nothing to do; for gpuctl also drift and memory."""
    full = NAMES.get(name, "gpuctl tune-nodes")
    firsts, agains, rows = [], [], []
    first, repeat = (asked.slow_runs, asked.slow_runs) if name in SLOW else (asked.first, asked.repeat)
    for number in range(first):
        with fleet(asked.hosts) as ground:
            side = _sides(ground, wanted)[full]
            firsts.append(_go(ground, side))
            ground.check(wanted)
            if number == first - 1:
                ground.forget_writes()
                agains = [_go(ground, side) for _ in range(repeat)]
                rows = _ours(ground, asked, wanted) if name == "gpuctl" else []
                ground.check_untouched()
    return [Row(f"{full}, first run", firsts), Row(f"{full}, nothing to change", agains), *rows]


def _ours(ground: Fleet, asked: argparse.Namespace, wanted: list[Setting]) -> list[Row]:
    by_name = _sides(ground, wanted)
    drift = Row("gpuctl drift", [_go(ground, by_name["gpuctl drift"]) for _ in range(asked.repeat)])
    watched = _go(ground, by_name["gpuctl tune-nodes"], watch=True)
    report.remember_memory(watched.pss, len(ground.hosts))
    return [drift]


def _floor(count: int, repeat: int, wanted: list[Setting]) -> list[Row]:
    """Bare ssh on hosts that gpuctl has tuned, so that there is the same to read."""
    with fleet(count) as ground:
        _go(ground, _sides(ground, wanted)["gpuctl tune-nodes"])
        return list(_floor_rows(ground, repeat, wanted))


def _floor_rows(ground: Fleet, repeat: int, wanted: list[Setting]) -> Iterator[Row]:
    master = f"-oControlMaster=auto -oControlPersist=600 -oControlPath={ground.folder}/%C".split()
    paths = " ".join([*(s.path for s in wanted if s.kind != "unit"), OURS])
    python = ("/usr/bin/python3 -IS -", peers.reader(wanted, OURS))
    ways = [
        ("ssh that reads with Python, cold (the floor)", *python, []),
        ("ssh that reads with Python, multiplexed", *python, master),
        ("ssh that runs cat, cold", f"cat {paths}", "", []),
        ("ssh that runs cat, multiplexed", f"cat {paths}", "", master),
    ]
    for name, command, program, options in ways:
        argv = [sys.executable, "-m", "bench.floor", str(ground.inventory), command, *options]
        here = Path(__file__).parents[1]
        took = [run(argv, here, {}, stdin=program) for _ in range(repeat + bool(options))]
        yield Row(name, took[bool(options) :])  # the run that opens the connections is not counted


def _growth(counts: list[int], repeat: int, wanted: list[Setting]) -> list[tuple[int, Row, Row, Row]]:
    found = []
    for count in counts:
        with fleet(count) as ground:
            by_name = _sides(ground, wanted)
            _go(ground, by_name["gpuctl tune-nodes"])
            ground.forget_writes()
            again = Row("", [_go(ground, by_name["gpuctl tune-nodes"]) for _ in range(repeat)])
            drift = Row("", [_go(ground, by_name["gpuctl drift"]) for _ in range(repeat)])
            ground.check_untouched()
            found.append((count, next(_floor_rows(ground, repeat, wanted)), again, drift))
    return found


def _help(repeat: int) -> list[float]:
    return [run([GPUCTL, "--help"], Path(), {}).wall for _ in range(repeat + 1)][1:]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}\n{error.output}")
    except NotDone as error:
        sys.exit(str(error))
