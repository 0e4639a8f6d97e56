"""Cut, glued and wrong inputs of what finds the users of GPUs; AssertionError or a traceback for a wrong result.

`python -m tests.rig.fuzz_owners 100000` runs so many cases of each; the unit tests run few, always the same.
"""

from __future__ import annotations

import copy
import json
import random
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import process_details
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from gpuctl.domain.gpu_owners import Kind, owner_of
from gpuctl.nodes import serialize
from gpuctl.nodes.judge import judge
from gpuctl.nodes.node_use import node
from gpuctl.workflows.nodes import without_secrets
from tests.rig import gpu_user_trees as trees
from tests.rig.gpu_user_facts import ALICE, POD, STEPS, facts, job, misfit, pod_devices, process, uuid

HEADS = ("0:", "9:cpu,cpuacct", "1:name=systemd")
ODD: tuple[Any, ...] = (None, True, -1, 2**70, 1.5, "", "0::/", "\x1b[2J", "\ud800", [], [None], {}, {"a": 1})


def control_groups(paths: Sequence[str], cases: int) -> None:
    """Lines of control groups: an owner's ids stand in the text, and an unknown one has a reason."""
    chance = random.Random(15)  # noqa: S311 - for a test
    whole = [f"{head}:{path}" for head in HEADS for path in paths]
    for _ in range(cases):
        lines = chance.sample(whole, chance.randint(1, 4))
        text = chance.choice(["\n", "", "\0", ":", "/"]).join(lines)
        first, last = sorted(chance.sample(range(len(text)), 2))
        cut = chance.choice([text[first:], text[:last], text[:first] + text[last:], text[::-1]])
        one = owner_of(cut, cut)
        for name in (f"job_{one.job}", one.sluid, one.container, one.session, one.unit):
            assert name == "job_" or name in cut, (cut, one)
        assert one.pod.replace("-", "") in re.sub("[-_]", "", cut), (cut, one)
        assert one.kind is not Kind.UNKNOWN or one.why, (cut, one)


def facts_of_hosts(whole: dict[str, Any], cases: int) -> tuple[int, int]:
    """Facts with any value anywhere: the numbers of those that are understood, and of those that are refused."""
    chance = random.Random(15)  # noqa: S311 - for a test
    paths = [path for path in _places(whole) if path]
    refused = 0
    for _ in range(cases):
        made = copy.deepcopy(whole)
        *way, last = chance.choice(paths)
        part = made
        for key in way:
            part = part[key]
        if isinstance(part, dict) and chance.random() < 0.2:
            del part[last]
        else:
            part[last] = chance.choice(ODD)
        if misfit(made):
            refused += 1
            continue
        one = node("gpu-1", without_secrets(made))
        assert judge(one)
        json.dumps(serialize.as_dict(one))
    return cases - refused, refused


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in _places(one, (*path, key)))]


class Written(Host):
    """Files from memory."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__("/nowhere")
        self.files = files

    def read(self, path: str) -> str:
        """See Host."""
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.files[path].decode("utf-8", "surrogateescape")


def process_files(root: Path, cases: int) -> int:
    """Files of process 7 below /proc, one cut and glued to another: the number of cases that give facts."""
    chance, made = random.Random(15), facts(on={0: [7]})  # noqa: S311 - for a test
    texts = {f"/proc/7/{path.name}": path.read_bytes() for path in (root / "proc/7").iterdir() if path.is_file()}
    understood = 0
    for _ in range(cases):
        path, other = chance.choice(list(texts)), chance.choice(list(texts))
        text = texts[path] + texts[other]
        first, last = sorted((chance.randrange(len(text)), chance.randrange(len(text))))
        cut = text[first:last] + bytes([chance.randrange(256)])
        details = process_details.read(Written({**texts, path: cut}), 7, trees.BOOT)
        if details is None:
            continue
        understood += 1
        made["processes"] = {"7": json.loads(json.dumps(details))}
        assert misfit(made) == ""
        [user] = node("gpu-1", made).users
        assert user.kind != Kind.SLURM or user.what.startswith("job ")
    return understood


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


def main() -> None:
    """Run all."""
    cases = int(sys.argv[1])
    control_groups([text.removeprefix("0::") for text in (ALICE, POD, f"{STEPS}/job_9/step_0/user/task_0")], cases)
    print(f"control groups: {cases}")  # noqa: T201
    with tempfile.TemporaryDirectory() as folder:
        trees.process(Path(folder), 7, cgroup=f"{STEPS}/job_9/step_0/user/task_0\n")
        print(f"files of a process: {process_files(Path(folder), cases)} of {cases} understood")  # noqa: T201
    accepted, refused = facts_of_hosts(full(), cases // 10)
    print(f"facts: {accepted} understood, {refused} refused")  # noqa: T201


if __name__ == "__main__":
    main()
