"""Slurm's command-line programs: nodes, jobs, steps, and an allocation that never outlives gpuctl."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain import slurm_records
from gpuctl.domain.slurm_records import JobRecord, NodeRecord
from gpuctl.edges.background import tied
from gpuctl.edges.processes import Done, Processes
from gpuctl.edges.programs import last_part
from gpuctl.edges.streams import LONGEST_LINE, Stream
from gpuctl.engine import any_python

PROGRAMS = ("sinfo", "squeue", "scontrol", "salloc", "srun", "scancel")
SHOW = ("scontrol", "--all", "--details", "--oneliner", "show")
LIMIT_S = 30.0
# States of a job that holds no resources any more. COMPLETING is not one of them.
OVER = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED"),
    *("NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
)
WAITING = ("CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED")
HOLDS = ("REQUEUE_HOLD", "SPECIAL_EXIT")
# Becomes the program with the environment read from standard input: on a command line everybody could read it.
_WITH_ENVIRONMENT = "import json, os, sys; os.execvpe(sys.argv[1], sys.argv[1:], json.load(sys.stdin))"
# salloc runs this once it has the nodes: when our end of its standard input closes, it exits, and the job ends.
_HOLD = "import os, sys; print(os.environ['SLURM_JOB_ID'], flush=True); sys.stdin.read()"
# Ends a salloc that still waits in the queue when our end of standard input closes.
_GUARD = """
import select, subprocess, sys
salloc = subprocess.Popen(sys.argv[1:])
while salloc.poll() is None:
    if select.select([0], [], [], 0.2)[0]:
        for end in (lambda: None, salloc.terminate, salloc.kill):
            end()
            try:
                salloc.wait(3)
                break
            except subprocess.TimeoutExpired:
                pass
sys.exit(salloc.returncode)
"""


@dataclass(frozen=True)
class Node:
    """A node in one of its partitions. `state`: Slurm's, with its suffix ("idle", "down*"). `gpus`: None if unknown.
    `reason`: why the node is drained or down, else ""."""

    name: str
    partition: str
    is_default: bool
    state: str
    gpus: int | None
    reason: str


@dataclass(frozen=True)
class Job:
    """A job. `reason`: why it waits. `nodes`: its nodes as a host list; while it completes, those still in use."""

    number: str
    state: str
    reason: str
    nodes: str


@dataclass(frozen=True)
class JobRun:
    """A job as it is now. `is_mine`: its user is that of this process. `restarts`: None if unknown."""

    number: str
    is_mine: bool
    state: str
    restarts: int | None


def need() -> None:
    """`InvalidInput` if this machine lacks Slurm's programs."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        hint = "run gpuctl on a login node of the cluster"
        raise InvalidInput("use Slurm", f"{', '.join(missing)}: not installed here", hint)


def try_to(*argv: str, stdin: bytes = b"", limit: float = LIMIT_S) -> Done:
    """Run a Slurm program; the caller judges its exit code and output."""
    ours = environment()
    unset = [word for name in os.environ if name not in ours for word in ("-u", name)]
    return Processes().run(["env", *unset, *argv] if unset else argv, stdin, limit)


def ask(doing: str, *argv: str) -> str:
    """The output of a Slurm program; `GpuctlError` with its own message if it fails or does not answer."""
    done = try_to(*argv)
    if done.code is None:
        hint = "`scontrol ping` shows whether Slurm runs"
        raise GpuctlError(doing, f"{argv[0]} gave no answer within {LIMIT_S:g} s", hint)
    if done.code:
        raise GpuctlError(doing, gist(done.err), f"`{argv[0]}` by hand shows more")
    return done.out.decode(errors="replace")


