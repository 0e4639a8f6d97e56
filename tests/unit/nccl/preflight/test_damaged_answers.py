"""A node whose answer is damaged anywhere is refused or judged; the others are judged as without it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.answers import BadAnswer, checked, find
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.domain.findings import Verdict
from gpuctl.engine import fact_types
from gpuctl.nccl import preflight
from gpuctl.nccl.advise import advise
from gpuctl.nccl.topology import adapters, racks
from tests.rig import damaged_json
from tests.rig.nccl import fleets

TOKEN = "gpuctl-0123456789abcdef "  # noqa: S105
NODES = ("node-1", "node-2", "node-3")
FABRICS = {"infiniband": lambda facts: facts, "efa": fleets.efa, "roce": fleets.roce}
MACHINE = {
    **dict.fromkeys(("machine", "distribution", "family", "version", "arch", "vendor", "memory"), "unknown"),
    "gpus": ["NVIDIA H100 80GB HBM3"],
    "nics": ["infiniband"],
}
# Names below these are anybody's; the others are ours, and none may be missing.
OPEN = ("unread", "errors", "conf", "interfaces", "switches")


def request(node: str) -> dict[str, Any]:
    peers = [{"name": peer, "address": peer} for peer in NODES if peer != node]
    return {"action": "facts", "subjects": "nccl", "look_up": peers, "peers": peers}


@cache
def answer(node: str, fabric: str) -> dict[str, Any]:
    """A true answer with a value in every place."""
    facts = fleets.node(int(node[-1]))
    del facts["address"]
    FABRICS[fabric](facts)
    del facts["gpu"]["gpus"][2:]  # the others are alike
    facts["gpu"].update(on_bus=2, attached=2)
    for number, gpu in enumerate(facts["gpu"]["gpus"]):
        gpu.update(address=f"{number}", processes=[])
    client = {"pid": 1, "name": "python", "used_mib": 4, "type": "C", "gi": 1, "ci": 0}
    instance = {"index": 0, "gi": 1, "ci": 0, "uuid": "MIG-1", "memory_mib": 9856, "used_mib": 4}
    facts["gpu"]["gpus"][0].update(processes=[client], displays=[], instances=[instance])
    names = facts["names"]
    names.update(switches={"eth0": "leaf-1"}, reached_at=None, instance="i-0123456789abcdef0")
    for peer in (peer for peer in NODES if peer != node):
        names["peers"][peer] = {"forward": [f"10.0.0.{peer[-1]}"], "reverse": [peer], "back": None, "error": None}
        facts["reach"]["peers"][peer] = {"ok": True, "hostname": peer, "error": None, "seconds": 0.1}
    return {"form": 1, "machine": MACHINE, "facts": facts}


@cache
def places(fabric: str) -> list[damaged_json.Path]:
    return list(damaged_json.paths(answer("node-2", fabric)))


@cache
def others(fabric: str) -> dict[str, Mapping[str, Any]]:
    answers = {node: checked(answer(node, fabric), request(node)) for node in NODES if node != "node-2"}
    return {node: {**answer["facts"], "address": node} for node, answer in answers.items()}


def judged(fabric: str, text: str) -> bool:
    """Judge the fleet with this answer of node-2; False if it was refused, then the others are as without it."""
    nodes: dict[str, Mapping[str, Any]] = dict(others(fabric))
    lost: dict[str, str] = {}
    try:
        damaged = find(f"\n{TOKEN}{text}\n".encode(), TOKEN, request("node-2"))
    except BadAnswer as error:
        lost["node-2"] = str(error)
    else:
        if "error" in damaged:
            return False
        nodes["node-2"] = {**damaged["facts"], "address": "node-2"}
    findings = preflight.judge(nodes, lost)
    assert {finding.check for finding in findings} >= {"gpu-count", "adapters", "idle", "names", "ssh"}
    if lost:
        assert lost["node-2"].startswith("its answer ")
        assert lost["node-2"].isprintable()
        assert ("reachable", "node-2", Verdict.UNKNOWN) in {(f.check, f.subject, f.verdict) for f in findings}
        assert [f for f in findings if f.check != "reachable"] == preflight.judge(nodes)
    advise(nodes)
    racks.of_facts(nodes)
    adapters.rails(nodes)
    return not lost


def must_be_refused(before: object, text: str) -> bool:
    """True if no value of ours can look like that. A null may stand for what could not be read."""
    try:
        after = json.loads(text)
    except (ValueError, RecursionError):
        return True
    if text in damaged_json.NO_NUMBERS or text == damaged_json.DEEP:
        return True
    if before == "unlimited" and type(after) is int and after >= 0:  # a limit is a number, too
        return False
    kinds = {float if type(value) is int else type(value) for value in (before, after)}
    return before is not None and after is not None and len(kinds) == 2


def check(fabric: str, place: damaged_json.Path, text: str) -> None:
    whole = answer("node-2", fabric)
    accepted = judged(fabric, damaged_json.replaced(whole, place, text))
    assert not (accepted and must_be_refused(damaged_json.part(whole, place), text))


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_true_answer_is_accepted(fabric: str) -> None:
    assert judged(fabric, json.dumps(answer("node-2", fabric)))


@settings(max_examples=12, deadline=None)
@given(st.data(), st.sampled_from(list(FABRICS)), st.sampled_from(damaged_json.HOSTILE))
def test_a_damaged_part_is_refused_at_any_depth(data: st.DataObject, fabric: str, text: str) -> None:
    check(fabric, data.draw(st.sampled_from(places(fabric))), text)


@settings(max_examples=6, deadline=None)
@given(st.data(), st.sampled_from(list(FABRICS)))
def test_a_missing_part_is_refused_at_any_depth(data: st.DataObject, fabric: str) -> None:
    place = data.draw(st.sampled_from([place for place in places(fabric) if place and place[-1] != 0]))
    accepted = judged(fabric, damaged_json.without(answer("node-2", fabric), place))
    optional = place == ("facts", "seconds") or place[-1] in fact_types.Gpu.__optional_keys__
    assert not accepted or optional or place[-2] in OPEN


@pytest.mark.parametrize("subject", ["gpu", "rdma", "names", "reach", "programs", "limits", "jobs", "peer_memory"])
def test_a_subject_that_could_not_be_read_is_unknown_and_no_error(subject: str) -> None:
    text = damaged_json.replaced(answer("node-2", "roce"), ("facts", subject), '{"unread": {"*": "no rights"}}')
    assert judged("roce", text)
