"""python -m bench.gpu_node: GPU hosts with nothing to change, by gpuctl, its roles, and a plain playbook, beside ssh.

Stand-ins: packages with NVIDIA's names and no content, installed by real apt. Rounds are interleaved.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bench.fleet import Fleet, NotDone
from bench.measure import Timing
from bench.report import Row, progress
from bench.sides import GPUCTL
from tests.rig import Rig
from tests.rig.host import TestHost
from tests.rig.standin_efa import Signer, build, give_modules, load, mirror, signer
from tests.rig.standin_packages import be_ubuntu, dcgm, driver, gdrcopy, offer, toolkit, with_adapter

ROOT = Path(__file__).parents[1]
DRIVER, TOOLKIT, DCGM = "580.178.04", "1.20.0", "4.6.0-1"
EFA, GDRCOPY, TESTS = "1.48.0", "2.5.2-1", "/opt/site-tests"
STACK = {
    "driver": DRIVER,
    "toolkit": TOOLKIT,
    "dcgm": DCGM,
    "efa": EFA,
    "peer_memory": "nvidia_peermem",
    "gdrcopy": GDRCOPY,
    "nccl_tests": TESTS,
}
ROLES = ("nvidia_driver", "fabric_manager", "container_toolkit", "dcgm", "efa", "rdma", "nccl_tests")
FLOOR = "the floor: ssh that starts Python, which asks dpkg, apt-mark, modinfo, EFA's record and a test, cold"
BOOTSTRAP = "gpuctl bootstrap gpu-node"
MOST_TIMES = 2.5
SET = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe")
OTHERS = {
    **dict.fromkeys(("nvidia-container-toolkit", "nvidia-container-toolkit-base"), f"{TOOLKIT}-1"),
    **dict.fromkeys(("libnvidia-container-tools", "libnvidia-container1"), f"{TOOLKIT}-1"),
    **dict.fromkeys(("datacenter-gpu-manager-4-core", "datacenter-gpu-manager-4-cuda13"), f"1:{DCGM}"),
    **dict.fromkeys(("gdrdrv-dkms", "libgdrapi"), GDRCOPY),
}
PACKAGES = {**dict.fromkeys(SET, f"{DRIVER}-1ubuntu1"), **OTHERS}
UNITS = ("nvidia-dcgm.service", "nvidia-cdi-refresh.path")
INSTALL = "test \"$(dpkg-query -W -f '${{Version}}' {0})\" = {1} || {{ apt-get -y install {0}={1}; echo changed; }}"
HOLD = "apt-mark showhold | grep -qx {0} || {{ apt-mark hold {0}; echo changed; }}"


RECORD = "/opt/amazon/efa_installed_packages"
ASKED = (
    ("dpkg-query", "-W", *PACKAGES),
    ("apt-mark", "showhold"),
    ("modinfo", "-F", "version", "nvidia"),
    ("head", "-1", RECORD),
    (f"{TESTS}/all_reduce_perf", "-h"),
)
READER = f"""import subprocess
for argv in {ASKED!r}:
    print(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
"""


@dataclass(frozen=True)
class Side:
    """A command that reads all hosts, and has nothing to change there."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""


def playbook() -> str:
    """A play as peers write it: facts, and one task for each file, package, hold, unit and module."""
    shell = [INSTALL.format(name, version) for name, version in PACKAGES.items()]
    shell += [HOLD.format(name) for name in PACKAGES]
    tasks: list[dict[str, Any]] = [
        {
            "name": "no nouveau",
            "ansible.builtin.copy": {
                "dest": "/etc/modprobe.d/peer-nouveau.conf",
                "content": "blacklist nouveau\n",
                "mode": "0644",
            },
        },
        *({"name": line[:40], **_shell(line)} for line in shell),
        *(
            {"name": u, "ansible.builtin.systemd_service": {"name": u, "enabled": True, "state": "started"}}
            for u in UNITS
        ),
        {"name": "module", "ansible.builtin.command": "modinfo -F version nvidia", "changed_when": False},
        {"name": "EFA", "ansible.builtin.command": f"grep -F {EFA} {RECORD}", "changed_when": False},
        {
            "name": "RDMA modules",
            "ansible.builtin.copy": {
                "dest": "/etc/modules-load.d/peer-rdma.conf",
                "content": "ib_core\nnvidia_peermem\ngdrdrv\n",
                "mode": "0644",
            },
        },
        {"name": "nccl-tests", "ansible.builtin.command": f"{TESTS}/all_reduce_perf -h", "changed_when": False},
    ]
    play = {"name": "GPU hosts", "hosts": "all", "gather_facts": True, "tasks": tasks}
    return yaml.safe_dump([play], sort_keys=False, width=1000)


def _shell(line: str) -> dict[str, Any]:
    return {"ansible.builtin.shell": {"cmd": line}, "register": "done", "changed_when": "'changed' in done.stdout"}


def sides(ground: Fleet, more: Mapping[str, str]) -> list[Side]:
    """Commands of all sides; their files are written to the ground's folder. `more`: fields of the stack."""
    wanted = {**STACK, **more}
    inventory = str(ground.inventory)
    folders = {f"GPUCTL_{name}_DIR": str(ground.folder / name.lower()) for name in ("STATE", "CACHE", "CONFIG")}
    stack = ground.folder / "stack.yml"
    stack.write_text(yaml.safe_dump({"gpu_stack": wanted}))
    names = [host.name for host in ground.hosts]
    groups = "".join(f"[{role}]\n{chr(10).join(names)}\n" for role in ROLES)
    grouped = ground.folder / "roles.ini"
    values = "\n".join(f"{name}={value}" for name, value in {"gpu_stack": repr(wanted)}.items())
    grouped.write_text(f"{ground.inventory.read_text()}\n{groups}[all:vars]\n{values}\n")
    (ground.folder / "peer.yml").write_text(playbook())
    config = ground.folder / "ansible.cfg"
    config.write_text(
        "[defaults]\nforks=50\ninject_facts_as_vars=False\n[ssh_connection]\npipelining=True\n"
        "ssh_args=-C -o ControlMaster=auto -o ControlPersist=600s\n"
    )
    plain = {"ANSIBLE_CONFIG": str(config)}
    ours = {**plain, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "build/collections")}
    ansible = str(Path(sys.executable).parent / "ansible-playbook")
    return [
        Side(FLOOR, [sys.executable, "-m", "bench.floor", inventory, "/usr/bin/python3 -IS -"], stdin=READER),
        Side(BOOTSTRAP, [GPUCTL, "bootstrap", "gpu-node", "-i", inventory, "--stack", str(stack), "--yes"], folders),
        Side("playbooks/gpu_node.yml, its roles", [ansible, "-i", str(grouped), "playbooks/gpu_node.yml"], ours),
        Side("a plain playbook, tuned", [ansible, "-i", inventory, str(ground.folder / "peer.yml")], plain),
    ]


