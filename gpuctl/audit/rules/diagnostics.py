"""Rule on the results of DCGM's diagnosis: a test that did not run has not passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, Verdict, ok, unknown
from gpuctl.domain.gpu_errors import DcgmError
from gpuctl.domain.node_facts import Facts, Fleet, get, unread, why

CHECK = "dcgm"
PERSISTENCE = 29  # a healthy machine without persistence mode fails level 1 with it
SHOWN = 240
# What to do by the severity of an error (dcgm_errors.h); error_severity has these as numbers.
ACTIONS = {
    "MONITOR": "watch it; run the diagnosis again",
    "ISOLATE": "drain the node; run the field diagnostic, and have the part replaced if it fails",
    "UNKNOWN": "drain the node; run dcgmi diag -r 3 alone, and contact support if it fails again",
    "TRIAGE": "drain the node and investigate: kernel messages for Xids, then the field diagnostic",
    "CONFIG": "correct the configuration, and run the diagnosis again",
    "RESET": "drain it and reset the GPU (nvidia-smi --gpu-reset), or reboot; run the diagnosis again",
}
AGAIN = "run it again, and look at /var/log/nvidia-dcgm"
EXIT_CODES = {198: "no test is available", 203: "it was killed", 204: "the diagnosis' program is missing",
              205: "a GPU is to be isolated", 226: "it ran, and a test failed"}  # fmt: skip
MOST_NOTES = 16  # DCGM 4 prints no more of a run (NVIDIA/DCGM#215): numbers of later GPUs are missing
SEVERITIES = {1: "MONITOR", 2: "ISOLATE", 3: "UNKNOWN", 4: "TRIAGE", 5: "CONFIG", 6: "RESET"}
VERDICTS = {"pass": Verdict.OK, "warn": Verdict.WARN, "fail": Verdict.FAIL, "skip": Verdict.OK}
Errors = Mapping[int, DcgmError]


def diagnostics(fleet: Fleet, errors: Errors) -> list[Finding]:
    """Findings for every node with a diagnosis, never none."""
    return [finding for node, facts in fleet.items() for finding in _node(node, facts, errors)]


def _node(node: str, facts: Facts, errors: Errors) -> Iterator[Finding]:
    tests, error = get(facts, "dcgm", "tests"), get(facts, "dcgm", "error")
    if error:
        hint = "check `systemctl status nvidia-dcgm` and `dcgmi discovery -l`"
        yield unknown(CHECK, node, f"its diagnosis has no result: {error[:SHOWN]}", hint)
    if tests is None:
        yield unread(CHECK, node, "the result of its diagnosis is", why(facts, "dcgm", "tests"))
        return
    findings = [finding for test in tests if (finding := _test(node, test, errors))]
    yield from findings
    code = get(facts, CHECK, "exit_code") or 0
    ran = [test for test in tests if test["status"] in {"pass", "warn", "fail"}]
    if not ran:
        if not error:
            reason = _skipped(tests) or (f"dcgmi ended with {code}: {exit_text(code)}" if code else "it has none")
            yield unknown(CHECK, node, f"no test of its diagnosis ran: {reason}", AGAIN)
    elif not findings and not error and code:
        yield unknown(CHECK, node, f"its tests passed, and dcgmi ended with {code}: {exit_text(code)}", AGAIN)
    elif not findings and not error:
        names = list(dict.fromkeys(test["name"] for test in ran))
        skipped = _skipped(tests)
        message = f"{plural(len(names), 'test')} of DCGM passed: {named(names, 12)}"
        cut = (
            f"only {MOST_NOTES} of its notes were printed"
            if len(get(facts, CHECK, "notes") or ()) >= MOST_NOTES
            else ""
        )
        yield ok(CHECK, node, "; ".join(filter(None, (message, skipped, cut))))


def exit_text(code: int) -> str:
    """Meaning of dcgmi's exit code (DCGM, dcgm_structs.h: the return value modulo 256)."""
    signal = code - 128 if 128 < code < 160 else 0
    return EXIT_CODES.get(code) or (f"signal {signal} ended it" if signal else "no meaning is known")


def _skipped(tests: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(test["name"] for test in tests if test["status"] == "skip"))
    return f"skipped: {named(names, 12)}" if names else ""


def _test(node: str, test: Mapping[str, Any], errors: Errors) -> Finding | None:
    verdict = VERDICTS.get(test["status"], Verdict.UNKNOWN)
    warnings = test["warnings"]
    if verdict is Verdict.OK and not (warnings and test["status"] == "pass"):
        return None
    if verdict is Verdict.OK:  # it passed, and warns
        verdict = Verdict.WARN
    ids = [warning["id"] for warning in warnings]
    if verdict is Verdict.FAIL and _is_persistence(test, ids):
        verdict = Verdict.WARN
    place = f", {test['entity']}" if test["entity"] else ""
    texts = "; ".join(dict.fromkeys(warning["text"] for warning in warnings if warning["text"]))
    message = f"test {test['name']}{place}: {test['status']}{': ' if texts else ''}{texts[:SHOWN]}"
    known = [errors[number] for number in ids if number in errors]
    numbers = {"error_id": ids[0]} if len(set(ids)) == 1 and ids[0] is not None else {}
    return Finding(CHECK, node, verdict, message, numbers, _hint(test, known), known[0].source if known else "")


def _is_persistence(test: Mapping[str, Any], ids: Sequence[int | None]) -> bool:
    """True if nothing failed but persistence mode, which is a setting: DCGM 3 names a test so, DCGM 4 an error."""
    return set(ids) == {PERSISTENCE} or (not ids and test["name"].lower() == "persistence mode")


def _hint(test: Mapping[str, Any], known: Sequence[DcgmError]) -> str:
    """Action for the severity in the output, else for that of the catalogue; the meaning of the first id before it."""
    named_there = [SEVERITIES.get(warning["severity"] or 0) for warning in test["warnings"]]
    severity = next((one for one in named_there if one), known[0].severity if known else None)
    if severity is None:
        return "dcgmi diag -r 3 on the idle node shows more" if test["status"] != "pass" else ""
    return f"{known[0].meaning.rstrip('.')}; {ACTIONS[severity]}" if known else ACTIONS[severity]
