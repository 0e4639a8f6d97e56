"""python -m bench.health: `gpuctl nodes` and `gpuctl audit` of 12 hosts, beside ssh and Ansible on the same hosts.

One host has no Python, one no nvidia-smi. Stand-in: nvidia-smi, which prints a recorded answer. Rounds are interleaved.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.fleet import Fleet, NotDone
from bench.measure import Timing
from bench.report import progress
from bench.sides import GPUCTL
from gpuctl.engine import script
from tests.rig import Rig
from tests.rig.host import TestHost

ROOT = Path(__file__).parents[1]
XML = (ROOT / "tests/data/nvidia-smi/570-h100-8gpu.xml").read_text()
FLOOR = "the floor: ssh that starts Python, cold"
BY_HAND = "ssh that runs nvidia-smi, ps and dmesg, cold"
NODES, AUDIT = "gpuctl nodes", "gpuctl audit"
PROBES: Mapping[str, Mapping[str, object]] = {
    NODES: {"action": "facts", "subjects": "gpu use"},
    AUDIT: {"action": "facts", "subjects": "audit", "window_s": 0.1},
}
MOST_TIMES, MOST_MIB, MOST_CPU_S = 2.0, 60.0, 0.6
# Runs the program of its input in a Python of its own, and prints what that took, with all that it started.
MEASURED = """
import json, resource, subprocess, sys
done = subprocess.run([sys.executable, "-IS", "-"], stdin=0, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, used.ru_maxrss / 1024, used.ru_utime + used.ru_stime]))
"""


@dataclass(frozen=True)
class Side:
    """A command; `codes`: its exit codes if it did the work. `shows`: a text that its output then has."""

    name: str
    argv: Sequence[str]
    codes: tuple[int, ...] = (0,)
    stdin: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def sides(ground: Fleet) -> list[Side]:
    """Commands of all sides."""
    inventory = str(ground.inventory)
    own = {f"GPUCTL_{name}_DIR": str(ground.folder / name.lower()) for name in ("STATE", "CACHE", "CONFIG")}
    floor = [sys.executable, "-m", "bench.floor", inventory]
    by_hand = "nvidia-smi -q -x; ps -eo pid,ppid,user,lstart,stat,args; dmesg 2>&1 || true"
    ansible = str(Path(sys.executable).parent / "ansible")
    config = ground.folder / "ansible.cfg"
    config.write_text("[defaults]\nforks=50\n[ssh_connection]\npipelining=True\n")
    at = ["--inventory", inventory, "-o", "json"]
    return [
        Side(FLOOR, [*floor, "/usr/bin/python3 -IS - || echo no Python"], stdin="print(1)\n"),
        Side(BY_HAND, [*floor, by_hand]),
        # 3: a host has no Python.
        Side(NODES, [GPUCTL, "nodes", *at], (3,), environment=own),
        Side(f"{AUDIT}, window 0.1 s", [GPUCTL, "audit", *at, "--window", "0.1"], (3,), environment=own),
        Side(f"{AUDIT}, window 2 s (default)", [GPUCTL, "audit", *at], (3,), environment=own),
        Side(
            "Ansible facts (-m setup), 50 forks, pipelining",
            [ansible, "-i", inventory, "all", "-m", "ansible.builtin.setup"],
            (2, 4),
            environment={"ANSIBLE_CONFIG": str(config)},
        ),
    ]


def furnish(hosts: Sequence[TestHost]) -> None:
    """GPUs for all hosts but the last, and no Python on the one before it."""
    for host in hosts[:-1]:
        host.standin("nvidia-smi")
        host.write("/var/lib/standins/nvidia-smi/q.xml", XML)
    hosts[-2].run("sh", "-c", "chmod 000 /usr/bin/python3*")


def timed(ground: Fleet, side: Side) -> Timing:
    """One run, whose answer must have been given."""
    progress(f"{side.name}, {len(ground.hosts)} hosts")
    return ground.timed(side.argv, ROOT, side.environment, stdin=side.stdin, codes=side.codes)


def probe(host: TestHost, request: Mapping[str, object]) -> tuple[float, float]:
    """Peak MiB of one process, and processor seconds of all, that a question costs a host."""
    program = script(json.dumps(request), "bench ")
    argv = [*ssh(host), "/usr/bin/python3", "-c", f"'{MEASURED}'"]
    done = subprocess.run(argv, input=program, capture_output=True, check=True)
    code, mib, seconds = json.loads(done.stdout.splitlines()[-1])
    if code:
        raise NotDone(f"the probe failed on {host.name}: {done.stderr.decode()[-200:]}")
    return mib, seconds


def ssh(host: TestHost) -> list[str]:
    """Login of a host as root."""
    state = host.plot.state
    checks = ["-o", f"UserKnownHostsFile={state}/known_hosts", "-o", "StrictHostKeyChecking=yes"]
    return ["ssh", "-T", "-i", f"{state}/id_ed25519", *checks, f"root@{host.ip}"]


def main() -> int:
    """Print the tables; exit code 1 if an aim is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.health", description=__doc__)
    parser.add_argument("--hosts", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with Rig() as rig, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        hosts = rig.up([f"h{number:02d}" for number in range(1, options.hosts + 1)], machine="p5")
        furnish(hosts)
        ground = Fleet(hosts, Path(rig.inventory()), Path(folder))
        listed = sides(ground)
        timed(ground, listed[2])  # fills the inventory's cache, and compiles modules
        timings = {side.name: [timed(ground, side)] for side in listed}
        for _ in range(options.rounds - 1):
            for side in listed:
                timings[side.name].append(timed(ground, side))
        costs = {name: probe(hosts[0], request) for name, request in PROBES.items()}
    sys.stdout.write(table(timings, len(hosts)) + aims(timings, costs))
    return 0


def table(timings: Mapping[str, Sequence[Timing]], hosts: int) -> str:
    """Rows of all sides."""
    floor = median([timing.wall for timing in timings[FLOOR]])
    lines = [
        "| | wall s | min to max | CPU s here | CPU s of all hosts | times the floor |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, runs in timings.items():
        walls = [timing.wall for timing in runs]
        here, there = median([timing.cpu for timing in runs]), median([timing.hosts_cpu or 0.0 for timing in runs])
        wall = median(walls)
        times = f"{wall / floor:.1f}"
        lines.append(
            f"| {name} | {wall:.2f} | {min(walls):.2f} to {max(walls):.2f} | {here:.2f} | {there:.2f} | {times} |"
        )
    return f"{hosts} hosts, medians of {len(timings[FLOOR])} interleaved rounds.\n\n" + "\n".join(lines) + "\n\n"


def aims(timings: Mapping[str, Sequence[Timing]], costs: Mapping[str, tuple[float, float]]) -> str:
    """Rows of the aims."""
    floor = median([timing.wall for timing in timings[FLOOR]])
    rows = []
    for name in (NODES, f"{AUDIT}, window 0.1 s"):
        times = median([timing.wall for timing in timings[name]]) / floor
        rows.append((f"{name}: within {MOST_TIMES:g} times the floor", f"{times:.2f} times", times <= MOST_TIMES))
    for name, (mib, seconds) in costs.items():
        rows.append((f"{name}: less than {MOST_MIB:g} MiB on a host", f"{mib:.1f} MiB", mib < MOST_MIB))
        rows.append((f"{name}: less than {MOST_CPU_S:g} CPU s on a host", f"{seconds:.2f} s", seconds < MOST_CPU_S))
    lines = [f"| {aim} | {value} | {'met' if met else 'not met'} |" for aim, value, met in rows]
    return "| aim | measured | |\n|---|---:|---|\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NotDone as error:
        sys.exit(str(error))
