"""`gpuctl nccl run` and `isolate` on a real Slurm, as a user types them."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from tests.integration.nccl.slurm.site import Site
from tests.rig.command import Gpuctl, Said

SMALL = ("--gpus-per-node", 2, "-b", "8M", "-e", "256M")


class Nccl:
    """`gpuctl nccl` where Slurm is."""

    def __init__(self, site: Site, gpuctl: Gpuctl) -> None:
        self.site, self.gpuctl = site, gpuctl

    def words(self, *words: object) -> tuple[object, ...]:
        """The whole command after its name."""
        return ("nccl", *words, "--slurm", *SMALL, "--search-path", self.site.programs)

    def __call__(self, *words: object) -> Said:
        return self.gpuctl(*self.words(*words), **self.site.environment)


@pytest.fixture
def nccl(site: Site, gpuctl: Gpuctl) -> Nccl:
    """`nccl("run", "-k", "pairs")`: on Slurm, with the tests that it has."""
    return Nccl(site, gpuctl)


def test_a_run_over_all_nodes_is_judged_and_nothing_is_left(site: Site, nccl: Nccl) -> None:
    said = nccl("run", "-o", "json", "-n", 3, "-d", "half", "-I")
    assert said.code == 0, said.err
    (launch,) = said.json["launches"]
    last = launch["run"]["rows"][-1]
    assert (last["type"], bool(last["out_of_place"]["per_iteration"])) == ("half", True)
    assert launch["nodes"] == ["h1", "h2", "h3", "h4"]
    assert launch["run"]["outcome"] == "complete"
    assert site.queue() == ""


def test_a_drained_node_is_left_out_of_the_pairs_and_named(site: Site, nccl: Nccl) -> None:
    site.ask("scontrol", "update", "nodename=h4", "state=drain", "reason=bad DIMM")
    try:
        said = nccl("run", "-k", "pairs", "-o", "json")
    finally:
        site.ask("scontrol", "update", "nodename=h4", "state=resume")
    assert "h4 is left out: it is drained (bad DIMM)" in said.err
    assert len(said.json["launches"]) == 3
    assert not any("h4" in launch["nodes"] for launch in said.json["launches"])


def accused(said: Said) -> list[str]:
    """The nodes that a table of `isolate` names as bad."""
    return [line.partition(":")[0].split()[-1] for line in said.out.splitlines() if line.startswith("FAIL")]


def test_the_node_with_a_slow_adapter_is_found(site: Site, nccl: Nccl) -> None:
    site.fabric("slow h3 3 0.5")
    said = nccl("isolate")
    assert said.code == 1
    assert accused(said) == ["h3"]
    assert "the other 3 nodes together" in said.out
    assert site.queue() == ""


def test_the_node_that_hangs_is_found(site: Site, nccl: Nccl) -> None:
    site.fabric(f"hang h3 {64 << 20}")
    said = nccl("isolate", "--timeout", 6)
    assert said.code == 1
    assert accused(said) == ["h3"]
    assert site.queue() == ""


def test_what_cannot_be_used_is_refused_and_nothing_is_touched(site: Site, nccl: Nccl) -> None:
    before = site.ask("squeue", "-h", "--states=all")
    said = nccl("run", "--partition", "nosuch")
    assert (said.code, said.err.splitlines()[0]) == (
        2,
        "gpuctl: cannot select Slurm nodes: there is no partition nosuch",
    )
    assert nccl("run", "--via", "ssh").code == 2
    assert site.ask("squeue", "-h", "--states=all") == before


def test_ctrl_c_leaves_nothing(site: Site, nccl: Nccl) -> None:
    site.fabric("pace_ms 1500")
    running = nccl.gpuctl.start(*nccl.words("run"), stderr=subprocess.PIPE, **site.environment)
    end = time.monotonic() + 30
    while not site.tests_on("h4") and time.monotonic() < end:
        time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    assert nccl.gpuctl.said(running).code == 130
    assert site.queue() == ""
    assert not any(site.tests_on(node) for node in ("h1", "h2", "h3", "h4"))
