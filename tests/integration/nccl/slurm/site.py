"""A real Slurm on this one machine: a controller and nodes, each with its own network, name and processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.integration.nccl.cluster import FABRIC, build
from tests.rig import ground
from tests.rig.ground import Plot, sh
from tests.rig.host import wait_until
from tests.rig.hosts import IN_CGROUP

PROGRAMS = ("slurmctld", "slurmd", "srun", "munged", "mpicc", "ip", "unshare")
CGROUPS = Path("/sys/fs/cgroup")
NODES = ("h1", "h2", "h3", "h4")
# Its own name, processes, /tmp and /dev/shm: a node's part of PMIx keeps its sockets in the one, Open MPI what ranks
# share in the other, by names that nodes of another test's Slurm have as well.
ROOM = ("unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec")
FURNISH = 'mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /dev/shm; hostname "$0"; exec "$@"'
SETTINGS = """ClusterName=testing
SlurmctldHost=ctl({net}.0.2)
SlurmUser=root
AuthInfo=socket={state}/munge/socket
StateSaveLocation={state}/ctld
SlurmctldPidFile={state}/ctld.pid
SlurmdSpoolDir={state}/%n
SlurmdPidFile={state}/%n.pid
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
TopologyPlugin=topology/tree
ReturnToService=2
MessageTimeout=3
SlurmdTimeout=10
SchedulerParameters=sched_interval=2
PartitionName=main Nodes=ALL Default=YES MaxTime=600
PartitionName=night Nodes=h1 State=DOWN
"""


def missing() -> str:
    """Why no Slurm can be started here; "" where one can."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if os.geteuid() != 0:
        return "a Slurm of one's own needs root"
    return f"a Slurm needs {', '.join(lacking)}; see tests/rig/packages.txt" if lacking else ""


@dataclass(frozen=True)
class Site:
    """A Slurm that runs. Its tests are in `programs`; `environment` leads Slurm's programs to it."""

    plot: Plot

    @property
    def state(self) -> Path:
        return Path(self.plot.state)

    @property
    def programs(self) -> Path:
        return self.state / "programs"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "SLURM_CONF": f"{self.state}/slurm.conf",
            "STANDIN_FABRIC": f"{self.state}/fabric",
            "STANDIN_MEET": f"{self.state}/meet",
        }

    def ask(self, *argv: str) -> str:
        """What a program of Slurm's prints."""
        return sh("env", *(f"{name}={value}" for name, value in self.environment.items()), *argv).stdout

    def queue(self) -> str:
        """What is in the queue, whoever's it is."""
        return self.ask("squeue", "-h", "-o", "%j %T")

    def states(self) -> dict[str, str]:
        """Node -> its state."""
        return dict(line.split() for line in self.ask("sinfo", "-p", "main", "-N", "-h", "-o", "%N %T").splitlines())

    def all_idle(self) -> None:
        """Wait until nothing runs anywhere; a node that a busy machine kept from answering is taken up again."""

        def idle() -> bool:
            states = self.states()
            for node in (name for name, state in states.items() if state == "down"):
                self.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
            return set(states.values()) == {"idle"}

        wait_until(idle, 120, "the nodes do not become idle")

    def fabric(self, *faults: str) -> None:
        """How the network is from now on: whole, but for these lines (see the stand-in)."""
        (self.state / "fabric").write_text(FABRIC + "".join(f"{line}\n" for line in faults))

    def tests_on(self, node: str) -> list[str]:
        """The test's processes on a node."""
        inside = self.plot.cgroup / node / "node/cgroup.procs"
        commands = [Path(f"/proc/{pid}/cmdline") for pid in inside.read_text().split()]
        return [text for path in commands if path.exists() and "_perf" in (text := path.read_text())]

    def cable(self, node: str, how: str) -> None:
        """Pull a node's cable ("down"), or put it back ("up")."""
        sh("ip", "link", "set", f"{self.plot.bridge}.{NODES.index(node) + 3}", how)


