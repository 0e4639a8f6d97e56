"""GPUDirect Storage is OK by gdscheck and by counted I/O, never because a package is installed."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.gpu_node import gds_check
from gpuctl.gpu_node.model import Component

REPORT = {"is_verified": True, "supported": ["NVMe"], "is_compat_forced": False, "gpus": 8, "gpus_without": []}
COUNTED = {"reads": 1200, "writes": 40, "active": 0}
PART = Component("gds", "2.26.6-1", "2.26.6-1", changes=False)


def judged(report: Any, counted: Any, gpus: int | None = 8, **unread: str) -> dict[str, str]:
    facts = {"gds": {"check": report, "counters": counted, "unread": unread}}
    return {row.check: f"{row.verdict}: {row.message}" for row in gds_check.judge("n1", PART, facts, gpus)}


def test_both_are_ok_with_a_good_report_and_counted_io() -> None:
    assert judged(REPORT, COUNTED) == {
        "gds": "OK: 2.26.6-1, verified by gdscheck for NVMe",
        "gds path": "OK: nvidia-fs has completed 1200 reads and 40 writes",
    }
    assert judged(REPORT, {**COUNTED, "reads": 0, "writes": 0, "active": 2})["gds path"].startswith("OK: ")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"is_verified": False}, "FAIL: gdscheck does not verify"),
        ({"gpus_without": ["1 NVIDIA H200 does not support GDS"]}, "FAIL: GPUs without support: 1 NVIDIA H200"),
        ({"is_compat_forced": True}, "FAIL: its configuration sends all I/O through host memory"),
        ({"is_compat_forced": None}, "UNKNOWN: gdscheck does not say"),
        ({"supported": []}, "FAIL: gdscheck supports no storage"),
        ({"supported": ["NVMe P2PDMA"]}, "FAIL: gdscheck supports no storage of the host by nvidia-fs"),
        ({"supported": ["Userspace RDMA", "NVMe P2PDMA"]}, "FAIL: gdscheck supports no storage"),
        ({"supported": ["NVMe P2PDMA", "NFS"]}, "OK: 2.26.6-1, verified by gdscheck for NFS"),
        ({"gpus": 7}, "FAIL: gdscheck lists 7 of 8 GPUs"),
        ({"gpus": 9}, "UNKNOWN: gdscheck lists 9 GPUs, the host has 8"),
    ],
)
def test_a_report_that_succeeds_is_judged_by_what_it_says(change: dict[str, Any], expected: str) -> None:
    assert judged({**REPORT, **change}, COUNTED)["gds"].startswith(expected)


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        ({**COUNTED, "reads": 0, "writes": 0}, "counted none since it was loaded"),
        ({"reads": None, "writes": None, "active": 0}, "does not count operations"),
        (None, "stats is missing"),
    ],
)
def test_a_loaded_module_without_io_is_unknown(counted: Any, expected: str) -> None:
    rows = judged(None, counted, check="gdscheck is not installed", counters="stats is missing")
    assert rows["gds"] == "UNKNOWN: nvidia-fs is loaded, gdscheck not read: gdscheck is not installed"
    assert rows["gds path"].startswith("UNKNOWN: direct I/O is not proved: ")
    assert expected in rows["gds path"]


def test_an_unknown_number_of_gpus_is_no_success_and_jobs_are_the_reason_of_an_unread_report() -> None:
    assert judged(REPORT, COUNTED, gpus=None)["gds"].startswith("UNKNOWN: gdscheck lists 8 GPUs")
    assert "jobs run: 3 processes" in judged(None, COUNTED, check="jobs run: 3 processes on GPUs")["gds"]
