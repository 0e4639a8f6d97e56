"""Read a host's answer: find it in the output, check its shape, and make its texts printable.

Hosts are not trusted: a host with a bad answer fails alone, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import answer_types
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts.answer_types import ACTS
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.api import FORM
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts.answer_types import UnreadSubject
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts.machine import Machine
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.overlays import select
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import typed_json
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.printable import printable

# Environment variable of gpuctl's own runs, which get a result as one text: Ansible copies each value of a result
# several times, and that takes longer than all else it does.
AS_TEXT = "GPUCTL_RESULTS_AS_TEXT"
TEXT = "gpuctl_result"
USED_BY_PLAYBOOKS = ("changed", "failed", "msg", "reboot_required", "busy")
NO_ANSWER = "it ran our program and gave no answer"
TYPES: Mapping[str, type] = {
    "tune": answer_types.Visit,
    "undo": answer_types.Visit,
    "repair": answer_types.Repair,
    "records": answer_types.Records,
    "facts": answer_types.MachineFacts,
    "act": answer_types.Acted,
    "diagnose": answer_types.Diagnosed,
}
# In an answer only if they are named: GPUDirect Storage is read for a verification alone.
OPTIONAL = ("seconds", "gds")
# Tests of other hosts: subject of the facts, and the key of the request with the hosts to test.
PEER_TESTS = {"names": "look_up", "reach": "peers"}


class BadAnswer(ValueError):
    """The answer is missing or malformed; the message explains how."""


def find(output: bytes, token: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request, within other output of the host; BadAnswer if it is missing or malformed.

    An answer has `error` (`wrong`, `hint`) or the result of the action (gpuhost/api.py).
    """
    _, marker, rest = output.rpartition(b"\n" + token.encode())
    if not marker:
        raise BadAnswer(NO_ANSWER)
    try:
        answer = typed_json.parse(rest.partition(b"\n")[0])
    except ValueError as error:
        raise BadAnswer("its answer is not valid JSON") from error
    return checked(answer, request)


def checked(answer: object, request: Mapping[str, Any]) -> dict[str, Any]:
    """The declared part of an answer with printable texts; BadAnswer unless it has the type of the request's action.

    A subject of the facts that could not be read at all has None for each of its values.
    """
    if not isinstance(answer, dict):
        raise BadAnswer("its answer is not a JSON object")
    if type(answer.get("form")) is not int or answer["form"] != FORM:
        raise BadAnswer(f"its answer has form {printable(repr(answer.get('form'))[:40])}, this gpuctl reads {FORM}")
    declared = answer_types.Failure if "error" in answer else TYPES[request["action"]]
    try:
        cleaned: dict[str, Any] = _cleaned(typed_json.read(answer, declared, extra=True))
        if "error" in cleaned:
            return cleaned
        if request.get("subjects"):
            cleaned["facts"] = _facts(cleaned.get("facts", {}), request)
        if request["action"] == "act":
            cleaned["act"] = _act(cleaned["act"], request)
        if isinstance(request.get("profile"), Mapping):
            _check_knobs(cleaned, request["profile"])
    except typed_json.Misfit as error:
        raise BadAnswer(f"its answer makes no sense: {error}") from error
    return cleaned


def reason(error: object) -> tuple[str, str]:
    """(wrong, hint) of a host that did not carry out its request, printable; BadAnswer if it gives no reason."""
    try:
        cleaned = _cleaned(typed_json.read(error, answer_types.Reason, "error", extra=True))
    except typed_json.Misfit as misfit:
        raise BadAnswer(f"its answer makes no sense: {misfit}") from misfit
    return cleaned["wrong"], cleaned["hint"]


def recorded(value: object, subjects: str, only: Sequence[str] = (), place: str = "facts") -> dict[str, Any]:
    """Facts that were `checked` and then saved, with printable texts; Misfit if they are none, or `only` are not there.

    `subjects`: name in FACTS. `only`: subjects that the facts must have; empty for all.
    """
    declared = answer_types.FACTS[subjects]
    plain = {name: _as_answered(subject) for name, subject in value.items()} if isinstance(value, dict) else value
    facts: dict[str, Any] = _cleaned(_read_facts(plain, declared, only, place))
    return facts


