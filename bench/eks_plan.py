"""python -m bench.eks_plan: wall time of `gpuctl eks plan` in round trips to AWS.

AWS is played by moto behind a proxy that delays every answer. moto's own time falls out: plans with two delays are
compared, and what the longer one adds is the number of round trips that follow each other.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from gpuctl.eks import cluster_file
from gpuctl.eks.prediction import actions
from gpuctl.workflows import eks_plan
from tests.rig.aws_endpoint import (
    LOGIN,
    Answer,
    client,
    error_injecting_proxy,
    make_public,
    moto_endpoint,
    vpc_with_subnets,
)
from tests.rig.eks_answers import NO_PLACEMENT_GROUPS, planning_answers

# The given subnets; the account and all subnets of their VPC; what lies in these; their counts again.
CHAIN = 4
MOST = 2.0  # times the chain
DELAYS_S = (1.0, 3.0)  # long against the seconds that moto takes for a type
FILE = """name: lab
region: us-east-1
version: '1.36'
subnets: [{}]
node_groups:
  - {{name: small, instance_type: g4dn.xlarge, min: 0, max: 4, desired: 1}}
  - {{name: large, instance_type: p4d.24xlarge, min: 0, max: 4, desired: 1}}
"""


def planned(url: str, path: Path, delay_s: float) -> tuple[float, int]:
    """Seconds of a plan whose every answer comes so late, and the number of its requests."""
    cluster = cluster_file.load(path)
    answers = planning_answers(actions(cluster, has_efa=True)) | NO_PLACEMENT_GROUPS

    def late(operation: str) -> Answer | None:
        time.sleep(delay_s)
        return answers.get(operation)

    with error_injecting_proxy(url, late) as (proxy, received):
        os.environ["AWS_ENDPOINT_URL"] = proxy
        started = time.monotonic()
        made = eks_plan.plan(eks_plan.connect("us-east-1", ""), cluster)
        took = time.monotonic() - started
    unknown = [one.message for one in made.findings if one.verdict == "UNKNOWN"]
    if unknown:
        raise RuntimeError(f"the plan is not whole: {unknown}")
    return took, len(received)


def main() -> int:
    """Print the figures; exit code 1 if more round trips follow each other than twice the longest chain."""
    parser = argparse.ArgumentParser(prog="python -m bench.eks_plan", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    os.environ.update(LOGIN)
    with moto_endpoint() as url, tempfile.TemporaryDirectory() as folder:
        ec2 = client(url)
        vpc, subnets = vpc_with_subnets(ec2, "10.0.1.0/24", "10.0.2.0/24")
        make_public(ec2, vpc, subnets)
        path = Path(folder, "lab.yaml")
        path.write_text(FILE.format(", ".join(subnets)))
        rows = {delay: [planned(url, path, delay) for _ in range(options.runs)] for delay in DELAYS_S}
    short, long = (statistics.median(took for took, _ in rows[delay]) for delay in DELAYS_S)
    requests = rows[DELAYS_S[0]][0][1]
    in_sequence = (long - short) / (DELAYS_S[1] - DELAYS_S[0])
    sys.stdout.write(
        "| requests | longest chain | round trips that follow each other | times the chain | the same one by one |\n"
        "|--:|--:|--:|--:|--:|\n"
        f"| {requests} | {CHAIN} | {in_sequence:.1f} | {in_sequence / CHAIN:.2f} | {requests} |\n\n"
        f"With {DELAYS_S[0]:g} s for each answer {short:.2f} s, with {DELAYS_S[1]:g} s {long:.2f} s (medians of "
        f"{options.runs}; moto's own time in both).\n"
    )
    return int(in_sequence > MOST * CHAIN)


if __name__ == "__main__":
    sys.exit(main())
