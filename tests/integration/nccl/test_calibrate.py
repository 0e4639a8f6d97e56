"""`gpuctl nccl calibrate` measuring on real hosts with a stand-in for nccl-tests."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.nccl.cluster import Cluster
from tests.integration.nccl.test_command import inventory
from tests.rig.command import Gpuctl, Said

SHORT = ("--gpus-per-node", 2, "-b", "256M", "-e", "1G", "--timeout", 60, "--no-preflight", "--repeats", 3)
OURS = ("--instance", "our-rack", "--network", "efa")
Nodes = Callable[[int], Cluster]


def calibrate(gpuctl: Gpuctl, nodes: Cluster, *words: object) -> Said:
    return gpuctl("nccl", "calibrate", "--inventory", inventory(gpuctl, nodes), *SHORT, *OURS, *words)


def test_a_measured_row_is_kept_and_judges_the_next_run_until_it_is_taken_back(gpuctl: Gpuctl, pair: Cluster) -> None:
    shown = calibrate(gpuctl, pair, "--check")
    assert shown.code == 0, shown.out + shown.err
    assert "would save" in shown.err
    assert own_rows(gpuctl) == []
    kept = calibrate(gpuctl, pair)
    assert kept.code == 0, kept.out + kept.err
    assert kept.out.count("complete") == 3
    finding = judged(gpuctl, pair)
    assert (finding["verdict"], "this site's own" in finding["message"]) == ("OK", True)
    assert gpuctl("nccl", "baselines", "restore").code == 0
    assert own_rows(gpuctl) == []
    assert pair.left() == {}


def test_a_fabric_with_a_fall_back_is_not_taken_for_a_baseline(gpuctl: Gpuctl, pair: Cluster) -> None:
    pair.fabric("tcp h2")
    said = calibrate(gpuctl, pair, "-o", "json")
    assert said.code == 1
    assert (said.json["kept"], len(said.json["repeats"])) == (False, 1), "one bad run is enough"
    assert "socket fallback on h2" in said.json["refused"][0]
    assert not (gpuctl.home / ".config/gpuctl/nccl_baselines.yml").exists()


def own_rows(gpuctl: Gpuctl) -> list[object]:
    """The rows that would judge a run here before any that come with gpuctl."""
    return [row for row in gpuctl("nccl", "baselines", "list", "-o", "json").json if row["site"]]


def judged(gpuctl: Gpuctl, nodes: Cluster) -> dict[str, str]:
    """What the rule for bandwidth says of one more run."""
    words = ("--inventory", inventory(gpuctl, nodes), *SHORT[:-2], *OURS, "-o", "json")
    said = gpuctl("nccl", "run", *words)
    return next(one for one in said.json["findings"] if one["check"] == "baseline")
