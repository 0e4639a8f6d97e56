"""gpuctl-exec: run a program on the processors and the memory nearest to its GPU."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence

from .affinity import Ask, Cannot, Decision, Facts, decide
from .allocators import ALLOCATORS, library
from .gpus import gpus
from .host import Host
from .memory_policy import bind_memory
from .topology import NODE, as_list, cpus_of, nodes

ME = "gpuctl-exec"
REFUSED = 2
NOT_RUNNABLE, NOT_FOUND = 126, 127  # as env(1) and nice(1) have it
SCHEDULES = {"fifo": os.SCHED_FIFO, "rr": os.SCHED_RR}
USAGE = f"{ME} --gpu GPU[,GPU...] [option ...] -- program [argument ...]"
ABOUT = """Run a program near its GPU.
A GPU is named by nvidia-smi's index (its place on the PCI bus), its UUID or its PCI address. The program and all it
starts run on processors of the GPU's NUMA node, take memory from that node alone, and see the named GPUs only.
"""


def main(argv: Sequence[str], host: Host | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Decide, say what was decided, and become the program; returns only where that does not happen."""
    asked = _parse(argv)
    environment = dict(os.environ if environment is None else environment)
    try:
        ask = _ask(asked)
        decision = decide(ask, look(host or Host(), ask, environment))
        if not asked.print:
            _become(decision)
    except Cannot as reason:
        print(f"{ME}: cannot run {shlex.join(asked.command)}: {reason}\n  try: {reason.hint}", file=sys.stderr)
        return REFUSED
    _say(decision)
    if asked.print:
        print(_equivalent(decision))
        return 0
    return _run(decision, environment)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Our own arguments stand before the first "--", the program and all of its behind it."""
    parser = argparse.ArgumentParser(ME, usage=USAGE, description=ABOUT, allow_abbrev=False)
    parser.add_argument("--gpu", action="append", required=True, metavar="GPU[,GPU...]", help="the GPUs it works on")
    parser.add_argument("--several-nodes", action="store_true", help="allow GPUs near different NUMA nodes")
    parser.add_argument(
        "--allocator", choices=sorted(ALLOCATORS), default="", help="put this memory allocator under it"
    )
    parser.add_argument("--schedule", metavar="fifo:N|rr:N", help="give it a real-time priority, 1 to 99")
    parser.add_argument("--print", action="store_true", help="show an equivalent command line and run nothing")
    end = argv.index("--") if "--" in argv else len(argv)
    asked = parser.parse_args(argv[:end])
    if end + 1 >= len(argv):
        parser.error('the program is missing: write it after "--"')
    return argparse.Namespace(**vars(asked), command=argv[end + 1 :])


def _ask(asked: argparse.Namespace) -> Ask:
    names = [name for group in asked.gpu for name in group.split(",") if name]
    return Ask(tuple(names), tuple(asked.command), asked.allocator, _schedule(asked.schedule), asked.several_nodes)


def _schedule(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(fifo|rr):([1-9]\d?)", text)
    if match is None:
        raise Cannot(f"--schedule {text} is no priority", "give fifo or rr and a number from 1 to 99, such as fifo:50")
    return match.group(1), int(match.group(2))


def look(host: Host, ask: Ask, environment: Mapping[str, str]) -> Facts:
    """Read what the decision needs from the host's own files."""
    on = nodes(host)
    with_memory = host.value(f"{NODE}/has_memory")
    status = dict(line.partition(":")[::2] for line in (host.read_or_none("/proc/self/status") or "").splitlines())
    everywhere = as_list(cpu for cpus in on.values() for cpu in cpus)
    return Facts(
        gpus=tuple(gpus(host)),
        cpus_of_node=on,
        nodes_with_memory=frozenset(on if with_memory is None else cpus_of(with_memory)),
        allowed_cpus=frozenset(cpus_of(status.get("Cpus_allowed_list", everywhere))),
        allowed_nodes=frozenset(cpus_of(status.get("Mems_allowed_list", as_list(on)))),
        library=library(host, ask.allocator) or "" if ask.allocator else "",
        environment=environment,
    )


def _say(decision: Decision) -> None:
    """What was decided, in one or two lines, and whatever somebody may not expect."""
    named = ", ".join(f"{gpu.index} ({gpu.address})" for gpu in decision.gpus)
    print(
        f"{ME}: GPU {named}: processors {as_list(decision.cpus)}, memory of node {as_list(decision.nodes)}",
        file=sys.stderr,
    )
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in decision.environment)
    schedule = " {}:{}".format(*decision.schedule) if decision.schedule else ""
    print(f"{ME}: {given}{schedule}", file=sys.stderr)
    for note in decision.notes:
        print(f"{ME}: note: {note}", file=sys.stderr)


def _equivalent(decision: Decision) -> str:
    """The same by other people's tools."""
    given = [f"{name}={value}" for name, value in decision.environment]
    near = [f"--physcpubind={as_list(decision.cpus)}", f"--membind={as_list(decision.nodes)}"]
    schedule = ["chrt", f"--{decision.schedule[0]}", str(decision.schedule[1])] if decision.schedule else []
    return shlex.join(["env", *given, "numactl", *near, *schedule, *decision.command])


def _become(decision: Decision) -> None:
    """Bind this process; what it becomes and starts inherits that."""
    try:
        os.sched_setaffinity(0, decision.cpus)
    except OSError as error:
        raise Cannot(
            f"the kernel refuses processors {as_list(decision.cpus)}: {error.strerror}",
            "look at the cpuset of this shell",
        ) from error
    try:
        bind_memory(decision.nodes)
    except OSError as error:
        if not decision.only_node:
            hint = "in a container, give it CAP_SYS_NICE, which lets set_mempolicy through the seccomp filter"
            raise Cannot(f"the kernel refuses to bind memory: {error.strerror}", hint) from error
    if decision.schedule:
        _prioritise(*decision.schedule)


def _prioritise(policy: str, priority: int) -> None:
    try:
        os.sched_setscheduler(0, SCHEDULES[policy], os.sched_param(priority))
    except OSError as error:
        hint = "run it as root or with CAP_SYS_NICE, or raise rtprio in limits.d (LimitRTPRIO= of a service)"
        raise Cannot(f"the kernel refuses priority {policy}:{priority}: {error.strerror}", hint) from error


def _run(decision: Decision, environment: Mapping[str, str]) -> int:
    program = decision.command[0]
    try:
        os.execvpe(program, decision.command, {**environment, **dict(decision.environment)})  # noqa: S606 - our purpose
    except OSError as error:
        print(f"{ME}: cannot run {program}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
