"""Facts in files, and of hosts that are not to be trusted: any shape is refused or understood, without a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import gpu_allocations

from gpuctl.core.errors import InvalidInput
from gpuctl.nodes import facts_file, serialize
from gpuctl.nodes.model import Fleet, State
from gpuctl.nodes.node_use import node
from gpuctl.workflows.nodes import without_secrets
from tests.rig import fuzz_owners
from tests.rig import gpu_user_trees as trees
from tests.rig.gpu_user_facts import STEPS, facts, process

EMPTY = {"schema": facts_file.SCHEMA, "nodes": {}, "unasked": {}, "taken": "2026-11-27"}
TAKEN = 1_790_100_000


def test_saved_facts_are_read_again(tmp_path: Path) -> None:
    fleet = Fleet({"gpu-1": fuzz_owners.full()}, {"gpu-2": "no route"}, TAKEN)
    facts_file.save(tmp_path / "facts.json", fleet)
    assert facts_file.read(tmp_path / "facts.json") == fleet
    assert (tmp_path / "facts.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "neither JSON nor XML"),
        ("{", "neither JSON nor XML"),
        ("[" * 100_000, "neither JSON nor XML"),
        ("[]", "its schema is not"),
        ('{"schema": "gpuctl.findings/1"}', "its schema is not"),
        (json.dumps({"schema": facts_file.SCHEMA}), "nodes is missing"),
        (json.dumps({"schema": facts_file.SCHEMA, "nodes": {}, "unasked": {}}), "taken is missing"),
        (json.dumps({**EMPTY, "nodes": {"a": 1}}), "nodes.a is 1, not an object"),
        (json.dumps({**EMPTY, "nodes": {"a": {"unread": {"gpus": 3}}}}), "nodes.a.unread.gpus is 3, not a text"),
        (json.dumps({**EMPTY, "nodes": {"": {}}}), "a name is blank: ''"),
        (json.dumps({**EMPTY, "unasked": {"a": None}}), "unasked.a is null, not a text"),
        (json.dumps({**EMPTY, "taken": "noon"}), "taken is 'noon', not a time"),
        (json.dumps({**EMPTY, "taken": "0001-01-01"}), "taken is '0001-01-01', not a time"),
        ("<nvidia_smi_log><gpu>", "no whole XML"),
    ],
)  # fmt: skip
def test_any_other_file_is_refused(text: str, wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"facts\.json") as refused:
        facts_file.read(path)
    assert wrong in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        facts_file.read(tmp_path / "none.json")


CASES = 60  # of each fuzz here; `python -m tests.rig.fuzz_owners` runs more


def test_facts_with_any_value_anywhere_are_refused_or_understood() -> None:
    accepted, refused = fuzz_owners.facts_of_hosts(fuzz_owners.full(), CASES)
    assert accepted + refused == CASES
    assert min(accepted, refused) > 5


def test_process_files_with_any_text_make_no_traceback_and_no_false_owner(tmp_path: Path) -> None:
    trees.process(tmp_path, 7, cgroup=f"{STEPS}/job_9/step_0/user/task_0\n")
    assert fuzz_owners.process_files(tmp_path, CASES) > CASES // 2


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", {0}), ("0,2-3", {0, 2, 3}), ("", set()), ("x", set()), ("5-3", set()), ("0-99999999", set(range(64)))],
)
def test_numbers_of_gpus_in_a_list(text: str, numbers: set[int]) -> None:
    assert gpu_allocations.numbers(text) == numbers


def test_secrets_in_command_lines_are_removed_before_anything_else() -> None:
    command = "python train.py --api-key sk-0123456789abcdefghij0123 --lr 1"
    made = without_secrets(facts(process(7, command=command), on={0: [7]}))
    assert made["processes"]["7"]["command"] == "python train.py --api-key <removed> --lr 1"
    one = node("gpu-1", made)
    assert one.gpus[0].state is State.USED
    assert "sk-0123" not in json.dumps(serialize.as_dict(one))
