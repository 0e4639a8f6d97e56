"""Facts in files, and of hosts that are not to be trusted: any shape is refused or understood, without a traceback."""

from __future__ import annotations

import copy
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import gpu_allocations, process_details
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from gpuctl.core.errors import InvalidInput
from gpuctl.nodes import facts_file, facts_shape, serialize
from gpuctl.nodes.judge import judge
from gpuctl.nodes.model import Fleet, State
from gpuctl.nodes.node_use import node
from gpuctl.workflows.nodes import without_secrets
from tests.rig import gpu_user_trees as trees
from tests.unit.nodes.facts import POD, STEPS, facts, job, pod_devices, process, uuid

EMPTY = {"schema": facts_file.SCHEMA, "nodes": {}, "unasked": {}, "taken": "2026-11-27"}
TAKEN = 1_790_100_000
ODD: list[Any] = [None, True, -1, 2**70, 1.5, "", "0::/", "\x1b[2J", "\ud800", [], [None], {}, {"a": 1}]


def full() -> dict[str, Any]:
    """Facts of a node with every kind of user."""
    return facts(
        process(7, POD),
        process(8, f"{STEPS}/job_9/step_0/user/task_0", slurm={"SLURM_JOB_NAME": "x"}),
        process(9, state="D", blocked_in="x"),
        on={0: [7], 1: [8, 9], 2: [9, 10]},
        slurm_jobs=[job("9", 1), job("10", known=False)],
        pod_devices=pod_devices(uuid(0)),
        open_by={"66": [3]},
        slurmd=True,
        kubelet=True,
    )


def test_saved_facts_are_read_again(tmp_path: Path) -> None:
    fleet = Fleet({"gpu-1": full()}, {"gpu-2": "no route"}, TAKEN)
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
        (json.dumps({"schema": facts_file.SCHEMA}), "its nodes are missing"),
        (json.dumps({"schema": facts_file.SCHEMA, "nodes": {}, "unasked": {}}), "its time is missing"),
        (json.dumps({**EMPTY, "nodes": {"a": 1}}), "facts of a"),
        (json.dumps({**EMPTY, "taken": "noon"}), "noon"),
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


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


def test_facts_with_any_value_anywhere_are_refused_or_understood() -> None:
    """A host may answer anything; for a bounded time."""
    chance, whole = random.Random(15), full()  # noqa: S311 - for a test
    paths = [path for path in places(whole) if path]
    accepted = refused = 0
    end = time.monotonic() + 0.15
    while time.monotonic() < end:
        made = copy.deepcopy(whole)
        *way, last = chance.choice(paths)
        part = made
        for key in way:
            part = part[key]
        if isinstance(part, dict) and chance.random() < 0.2:
            del part[last]
        else:
            part[last] = chance.choice(ODD)
        if facts_shape.misfit(made):
            refused += 1
            continue
        one = node("gpu-1", without_secrets(made))
        assert judge(one)
        json.dumps(serialize.as_dict(one))
        accepted += 1
    assert min(accepted, refused) > 5


def test_process_files_with_any_text_make_no_traceback_and_no_false_owner(tmp_path: Path) -> None:
    """Cut and glued files of /proc, for a bounded time."""
    trees.process(tmp_path, 7, cgroup=f"{STEPS}/job_9/step_0/user/task_0\n")
    files = [path for path in (tmp_path / "proc/7").iterdir() if path.is_file()]
    texts = {path: path.read_bytes() for path in files}
    chance = random.Random(15)  # noqa: S311 - for a test
    end, tried, made = time.monotonic() + 0.15, 0, facts(on={0: [7]})
    while time.monotonic() < end:
        path = chance.choice(files)
        text = texts[path] + texts[chance.choice(files)]
        first, last = sorted((chance.randrange(len(text)), chance.randrange(len(text))))
        path.write_bytes(text[first:last] + bytes([chance.randrange(256)]))
        details = process_details.read(Host(tmp_path), 7, trees.BOOT)
        path.write_bytes(texts[path])
        tried += 1
        if details is None:
            continue
        json.dumps(details)
        made["processes"]["7"] = details
        [user] = node("gpu-1", made).users
        assert user.kind != "slurm job" or user.what.startswith("job ")
    assert tried > 10


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