def furnish(hosts: Sequence[TestHost], scratch: Path, by: Signer) -> dict[str, str]:
    """Give hosts a kernel with headers, a repository with all packages, EFA's archive and nccl-tests of the site.

    Return the fields of the stack that name the archive and its key.
    """
    uri = ""
    for host in hosts:
        kernel = be_ubuntu(host)
        if not uri:
            build(scratch, EFA, kernel, by)
        offer(host, [*driver(DRIVER, kernel), *toolkit(TOOLKIT), *dcgm(DCGM), *gdrcopy(GDRCOPY, kernel)], scratch)
        give_modules(host)
        with_adapter(host)
        load(host, EFA)
        uri = mirror(host, scratch, by)
        host.write(f"{TESTS}/all_reduce_perf", "#!/bin/sh\necho 'nccl-tests version 2.17.6, a stand-in'\n", mode=0o755)
    return {"efa_source": uri, "efa_key": by.fingerprint}


def check(hosts: Sequence[TestHost]) -> None:
    """Raise `NotDone` unless every host has every package in its version, held."""
    for host in hosts:
        shown = host.run("dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Want}\n", *PACKAGES).stdout
        missing = {f"{name} {version} hold" for name, version in PACKAGES.items()} - set(shown.splitlines())
        if missing:
            raise NotDone(f"{host.name} lacks {', '.join(sorted(missing))}")


def timed(ground: Fleet, side: Side) -> Timing:
    """One run, which must end well."""
    progress(f"{side.name}, {len(ground.hosts)} hosts")
    return ground.timed(side.argv, ROOT, side.environment, stdin=side.stdin)


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_node", description=__doc__)
    parser.add_argument("--hosts", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with (
        Rig() as rig,
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        signer(Path(folder, "gnupg")) as by,
    ):
        hosts = rig.up([f"h{number:02d}" for number in range(1, options.hosts + 1)], machine="g4dn_metal")
        more = furnish(hosts, Path(folder), by)
        ground = Fleet(hosts, Path(rig.inventory()), Path(folder))
        listed = sides(ground, more)
        first = timed(ground, listed[1])
        check(hosts)
        for side in listed[2:]:
            timed(ground, side)  # writes files of its own, opens connections
        rounds = [[timed(ground, side) for side in listed] for _ in range(options.rounds)]
        check(hosts)
    rows = [Row(side.name, [timings[number] for timings in rounds]) for number, side in enumerate(listed)]
    sys.stdout.write(table([Row(f"{BOOTSTRAP}, first run", [first]), *rows], len(hosts)))
    return 0


def table(rows: Sequence[Row], hosts: int) -> str:
    """Markdown: medians, and the aim."""
    floor = next(row for row in rows if row.name == FLOOR)
    lines = [
        f"{hosts} hosts, medians of {len(floor.timings)} interleaved rounds; nothing to change but in the first run.\n",
        "| | wall s | min to max | CPU s here | CPU s of all hosts | times the floor | CPU, times the floor's |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        walls = [timing.wall for timing in row.timings]
        cpu = (
            f"{row.cpu:.2f} | {row.hosts_cpu or 0:.2f} | {row.wall / floor.wall:.1f} | {row.cpu_ratio(floor) or 0:.1f}"
        )
        lines.append(f"| {row.name} | {row.wall:.2f} | {min(walls):.2f} to {max(walls):.2f} | {cpu} |")
    ours = next(row for row in rows if row.name == BOOTSTRAP)
    times = ours.wall / floor.wall
    result = "met" if times <= MOST_TIMES else "not met"
    lines += ["", "| aim | measured | |", "|---|---:|---|"]
    lines.append(f"| nothing to change within {MOST_TIMES:g} times the floor | {times:.2f} times | {result} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NotDone as error:
        sys.exit(str(error))
