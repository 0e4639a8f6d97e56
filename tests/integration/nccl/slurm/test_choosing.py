"""Which nodes a test on Slurm uses, asked of a real Slurm."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import pytest

from gpuctl.cli.nccl import target_options
from gpuctl.cli.shared import options
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.workflows import nccl_targets
from gpuctl.workflows.nccl_targets.model import TargetRequest
from tests.integration.nccl.slurm.site import NODES, Site
from tests.rig.host import wait_until


def chosen(**given: Any) -> tuple[list[str], str, dict[str, str]]:
    """What the options choose; they are read by click as on the command line."""
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]
    if "--gpus" not in words:
        words += ["--gpus", "2"]

    @click.command()
    @options.as_request(TargetRequest, target_options.target_options)
    @click.option("--gpus", type=int)
    def command(request: TargetRequest, gpus: int) -> None:
        access = nccl_targets.node_access(request, gpus, target_options.notify)
        selected.append((access.nodes, access.where, dict(access.racks)))

    selected: list[tuple[list[str], str, dict[str, str]]] = []
    command.main(["--slurm", *words], standalone_mode=False)
    return selected[0]


@contextmanager
def changed(site: Site, node: str, *words: str) -> Iterator[None]:
    """A node as an administrator left it."""
    site.ask("scontrol", "update", f"nodename={node}", *words)
    try:
        yield
    finally:
        site.ask("scontrol", "update", f"nodename={node}", "state=resume")


def test_all_idle_nodes_of_the_default_partition_with_their_racks(site: Site) -> None:
    names, where, racks = chosen()
    assert (names, where) == (list(NODES), "slurm testing")
    assert racks == {"h1": "r0", "h2": "r0", "h3": "r1", "h4": "r1"}


def test_a_drained_node_is_left_out_and_named_with_slurms_reason(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    with changed(site, "h3", "state=drain", "reason=bad DIMM | ticket 7"):
        names, _, racks = chosen()
        assert chosen(nodes="h[2-3]")[0] == ["h2"]
    assert names == ["h1", "h2", "h4"]
    assert "h3" not in racks
    assert capsys.readouterr().err == "h3 is left out: it is drained (bad DIMM | ticket 7)\n" * 2


def test_a_busy_node_is_used_only_where_it_is_named(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["srun", "--nodes=1", "--nodelist=h2", "--exclusive", "sleep", "60"]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as other:
        try:
            wait_until(lambda: site.states()["h2"] == "allocated", 10, "the other job does not run")
            assert chosen()[0] == ["h1", "h3", "h4"]
            assert capsys.readouterr().err == "h2 is left out: it is allocated\n"
            assert chosen(nodes="h2,h1")[0] == ["h2", "h1"]
        finally:
            other.terminate()


def test_so_many_nodes(site: Site) -> None:
    assert chosen(nodes="2")[0] == ["h1", "h2"]
    with pytest.raises(GpuctlError, match="only 4 of 9 nodes of the partition main"):
        chosen(nodes="9")


def test_what_is_not_there_is_unusable_and_nothing_is_asked_for(site: Site) -> None:
    before = site.ask("squeue", "-h", "--states=all")
    with pytest.raises(InvalidInput, match="there is no partition nosuch"):
        chosen(partition="nosuch")
    with pytest.raises(InvalidInput, match="h9: not in the partition main"):
        chosen(nodes="h1,h9")
    with pytest.raises(InvalidInput, match="use the reservation nosuch"):
        chosen(reservation="nosuch")
    assert site.ask("squeue", "-h", "--states=all") == before


def test_nodes_with_fewer_gpus_are_left_out(site: Site) -> None:
    with pytest.raises(GpuctlError, match=r"no node of the partition main can be used \(h1: it has 2 GPUs, not 8"):
        chosen(gpus="8")


def test_a_reservation_gives_its_own_nodes(site: Site) -> None:
    words = ("reservationname=ours", "starttime=now", "duration=10", "users=root", "nodes=h[3-4]")
    site.ask("scontrol", "create", "reservation", *words)
    try:
        assert chosen(reservation="ours")[0] == ["h3", "h4"]
    finally:
        site.ask("scontrol", "delete", "reservation=ours")


def test_inside_of_a_job_its_nodes_are_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.ask("salloc", "--no-shell", "--nodes=2", "--exclusive")
    number = site.ask("squeue", "-h", "-o", "%i").strip()
    try:
        monkeypatch.setenv("SLURM_JOB_ID", number)
        assert chosen()[0] == chosen(nodes="2")[0] == chosen(nodes="h1, h2")[0] == ["h1", "h2"]
        assert chosen(nodes="1")[0] == ["h1"]
        with pytest.raises(GpuctlError, match="only 2 of 4 nodes of the partition main"):
            chosen(nodes="4")
        with pytest.raises(InvalidInput, match=f"h3: not a node of job {number}, in which gpuctl runs"):
            chosen(nodes="h3")
    finally:
        site.ask("scancel", number)
