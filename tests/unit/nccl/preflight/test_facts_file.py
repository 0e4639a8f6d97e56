"""Files of saved facts: held against the declared types at any depth, and refused with file, place and value."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.engine import answers, fact_types, typed_json
from gpuctl.nccl import preflight
from gpuctl.nccl.advise import advise
from gpuctl.nccl.preflight import facts_file
from gpuctl.nccl.preflight.facts_file import Fleet
from tests.rig import damaged_json
from tests.rig.nccl import fleets

CASES = 40


def document(count: int = 2) -> dict[str, Any]:
    return {"form": facts_file.FORM, "taken": "2026-11-27", "nodes": fleets.fleet(count), "unasked": {"node-9": "no"}}


def read(path: Path, text: str) -> Fleet:
    path.write_text(text)
    return facts_file.read(path)


def refused(path: Path, text: str) -> str:
    with pytest.raises(InvalidInput) as error:
        read(path, text)
    assert str(error.value).startswith(f"cannot read the facts in {path}: ")
    assert "gpuctl nccl preflight --save FILE" in error.value.hint
    return str(error.value)


def test_saved_facts_are_read_again_also_of_a_subject_that_could_not_be_read(tmp_path: Path) -> None:
    nodes = {name: {**facts, "rack": "r1"} for name, facts in fleets.fleet(3).items()}
    names = typed_json.fields_of(fact_types.ProgramsFacts)
    nodes["node-2"]["programs"] = {**dict.fromkeys(names), "unread": {"*": "no rights"}}  # as `checked` returns it
    fleet = Fleet(nodes, {"node-9": "refused"})
    facts_file.save(tmp_path / "facts.json", fleet)
    assert facts_file.read(tmp_path / "facts.json") == fleet


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "it is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("7", "it contains no nodes"),
        ('{"nodes": {}}', "its form is None"),
        ('{"form": 2, "nodes": {}}', "unasked is missing"),
        ('{"form": 2, "nodes": {"a": 7}, "unasked": {}}', "nodes.a is 7, not an object"),
        ('{"form": 2, "nodes": {"a": {}}, "unasked": {}}', "nodes.a.address is missing"),
        ('{"form": 2, "nodes": {" ": {}}, "unasked": {}}', "a name is blank: ' '"),
        ('{"form": 2, "nodes": {}, "unasked": {"a": 7}}', "unasked.a is 7, not a text"),
    ],
)
def test_any_other_file_is_refused(text: str, wrong: str, tmp_path: Path) -> None:
    assert wrong in refused(tmp_path / "facts.json", text)


def test_every_node_with_a_mistake_is_named_and_many_are_counted(tmp_path: Path) -> None:
    saved = document(14)
    for number in range(2, 15):
        saved["nodes"][f"node-{number}"]["gpu"]["gpus"][1]["memory_mib"] = "80 GiB"
    lines = refused(tmp_path / "facts.json", json.dumps(saved)).splitlines()
    assert lines[0].endswith(": nodes.node-2.gpu.gpus[1].memory_mib is '80 GiB', not a whole number or null")
    assert (len(lines), lines[-1].strip()) == (11, "and 3 more mistakes")


def test_a_file_without_an_end_is_refused_not_read_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuctl.core.json_file.LARGEST", 1 << 20)
    with pytest.raises(InvalidInput, match="it is larger than 1 MiB"):
        facts_file.read(Path("/dev/zero"))


def test_facts_that_another_command_saved_are_refused(tmp_path: Path) -> None:
    saved = document()
    saved["nodes"]["node-1"]["pcie"] = {"links": [], "unread": {}}
    assert "nodes.node-1.pcie is {" in refused(tmp_path / "facts.json", json.dumps(saved))


def test_a_file_damaged_anywhere_is_refused_with_its_place_or_judged(tmp_path: Path) -> None:
    chance = random.Random(13)  # noqa: S311 - for a test
    whole = document()
    places = [place for place in damaged_json.paths(whole) if place[:2] != ("nodes", "node-1")]
    refusals: list[str] = []
    for _ in range(CASES):
        place, text = chance.choice(places), chance.choice(damaged_json.HOSTILE)
        damaged = damaged_json.replaced(whole, place, text)
        try:
            fleet = read(tmp_path / "facts.json", damaged)
        except InvalidInput as error:
            refusals.append(str(error))
            continue
        preflight.judge(fleet.nodes, fleet.unasked)
        advise(fleet.nodes)
    assert 0 < len(refusals) < CASES
    assert all("facts.json: " in refusal and refusal.replace("\n", "").isprintable() for refusal in refusals)


def test_a_subject_that_is_left_out_is_missing() -> None:
    facts = {name: subject for name, subject in fleets.node().items() if name not in ("address", "reach")}
    with pytest.raises(typed_json.Misfit, match=r"facts\.reach is missing"):
        answers.recorded(facts, "nccl")
