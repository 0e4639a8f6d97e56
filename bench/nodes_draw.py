"""python -m bench.nodes_draw: from the answers of 1,000 simulated nodes to the table of `gpuctl nodes`."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from gpuctl.cli.nodes import draw
from gpuctl.hosts.model import HostResult
from gpuctl.nodes import selection, serialize, summary
from gpuctl.nodes.judge import judge
from gpuctl.nodes.model import Fleet
from gpuctl.workflows import nodes as flow
from tests.rig.gpu_user_facts import NOW, POD, STEPS, facts, job, misfit, process

LIMIT_S = 2.0


def answer(number: int) -> HostResult:
    """Answer of a node with eight GPUs: a job on six, a pod on one, one free. No two command lines are equal."""
    ranks = [
        process(
            100 + rank,
            f"{STEPS}/job_{number // 8}/step_0/user/task_{rank}",
            command=f"python -u train.py --node {number} --rank {rank} --config runs/{number // 8}.yml --lr 3e-4",
        )
        for rank in range(6)
    ]
    served = process(7, POD, command=f"python serve.py --port {8000 + number} --token=abcdef{number}")
    on = {**{rank: [100 + rank] for rank in range(6)}, 6: [7]}
    use = facts(*ranks, served, on=on, slurm_jobs=[job(str(number // 8), *range(6))], slurmd=True)
    return HostResult(f"gpu-{number}", {"facts": {"use": use}})


def measure(work: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """Median seconds of processor time of some runs, and the last result: other work on the machine does not count."""
    seconds = []
    for _ in range(repeat):
        started = time.process_time()
        result = work()
        seconds.append(time.process_time() - started)
    return statistics.median(seconds), result


def table(fleet: Fleet) -> str:
    """All that is printed."""
    nodes = flow.use([fleet], recorded=True, notify=lambda _: None)
    shown = selection.narrow(selection.of_type(nodes, "p5"), selection.Selection(sort="idle"))
    findings = [finding for node in shown for finding in judge(node)]
    return "\n".join([*draw.lines(shown, summary.groups(shown)), str(len(findings))])


def _checked(result: HostResult) -> HostResult:
    """As `answers.find` does with each answer."""
    wrong = misfit((result.answer or {})["facts"]["use"])
    if wrong:
        raise RuntimeError(f"an answer was refused: {wrong}")
    return result


def main() -> int:
    """Print the table; exit code 1 if drawing takes longer than the limit."""
    parser = argparse.ArgumentParser(prog="python -m bench.nodes_draw", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    answers = [answer(number) for number in range(options.nodes)]
    checked_s, results = measure(lambda: [flow.redacted(_checked(one)) for one in answers], 1)
    fleet = Fleet({one.host: one.answer["use"] for one in results if one.answer}, {}, NOW)
    drawn_s, text = measure(lambda: table(fleet), options.repeat)
    nodes = flow.use([fleet], recorded=True, notify=lambda _: None)
    json_s, _ = measure(lambda: json.dumps([serialize.as_dict(node) for node in nodes]), options.repeat)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(
        f"{options.nodes} nodes, {7 * options.nodes} processes, {len(text.splitlines())} lines; processor time:\n"
        f"answers checked, secrets removed (while others still answer): {checked_s:.2f} s\n"
        f"table, after the answers: {drawn_s:.2f} s (aim: {LIMIT_S:g} s)\n"
        f"JSON of it: {json_s:.2f} s\n"
        f"largest memory, with the answers themselves: {peak_mib:.0f} MiB\n"
    )
    return int(drawn_s > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
