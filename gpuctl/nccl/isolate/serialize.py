"""The conclusion of an isolation as plain data, for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpuctl.nccl.isolate.model import Conclusion, Fault, Fleet
from gpuctl.nccl.isolate.observations import Evidence, Observation, observe
from gpuctl.nccl.isolate.verdict import supporting_runs
from gpuctl.nccl.model import LaunchResult


def conclusion_as_dict(fleet: Fleet, history: Sequence[LaunchResult], end: Conclusion) -> dict[str, Any]:
    """`faults` (each with its evidence), `unresolved`, `by_chance` (numbers of runs), `never_started`, and the cost.

    Runs are numbered from 1 in their order.
    """
    evidence = observe(fleet, history)
    return {
        "faults": [_fault(fault, evidence) for fault in end.faults],
        "unresolved": [
            {
                "runs": [n + 1 for n in open_case.runs],
                "may_be": [str(c) for c in open_case.may_be],
                "why": open_case.why,
            }
            for open_case in end.unresolved
        ],
        "by_chance": [number + 1 for number in end.chance],
        "never_started": [
            {"run": s.number + 1, "nodes": list(s.nodes), "why": s.start_failure}
            for s in evidence.runs
            if s.start_failure
        ],
        "runs_used": end.used,
        "budget": end.budget,
        "control_runs": end.controls,
        "adapter_runs": end.rails,
        "nodes": len(fleet.nodes),
    }


def _fault(fault: Fault, evidence: Evidence) -> dict[str, Any]:
    return {
        "kind": str(fault.cause.kind),
        "names": list(fault.cause.names),
        "lost": fault.lost,
        "failing": fault.failing,
        "intermittent": fault.intermittent,
        "slower": fault.slower,
        "adapter": fault.rail or None,
        "log_odds": None if math.isinf(fault.odds) else fault.odds,
        "evidence": [_run(run) for run in supporting_runs(fault, evidence)],
    }


def _run(run: Observation) -> dict[str, Any]:
    return {**{key: value for key, value in asdict(run).items() if key in _RUN_KEYS}, "run": run.number + 1}


_RUN_KEYS = ("nodes", "rail", "gbs", "failed", "shortfall")
