"""Audit of GPU nodes: collect their facts in one trip to each, or take recorded ones, and judge them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuctl.audit import judge as log_judge
from gpuctl.audit import kernel, merge, recorded
from gpuctl.audit.formats import FORMATS
from gpuctl.audit.formats.model import FILE
from gpuctl.core.redact import removed
from gpuctl.domain.findings import Finding, Verdict, unknown, worst_first
from gpuctl.domain.gpu_errors import Catalogue
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nccl.preflight import facts_file
from gpuctl.nccl.preflight.facts_file import Fleet
from gpuctl.workflows import audit_bundle, audit_rules
from gpuctl.workflows.preflight_facts import fleet_of

COMMAND = "gpuctl audit"
FAULTS = (Verdict.FAIL, Verdict.WARN)


@dataclass(frozen=True)
class AuditOptions:
    """`forks`: nodes at a time. `limit_s` for one node. `window_s`: seconds between two readings of the counters.

    `since_h`: only messages that the journal has of the last hours; None for all of this boot and the one before.
    `outputs`: also what programs of the node print (audit_bundle.split).
    """

    forks: int = 64
    limit_s: float = 120.0
    window_s: float = 2.0
    since_h: float | None = None
    outputs: bool = False


def ask(hosts: Sequence[Target], options: AuditOptions, on_result: Callable[[HostResult], None]) -> Fleet:
    """Collect the facts of every host; hosts that do not answer are `unasked`, with the reason."""
    request = question(options)
    results = run_on_all(
        [host for host in hosts if not host.needs_ansible],
        lambda _: request,
        forks=options.forks,
        timeout_s=options.limit_s + options.window_s,
        on_result=on_result,
    )
    return fleet_of(hosts, {result.host: result for result in results})


def question(options: AuditOptions) -> dict[str, Any]:
    """The request that each node gets."""
    subjects = "audit and outputs" if options.outputs else "audit"
    request: dict[str, Any] = {"action": "facts", "subjects": subjects, "window_s": options.window_s}
    if options.since_h is not None:
        request["since_h"] = options.since_h
    return request


def without_secrets(fleet: Fleet) -> Fleet:
    """The facts for a file that others read: kernel messages and names of processes lose what looks like a secret."""
    return replace(fleet, nodes={node: _without_secrets(facts) for node, facts in fleet.nodes.items()})


def _without_secrets(facts: Mapping[str, Any]) -> dict[str, Any]:
    clean = dict(facts)
    log, gpu = facts.get("kernel_log", {}), facts.get("gpu", {})
    if log.get("boots"):
        boots = [{**boot, "lines": [removed(line)[0] for line in boot["lines"]]} for boot in log["boots"]]
        clean["kernel_log"] = {**log, "boots": boots}
    if gpu.get("gpus"):
        clean["gpu"] = {**gpu, "gpus": [_named_safely(one) for one in gpu["gpus"]]}
    return clean


def _named_safely(gpu: Mapping[str, Any]) -> dict[str, Any]:
    rows = {name: gpu[name] for name in ("processes", "displays") if gpu.get(name)}
    safe = {
        name: [{**row, "name": row["name"] and removed(row["name"])[0]} for row in listed]
        for name, listed in rows.items()
    }
    return {**gpu, **safe}


def judge_path(path: Path, catalogue: Catalogue) -> list[Finding]:
    """Findings for a file, or for a folder of files: one node, or a folder for each node."""
    if str(path) != "-" and path.is_dir():
        return judge_folder(path, catalogue)
    recording = recorded.read(path)
    if recording.format == recorded.FACTS:
        return _facts(path, catalogue)
    if recording.record is None:
        assert recording.log is not None  # noqa: S101 - a recording has one of them
        return log_judge.judge(str(path), recording.log, catalogue, recording.faults, recording.notes)
    facts, findings, _ = merge.merged({path.name: recording.record})
    judged = audit_rules.judge_outputs({path.name: facts}, catalogue.dcgm_errors) if facts else []
    return worst_first([*findings, *judged])


def judge_folder(folder: Path, catalogue: Catalogue) -> list[Finding]:
    """Findings for the nodes whose outputs a folder has, compared with each other."""
    nodes: dict[str, dict[str, Any]] = {}
    findings: list[Finding] = []
    by_node = recorded.read_folder(folder)
    facts_files = [r.path for recordings in by_node.values() for r in recordings if r.format == recorded.FACTS]
    judged_before = {path for file in facts_files for path in audit_bundle.evidence(file)}
    for file in facts_files:
        findings += _facts(file, catalogue)
    for node, all_recordings in by_node.items():
        recordings = [recording for recording in all_recordings if recording.path not in judged_before]
        if not recordings:
            continue
        facts, own, rivals = _node(recordings, catalogue)
        findings += [replace(finding, subject=kernel.subject_of(finding, node)) for finding in own]
        nodes.update({node: facts} if facts else {})
        for rival in rivals:  # another reading: its faults count, too, and what is unknown of GPUs that only it has
            counts = FAULTS if merge.has_gpus_of(facts, rival) else (*FAULTS, Verdict.UNKNOWN)
            findings += [f for f in audit_rules.judge_outputs({node: rival}, {}) if f.verdict in counts]
    judged = audit_rules.judge_outputs(nodes, catalogue.dcgm_errors) if nodes else []
    return worst_first({(f.check, f.subject, f.verdict, f.message): f for f in [*findings, *judged]}.values())


def _node(
    recordings: Sequence[recorded.Recording], catalogue: Catalogue
) -> tuple[dict[str, Any], list[Finding], list[dict[str, Any]]]:
    """Facts of a node, findings about its files and its kernel logs, and other readings of its GPUs."""
    order = {known.name: number for number, known in enumerate(FORMATS)}  # the fullest output of GPUs stands first
    outputs = sorted((r for r in recordings if r.record), key=lambda recording: order[recording.format])
    facts, findings, rivals = merge.merged({r.path.name: r.record for r in outputs if r.record})
    for recording in recordings:
        if recording.log is not None and not recording.unrecognised:
            name, log = recording.path.name, recording.log
            findings += log_judge.judge(name, log, catalogue, recording.faults, recording.notes)
    errors = {recording.path.name: recording.error for recording in recordings if recording.error}
    findings += merge.unread_files(errors, [r.path.name for r in recordings if r.unrecognised])
    if not facts and not findings and not any(r.format == recorded.FACTS for r in recordings):
        findings.append(unknown(FILE, "", "nothing in it can be judged"))
    return facts, findings, rivals


def _facts(path: Path, catalogue: Catalogue) -> list[Finding]:
    """Findings for the nodes of an earlier audit."""
    return audit_rules.judge(facts_file.read(path, "audit", COMMAND), catalogue)
