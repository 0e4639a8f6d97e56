"""Measure the bandwidth between the pods of an environment, and compare it with the environment's baseline."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from gpuctl.cluster.access import PodAccess
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import private, state_dir, write_atomically
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.engine import typed_json
from gpuctl.nccl import flow, pair_table
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.isolate.pair_outliers import FEWEST
from gpuctl.nccl.model import LaunchResult, Sweep
from gpuctl.nccl.pair_table import Conditions, Table
from gpuctl.nccl.plan_kinds import Kind
from gpuctl.nccl.runner import ProgressListener
from gpuctl.workflows.nccl_targets.model import NodeAccess

BEGIN_BYTES, END_BYTES = 64 << 20, 1 << 30  # messages that are limited by bandwidth, not by latency


@dataclass
class Measurement:
    """Runs of the pairs of pods, or of the only pod. `results` fills while they run; `baseline`: the kept table."""

    kind: Kind
    conditions: Conditions
    baseline: Table | None
    measured_at: str
    results: list[LaunchResult] = field(default_factory=list)

    @property
    def table(self) -> Table:
        return pair_table.measured(pair_table.counted(self.results), self.conditions, self.measured_at)


def prepare(env_access: PodAccess, mode: str, nodes: Sequence[str]) -> Measurement:
    """Read the baseline; `InvalidInput` if its file is damaged, before anything runs."""
    gpus = env_access.env.cluster.gpus.per_node
    conditions = Conditions(mode, gpus, BEGIN_BYTES, END_BYTES)
    kind: Kind = "single" if len(nodes) == 1 else "pairs"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Measurement(kind, conditions, load(baseline_file(env_access)), now)


def run(
    measurement: Measurement, access: NodeAccess, listener: ProgressListener, broken_off: Callable[[], bool]
) -> None:
    """Run every pair; then once more those that are below the baseline."""
    conditions = measurement.conditions
    sweep = Sweep(
        begin_bytes=conditions.begin_bytes,
        end_bytes=conditions.end_bytes,
        gpus_per_node=conditions.gpus_per_pod,
        env=dict(access.env),
    )
    flow.run(
        access.runner, flow.planned(measurement.kind, access.nodes, sweep), listener, broken_off, measurement.results
    )
    if measurement.baseline and measurement.baseline.conditions == conditions and not broken_off():
        again = [(end.launch,) for end in pair_table.to_repeat(measurement.results, measurement.baseline)]
        flow.run(access.runner, again, listener, broken_off, measurement.results)


def judge(measurement: Measurement, access: NodeAccess) -> list[Finding]:
    """Judge the runs by themselves and against the baseline."""
    few = len(measurement.table.busbw_gbs) < FEWEST  # pairs, which are not compared with each other
    kind: Kind = "single" if few else measurement.kind
    runs = flow.findings(kind, pair_table.counted(measurement.results), RunContext(), None, access.racks)
    return [*runs, *pair_table.findings(measurement.table, measurement.baseline)]


def save_baseline(
    env_access: PodAccess, measurement: Measurement, findings: Sequence[Finding], *, overwrite: bool
) -> str:
    """Save the baseline; return what was saved, "" for nothing. `overwrite`: also a faulty one."""
    table = pair_table.kept(measurement.table, measurement.baseline, overwrite=overwrite)
    is_faulty = any(finding.verdict is Verdict.FAIL for finding in findings)
    if table is None or (is_faulty and not overwrite):
        return ""
    path = baseline_file(env_access)
    try:
        private(path.parent)
        write_atomically(path, json.dumps(pair_table.as_dict(table), indent=1) + "\n")
    except OSError as error:
        raise GpuctlError(f"save the baseline {path}", error.strerror or str(error)) from error
    before = 0 if measurement.baseline is None or overwrite else len(measurement.baseline.busbw_gbs)
    return f"{len(table.busbw_gbs) - before} values in {path}"


def baseline_file(access: PodAccess) -> Path:
    """The file of an environment's baseline; environments of one name on two clusters have two."""
    name = quote(f"{access.cluster.server} {access.env.namespace} {access.env.name}", safe=" ")
    return state_dir() / "bandwidth" / f"{name}.json"


def load(path: Path) -> Table | None:
    """Read a baseline; None if there is none, `InvalidInput` if it is damaged."""
    doing, hint = f"read the baseline {path}", "delete the file to measure a new one"
    try:
        return pair_table.from_dict(typed_json.parse(path.read_text()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(doing, error.strerror or str(error)) from error
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidInput(doing, f"it is damaged: {error}", hint) from error
