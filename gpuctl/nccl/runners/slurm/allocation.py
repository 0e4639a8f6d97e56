"""Slurm job of a test: requested, used by every launch, and released."""

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

# Seconds between queries why a job waits, first and last. A grant is noticed at once, without a query.
LOOKS_S = (0.5, 5.0)
RELEASE_CHECK_S = (0.2, 2.0)  # seconds between queries whether its nodes are released
DOING = "get nodes from Slurm"
REASONS = {
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


def describe_reason(reason: str) -> str:
    """Describe why a job waits, with Slurm's own reason code."""
    reason = reason.strip("()")
    if reason in ("None", ""):
        return "Slurm has not considered it yet"
    known = REASONS.get(reason.partition(",")[0])
    return f"{known} ({reason})" if known else reason


class Waiting:
    """Request for nodes until Slurm grants it; the job has a random name."""

    def __init__(self, settings: Settings, nodes: Sequence[str], gpus: int) -> None:
        self.settings, self.name = settings, f"gpuctl-nccl-{secrets.token_hex(6)}"
        self._reason = ""  # why it waits
        self.allocation = slurm.Allocation(command.salloc(settings, nodes, gpus, self.name))

    def until_granted(self, on_wait: Callable[[str], None], broken_off: Callable[[], bool]) -> slurm.Allocation | None:
        """Wait for the allocation; None if the user interrupts. Reasons to wait are reported as they change.

        `GpuctlError` if it is refused, or not granted in time; the job has then left the queue.
        """
        end, pauses, look = time.monotonic() + self.settings.wait_s, growing(*LOOKS_S), 0.0
        try:
            while not self.allocation.number:
                if broken_off():
                    self._leave()
                    return None
                if self.allocation.is_over:
                    raise self._refused()
                late = time.monotonic() > end
                if late or time.monotonic() > look:
                    self._report_reason(on_wait)
                    look = time.monotonic() + next(pauses)
                if late:
                    raise self._too_long()
                time.sleep(0.05)
        except BaseException:
            self._leave()
            raise
        return self.allocation

    def _report_reason(self, on_wait: Callable[[str], None]) -> None:
        reason = self._why()
        if reason and reason != self._reason:
            on_wait(f"waiting: {reason}")
            self._reason = reason

    def _why(self) -> str:
        """Reason why the job waits; "" if it is unknown at the moment."""
        try:
            job = slurm.job(name=self.name)
        except GpuctlError:
            return ""
        if job is None or job.state not in ("PENDING", "CONFIGURING"):
            return ""
        why = describe_reason(job.reason) if job.state == "PENDING" else "its nodes are starting"
        return f"job {job.number} is in Slurm's queue: {why}"

    def _leave(self) -> None:
        self.allocation.release()
        with contextlib.suppress(GpuctlError):
            job = slurm.job(name=self.name)
            if job and job.state not in slurm.OVER:
                slurm.cancel(job.number)

    def _too_long(self) -> GpuctlError:
        wrong = f"not granted within {self.settings.wait_s:g} s: {self._reason or 'Slurm gives no reason'}"
        return GpuctlError(DOING, wrong, "--queue-timeout waits longer; without --nodes only idle nodes are taken")

    def _refused(self) -> GpuctlError:
        wrong = slurm.gist(self.allocation.stderr)
        # "Invalid" account, QOS or reservation: the options are wrong.
        error = InvalidInput if "nvalid" in wrong else GpuctlError
        return error(DOING, wrong, "see --partition, --account, --qos and --reservation")


class Granted:
    """Nodes of our own job, or of the job that gpuctl runs in, which gpuctl does not end.

    `steps` and `nodes` query the job's steps and all nodes, shared by all launches of a round, at most once a second.
    """

    def __init__(self, number: str, allocation: slurm.Allocation | None) -> None:
        self.number, self._allocation = number, allocation
        self.steps, self.nodes = Shared(lambda: slurm.steps(number)), Shared(slurm.nodes)
        self._job = Shared(lambda: slurm.job(number))

    def over(self, patience_s: float = 10) -> str:
        """Describe how the job ended; "" while it runs, and if Slurm does not answer."""
        end = time.monotonic() + patience_s
        while True:
            try:
                job = self._job()
            except GpuctlError:
                return ""
            if job is None:
                return f"Slurm no longer knows job {self.number}"
            if job.state in slurm.OVER:
                return f"Slurm ended job {self.number} ({job.state.lower()})"
            # Slurm reports the reason only when its nodes have completed.
            if job.state != "COMPLETING" or time.monotonic() > end:
                return f"Slurm ended job {self.number}" if job.state == "COMPLETING" else ""

    def give_back(self, patience_s: float = 30) -> list[str]:
        """Release the nodes if the job is our own; returns nodes that Slurm has not regained in time."""
        if self._allocation is None:
            return []
        slurm.cancel(self.number)
        self._allocation.release()
        end = time.monotonic() + patience_s
        for pause in growing(*RELEASE_CHECK_S):
            job = slurm.job(self.number)
            if job is None or job.state in slurm.OVER:
                break
            if time.monotonic() > end:
                return slurm.expand(job.nodes)
            time.sleep(pause)
        return []


def around() -> str:
    """ID of the job that gpuctl runs in, "" outside of a job."""
    return os.environ.get("SLURM_JOB_ID", "")
