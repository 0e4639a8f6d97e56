"""A visit to a host as findings, for reports."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.hosts.judge import findings
from gpuctl.hosts.model import Visit


def visit(state: str, **more: Any) -> Visit:
    knob = {"knob": "vm.swappiness", "desired": "1", "now": "60", "boot": None, "state": state, "reason": "", **more}
    return Visit("gpu-1", {"knobs": [{"changed": False, **knob}]})


@pytest.mark.parametrize(
    ("state", "usual", "drift"),
    [
        ("ok", "OK", "OK"),
        ("differs", "WARN", "FAIL"),
        ("pending", "WARN", "FAIL"),
        ("unsupported", "WARN", "WARN"),
        ("unknown", "UNKNOWN", "UNKNOWN"),
        ("failed", "FAIL", "FAIL"),
        ("contested", "FAIL", "FAIL"),
        ("a state to come", "FAIL", "FAIL"),
    ],
)
def test_a_setting_that_is_not_as_wanted_fails_a_drift(state: str, usual: str, drift: str) -> None:
    [plain], [strict] = findings(visit(state)), findings(visit(state), drift=True)
    assert (plain.verdict, strict.verdict) == (usual, drift)
    assert (plain.check, plain.subject) == ("setting vm.swappiness", "gpu-1")
    assert dict(plain.numbers) == {"desired": "1", "now": "60", "after_reboot": None}


def test_a_setting_that_differs_is_told_with_both_values() -> None:
    assert findings(visit("differs"))[0].message == "is 60, should be 1"
    assert findings(visit("differs", boot="10"))[0].message == "is 60 now, 10 after reboot, should be 1"
    assert findings(visit("differs", now=None, boot="10"))[0].message == "is 10 after reboot, should be 1"


def test_what_a_host_cannot_have_fails_only_a_strict_run() -> None:
    assert findings(visit("unsupported"), strict=True)[0].verdict == "FAIL"


def test_a_host_without_an_answer_is_unknown() -> None:
    [finding] = findings(Visit("gpu-2", wrong="no route to host", hint="is it up?", unreachable=True))
    assert (finding.check, finding.verdict, finding.message) == ("host", "UNKNOWN", "no route to host")
