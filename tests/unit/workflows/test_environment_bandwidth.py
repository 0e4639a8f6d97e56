"""The bandwidth baseline of an environment: measured once, compared with later, never replaced silently."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from gpuctl.cluster.access import PodAccess
from gpuctl.cluster.environment import EnvironmentRequest, environment
from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.edges.kube.api import Client
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.library import Configuration
from gpuctl.nccl.model import Launch, LaunchResult
from gpuctl.workflows import environment_bandwidth as bandwidth
from gpuctl.workflows.environment_bandwidth import Measurement
from gpuctl.workflows.nccl_targets.model import NodeAccess
from tests.rig.cluster.files import cluster
from tests.rig.nccl.builders import ended

PODS = ["lab-0 on gpu-1", "lab-1 on gpu-2", "lab-2 on gpu-3", "lab-3 on gpu-4"]


class Fabric:
    """Runs launches at 100 GB/s, and those of some pods at other speeds, one after the other."""

    def __init__(self, slow: Mapping[frozenset[str], Sequence[float | None]] | None = None) -> None:
        self.slow = {pods: iter(speeds) for pods, speeds in (slow or {}).items()}
        self.launches: list[Launch] = []

    def run(self, launches: Sequence[Launch], listener: object, broken_off: Callable[[], bool]) -> list[LaunchResult]:
        self.launches += launches
        return [ended(*launch.nodes, busbw=self._speed(launch)) for launch in launches]

    def _speed(self, launch: Launch) -> float | None:
        speeds: Iterator[float | None] | None = self.slow.get(frozenset(launch.nodes))
        return next(speeds) if speeds else 100.0


@pytest.fixture
def access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PodAccess:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    env = environment(cluster(tmp_path), EnvironmentRequest(nodes=4))
    return PodAccess(Cluster(Client(Configuration()), "team", patience_s=0), env, "")


def measured(access: PodAccess, fabric: Fabric, pods: Sequence[str] = PODS) -> tuple[Measurement, list[Finding]]:
    """Measure; of the findings, those of the comparison and of pairs with each other."""
    nodes = NodeAccess(fabric, list(pods), "lab", {})
    measurement = bandwidth.prepare(access, "tcp", pods)
    bandwidth.run(measurement, nodes, lambda *_: None, lambda: False)
    return measurement, [one for one in bandwidth.judge(measurement, nodes) if one.check in ("bandwidth", "pairs")]


def test_every_pair_is_measured_once_with_the_ring_and_becomes_the_baseline(access: PodAccess) -> None:
    fabric = Fabric()
    measurement, findings = measured(access, fabric)
    assert len({frozenset(launch.nodes) for launch in fabric.launches}) == len(fabric.launches) == 6
    assert {launch.sweep.env["NCCL_ALGO"] for launch in fabric.launches} == {"Ring"}
    assert {one.verdict for one in findings} == {Verdict.OK}
    path = bandwidth.baseline_file(access)
    assert bandwidth.save_baseline(access, measurement, findings, overwrite=False) == f"6 values in {path}"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert bandwidth.load(path) == measurement.table


def test_one_slow_run_is_chance_and_two_are_a_finding_that_changes_no_baseline(access: PodAccess) -> None:
    first, findings = measured(access, Fabric())
    bandwidth.save_baseline(access, first, findings, overwrite=False)
    suspects = frozenset(PODS[:2])
    fabric = Fabric({suspects: [80.0, 99.0]})
    _, findings = measured(access, fabric)
    assert (len(fabric.launches), {one.verdict for one in findings}) == (7, {Verdict.OK})
    second, findings = measured(access, Fabric({suspects: [80.0, 81.0]}))
    slow = next(one for one in findings if one.check == "bandwidth")
    assert (slow.subject, slow.verdict) == ("gpu-1 and gpu-2", Verdict.FAIL)
    assert bandwidth.save_baseline(access, second, findings, overwrite=False) == ""
    assert bandwidth.load(bandwidth.baseline_file(access)) == first.table
    assert bandwidth.save_baseline(access, second, findings, overwrite=True)
    assert bandwidth.load(bandwidth.baseline_file(access)) == second.table


def test_a_faulty_or_incomplete_first_measurement_is_no_baseline(access: PodAccess) -> None:
    measurement, findings = measured(access, Fabric({frozenset(PODS[:2]): [None]}))
    assert Verdict.UNKNOWN in [one.verdict for one in findings]
    assert bandwidth.save_baseline(access, measurement, findings, overwrite=True) == ""
    whole, _ = measured(access, Fabric())
    assert bandwidth.save_baseline(access, whole, [Finding("corruption", "gpu-1", Verdict.FAIL)], overwrite=False) == ""
    assert not bandwidth.baseline_file(access).exists()


def test_one_pod_is_measured_alone(access: PodAccess) -> None:
    fabric = Fabric()
    measurement, findings = measured(access, fabric, PODS[:1])
    assert [launch.nodes for launch in fabric.launches] == [(PODS[0],)]
    assert measurement.table.busbw_gbs == {("gpu-1",): 100.0}
    assert findings[0].message == "1 node of gpu-1 without a baseline so far"


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "gpuctl.bandwidth/9"}', "\xff", "[" * 50_000])
def test_a_damaged_baseline_is_refused_before_anything_runs(access: PodAccess, text: str) -> None:
    path = bandwidth.baseline_file(access)
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput, match="it is damaged") as refused:
        bandwidth.prepare(access, "tcp", PODS)
    assert refused.value.hint == "delete the file to measure a new one"
