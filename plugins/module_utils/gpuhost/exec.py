"""gpuctl-exec: run a program on the processors and the memory nearest to its GPU."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence

from .affinity import CannotPlace, Decision, Facts, Request, decide
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
    """Choose a placement, print it, and exec the program; returns only on --print or an error."""
    options = _parse(argv)
    environment = dict(os.environ if environment is None else environment)
    try:
        request = _ask(options)
        decision = decide(request, read_facts(host or Host(), request, environment))
        if not options.print:
            _become(decision)
    except CannotPlace as reason:
        print(f"{ME}: cannot run {shlex.join(options.command)}: {reason}\n  try: {reason.hint}", file=sys.stderr)
        return REFUSED
    _say(decision)
    if options.print:
        print(_equivalent(decision))
        return 0
    return _run(decision, environment)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Options come before the first "--", the program and its arguments after it."""
    parser = argparse.ArgumentParser(ME, usage=USAGE, description=ABOUT, allow_abbrev=False)
    parser.add_argument(
        "--gpu", action="append", required=True, metavar="GPU[,GPU...]", help="GPUs that the program uses"
    )
    parser.add_argument("--several-nodes", action="store_true", help="allow GPUs near different NUMA nodes")
    parser.add_argument("--allocator", choices=sorted(ALLOCATORS), default="", help="preload this memory allocator")
    parser.add_argument("--schedule", metavar="fifo:N|rr:N", help="set a real-time priority, 1 to 99")
    parser.add_argument(
        "--print", action="store_true", help="print an equivalent command line instead of running the program"
    )
    end = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:end])
    if end + 1 >= len(argv):
        parser.error('the program is missing: write it after "--"')
    return argparse.Namespace(**vars(options), command=argv[end + 1 :])


def _ask(options: argparse.Namespace) -> Request:
    names = [name for group in options.gpu for name in group.split(",") if name]
    return Request(
        tuple(names), tuple(options.command), options.allocator, _schedule(options.schedule), options.several_nodes
    )


def _schedule(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(fifo|rr):([1-9]\d?)", text)
    if match is None:
        raise CannotPlace(
            f"--schedule {text} is no priority", "give fifo or rr and a number from 1 to 99, such as fifo:50"
        )
    return match.group(1), int(match.group(2))


def read_facts(host: Host, request: Request, environment: Mapping[str, str]) -> Facts:
    """Read the facts for the decision from the host's files."""
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
        library=library(host, request.allocator) or "" if request.allocator else "",
        environment=environment,
    )


def _say(decision: Decision) -> None:
    """Print the placement in two lines, and the notes."""
    named = ", ".join(f"{gpu.index} ({gpu.address})" for gpu in decision.gpus)
    print(
        f"{ME}: GPU {named}: processors {as_list(decision.cpus)}, memory of node {as_list(decision.nodes)}",
        file=sys.stderr,
    )
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in decision.environment)
    schedule = " {}:{}".format(*decision.schedule) if decision.schedule else ""
    print(f"{ME}: {variables}{schedule}", file=sys.stderr)
    for note in decision.notes:
        print(f"{ME}: note: {note}", file=sys.stderr)


def _equivalent(decision: Decision) -> str:
    """A command line with the same effect by numactl, chrt and env."""
    variables = [f"{name}={value}" for name, value in decision.environment]
    near = [f"--physcpubind={as_list(decision.cpus)}", f"--membind={as_list(decision.nodes)}"]
    schedule = ["chrt", f"--{decision.schedule[0]}", str(decision.schedule[1])] if decision.schedule else []
    return shlex.join(["env", *variables, "numactl", *near, *schedule, *decision.command])


def _become(decision: Decision) -> None:
    """Bind this process; the program and its children inherit the binding."""
    try:
        os.sched_setaffinity(0, decision.cpus)
    except OSError as error:
        raise CannotPlace(
            f"the kernel refuses processors {as_list(decision.cpus)}: {error.strerror}",
            "check the cpuset of this shell",
        ) from error
    try:
        bind_memory(decision.nodes)
    except OSError as error:
        if not decision.only_node:
            hint = "in a container, give it CAP_SYS_NICE, which lets set_mempolicy through the seccomp filter"
            raise CannotPlace(f"the kernel refuses to bind memory: {error.strerror}", hint) from error
    if decision.schedule:
        _prioritise(*decision.schedule)


def _prioritise(policy: str, priority: int) -> None:
    try:
        os.sched_setscheduler(0, SCHEDULES[policy], os.sched_param(priority))
    except OSError as error:
        hint = "run it as root or with CAP_SYS_NICE, or raise rtprio in limits.d (LimitRTPRIO= of a service)"
        raise CannotPlace(f"the kernel refuses priority {policy}:{priority}: {error.strerror}", hint) from error


def _run(decision: Decision, environment: Mapping[str, str]) -> int:
    program = decision.command[0]
    try:
        os.execvpe(program, decision.command, {**environment, **dict(decision.environment)})  # noqa: S606 - our purpose
    except OSError as error:
        print(f"{ME}: cannot run {program}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
