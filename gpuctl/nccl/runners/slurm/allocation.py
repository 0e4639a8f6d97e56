"""The one Slurm job of a test: waited for, used by every launch, given back."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Sequence

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges import slurm
from gpuctl.nccl.runners.slurm import command
from gpuctl.nccl.runners.slurm.command import Settings
from gpuctl.nccl.runners.slurm.shared_queries import Shared, growing

# Between looks why a job waits: at first, and at last. That it is granted is heard at once, without a look.
LOOKS_S = (0.5, 5.0)
GIVEN_BACK_S = (0.2, 2.0)  # between looks whether its nodes are given back
DOING = "get nodes from Slurm"
WORDS = {
    "Priority": "jobs of a higher priority go first",
    "Resources": "its nodes are in use",
    "ReqNodeNotAvail": "a node it asks for is down, drained or reserved",
    "Reservation": "its reservation has not begun",
    "BeginTime": "it is not to begin yet",
    "PartitionTimeLimit": "it asks for more time than the partition gives: --job-minutes",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition takes no jobs",
    "PartitionNodeLimit": "it asks for more nodes than the partition gives to a job",
    "JobHeldAdmin": "an administrator holds it back",
    "AssocGrpGRES": "the account has used up its GPUs",
    "QOSMaxGRESPerUser": "the QOS gives a user no more GPUs",
}


def in_words(reason: str) -> str:
    """Why a job waits; Slurm's own word stays in it."""
    reason = reason.strip("()")
    if reason in ("None", ""):
        return "Slurm has not looked at it yet"
    known = WORDS.get(reason.partition(",")[0])
    return f"{known} ({reason})" if known else reason


class Waiting:
    """A request for nodes until Slurm grants it; ours are known by a random name."""

    def __init__(self, settings: Settings, nodes: Sequence[str], gpus: int) -> None:
        self.settings, self.name = settings, f"gpuctl-nccl-{secrets.token_hex(6)}"
        self._said = ""  # why it waits
        self.held = slurm.Allocation(command.salloc(settings, nodes, gpus, self.name))

    def until_granted(self, on_wait: Callable[[str], None], broken_off: Callable[[], bool]) -> slurm.Allocation | None:
        """The allocation; None where the user breaks off. Its reasons to wait are told as they change.

        `GpuctlError` where it is refused, or not granted in time; then it has left the queue.
        """
        end, pauses, look = time.monotonic() + self.settings.wait_s, growing(*LOOKS_S), 0.0
        try:
            while not self.held.number:
                if broken_off():
                    self._leave()
                    return None
                if self.held.is_over:
                    raise self._refused()
                late = time.monotonic() > end
                if late or time.monotonic() > look:
                    self._tell_why(on_wait)
                    look = time.monotonic() + next(pauses)
                if late:
                    raise self._too_long()
                time.sleep(0.05)
        except BaseException:
            self._leave()
            raise
        return self.held

    def _tell_why(self, on_wait: Callable[[str], None]) -> None:
        reason = self._why()
        if reason and reason != self._said:
            on_wait(f"waiting: {reason}")
            self._said = reason

    def _why(self) -> str:
        """What it waits for; "" where that cannot be said just now."""
        try:
            job = slurm.job(name=self.name)
        except GpuctlError:
            return ""
        if job is None or job.state not in ("PENDING", "CONFIGURING"):
            return ""
        why = in_words(job.reason) if job.state == "PENDING" else "it has its nodes, and they start"
        return f"job {job.number} is in Slurm's queue: {why}"

    def _leave(self) -> None:
        self.held.release()
        with contextlib.suppress(GpuctlError):
            job = slurm.job(name=self.name)
            if job and job.state not in slurm.OVER:
                slurm.cancel(job.number)

    def _too_long(self) -> GpuctlError:
        wrong = f"not granted within {self.settings.wait_s:g} s: {self._said or 'Slurm gives no reason'}"
        return GpuctlError(DOING, wrong, "--queue-timeout waits longer; without --nodes only idle nodes are taken")

    def _refused(self) -> GpuctlError:
        wrong = slurm.gist(self.held.stderr)
        theirs = (
            InvalidInput if "nvalid" in wrong else GpuctlError
        )  # an account, a QOS, a reservation that is not there
        return theirs(DOING, wrong, "see --partition, --account, --qos and --reservation")


class Granted:
    """Nodes that are ours, or of a job that we are in, which is not ours to end.

    `steps` and `nodes`: what Slurm says of its steps and of all nodes, asked once for all launches of a round, and no
    more often than once a second.
    """

    def __init__(self, number: str, allocation: slurm.Allocation | None) -> None:
        self.number, self._held = number, allocation
        self.steps, self.nodes = Shared(lambda: slurm.steps(number)), Shared(slurm.nodes)
        self._job = Shared(lambda: slurm.job(number))

    def over(self, patience_s: float = 10) -> str:
        """How it ended, in words; "" while it lasts, and where Slurm does not answer."""
        end = time.monotonic() + patience_s
        while True:
            try:
                job = self._job()
            except GpuctlError:
                return ""
            if job is None:
                return f"Slurm knows no job {self.number} any more"
            if job.state in slurm.OVER:
                return f"Slurm ended job {self.number} ({job.state.lower()})"
            # Why it ended is told only once its nodes are done with it.
            if job.state != "COMPLETING" or time.monotonic() > end:
                return f"Slurm ended job {self.number}" if job.state == "COMPLETING" else ""

    def give_back(self, patience_s: float = 30) -> list[str]:
        """Give the nodes back where they are ours; those that Slurm has not got back from it by then."""
        if self._held is None:
            return []
        slurm.cancel(self.number)
        self._held.release()
        end = time.monotonic() + patience_s
        for pause in growing(*GIVEN_BACK_S):
            job = slurm.job(self.number)
            if job is None or job.state in slurm.OVER:
                break
            if time.monotonic() > end:
                return slurm.expand(job.nodes)
            time.sleep(pause)
        return []


def around() -> str:
    """The job we are in, "" where we are in none."""
    return os.environ.get("SLURM_JOB_ID", "")
