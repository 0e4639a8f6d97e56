"""Read a host's answer: find it in the output, check its shape, and make its texts printable.

Hosts are not trusted: a host with a bad answer fails alone, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import model
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.api import FORM
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.printable import printable

NO_ANSWER = "it ran our program and gave no answer"
STATES = frozenset(
    {
        model.OK,
        model.DIFFERS,
        model.REFUSED,
        model.UNSUPPORTED,
        model.UNKNOWN,
        model.FAILED,
        model.PENDING,
        model.CONTESTED,
        model.CONFLICT,
    }
)
# A shape is a type, several types, [shape of each item] or {name: shape}; a name with "?" at its end may be missing.
TEXT_OR_NONE = (str, type(None))
KNOB = {
    "knob": str,
    "desired": str,
    "now": TEXT_OR_NONE,
    "boot": TEXT_OR_NONE,
    "state": STATES,
    "reason": str,
    "changed": bool,
    "reboot": bool,
    "restores": bool,
    "disruptive": str,
    "conflicts": [{"owner": str, "where": str, "value": str, "wins": bool}],
    "notes": [str],
    "steps": [{"setting": str, "before": TEXT_OR_NONE, "after": TEXT_OR_NONE}],
    "was?": {"now": TEXT_OR_NONE, "boot": TEXT_OR_NONE},
}
MACHINE = {"machine": str, "distribution": str, "family": str, "version": str, "gpus": [str], "nics": [str]}
VISIT = {
    "profile?": str,
    "machine": MACHINE,
    "busy": [str],
    "record": TEXT_OR_NONE,
    "unrecorded?": str,
    "read_only?": bool,
    "notes?": [str],
    "knobs": [KNOB],
}
SHAPES: Mapping[str, Any] = {
    "tune": VISIT,
    "undo": VISIT,
    "records": {"records": [dict]},
    "facts": {"machine": MACHINE, "facts?": dict},
}
ERROR = {"error": {"wrong": str, "hint": str}}


class BadAnswer(ValueError):
    """The answer is missing or malformed; the message tells how."""


def find(output: bytes, token: str, action: str) -> dict[str, Any]:
    """The answer to a request, within other output of the host; BadAnswer if it is missing or malformed.

    An answer has `error` (`wrong`, `hint`) or the result of the action (gpuhost/api.py).
    """
    _, marker, rest = output.rpartition(b"\n" + token.encode())
    if not marker:
        raise BadAnswer(NO_ANSWER)
    try:
        answer = json.loads(rest.partition(b"\n")[0])
    except (ValueError, RecursionError) as error:
        raise BadAnswer("its answer is not valid JSON") from error
    return checked(answer, action)


def checked(answer: object, action: str) -> dict[str, Any]:
    """The answer with printable texts; BadAnswer unless it has the shape of the action."""
    if not isinstance(answer, dict):
        raise BadAnswer("its answer is not a JSON object")
    if answer.get("form") != FORM:
        raise BadAnswer(f"its answer has form {printable(repr(answer.get('form'))[:40])}, this gpuctl reads {FORM}")
    wrong = misfit(answer, ERROR if "error" in answer else SHAPES[action], "") or _unread_facts(answer)
    if wrong:
        raise BadAnswer(f"its answer makes no sense: {printable(wrong)}")
    cleaned: dict[str, Any] = _cleaned(answer)
    return cleaned


def misfit(value: object, shape: Any, place: str = "") -> str:
    """Path of the first value of another shape, with the reason; empty if there is none."""
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{place} is not a list"
        return next(filter(None, (misfit(item, shape[0], f"{place}[{i}]") for i, item in enumerate(value))), "")
    if isinstance(shape, frozenset):
        return "" if isinstance(value, str) and value in shape else f"{place} is {str(value)[:40]!r}"
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{place or 'it'} is not an object"
        return next(filter(None, (_missing_or_misfit(value, n, inner, place) for n, inner in shape.items())), "")
    return "" if isinstance(value, shape) else f"{place} is {str(value)[:40]!r}"


def _unread_facts(answer: Mapping[str, Any]) -> str:
    """Path of the first subject of the facts without `unread`; empty if there is none."""
    subjects = {name: facts for name, facts in answer.get("facts", {}).items() if name != "seconds"}
    return next(filter(None, (misfit(facts, {"unread": dict}, f"facts.{n}") for n, facts in subjects.items())), "")


def _missing_or_misfit(value: Mapping[str, Any], name: str, shape: Any, place: str) -> str:
    key, path = name.rstrip("?"), f"{place}.{name.rstrip('?')}" if place else name.rstrip("?")
    if key not in value:
        return "" if name.endswith("?") else f"{path} is missing"
    return misfit(value[key], shape, path)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): _cleaned(inner) for key, inner in value.items()}
    return value