@contextmanager
def started(proctrack: str = "linuxproc") -> Iterator[Site]:
    """A Slurm with all its nodes idle; nothing of it is left afterwards. `proctrack`: "cgroup" gives jobs their own."""
    plot, held = ground.claim(None, None, None, lasting=False)
    site = Site(plot)
    try:
        _furnish(site, proctrack)
        ground.make_bridge(plot, nat=False)
        _munge(site)
        conf = f"{site.state}/slurm.conf"
        _room(site, "ctl", 2, "slurmctld", "-D", "-f", conf)
        for number, node in enumerate(NODES, start=3):
            _room(site, node, number, "slurmd", "-D", "-N", node, "-f", conf)
        wait_until(lambda: site.state.exists() and _answers(site), 20, "slurmctld does not answer")
        site.all_idle()
        yield site
    finally:
        ground.release(plot)
        held.close()
        for folder in CGROUPS.glob("*/slurm_h*") if proctrack == "cgroup" else ():
            wait_until(partial(_removed, folder), 20, f"processes are left in {folder}")


def _removed(folder: Path) -> bool:
    """Remove control groups of jobs; False while the last processes are on their way out."""
    for inner, *_ in os.walk(folder, topdown=False):
        with suppress(OSError):
            Path(inner).rmdir()
    return not folder.exists()


def _furnish(site: Site, proctrack: str) -> None:
    state = site.state
    shutil.rmtree(state, ignore_errors=True)
    for folder in ("munge", "ctld", "programs", "meet", *NODES):
        (state / folder).mkdir(parents=True)
    key = state / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    lines = [
        f"NodeName={node} NodeAddr={site.plot.net}.0.{number} CPUs=2 Gres=gpu:h200:2 State=UNKNOWN\n"
        for number, node in enumerate(NODES, start=3)
    ]
    text = SETTINGS.format(net=site.plot.net, state=state, proctrack=proctrack)
    (state / "slurm.conf").write_text(text.replace("PartitionName=main", "".join(lines) + "PartitionName=main"))
    # Slurm counts devices of any kind.
    (state / "gres.conf").write_text("NodeName=h[1-4] Name=gpu Type=h200 File=/dev/null,/dev/zero\n")
    (state / "topology.conf").write_text(
        "SwitchName=r0 Nodes=h[1-2]\nSwitchName=r1 Nodes=h[3-4]\nSwitchName=s Switches=r[0-1]\n"
    )
    (state / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    build(site.programs)
    site.fabric()


def _munge(site: Site) -> None:
    own = {"socket": "munge/socket", "key-file": "munge.key", "pid-file": "munge.pid", "log-file": "munge.log"}
    files = [f"--{name}={site.state}/{path}" for name, path in {**own, "seed-file": "munge.seed"}.items()]
    _leave_running(site, "munge", ["munged", "--force", "--foreground", *files])


def _room(site: Site, name: str, number: int, *argv: str) -> None:
    plot = site.plot
    netns, port = plot.netns(name), f"{plot.bridge}.{number}"
    sh("ip", "netns", "add", netns)
    sh("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", netns)
    sh("ip", "link", "set", port, "master", plot.bridge, "up")
    inside = f"link set lo up\naddr add {plot.net}.0.{number}/16 dev eth0\nlink set eth0 up\n"
    sh("ip", "-n", netns, "-batch", "-", input=inside)
    _leave_running(site, name, ["nsenter", f"--net=/run/netns/{netns}", *ROOM, FURNISH, name, *argv])


def _leave_running(site: Site, name: str, argv: list[str]) -> None:
    """Start a program that its cgroup ends."""
    cgroup = ground.make_cgroup(site.plot, name, "node")
    with (site.state / f"{name}.log").open("wb") as log:
        subprocess.Popen(
            [*IN_CGROUP, f"{cgroup}/node", *argv],
            env={**os.environ, **site.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )


def _answers(site: Site) -> bool:
    found = sh("env", f"SLURM_CONF={site.state}/slurm.conf", "scontrol", "ping", check=False)
    return "is UP" in found.stdout
