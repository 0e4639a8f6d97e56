"""Metrics of a repeated audit: a stale result is never OK, and says how old it is."""

from __future__ import annotations

import pytest

from gpuctl.audit.scrape import Latest, metrics
from gpuctl.domain.findings import fail, ok, warn
from gpuctl.domain.report import Report

REPORT = Report(
    "audit",
    {"prod": [fail("xid", "gpu-1", "Xid 79", gpus=1), warn("clocks", "gpu-2", "capped"), ok("pcie", "")]},
    {"nodes": ["gpu-1", "gpu-2"]},
    code=1,
)
NOW = 1_790_000_000.0
DONE = Latest(700.0).with_report(REPORT, NOW, 3.5)


def values(latest: Latest, now: float) -> dict[str, str]:
    rows = [line.rsplit(" ", 1) for line in metrics(latest, now).splitlines() if not line.startswith("#")]
    return dict(rows)


def severity(check: str, subject: str = "") -> str:
    return f'gpuctl_check_severity{{command="audit",target="prod",check="{check}",subject="{subject}"}}'


def test_a_fresh_result_has_its_findings_and_its_time() -> None:
    rows = values(DONE, NOW + 300)
    assert (rows["gpuctl_audit_stale"], rows["gpuctl_audit_stale_after_seconds"]) == ("0.0", "700.0")
    assert float(rows["gpuctl_audit_last_success_timestamp_seconds"]) == NOW
    assert (rows[severity("pcie")], rows[severity("xid", "gpu-1")]) == ("0", "3")


@pytest.mark.parametrize("now", [NOW + 701, NOW - 3600])
def test_a_stale_result_is_never_ok_and_keeps_its_faults(now: float) -> None:
    rows = values(DONE, now)
    assert rows["gpuctl_audit_stale"] == "1.0"
    assert float(rows["gpuctl_audit_last_success_timestamp_seconds"]) == NOW
    found = {name: row for name, row in rows.items() if name.startswith("gpuctl_check_severity")}
    assert "0" not in found.values()
    assert (found[severity("pcie")], found[severity("xid", "gpu-1")], found[severity("audit")]) == ("2", "3", "2")
    assert not any(name.startswith("gpuctl_check_value") for name in rows)


def test_an_all_ok_result_has_no_exit_code_0_once_it_is_stale() -> None:
    latest = Latest(700.0).with_report(Report("audit", {"prod": [ok("pcie", "")]}, code=0), NOW, 1)
    name = 'gpuctl_last_run_exit_code{command="audit",target="prod"}'
    assert (values(latest, NOW)[name], values(latest, NOW + 701)[name]) == ("0", "1")


def test_before_the_first_audit_there_is_no_time_and_no_finding() -> None:
    assert values(Latest(700.0).with_failure(), NOW) == {
        "gpuctl_audit_stale": "1.0",
        "gpuctl_audit_stale_after_seconds": "700.0",
        "gpuctl_audit_runs_total": "1.0",
        "gpuctl_audit_failures_total": "1.0",
    }


def test_a_failed_audit_leaves_the_result_before_it() -> None:
    rows = values(DONE.with_failure(), NOW + 300)
    assert (rows["gpuctl_audit_failures_total"], rows["gpuctl_audit_runs_total"]) == ("1.0", "2.0")
    assert rows[severity("pcie")] == "0"
