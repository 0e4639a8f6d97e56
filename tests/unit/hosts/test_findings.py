"""The result of a host as findings, for reports."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.hosts.judge import findings, problems
from gpuctl.hosts.model import HostResult


def result(state: str, **more: Any) -> HostResult:
    knob = {"knob": "vm.swappiness", "desired": "1", "now": "60", "boot": None, "state": state, "reason": "", **more}
    return HostResult("gpu-1", {"knobs": [{"changed": False, **knob}]})


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
def test_a_setting_that_differs_fails_a_drift(state: str, usual: str, drift: str) -> None:
    [plain], [strict] = findings(result(state)), findings(result(state), drift=True)
    assert (plain.verdict, strict.verdict) == (usual, drift)
    assert (plain.check, plain.subject) == ("setting vm.swappiness", "gpu-1")
    assert dict(plain.numbers) == {"desired": "1", "now": "60", "after_reboot": None}


def test_a_setting_that_differs_names_both_values() -> None:
    assert findings(result("differs"))[0].message == "is 60, should be 1"
    assert findings(result("differs", boot="10"))[0].message == "is 60 now, 10 after reboot, should be 1"
    assert findings(result("differs", now=None, boot="10"))[0].message == "is 10 after reboot, should be 1"


def test_an_unsupported_setting_fails_only_a_strict_run() -> None:
    assert findings(result("unsupported"), strict=True)[0].verdict == "FAIL"


def test_a_host_without_an_answer_is_unknown() -> None:
    [finding] = findings(HostResult("gpu-2", wrong="no route to host", hint="is it up?", unreachable=True))
    assert (finding.check, finding.verdict, finding.message) == ("host", "UNKNOWN", "no route to host")


def test_problems_are_what_a_person_looks_at_with_other_owners_of_the_setting() -> None:
    assert problems(result("differs", conflicts=[])) == []
    [pending] = problems(result("pending", conflicts=[]))
    assert (pending.verdict, pending.message) == ("WARN", "pending: takes effect after a reboot")
    rival = {"owner": "tuned", "where": "/etc/tuned/active_profile", "value": "30"}
    [ours] = problems(result("ok", conflicts=[{**rival, "wins": False}]))
    [theirs] = problems(result("contested", conflicts=[{**rival, "wins": True}]))
    assert (ours.verdict, ours.message) == (
        "WARN",
        "conflict: /etc/tuned/active_profile (tuned) sets 30; gpuctl wins after a reboot",
    )
    assert (theirs.verdict, theirs.message.endswith("tuned wins after a reboot")) == ("FAIL", True)


def test_a_contested_setting_without_another_owner_tells_its_reason() -> None:
    [lost] = problems(result("contested", conflicts=[], reason="it is lost at the next boot"))
    assert (lost.verdict, lost.message) == ("FAIL", "contested: it is lost at the next boot")
