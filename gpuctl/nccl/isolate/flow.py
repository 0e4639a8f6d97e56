"""Run an isolation: decide, run the round, decide again; what was run is kept so that it can go on later."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.nccl.isolate.decide import decide
from gpuctl.nccl.isolate.model import Conclusion, Fleet, Policy, Round
from gpuctl.nccl.model import Launch, LaunchResult, Outcome
from gpuctl.nccl.runners.base import Runner


class Watch:
    """Who looks after an isolation while it goes on; this one lets it run and keeps nothing."""

    def begin(self, number: int, step: Round) -> None:
        """A round begins."""

    def told(self, launch: Launch, line: str) -> None:
        """A launch has something to tell."""

    def keep(self, history: Sequence[LaunchResult]) -> None:
        """A round has ended; these are all runs so far."""

    def broken_off(self) -> bool:
        """Whether to stop: asked before every round and, by the runner, within it."""
        return False


def isolate(
    fleet: Fleet, runner: Runner, policy: Policy, watch: Watch | None = None, before: Sequence[LaunchResult] = ()
) -> tuple[list[LaunchResult], Conclusion | None]:
    """Run round after round until there is a verdict; returns all runs with it, or with None where it was broken off.

    `before` are runs of an earlier isolation: none of them is made again. Of a round that was broken off only runs
    that were complete by then count: the others were ended by us, which is nobody's fault.
    """
    history, by, number = list(before), watch or Watch(), 0
    while not by.broken_off():
        step = decide(fleet, history, policy)
        if isinstance(step, Conclusion):
            return history, step
        number += 1
        by.begin(number, step)
        ended = runner.run(step.launches, by.told, by.broken_off)
        history += [end for end in ended if end.run.outcome is Outcome.COMPLETE or not by.broken_off()]
        by.keep(history)
    return history, None
