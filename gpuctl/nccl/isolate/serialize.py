"""The verdict of an isolation as plain data, for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpuctl.nccl.isolate.model import Conclusion, Fleet, Guilt
from gpuctl.nccl.isolate.observations import Seen, Story, story
from gpuctl.nccl.isolate.verdict import evidence
from gpuctl.nccl.model import LaunchResult


def of(fleet: Fleet, history: Sequence[LaunchResult], end: Conclusion) -> dict[str, Any]:
    """`guilty` (each with its evidence), `doubts`, `chance` (numbers of runs), `never_began`, `findings`, the cost.

    Runs are numbered from 1 in the order in which they were made.
    """
    seen = story(fleet, history)
    return {
        "guilty": [_guilt(guilt, seen) for guilt in end.guilty],
        "doubts": [
            {"runs": [n + 1 for n in doubt.runs], "may_be": [str(c) for c in doubt.may_be], "why": doubt.why}
            for doubt in end.doubts
        ],
        "chance": [number + 1 for number in end.chance],
        "never_began": [{"run": s.number + 1, "nodes": list(s.nodes), "why": s.never} for s in seen.all if s.never],
        "runs_used": end.used,
        "budget": end.budget,
        "adapter_runs": end.rails,
        "nodes": len(fleet.nodes),
    }


def _guilt(guilt: Guilt, seen: Story) -> dict[str, Any]:
    return {
        "kind": str(guilt.cause.kind),
        "names": list(guilt.cause.names),
        "lost": guilt.lost,
        "failing": guilt.failing,
        "comes_and_goes": guilt.flaky,
        "slower": guilt.slower,
        "adapter": guilt.rail or None,
        "odds_logarithm": None if math.isinf(guilt.odds) else guilt.odds,
        "evidence": [_run(run) for run in evidence(guilt, seen)],
    }


def _run(run: Seen) -> dict[str, Any]:
    return {**{key: value for key, value in asdict(run).items() if key in _TOLD}, "run": run.number + 1}


_TOLD = ("nodes", "rail", "gbs", "failed", "shortfall")