def recorded_subject(value: object, shape: type, place: str) -> dict[str, Any]:
    """One subject of facts that were saved, as its type; else like `recorded`."""
    answered = _as_answered(value)
    facts: Any = typed_json.read(answered, shape if answered is value else UnreadSubject, place)
    return {**dict.fromkeys(typed_json.fields_of(shape)), **_cleaned(facts)}


def packed(result: dict[str, Any]) -> dict[str, Any]:
    """A task's result of the engine with its values as one text, besides those that playbooks of ours use."""
    if "knobs" not in result:
        return result
    kept = {name: result[name] for name in USED_BY_PLAYBOOKS if name in result}
    return {**kept, TEXT: json.dumps({name: value for name, value in result.items() if name != "diff"})}


def unpacked(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result whose values `packed` has made a text; any other result as it is."""
    try:
        values = typed_json.parse(result[TEXT])
    except (KeyError, TypeError, ValueError):
        return result
    return values if isinstance(values, dict) else result


def _facts(answer: object, request: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a request; Misfit without one of its subjects or peers: no check would miss what is left out."""
    facts = _read_facts(answer, answer_types.FACTS[request["subjects"]], request.get("only") or (), "facts")
    for subject, tests in PEER_TESTS.items():
        peers = facts.get(subject, {}).get("peers")
        if peers is not None:  # else nothing of the subject could be read
            _require(f"facts.{subject}.peers", peers, [peer["name"] for peer in request.get(tests, ())])
    return facts


def _read_facts(value: object, declared: type, only: Sequence[str], place: str) -> dict[str, Any]:
    facts: dict[str, Any] = typed_json.read(value, declared, place)
    _require(place, facts, only or [name for name in typed_json.fields_of(declared) if name not in OPTIONAL])
    return _whole_subjects(facts, declared)


def _as_answered(subject: object) -> object:
    """A subject as its host sent it: one that could not be read at all has its reason alone."""
    unread = subject.get("unread") if isinstance(subject, dict) else None
    if not isinstance(subject, dict) or not isinstance(unread, dict) or "*" not in unread:
        return subject
    return {name: value for name, value in subject.items() if value is not None}


def _act(answer: object, request: Mapping[str, Any]) -> Any:
    """The answer of an act; Misfit if one about processes leaves one out."""
    acted: dict[str, Any] = typed_json.read(answer, ACTS[request["act"]], "act")
    pids = {str(row["pid"]) for row in acted.get("processes", ())}
    _require("act.processes", pids, [str(shown["pid"]) for shown in request.get("processes", ())])
    return acted


def _check_knobs(answer: Mapping[str, Any], profile: Mapping[str, Any]) -> None:
    """Refuse an answer without a knob that the profile has for such a machine."""
    facts = answer["machine"]
    try:
        knobs, _ = select(profile, Machine(**{**facts, "gpus": tuple(facts["gpus"]), "nics": tuple(facts["nics"])}))
    except ValueError as error:
        raise typed_json.Misfit(f"machine.memory is {facts['memory']!r}, not a size") from error
    expected = [knob.name for knob in knobs]
    variables = ("gpu_settings", "kubelet_resources", "slurm_gres")
    expected += [row["name"] for name in variables for row in profile.get(name) or ()]
    _require("knobs", {row["knob"] for row in answer["knobs"]}, expected)


def _require(place: str, names: Container[str], required: Sequence[str]) -> None:
    missing = next((name for name in required if printable(name) not in names), None)
    if missing is not None:
        raise typed_json.Misfit(f"{place}.{missing} is missing")


def _whole_subjects(facts: Mapping[str, Any], declared: type) -> dict[str, Any]:
    whole = {}
    for name, subject in facts.items():
        names = typed_json.object_fields(declared, name)
        whole[name] = {**dict.fromkeys(names), **subject} if names else subject
    return whole


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): _cleaned(inner) for key, inner in value.items()}
    return value
