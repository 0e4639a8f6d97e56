"""Verification of GPU hosts with its optional tests: DCGM's diagnosis, and NCCL on each idle host by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial

from gpuctl.core.signals import ctrl_c
from gpuctl.core.text import plural
from gpuctl.domain.findings import Finding, Verdict, ok, unknown, worst_first
from gpuctl.domain.node_facts import get, why
from gpuctl.gpu_node.model import OptionalTests
from gpuctl.hosts.model import Target
from gpuctl.nccl import plan
from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.baselines import load
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.judge import run as judge
from gpuctl.nccl.judge.bandwidth import RULE as BASELINE
from gpuctl.nccl.judge.drop import RULE as DROP
from gpuctl.nccl.judge.jitter import RULE as JITTER
from gpuctl.nccl.judge.line_rate import RULE as LINE_RATE
from gpuctl.nccl.judge.ranks import RULE as RANKS
from gpuctl.nccl.judge.transport import RULE as TRANSPORT
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Sweep
from gpuctl.nccl.runner import Runner
from gpuctl.nccl.runners.mpirun import MpiRunner, MpirunOptions
from gpuctl.remote.transport import OverSsh
from gpuctl.workflows.diagnosis import users
from gpuctl.workflows.gpu_node_plan import OnResult, PlanRequest, survey
from gpuctl.workflows.gpu_node_verify import IDLE, Verified, diagnose, read_tools, verify_surveyed
from gpuctl.workflows.nccl_targets.hosts import logins

OnStep = Callable[[str], None]
CHECK = "nccl"
MIB = 2**20
SWEEP = Sweep(begin_bytes=8 * MIB, end_bytes=1024 * MIB, limit_s=300.0)
BY_SSH = "test it with `gpuctl nccl run --kind single --via ansible`"
IN_USE = "drain it, and verify it once its jobs have ended"
NO_MIG = "NCCL has no use for MIG instances: leave --nccl out for this host"
MISSING = "not installed there"  # of nccl/launch/outcome.py, about the test and mpirun
OF_TRAFFIC = {BASELINE, DROP, JITTER, LINE_RATE, TRANSPORT}
LEFT = "look at its processes with `gpuctl nodes`, and end those of nccl-tests"


def verify_hosts(
    request: PlanRequest, today: date, tests: OptionalTests, on_result: OnResult, on_step: OnStep
) -> Verified:
    """Read every host twice, for the plan and for its tools, judge it, and test it; nothing is changed on it.

    `on_step` gets the progress of the tests, for people.
    """
    surveyed = survey(request, today, on_result)
    verified = verify_surveyed(surveyed, request, today, on_result)
    reached = [host for host in surveyed.targets if host.name not in verified.unasked]
    if tests.deep is not None:
        verified = _with(verified, diagnose(reached, tests.deep, request, on_result, on_step))
    if tests.nccl:
        verified = _with(verified, run_nccl(reached, request, tests.search_path, on_result, on_step))
    return verified


def _with(verified: Verified, more: Mapping[str, Sequence[Finding]]) -> Verified:
    return replace(verified, findings={host: [*rows, *more.get(host, ())] for host, rows in verified.findings.items()})


def run_nccl(
    hosts: Sequence[Target], request: PlanRequest, search_path: tuple[str, ...], on_result: OnResult, on_step: OnStep
) -> dict[str, list[Finding]]:
    """Findings of all_reduce on each host by itself, never none; one that is in use is not disturbed, and UNKNOWN.

    At most `request.forks` hosts run at the same time. KeyboardInterrupt at Ctrl-C, after every test has been ended.
    """
    book = load.book()
    findings: dict[str, list[Finding]] = {}
    for first in range(0, len(hosts), request.forks):
        some = hosts[first : first + request.forks]
        # Right before the test: a job may have started during the tests of the hosts before.
        readings, unasked = read_tools(some, request, on_result, IDLE)
        findings |= {host: [unknown(CHECK, host, reason)] for host, reason in unasked.items()}
        left_out = {host.name: _kept(host, readings[host.name]) for host in some if host.name in readings}
        findings |= {host: rows for host, rows in left_out.items() if rows}
        due = [host for host in some if host.name not in findings]
        launches = [_launch(host.name, readings[host.name]) for host in due]
        with ctrl_c() as broken_off:
            results = runner(due, search_path).run(launches, partial(_tell, on_step), broken_off) if due else []
            stopped = broken_off()
        if stopped:
            raise KeyboardInterrupt
        findings |= {result.launch.nodes[0]: judged(result, book) for result in results}
    return findings


def runner(hosts: Sequence[Target], search_path: tuple[str, ...]) -> Runner:
    """Runner over ssh, also as root, by which many sites change their hosts."""
    return MpiRunner(OverSsh(logins(hosts)), MpirunOptions(search_path, as_root=True))


def _tell(on_step: OnStep, launch: Launch, text: str) -> None:
    if not text.endswith(" done"):  # of each size
        on_step(f"{launch.nodes[0]}: nccl: {text}")


def _launch(host: str, facts: Mapping[str, object]) -> Launch:
    sweep = replace(SWEEP, gpus_per_node=len(get(facts, "gpu", "gpus") or ()))
    return Launch((host,), plan.with_env(sweep, {}))


def _kept(host: Target, facts: Mapping[str, object]) -> list[Finding]:
    """Reason not to test a host, as a finding; empty if it can be tested."""
    if host.needs_ansible:
        return [unknown(CHECK, host.name, f"only Ansible can reach it: {host.needs_ansible}", BY_SSH)]
    if reasons := users(host.name, facts):
        return [unknown(CHECK, host.name, f"not tested, as it is in use: {'; '.join(reasons)}", IN_USE)]
    gpus = get(facts, "gpu", "gpus")
    if not gpus:
        reason = why(facts, "gpu", "gpus") if gpus is None else "nvidia-smi lists none"
        return [unknown(CHECK, host.name, f"its GPUs are not known: {reason}")]
    if any(gpu["mig"] == "Enabled" for gpu in gpus):
        return [unknown(CHECK, host.name, "its GPUs are split into MIG instances", NO_MIG)]
    return []


def judged(result: LaunchResult, book: Book) -> list[Finding]:
    """Findings of one host's test: one of each rule that is not well, and the bandwidth of a test without a problem."""
    host, gpus = result.launch.nodes[0], result.launch.sweep.gpus_per_node
    if MISSING in (result.run.cause or ""):
        return [unknown(CHECK, host, f"not tested: {result.run.cause}")]
    rows = judge.judge(result.run, RunContext(nodes=1, gpus_per_node=gpus), book)
    bad = [row for row in rows if row.verdict is not Verdict.OK and (gpus > 1 or not _of_traffic(row))]
    first = {row.check: row for row in reversed(bad) if not _lacks_baseline(row)}
    findings = worst_first([replace(row, check=CHECK, subject=host) for row in first.values()])
    if result.lost:
        findings.append(unknown(CHECK, host, "whether processes of the test are left could not be determined", LEFT))
    if any(row.verdict in {Verdict.FAIL, Verdict.UNKNOWN} for row in findings):
        return findings
    if result.run.outcome is not Outcome.COMPLETE:
        return [*findings, unknown(CHECK, host, f"the test ended as {result.run.outcome}: {result.run.cause}", LEFT)]
    bandwidth = speed(result.run)
    measured = "" if bandwidth is None or gpus == 1 else f", {bandwidth:.1f} GB/s"
    compared = " (no baseline)" if measured and any(map(_lacks_baseline, bad)) else ""
    return [ok(CHECK, host, f"all_reduce over {plural(gpus, 'GPU')}{measured}{compared}"), *findings]


def _of_traffic(row: Finding) -> bool:
    """True for what one GPU, which sends nothing, cannot show; also that there is one rank."""
    return row.check in OF_TRAFFIC or (row.check == RANKS and row.numbers.get("ranks") == 1)


def _lacks_baseline(row: Finding) -> bool:
    """True for the warning that the machine type is not known, which nobody states here."""
    return row.check == BASELINE and row.verdict is Verdict.WARN and row.numbers.get("system") is None
