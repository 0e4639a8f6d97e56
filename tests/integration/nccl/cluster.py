"""Nodes of a test: real hosts with Open MPI, a stand-in for nccl-tests, and a user who may go from one to another."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from gpuctl.edges.ssh import Login
from gpuctl.nccl.model import Launch, LaunchResult, Sweep
from gpuctl.nccl.plan import COLLECTIVES
from gpuctl.nccl.runner import Runner
from gpuctl.nccl.runners.ansible import AnsibleRunner
from gpuctl.nccl.runners.mpirun import MpiRunner, MpirunOptions
from gpuctl.remote.transport import OverSsh
from tests.rig import Rig, TestHost
from tests.rig.command import reach

SOURCE = Path(__file__).parents[2] / "standins/standin_all_reduce_perf.c"
USER = "nosudo"
MIB = 1 << 20
# The user's own service manager, and the session that sshd closes.
NOT_OF_A_JOB = ("systemd", "(sd-pam)", "sshd:", "[sshd]")
# Two processes a node keep a small machine from being the slowest part of the network it plays.
SWEEP = Sweep(begin_bytes=8 * MIB, end_bytes=1024 * MIB, gpus_per_node=2, limit_s=60)
FABRIC = """provider efa
rails 16
nic_gbs 25
nvlink_gbs 480
noise 0.005
pace_ms 20
"""


def build(folder: Path) -> Path:
    """The stand-in as a program."""
    program = folder / "all_reduce_perf"
    subprocess.run(["mpicc", "-O2", "-o", program, SOURCE, "-lm"], check=True, capture_output=True)
    return program


@dataclass
class Cluster:
    """Some nodes and what they are told about their network."""

    rig: Rig
    hosts: list[TestHost]
    program: Path
    told: list[tuple[Launch, str]] = field(default_factory=list)
    through: str = "ssh"  # or "ansible"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.hosts)

    def __getitem__(self, name: str) -> TestHost:
        return next(host for host in self.hosts if host.name == name)

    def furnish(self) -> None:
        """Programs, names and keys, as on a cluster whose users run MPI jobs."""
        names = "".join(f"{host.ip} {host.name}\n" for host in self.hosts)
        for host in self.hosts:
            (host.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{names}")
            # The ranks share few processors: whoever waits leaves them to others.
            # Without the names each rank loads the libraries of a dozen networks that no node has.
            parameters = "mpi_yield_when_idle = 1\npml = ob1\nbtl = self,tcp\n"
            (host.root / "etc/openmpi/openmpi-mca-params.conf").write_text(parameters)
            for collective in COLLECTIVES:  # the name it is called by is the test it plays
                shutil.copy(self.program, host.root / f"usr/local/bin/{collective}_perf")
            self._keys(host)
        self.fabric()

    def _keys(self, host: TestHost) -> None:
        home = host.root / "home" / USER
        folder = home / ".ssh"
        folder.mkdir(mode=0o700)
        for source, name in (("id_ed25519", "id_ed25519"), ("known_hosts", "known_hosts")):
            shutil.copy(self.rig.state / source, folder / name)
            (folder / name).chmod(0o600)
        owner = home.stat()
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, owner.st_uid, owner.st_gid)

    def fabric(self, *faults: str) -> None:
        """How the network is from now on: whole, but for these lines (see the stand-in)."""
        for host in self.hosts:
            (host.root / "etc/standin-fabric").write_text(FABRIC + "".join(f"{line}\n" for line in faults))

    def login(self, host: TestHost, user: str = USER) -> Login:
        return Login(host.ip, user=user, args=tuple(self.rig.ssh_options()), python="/usr/bin/python3")

    def runner(self, way: MpirunOptions | None = None, user: str = USER) -> Runner:
        if self.through == "ansible":
            return self._ansible_runner(way, user)
        return MpiRunner(OverSsh({host.name: self.login(host, user) for host in self.hosts}), way)

    def _ansible_runner(self, way: MpirunOptions | None, user: str) -> AnsibleRunner:
        hosts = {host.name: reach(host, ansible_user=user) for host in self.hosts}
        path = self.rig.state / f"nccl-{self.hosts[0].name}.yml"
        path.write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        return AnsibleRunner(path, {host.name: host.ip for host in self.hosts}, way)

    def run(
        self,
        *launches: Launch,
        during: Callable[[Launch, str], None] = lambda _, __: None,
        broken_off: Callable[[], bool] = lambda: False,
        way: MpirunOptions | None = None,
    ) -> list[LaunchResult]:
        """Run launches at the same time; `during` hears of their progress."""

        def told(launch: Launch, words: str) -> None:
            self.told.append((launch, words))
            during(launch, words)

        return self.runner(way).run(launches, told, broken_off)

    def left(self, but: Sequence[str] = ()) -> dict[str, str]:
        """Node -> what the user still has running there, of those where there is anything."""
        found = {host.name: self.processes(host) for host in self.hosts if host.name not in but}
        return {name: text for name, text in found.items() if text}

    @staticmethod
    def processes(host: TestHost) -> str:
        lines = host.run("ps", "-u", USER, "-o", "pid=,args=", check=False).stdout.splitlines()
        return "\n".join(line for line in lines if not any(word in line for word in NOT_OF_A_JOB))
