"""The commands by which Slurm gives us nodes and starts a test, and the options that choose them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges import slurm
from gpuctl.nccl import plan
from gpuctl.nccl.model import Launch, Sweep
from gpuctl.nccl.runners.slurm import command
from gpuctl.nccl.runners.slurm.command import Settings
from gpuctl.workflows import nccl_targets
from gpuctl.workflows.nccl_targets import slurm as slurm_target
from gpuctl.workflows.nccl_targets.model import HostOptions, PodOptions, SlurmOptions, TargetRequest
from tests.rig.nccl.slurm_site import Site

SWEEP = Sweep(gpus_per_node=2, limit_s=600, env={"MY_TOKEN": "hunter2"})
REQUEST = TargetRequest(slurm=SlurmOptions(slurm=True))


def test_an_allocation_is_of_these_nodes_for_us_alone() -> None:
    argv = command.salloc(Settings(partition="gpu", account="ops", minutes=30), ("h1", "h3"), 8, "gpuctl-nccl-1")
    assert argv == [
        *("salloc", "--partition=gpu", "--account=ops", "--job-name=gpuctl-nccl-1", "--nodes=2", "--nodelist=h1,h3"),
        *("--exclusive", "--gres=gpu:8", "--mem=0", "--time=30", "--no-kill"),
        "--wait-all-nodes=1",
    ]


def test_a_step_has_a_rank_for_each_gpu_in_the_order_of_the_nodes() -> None:
    argv = command.srun(Settings(), Launch(("h3", "h1"), SWEEP), "7", "mine")
    assert {"--jobid=7", "--nodes=2", "--ntasks=4", "--nodelist=h3,h3,h1,h1", "--distribution=arbitrary"} <= set(argv)
    assert {"--gres=gpu:2", "--mpi=pmix", "--overlap", "--kill-on-bad-exit=1", "--time=12"} <= set(argv)
    assert argv[argv.index("timeout") :][:4] == ["timeout", "--kill-after=5", "630", "all_reduce_perf"]
    assert argv[argv.index("-g") + 1] == "1"


def test_a_node_alone_is_one_task_with_all_gpus() -> None:
    argv = command.srun(Settings(), Launch(("h3",), SWEEP), "7", "mine")
    assert {"--nodes=1", "--ntasks=1", "--nodelist=h3", "--gres=gpu:2"} <= set(argv)
    assert argv[argv.index("-g") + 1] == "2"


def test_what_ranks_get_is_in_the_environment_and_not_on_the_command_line() -> None:
    launch = Launch(("h1", "h2"), plan.with_env(SWEEP, plan.RING))
    found = command.environment(Settings(search_path=("/opt/t",)), launch, "abc", {"PATH": "/bin", "HOME": "/home/a"})
    assert (found["MY_TOKEN"], found["NCCL_ALGO"], found["GPUCTL_RUN"]) == ("hunter2", "Ring", "abc")
    assert found["PATH"].startswith("/opt/t:/bin:")
    assert "/home/a/nccl-tests/build" in found["PATH"].split(":")
    assert not any("hunter2" in word for word in command.srun(Settings(), launch, "7", "mine"))


def test_what_the_user_says_of_mpi_stays() -> None:
    found = command.environment(Settings(), Launch(("h1",), SWEEP), "abc", {"OMPI_MCA_btl": "self,vader"})
    assert "OMPI_MCA_btl" not in found
    assert found["OMPI_MCA_pml"] == "ob1"


@pytest.mark.parametrize(("users", "left"), [({}, "false"), ({"SLURM_PMIX_DIRECT_CONN": "yes"}, "yes")])
def test_pmix_keeps_to_slurm_s_own_connections_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, users: dict[str, str], left: str
) -> None:
    monkeypatch.delenv("SLURM_PMIX_DIRECT_CONN", raising=False)
    for name, value in users.items():
        monkeypatch.setenv(name, value)
    ours = slurm.environment()
    found = {**ours, **command.environment(Settings(), Launch(("h1",), SWEEP), "abc", ours)}
    assert found["SLURM_PMIX_DIRECT_CONN"] == left


def test_what_a_job_around_us_says_of_itself_is_no_option_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_NTASKS", "SLURM_CONF", "SALLOC_ACCOUNT"):
        monkeypatch.setenv(name, "x")
    assert {"SLURM_CONF", "SALLOC_ACCOUNT"} <= set(slurm.environment())
    assert "SLURM_NTASKS" not in slurm.environment()


def test_slurm_is_chosen_by_its_option_and_by_nothing_else() -> None:
    in_partition = TargetRequest(slurm=SlurmOptions(slurm=True, partition="gpu"))
    assert nccl_targets.select(in_partition) is nccl_targets.TARGETS["slurm"]
    assert nccl_targets.select(TargetRequest(hosts=HostOptions(via="ssh"))) is nccl_targets.TARGETS["hosts"]
    with pytest.raises(InvalidInput, match=r"--partition needs --slurm"):
        nccl_targets.node_access(TargetRequest(slurm=SlurmOptions(partition="gpu")), 8, print)
    with pytest.raises(InvalidInput, match=r"--image cannot be combined with --slurm"):
        nccl_targets.node_access(replace(REQUEST, pods=PodOptions(image="x")), 8, print)


def test_where_slurm_is_not_installed_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInput, match="sinfo, squeue, scontrol, salloc, srun, scancel: not installed here"):
        slurm_target.access(REQUEST, None, print)


@pytest.fixture
def own(site: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """The nodes that `--nodes` takes inside of a job that has five, of which the first is drained."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    site.program("scontrol", 'case "$*" in *hostnames*) seq -f h%g 5 ;; *config*) echo "ClusterName = lab" ;; esac')
    site.program("squeue", 'case "$*" in *%P) echo main ;; *) echo "7|RUNNING|None|h[1-5]" ;; esac')
    site.program("sinfo", "echo 'h1|main*|drained|gpu:2|bad DIMM'; seq -f 'h%g|main*|allocated|gpu:2|none' 2 5")
    site.program("srun", "echo pmix")
    return lambda nodes: slurm_target.access(replace(REQUEST, nodes=nodes), 2, print).nodes


def test_inside_of_a_job_so_many_of_its_nodes_are_used_or_none(own: Callable[[str], list[str]]) -> None:
    assert own("4") == ["h2", "h3", "h4", "h5"]
    assert own("2") == ["h2", "h3"]
    with pytest.raises(GpuctlError, match=r"only 4 of 8 nodes of the partition main can be used \(h1: it is drained"):
        own("8")


def test_a_number_is_written_in_digits(own: Callable[[str], list[str]], site: Site) -> None:
    site.program("scontrol", 'case "$*" in *hostnames*h*) seq -f h%g 5 ;; *hostnames*) echo "$3" ;; esac')
    with pytest.raises(InvalidInput, match="²: not a node of job 7"):
        own("²")


def test_programs_of_slurms_do_not_see_it_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "64")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/other.conf")
    seen = slurm.try_to("printenv").out.decode()
    assert "SLURM_CONF=/etc/slurm/other.conf" in seen
    assert "SLURM_NTASKS" not in seen
