"""Reports: the documented JSON, JUnit XML that CI systems read, and metrics that Prometheus reads."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuctl.domain import report as forms
from gpuctl.domain.findings import (
    Finding,
    Verdict,
    exit_code,
    fail,
    group_by_subject,
    majority,
    ok,
    overall,
    problems,
    unknown,
    warn,
)
from gpuctl.domain.report import Report
from tests.rig.reports import valid_json, valid_junit, valid_metrics, valid_metrics_of_files

FINDINGS = (
    fail("driver", "gpu-3", "580.65.06, 7 of 8 nodes have 580.95.05", "upgrade it", agree=7),
    unknown("ecc", "gpu-4", "nvidia-smi: [GPU requires reset]"),
    warn("clocks", "gpu-5", "power cap 600 W", power_w=600.5),
    ok("names", "", "resolve both ways"),
)


RUN = {"command": "nccl preflight", "target": "prod"}


def report(**more: Any) -> Report:
    return Report("nccl preflight", {"prod": FINDINGS}, {"nodes": ["gpu-3"]}, **more)


def test_the_json_form_fits_its_schema_and_names_the_worst() -> None:
    document = valid_json(json.dumps(forms.as_dict(report())))
    assert (document["verdict"], document["exit_code"], document["nodes"]) == ("FAIL", 1, ["gpu-3"])
    assert document["findings"][0] == {
        "target": "prod",
        "check": "driver",
        "subject": "gpu-3",
        "verdict": "FAIL",
        "message": "580.65.06, 7 of 8 nodes have 580.95.05",
        "numbers": {"agree": 7},
        "hint": "upgrade it",
        "source": "",
    }


def test_a_finding_comes_back_from_its_json() -> None:
    assert [Finding.from_dict(json.loads(json.dumps(finding.as_dict()))) for finding in FINDINGS] == list(FINDINGS)


def test_junit_has_a_case_for_each_check_and_subject() -> None:
    group = "gpuctl.nccl.preflight"
    assert valid_junit(forms.junit(report(seconds=1.5))) == {
        (f"{group}.driver", "gpu-3"): "failure",
        (f"{group}.ecc", "gpu-4"): "error",
        (f"{group}.clocks", "gpu-5"): "passed",
        (f"{group}.names", "names"): "passed",
    }
    assert valid_junit(forms.junit(report(strict=True)))[f"{group}.clocks", "gpu-5"] == "failure"


def test_junit_times_of_all_suites_sum_up_to_the_commands() -> None:
    for targets in (["prod"], ["prod", "lab"]):
        text = forms.junit(Report("audit", dict.fromkeys(targets, FINDINGS), seconds=1.5))
        valid_junit(text)
        root = ElementTree.fromstring(text)  # noqa: S314 - our own output
        assert root.attrib["time"] == "1.500"
        assert sum(float(suite.attrib.get("time", 0)) for suite in root) in (0, 1.5)
    assert [suite.attrib.get("time") for suite in root] == [None, None]


def test_a_ci_system_that_splits_class_names_at_the_last_dot_shows_command_and_check() -> None:
    made = forms.junit(Report("drift", {"prod": [fail("setting sysctl.vm.swappiness", "gpu-3", "60")]}))
    [(classname, name)] = valid_junit(made)
    package, _, shown = classname.rpartition(".")
    assert (package, shown, name) == ("gpuctl.drift", "setting sysctl_vm_swappiness", "gpu-3")


def test_metrics_have_severities_values_counts_and_times() -> None:
    samples = valid_metrics(forms.metrics(report(), 1763900000.5))
    severity = {(labels["check"], labels["subject"]): value for labels, value in samples["gpuctl_check_severity"]}
    assert severity == {("driver", "gpu-3"): 3, ("ecc", "gpu-4"): 2, ("clocks", "gpu-5"): 1, ("names", ""): 0}
    assert ({**RUN, "verdict": "unknown"}, 1.0) in samples["gpuctl_findings"]
    values = [(labels["value"], value) for labels, value in samples["gpuctl_check_value"]]
    assert sorted(values) == [("agree", 7.0), ("power_w", 600.5)]
    assert samples["gpuctl_last_run_timestamp_seconds"] == [(RUN, 1763900000.5)]
    assert samples["gpuctl_last_run_exit_code"] == [(RUN, 1.0)]


def test_a_subject_with_two_findings_of_a_check_has_one_sample_the_worst() -> None:
    twice = Report("drift", {"": [fail("swap", "a", "on"), ok("swap", "a"), warn("swap", "a", "zram")]})
    [(labels, value)] = valid_metrics(forms.metrics(twice, 1.0))["gpuctl_check_severity"]
    assert (labels["subject"], value) == ("a", 3.0)


def test_files_of_two_runs_with_different_targets_share_no_series() -> None:
    prod, lab = (Report("drift", {target: [fail("swap", "a", "on", size_gib=0.8)]}) for target in ("prod", "lab"))
    samples = valid_metrics_of_files(forms.metrics(prod, 1.0), forms.metrics(lab, 2.0))
    assert {len(rows) for name, rows in samples.items() if name != "gpuctl_findings"} == {2}
    failed = {labels["target"]: value for labels, value in samples["gpuctl_findings"] if labels["verdict"] == "fail"}
    assert failed == {"prod": 1, "lab": 1}


def test_files_of_two_runs_with_the_same_target_are_rejected() -> None:
    drift = forms.metrics(Report("drift", {"prod": []}), 1.0)
    with pytest.raises(AssertionError, match="has duplicates"):
        valid_metrics_of_files(drift, drift)


def test_each_target_of_a_report_has_its_own_counts() -> None:
    logs = Report("nccl judge", {"a.log": [fail("corruption", "4 MiB", "wrong")], "b.log": []})
    samples = valid_metrics(forms.metrics(logs, 1.0))
    failed = {labels["target"]: value for labels, value in samples["gpuctl_findings"] if labels["verdict"] == "fail"}
    assert failed == {"a.log": 1, "b.log": 0}
    assert [labels["target"] for labels, _ in samples["gpuctl_last_run_exit_code"]] == ["a.log", "b.log"]


@pytest.mark.parametrize(
    ("number", "text"), [(0.8, "0.8"), (1e16, "1e+16"), (7, "7"), (float("inf"), "+Inf"), (float("nan"), "NaN")]
)
def test_numbers_are_printed_as_short_as_they_are_exact(number: float, text: str) -> None:
    made = forms.metrics(Report("drift", {"prod": [fail("swap", "a", "on", size_gib=number)]}), 1.0)
    assert f'value="size_gib"}} {text}\n' in made
    valid_metrics(made)


def test_a_number_that_was_not_measured_has_no_sample() -> None:
    silent = Report("drift", {"": [unknown("bandwidth", "a", "not printed", busbw_gbs=None, network="efa")]})
    assert "gpuctl_check_value" not in valid_metrics(forms.metrics(silent, 1.0))


def test_a_report_without_findings_is_unknown_and_still_valid() -> None:
    empty = Report("drift", {})
    assert valid_json(json.dumps(forms.as_dict(empty)))["verdict"] == "UNKNOWN"
    assert valid_junit(forms.junit(empty)) == {}
    assert "gpuctl_check_severity" not in valid_metrics(forms.metrics(empty, 1.0))


TEXT = st.text(max_size=20)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT, TEXT, st.sampled_from(Verdict)), max_size=4))
def test_any_text_of_a_host_gives_valid_reports(rows: list[tuple[str, str, str, Verdict]]) -> None:
    findings = [Finding(check, subject, verdict, message) for check, subject, message, verdict in rows]
    made = Report("drift", {"prod": findings})
    assert len(valid_json(json.dumps(forms.as_dict(made)))["findings"]) == len(findings)
    valid_junit(forms.junit(made))
    valid_metrics(forms.metrics(made, 1.0))


@pytest.mark.parametrize(
    ("verdicts", "code", "strict"), [([], 0, 0), (["OK", "WARN"], 0, 1), (["UNKNOWN", "OK"], 1, 1), (["FAIL"], 1, 1)]
)
def test_exit_codes_follow_the_worst(verdicts: list[str], code: int, strict: int) -> None:
    findings = [Finding("c", "s", Verdict(verdict)) for verdict in verdicts]
    assert (exit_code(findings), exit_code(findings, strict=True)) == (code, strict)
    assert len(problems(findings)) == sum(verdict in ("FAIL", "UNKNOWN") for verdict in verdicts)


def test_nothing_checked_is_unknown() -> None:
    assert overall([]) is Verdict.UNKNOWN


def test_subjects_of_the_same_finding_are_grouped() -> None:
    grouped = group_by_subject([fail("gpu", "Pod a", "lost"), fail("gpu", "Pod b", "lost"), ok("net", "Pod a")])
    assert [(finding.check, finding.subject) for finding in grouped] == [("gpu", "Pods a, b"), ("net", "Pod a")]


def test_a_majority_names_those_that_differ_and_two_sides_accuse_nobody() -> None:
    assert majority({"a": 8, "b": 8, "c": 7, "d": None}).odd == {"c": 7}
    even = majority({"a": 8, "b": 7})
    assert (dict(even.odd), dict(even.sides)) == ({}, {8: ["a"], 7: ["b"]})
