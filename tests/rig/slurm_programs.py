"""Slurm in a test host: this machine's slurmctld, slurmd and munged with their libraries, as services of one node."""

from __future__ import annotations

import io
import os
import re
import shutil
import tarfile
from pathlib import Path

from tests.rig.ground import sh
from tests.rig.host import TestHost, wait_until

PROGRAMS = ("slurmctld", "slurmd", "slurmstepd", "scontrol", "sbatch", "scancel", "squeue", "srun", "sinfo", "munged")
NEEDED = [name for name in PROGRAMS if name != "slurmstepd"]
FOLDERS = (Path("/usr/sbin"), Path("/usr/bin"))
CONF = """ClusterName=testing
SlurmctldHost={name}({ip})
SlurmUser=root
AuthInfo=socket=/run/munge.socket
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
NodeName={name} NodeAddr={ip} {cpus} Gres={gres} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=600
"""
UNIT = """[Unit]
After=network.target
[Service]
Environment=HWLOC_COMPONENTS=-x86
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
KillMode=process
Delegate=yes
[Install]
WantedBy=multi-user.target
"""
MUNGED = "munged --force --foreground --socket=/run/munge.socket --key-file=/etc/munge.key --num-threads=1"
UNITS = {
    "munge": f"/usr/sbin/{MUNGED} --pid-file=/run/munge.pid --log-file=/run/munge.log --seed-file=/run/munge.seed",
    "slurmctld": "/usr/sbin/slurmctld -D",
    "slurmd": "/usr/sbin/slurmd -D -s",
}


def missing() -> str:
    """Why no test host can get Slurm; "" if it can."""
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    return f"Slurm in test hosts needs {', '.join(lacking)}; see tests/rig/packages.txt" if lacking else ""


def install(host: TestHost, gres: str = "gpu:t4:8") -> None:
    """Start Slurm with the host as its only node, which offers its GPUs without cores."""
    for path in _files():
        _copy(host, path)
    for user in ("munge", "slurm"):
        host.run("sh", "-c", f"id {user} >/dev/null 2>&1 || useradd --system {user}")
    key = host.root / "etc/munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    for number in range(8):
        host.run("ln", "-sfn", "/dev/null", f"/dev/nvidia{number}")
    (host.root / "etc/slurm").mkdir(exist_ok=True)
    host.write("/etc/slurm/slurm.conf", CONF.format(name=host.name, ip=host.ip, gres=gres, cpus=_topology(host)))
    # A host of the rig has both versions of control groups mounted.
    host.write("/etc/slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n")
    name, kind, count = gres.split(":")
    line = f"Name={name} Type={kind} File=/dev/nvidia[0-{int(count) - 1}]\n"
    host.write("/etc/slurm/gres.conf", f"# of the site\n{line}", mode=0o640)
    for name, command in UNITS.items():
        host.write(f"/etc/systemd/system/{name}.service", UNIT.format(command=command))
    host.run("mkdir", "-p", "/var/spool/slurmctld", "/var/spool/slurmd")
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "enable", "--now", *UNITS)
    wait_until(lambda: "is UP" in host.run("scontrol", "ping", check=False).stdout, 30, "slurmctld does not answer")


def _files() -> list[Path]:
    """Programs, plugins, and the libraries of both."""
    paths = [folder / name for name in PROGRAMS for folder in FOLDERS if (folder / name).exists()]
    paths += sorted(Path("/usr/lib").glob("*/slurm-wlm/*.so"))
    libraries = {Path(match) for path in paths for match in re.findall(r"=> (/\S+)", _needs(path))}
    return [*paths, *sorted(libraries)]


def layer(path: Path, base: Path, gpus: str) -> Path:
    """An archive with Slurm and a stand-in for nvidia-smi that prints these names of GPUs: a layer above a root."""
    with tarfile.open(path, "w") as made:
        for each in _files():
            name = str(each.parent.resolve() / each.name).lstrip("/")  # /lib is a link there, too, and stays one
            if not (base / name).exists():
                made.add(each.resolve(), name, recursive=False)
        text = f"#!/bin/sh\ncat <<'EOF'\n{gpus}\nEOF\n".encode()
        program = tarfile.TarInfo("usr/local/bin/nvidia-smi")
        program.size, program.mode = len(text), 0o755
        made.addfile(program, io.BytesIO(text))
    return path


def _topology(host: TestHost) -> str:
    """Processors as slurmd counts them: "CPUs=96 Boards=1 …"."""
    line = host.run("slurmd", "-C").stdout.splitlines()[0]
    names = ("CPUs", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore")
    return " ".join(word for word in line.split() if word.partition("=")[0] in names)


def _needs(path: Path) -> str:
    return sh("ldd", str(path), check=False).stdout


def _copy(host: TestHost, path: Path) -> None:
    to = host.root / str(path).lstrip("/")
    if not to.exists():
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, to)
