"""Judge the result of a host: a status for people, findings for reports, an exit code for scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuctl.core.exit_codes import worst
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.engine import failures, needs_reboot
from gpuctl.hosts.model import HostResult

# Differs from the profile without an error: a run, a reboot or a service restart applies the rest.
INCOMPLETE = ("differs", "needs a reboot", "pending")


def status(result: HostResult, *, strict: bool = False) -> str:
    """State of a host in a word or three, such as "changed" or "needs a reboot"."""
    if result.answer is None or result.unreachable:
        return "unreachable" if result.unreachable else "failed"
    if result.wrong or failures(result.knobs, strict=strict):
        return "problems"
    if result.changed:
        return "changed"
    if result.differs:
        return "differs"
    if needs_reboot(result.knobs):
        return "needs a reboot"
    return "pending" if any(knob["state"] == "pending" for knob in result.knobs) else "ok"


def exit_code(results: Sequence[HostResult], *, strict: bool = False, drift: bool = False) -> int:
    """0 without problems; 1 with problems, with `drift` also if a host differs or needs a reboot; 3 if one failed."""
    worse = {"unreachable": 3, "failed": 3, "problems": 1, **dict.fromkeys(INCOMPLETE, int(drift))}
    return worst(worse.get(status(result, strict=strict), 0) for result in results)


def as_dict(result: HostResult, *, strict: bool = False) -> dict[str, object]:
    """JSON form of a result, for reports and the run history."""
    answer = dict(result.answer or {})
    return {
        "host": result.host,
        "status": status(result, strict=strict),
        "error": {"wrong": result.wrong, "hint": result.hint} if result.wrong else None,
        "profile": answer.get("profile") or None,
        "seconds": round(result.seconds, 3),
        "record": answer.get("record") or None,
        "busy": answer.get("busy", []),
        "read_only": answer.get("read_only", False),
        "notes": answer.get("notes", []),
        "machine": answer.get("machine"),
        "knobs": answer.get("knobs", []),
    }


# State of a knob -> verdict; any other state is a FAIL.
_VERDICTS = {
    "ok": Verdict.OK,
    "differs": Verdict.WARN,
    "pending": Verdict.WARN,
    "unsupported": Verdict.WARN,
    "unknown": Verdict.UNKNOWN,
}


def findings(result: HostResult, *, strict: bool = False, drift: bool = False) -> list[Finding]:
    """One finding for each setting, and one for a host without an answer. With `drift`, a difference is a FAIL."""
    host = []
    if result.wrong or result.answer is None:
        verdict = Verdict.UNKNOWN if result.answer is None else Verdict.FAIL
        host = [Finding("host", result.host, verdict, result.wrong or "no answer", hint=result.hint)]
    return host + [_finding(result.host, knob, strict=strict, drift=drift) for knob in result.knobs]


# States that a person has to look at; what differs or was changed is listed with its values instead.
_TO_REPORT = ("refused", "unknown", "failed", "conflict", "unsupported", "pending")


def problems(result: HostResult, *, strict: bool = False, drift: bool = False) -> list[Finding]:
    """Settings that a host refuses, lacks or has not applied yet, and each other owner of a setting."""
    listed = []
    for knob in result.knobs:
        finding = _finding(result.host, knob, strict=strict, drift=drift)
        # What other owners contest is told with them.
        if knob["state"] in _TO_REPORT or (knob["state"] == "contested" and knob["reason"]):
            listed.append(finding)
        verdict = Verdict.WARN if finding.verdict is Verdict.OK else finding.verdict
        listed += [replace(finding, verdict=verdict, message=_rival(rival)) for rival in knob["conflicts"]]
    return listed


def _rival(rival: Mapping[str, Any]) -> str:
    winner = rival["owner"] if rival["wins"] else "gpuctl"
    return f"conflict: {rival['where']} ({rival['owner']}) sets {rival['value']}; {winner} wins after a reboot"


def _finding(host: str, knob: Mapping[str, Any], *, strict: bool, drift: bool) -> Finding:
    state = knob["state"]
    verdict = _VERDICTS.get(state, Verdict.FAIL)
    incomplete = state in ("differs", "pending")
    if (drift and incomplete) or (strict and state == "unsupported"):
        verdict = Verdict.FAIL
    reason = knob["reason"] or ("takes effect after a reboot" if state == "pending" else "")
    differs = f"is {describe_values(knob['now'], knob['boot'])}, should be {knob['desired']}"
    message = {"ok": "changed" if knob["changed"] else "as it should be", "differs": differs}.get(state, state)
    values = {"desired": _text(knob["desired"]), "now": _text(knob["now"]), "after_reboot": _text(knob["boot"])}
    return Finding(f"setting {knob['knob']}", host, verdict, f"{message}: {reason}" if reason else message, values)


def describe_values(now: object, boot: object) -> str:
    """Describe a setting's value now and after a reboot; one value if they are equal, "?" if unknown."""
    if now is None and boot is None:
        return "?"
    if boot is None or now == boot:
        return str(now)
    return f"{boot} after reboot" if now is None else f"{now} now, {boot} after reboot"


def _text(value: object) -> str | None:
    return None if value is None else str(value)
