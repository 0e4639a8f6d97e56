"""What is on its way, or not deployed yet, is called no cause of a pod that does not start."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuctl.cluster.deploy.cluster_snapshot import Maybe
from gpuctl.cluster.doctor.model import Facts
from gpuctl.cluster.doctor.start import START
from tests.rig.cluster import snapshots as cluster
from tests.rig.cluster.environments import check, event, facts, lines, pending, pod
from tests.unit.cluster.doctor.test_slow import PERSISTENT, with_gpus
from tests.unit.cluster.doctor.test_slow import told as slow

NOW = 1_800_000_000.0


def told(found: Facts, name: str) -> list[str]:
    return lines(check(START, name).run(found))


def test_an_object_that_no_pod_needs_is_no_cause(tmp_path: Path) -> None:
    found = facts(tmp_path, missing=["Ingress lab-vscode", "NetworkPolicy lab"])
    assert all(line.startswith("WARN") for line in told(found, "deployed"))


def test_a_claim_that_waits_for_its_pod_is_well_when_its_event_is_gone(tmp_path: Path) -> None:
    waits = pending("lab-0", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    waits["spec"]["volumes"] = [{"name": "work", "persistentVolumeClaim": {"claimName": "work"}}]
    claim = {"metadata": {"name": "work", "uid": "u"}, "spec": {"storageClassName": "local"}, "status": {}}
    kind = {"metadata": {"name": "local"}, "volumeBindingMode": "WaitForFirstConsumer"}
    snapshot = cluster.there(claims=Maybe([claim]), classes=Maybe([kind]))
    assert told(facts(tmp_path, pods={"lab-0": waits}, snapshot=snapshot), "volumes") == []


def test_a_mount_that_failed_before_the_image_was_pulled_is_past(tmp_path: Path) -> None:
    waits: Any = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    about = pod("lab-0", waits, ready=False)
    failed = event(about, "FailedMount", "MountVolume.SetUp failed: timed out")
    later = {**event(about, "Pulling", "Pulling image", "Normal"), "lastTimestamp": "2026-11-21T10:05:00Z"}
    assert told(facts(tmp_path, pods={"lab-0": about}, events=[failed]), "volumes")[0].startswith("FAIL")
    assert told(facts(tmp_path, pods={"lab-0": about}, events=[failed, later]), "volumes") == []


def test_a_container_that_began_a_moment_ago_is_given_time(tmp_path: Path) -> None:
    began = datetime.fromtimestamp(NOW - 12, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = pod("lab-0", {"state": {"running": {"startedAt": began}}}, ready=False)
    young = told(facts(tmp_path, pods={"lab-0": about}, now=NOW), "ready")
    assert young == ["UNKNOWN Pod lab-0: it started 12 s ago, and is not ready yet"]


def test_links_that_are_narrow_in_all_machines_are_made_so(tmp_path: Path) -> None:
    narrow = PERSISTENT.replace("<current_link_width>16x", "<current_link_width>8x")
    assert slow(with_gpus(tmp_path, narrow, narrow), "pcie")[0].startswith("WARN")
    assert slow(with_gpus(tmp_path, narrow), "pcie")[0].startswith("FAIL")
