"""What a visit comes to: one word for a person, one exit code for a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.domain.findings import Finding, Verdict, worst_code
from gpuctl.engine import failures, needs_reboot
from gpuctl.hosts.model import Visit

# Not as the profile wants it, and nothing is wrong: a run, a reboot or a restart of a service will do it.
NOT_YET = ("differs", "needs a reboot", "waits")


def status(visit: Visit, strict: bool = False) -> str:
    """One word: how a host stands."""
    if visit.answer is None or visit.unreachable:
        return "unreachable" if visit.unreachable else "failed"
    if visit.wrong or failures(visit.knobs, strict):
        return "problems"
    if visit.changed:
        return "changed"
    if visit.differs:
        return "differs"
    if needs_reboot(visit.knobs):
        return "needs a reboot"
    return "waits" if any(knob["state"] == "pending" for knob in visit.knobs) else "ok"


def exit_code(visits: list[Visit], strict: bool = False, drift: bool = False) -> int:
    """0 all well, 1 problems (with `drift` also where one differs or needs a reboot), 3 where one could not do it."""
    worse = {"unreachable": 3, "failed": 3, "problems": 1, **dict.fromkeys(NOT_YET, int(drift))}
    return worst_code(worse.get(status(visit, strict), 0) for visit in visits)


def told(visit: Visit, strict: bool = False) -> dict[str, object]:
    """A host as it goes into JSON and into the record of a run."""
    answer = dict(visit.answer or {})
    return {
        "host": visit.host,
        "status": status(visit, strict),
        "error": {"wrong": visit.wrong, "hint": visit.hint} if visit.wrong else None,
        "profile": answer.get("profile") or None,
        "seconds": round(visit.seconds, 3),
        "record": answer.get("record") or None,
        "busy": answer.get("busy", []),
        "read_only": answer.get("read_only", False),
        "notes": answer.get("notes", []),
        "machine": answer.get("machine"),
        "knobs": answer.get("knobs", []),
    }


# Severity of a knob's state; those not named are failures.
_SEVERITY = {
    "ok": Verdict.OK,
    "differs": Verdict.WARN,
    "pending": Verdict.WARN,
    "unsupported": Verdict.WARN,
    "unknown": Verdict.UNKNOWN,
}


def findings(visit: Visit, strict: bool = False, drift: bool = False) -> list[Finding]:
    """One finding a setting, and one for a host without an answer. With `drift` a setting not as wanted is a FAIL."""
    host = []
    if visit.wrong or visit.answer is None:
        verdict = Verdict.UNKNOWN if visit.answer is None else Verdict.FAIL
        host = [Finding("host", visit.host, verdict, visit.wrong or "it gave no answer", hint=visit.hint)]
    return host + [_finding(visit.host, knob, strict, drift) for knob in visit.knobs]


def _finding(host: str, knob: Mapping[str, Any], strict: bool, drift: bool) -> Finding:
    state = knob["state"]
    verdict = _SEVERITY.get(state, Verdict.FAIL)
    waits = state in ("differs", "pending")
    if (drift and waits) or (strict and state == "unsupported"):
        verdict = Verdict.FAIL
    reason = f": {knob['reason']}" if knob["reason"] else ""
    differs = f"is {sides(knob['now'], knob['boot'])}, should be {knob['desired']}"
    message = {"ok": "changed" if knob["changed"] else "as it should be", "differs": differs}.get(state, state)
    values = {"desired": _text(knob["desired"]), "now": _text(knob["now"]), "after_reboot": _text(knob["boot"])}
    return Finding(f"setting {knob['knob']}", host, verdict, f"{message}{reason}", values)


def sides(now: object, boot: object) -> str:
    """The value of a setting now and after a reboot, once if they are the same."""
    if now is None and boot is None:
        return "?"
    if boot is None or now == boot:
        return str(now)
    return f"{boot} after reboot" if now is None else f"{now} now, {boot} after reboot"


def _text(value: object) -> str | None:
    return None if value is None else str(value)