def gist(stderr: str) -> str:
    """The last line of a Slurm program's standard error, without the program's name."""
    lines = [re.sub(r"^\w+: (?:error: |fatal: )?", "", line) for line in stderr.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it failed without a message"


def nodes() -> list[Node]:
    """All nodes, once for each of their partitions."""
    return read_nodes(ask("list Slurm's nodes", "sinfo", "--all", "-N", "-h", "-o", "%N|%P|%T|%G|%E"))


def read_nodes(text: str) -> list[Node]:
    """Parse the output of sinfo with the format above; the reason is last, as it may contain anything."""
    listed = []
    for line in text.splitlines():
        columns = line.split("|", 4)
        if len(columns) != 5:
            raise GpuctlError(
                "list Slurm's nodes", f"unexpected line from sinfo: {line[:80]!r}", "run `sinfo -N` yourself"
            )
        name, partition, state, gres, reason = columns
        why = "" if reason.strip() in ("none", "") else reason.strip()
        listed.append(Node(name, partition.rstrip("*"), partition.endswith("*"), state, gpus(gres), why))
    return listed


def gpus(gres: str) -> int | None:
    """GPUs of a node: "gpu:h100:8(S:0-1),nic:2" -> 8. None if Slurm has no gres configured."""
    if gres in ("(null)", "N/A", ""):
        return None
    return sum(int(count) for count in re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)", gres))


def records() -> tuple[list[NodeRecord], list[JobRecord]]:
    """All nodes with their states and GPUs, and the jobs that hold nodes, with their GPUs."""
    states = {node.name: node.state for node in nodes()}
    listed = slurm_records.nodes(ask("list Slurm's nodes", *SHOW, "node"), states)
    token = secrets.token_hex(8)
    holding = ",".join(slurm_records.HOLDING)
    form = f"{token}|{slurm_records.SQUEUE_FORMAT}"
    rows = slurm_records.queue(ask("list Slurm's jobs", "squeue", "--all", "-h", "-t", holding, "-o", form), token)
    # Without a job, scontrol prints a sentence.
    details = ask("list Slurm's jobs", *SHOW, "job") if rows else ""
    names = {row["number"]: row["name"] for row in rows}
    return listed, slurm_records.jobs(rows, details, _expanded(details, names))


def _expanded(details: str, names: Mapping[str, str]) -> dict[str, list[str]]:
    """Host list -> its nodes, for those in the records of jobs."""
    lists = slurm_records.host_lists_of(details, names)
    return {hosts: expand(hosts) if "[" in hosts or "," in hosts else [hosts] for hosts in lists}


def in_job(processes: Processes, number: str, node: str, program: Callable[[], bytes], limit: float) -> Done:
    """Run a Python program on a node within a running job of ours, beside its tasks; it gets no resources of its own.

    The program sees the GPUs of the job alone where Slurm constrains devices.
    """
    ours = environment()
    unset = [word for name in os.environ if name not in ours for word in ("-u", name)]
    step = ["srun", f"--jobid={number}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--quiet"]
    return processes.run(["env", *unset, *step, "/bin/sh", "-c", any_python()], program, limit)


def expand(hosts: str) -> list[str]:
    """Expand a Slurm host list, such as "h[1-3,7]"."""
    return ask(f"read the host list {hosts!r}", "scontrol", "show", "hostnames", hosts).split() if hosts else []


def racks() -> dict[str, str]:
    """Node -> its leaf switch (level 0 of the topology plugin); empty if Slurm knows no topology."""
    done = try_to("scontrol", "--oneliner", "show", "topology")
    text = done.out.decode(errors="replace") if done.code == 0 else ""
    return {node: switch for switch, hosts in leaves(text) for node in expand(hosts)}


def leaves(text: str) -> list[tuple[str, str]]:
    """The switches of level 0 and their host lists, from `scontrol show topology`."""
    return re.findall(r"SwitchName=(\S+) Level=0\b.*?\bNodes=(\S+)", text)


def cluster() -> str:
    """The name of the cluster."""
    match = re.search(
        r"^ClusterName\s*=\s*(\S+)", ask("ask Slurm for its settings", "scontrol", "show", "config"), re.MULTILINE
    )
    return match[1] if match else "unknown"


def reserved(name: str) -> list[str]:
    """The nodes of a reservation; `InvalidInput` if none has this name."""
    done = try_to("scontrol", "--oneliner", "show", "reservation", name)
    match = re.search(r"\bNodes=(\S+)", done.out.decode(errors="replace"))
    if done.code or not match:
        raise InvalidInput(f"use the reservation {name}", gist(done.err), "`scontrol show reservation` lists them")
    return expand(match[1])


def mpi_types() -> list[str]:
    """The ways srun can start MPI programs: "pmix", "pmi2"."""
    done = try_to("srun", "--mpi=list")
    return re.findall(r"^\s*(\w+)\s*$", f"{done.out.decode(errors='replace')}\n{done.err}", re.MULTILINE)


def job(number: str = "", name: str = "") -> Job | None:
    """A job by number, or one of the user's by name; None if Slurm does not know it any more."""
    which = ["--job", number] if number else ["--me", "--name", name]
    lines = _squeue(f"ask Slurm for job {number or name}", "--states=all", *which, "-o", "%i|%T|%r|%N")
    return Job(*lines[0].split("|", 3)) if lines else None


def runs_of(number: str) -> list[JobRun]:
    """The runs of a job, several of an array; empty if Slurm does not know it any more."""
    lines = _squeue(f"ask Slurm for job {number}", "--states=all", "--job", number, "-o", "%A|%U|%T")
    runs = []
    for line in lines:
        name, uid, state = line.split("|", 2)
        done = try_to(*SHOW, "job", name)
        # The last one: a name before it may have anything.
        restarts = re.findall(r" Restarts=(\d+) ", done.out.decode(errors="replace")) if done.code == 0 else []
        runs.append(JobRun(name, int(uid) == os.getuid(), state, int(restarts[-1]) if restarts else None))
    return runs


def partition_of(number: str) -> str:
    """The partition of a job; "" if unknown."""
    return ask(f"ask Slurm for job {number}", "squeue", "-h", "--states=all", "--job", number, "-o", "%P").strip()


def steps(number: str) -> dict[str, str]:
    """The unfinished steps of a job: name -> JOB.STEP."""
    lines = _squeue(f"ask Slurm for the steps of job {number}", "--steps", "--job", number, "-o", "%i|%j")
    return {name: step for step, _, name in (line.partition("|") for line in lines)}


def _squeue(doing: str, *argv: str) -> list[str]:
    """The lines of squeue; none if Slurm does not know the job any more."""
    done = try_to("squeue", "-h", *argv)
    if done.code is None or (done.code and "Invalid job id" not in done.err):
        raise GpuctlError(doing, gist(done.err) if done.code else "no answer")
    return done.out.decode(errors="replace").splitlines()


def cancel(which: str) -> None:
    """End a job ("5") or a step ("5.2"). scancel reports no failure: check afterwards whether it is gone."""
    try_to("scancel", which)


def environment() -> dict[str, str]:
    """Our environment without the variables of a surrounding job, which srun and salloc would take for options."""
    users = re.compile(r"(?!SLURM_)|SLURM_CONF$|SLURM_PMIX_")
    return {name: value for name, value in os.environ.items() if users.match(name)}


def step(argv: Sequence[str], variables: Mapping[str, str]) -> Stream:
    """Start srun with these variables added to ours; it ends with the thread that starts it."""
    whole = {**environment(), **variables}
    return Stream(tied([sys.executable, "-I", "-S", "-c", _WITH_ENVIRONMENT, *argv]), json.dumps(whole).encode())


class Allocation:
    """An allocation held by salloc; it is released when gpuctl ends, however it ends. `number`: "" until granted."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.number = ""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the program
        python = [sys.executable, "-I", "-S", "-c"]
        # Its own session: Ctrl-C reaches only gpuctl, which then releases the allocation.
        self._process = subprocess.Popen(
            [*python, _GUARD, *argv, *python, _HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment(),
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        stdout = self._process.stdout
        for line in iter(lambda: stdout.readline(LONGEST_LINE) if stdout else b"", b""):
            self.number = line.decode(errors="replace").strip()

    @property
    def is_over(self) -> bool:
        """True once the allocation was refused or is over."""
        return self._process.poll() is not None

    @property
    def stderr(self) -> str:
        """Standard error of salloc so far; of a long one its end."""
        return last_part(self._stderr)

    def release(self, patience_s: float = 15) -> None:
        """Release the nodes, or leave the queue."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
