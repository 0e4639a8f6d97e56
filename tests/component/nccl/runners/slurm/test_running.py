"""Launches beside programs that stand in for Slurm's: what they are asked, and what is made of cut answers."""

from __future__ import annotations

import time

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.ranks import Process
from gpuctl.nccl.model import Launch, Outcome, Sweep
from gpuctl.nccl.runners.slurm.allocation import Granted, Waiting
from gpuctl.nccl.runners.slurm.command import Settings
from gpuctl.nccl.runners.slurm.runner import SlurmRunner
from gpuctl.nccl.runners.slurm.step import Running
from tests.rig.nccl.slurm_site import Site

SWEEP = Sweep(gpus_per_node=2)
NODES = tuple(f"h{number}" for number in range(8))
IN_A_JOB = 'case "$*" in *--steps*) ;; *) echo "7|RUNNING|None|h[0-7]" ;; esac'
LOOK = r"""case "$*" in *gpuctl-look*)
    mark=$(grep -ao 'gpuctl-[0-9a-f]\{16\} ' | head -n 1)
    printf '\n%s{"processes": [{"pid": 3, "name": "all_reduce_perf", "state": "R", "rank": 1, "still": ' "$mark"
    REST
esac"""


def quiet(_: Launch, __: str) -> None:
    """Hear nothing of the progress."""


def test_slurm_is_asked_once_for_all_launches_that_fail_together(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    site.program("srun", "exit 1")
    site.program("squeue", IN_A_JOB)
    site.program("sinfo", "".join(f"echo '{node}|main*|idle|gpu:2|none';" for node in NODES))
    begun = time.monotonic()
    ends = SlurmRunner(NODES, Settings()).run([Launch((node,), SWEEP) for node in NODES], quiet, lambda: False)
    most = 2 + time.monotonic() - begun
    assert [(end.run.outcome, end.lost) for end in ends] == [(Outcome.FAILED, ())] * len(NODES)
    assert len(site.calls("squeue", "--steps")) <= most
    assert len(site.calls("squeue", "--states=all")) <= most
    assert len(site.calls("sinfo")) <= most


@pytest.mark.parametrize(
    ("rest", "found"), [('printf "false}]}\\n"', [Process(3, "all_reduce_perf", "R", 1, still=False)]), ("", None)]
)
def test_a_look_at_a_node_that_is_cut_off_tells_nothing_of_it(
    site: Site, rest: str, found: list[Process] | None
) -> None:
    site.program("srun", LOOK.replace("REST", rest))
    running = Running(Granted("7", None), Launch(("h0",), SWEEP), Settings(), quiet)
    assert running.observe_ranks() == {"h0": found}


def test_the_longer_a_job_waits_the_less_often_slurm_is_asked_why(site: Site) -> None:
    site.program("salloc", "sleep 20")
    site.program("squeue", 'echo "9|PENDING|Resources|"')
    heard: list[str] = []
    with pytest.raises(GpuctlError, match=r"not granted within 3 s: job 9 is in Slurm's queue: its nodes are in use"):
        Waiting(Settings(wait_s=3), NODES, 2).until_granted(heard.append, lambda: False)
    assert heard == ["waiting: job 9 is in Slurm's queue: its nodes are in use (Resources)"]
    assert len(site.calls("squeue")) <= 5
