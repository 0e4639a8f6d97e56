"""Run an isolation: decide, run the round, decide again. The runs are saved after every round, for resuming."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.nccl.isolate.model import Conclusion, Fleet, Policy, Round
from gpuctl.nccl.isolate.next_round import decide
from gpuctl.nccl.model import Launch, LaunchResult, Outcome
from gpuctl.nccl.runner import Runner


class Watch:
    """Callbacks of an isolation; this one saves nothing and never interrupts."""

    def begin(self, number: int, step: Round) -> None:
        """Called when a round starts: its number, from 1, and its launches."""

    def progress(self, launch: Launch, line: str) -> None:
        """Called with every progress line of a launch."""

    def keep(self, history: Sequence[LaunchResult]) -> None:
        """Called after every round with all runs so far."""

    def broken_off(self) -> bool:
        """True to stop. Checked before every round and, by the runner, during it."""
        return False


def isolate(
    fleet: Fleet, runner: Runner, policy: Policy, watch: Watch | None = None, before: Sequence[LaunchResult] = ()
) -> tuple[list[LaunchResult], Conclusion | None]:
    """Run rounds until there is a verdict; returns all runs and the conclusion, None if interrupted.

    `before`: the runs of an earlier isolation, which are not repeated. An interrupted round adds only the runs that
    had completed: the others failed because we ended them.
    """
    history, callbacks, number = list(before), watch or Watch(), 0
    while not callbacks.broken_off():
        step = decide(fleet, history, policy)
        if isinstance(step, Conclusion):
            return history, step
        number += 1
        callbacks.begin(number, step)
        results = runner.run(step.launches, callbacks.progress, callbacks.broken_off)
        history += [end for end in results if end.run.outcome is Outcome.COMPLETE or not callbacks.broken_off()]
        callbacks.keep(history)
    return history, None
