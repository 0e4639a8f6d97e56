"""What nvidia-smi of several drivers tells, whose log is read, and which trouble a state suggests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.doctor import gpus, read
from gpuctl.cluster.doctor.diagnose import run_checks
from gpuctl.cluster.doctor.flow import suggested
from gpuctl.cluster.doctor.model import PodFacts, as_dict
from gpuctl.cluster.doctor.start import START
from gpuctl.domain.findings import group_by_subject, warn
from tests.rig.cluster.environments import DATA, facts, pod
from tests.rig.recordings import recording


def of(name: str) -> gpus.Gpus:
    """GPUs in an excerpt of ours, or in a recording: of these the name begins with x_."""
    path = recording(f"nvidia-smi/{name}.xml") if name.startswith("x_") else DATA / f"nvidia-smi/{name}.xml"
    return gpus.gpus_of(PodFacts({"gpu": {"xml": path.read_text()}}))


@pytest.mark.parametrize(
    ("name", "count", "watts_and_mhz", "link"),
    [
        ("570-h100-8gpu", 8, (68.4, 700.0, 345.0), (4.0, 4.0, 16.0, 16.0)),
        ("510-a100-mig", 1, (58.21, 400.0, 1095.0), (4.0, 4.0, 16.0, 16.0)),
        ("516-rtx3070-desktop", 1, (21.3, 240.0, 420.0), (3.0, 4.0, 8.0, 16.0)),
        ("x_h100_8g_driver570", 8, (70.93, 700.0, 345.0), (4.0, 4.0, 16.0, 16.0)),
        ("x_a100-sxm4-mig", 1, (66.92, 400.0, 1410.0), (4.0, 4.0, 16.0, 16.0)),
        ("x_rtx-2080-win", 1, (14.5, 275.0, 193.0), (3.0, 3.0, 8.0, 16.0)),
    ],
)
def test_power_clocks_and_links_are_read_of_every_driver(
    name: str, count: int, watts_and_mhz: tuple[float, ...], link: tuple[float, ...]
) -> None:
    found = of(name)
    first = found.gpus[0]
    assert len(found.gpus) == count
    assert (first.power_w, first.limit_w, first.sm_mhz) == watts_and_mhz
    assert (first.link_gen, first.most_gen, first.link_width, first.most_width) == link


def test_what_is_no_whole_answer_is_reported_with_the_reason() -> None:
    cut = gpus.gpus_of(PodFacts({"gpu": {"xml": "<nvidia_smi_log><gpu>"}}))
    assert cut.gpus == ()
    assert "no whole XML" in cut.why
    assert gpus.gpus_of(PodFacts(why="it cannot be probed")).why == "it cannot be probed"
    late = gpus.gpus_of(PodFacts({"gpu": {"unread": {"*": "no answer within 30 s"}}}))
    assert late.why == "no answer within 30 s"


def statuses(**states: Any) -> dict[str, Any]:
    found = pod("lab-0")
    found["status"] |= {
        "initContainerStatuses": [{"name": "prepare", **states["prepare"]}],
        "containerStatuses": [{"name": "ml", **states["ml"]}],
    }
    return found


@pytest.mark.parametrize(
    ("prepare", "ml", "chosen"),
    [
        ({"ready": True, "state": {"terminated": {"exitCode": 0}}}, {"state": {"running": {}}}, ("ml", False)),
        (
            {"ready": True, "state": {"terminated": {}}},
            {"state": {"running": {}}, "lastState": {"terminated": {}}, "restartCount": 1},
            ("ml", True),
        ),
        ({"ready": False, "state": {"terminated": {"exitCode": 1}}}, {"state": {"waiting": {}}}, ("prepare", False)),
        ({"ready": False, "state": {"waiting": {}}}, {"state": {"waiting": {}}}, None),
    ],
    ids=["runs", "runs again", "stopped by the first", "not yet"],
)
def test_the_log_is_that_of_the_container_that_tells_most(prepare: Any, ml: Any, chosen: Any) -> None:
    assert read._has_run(statuses(prepare=prepare, ml=ml)) == chosen


def test_of_a_log_that_is_all_progress_bars_only_the_last_is_kept() -> None:
    bars = "\r".join(f"{n}%|####" for n in range(5000))
    found = read.parse_log([f"2027-01-15T08:00:00Z {bars}", *("x" * 3000 for _ in range(100)), "the last"])
    assert found.lines[-1] == "the last"
    assert sum(map(len, found.lines)) <= read.MOST_TEXT
    assert len(found.times) == len(found.lines)
    assert read.parse_log([bars]).lines == ["4999%|####"]
    assert read.parse_log([]).lines == []


def test_the_state_of_the_pods_suggests_the_trouble(tmp_path: Path) -> None:
    assert suggested(facts(tmp_path)) == ["hang", "slow"]
    assert suggested(facts(tmp_path, pods={"lab-0": pod("lab-0")})) == ["start"]
    assert suggested(facts(tmp_path, mode=None)) == ["start"]


def test_pods_with_the_same_trouble_are_reported_together() -> None:
    (one, other) = group_by_subject(
        [warn("a", "Pod x", "w"), warn("a", "Pod y", "w"), warn("a", "Pod y", "w"), warn("a", "z", "v")]
    )
    assert (one.subject, other.subject) == ("Pods x, y", "z")


def test_a_diagnosis_is_plain_data(tmp_path: Path) -> None:
    found = as_dict(run_checks(START, facts(tmp_path, mode=None, owner=None, pods={})))
    assert (found["trouble"], found["verdict"]) == ("start", "FAIL")
    assert found["cause"][0]["verdict"] == "FAIL"
    assert found["checked"][0] == "deployed"
