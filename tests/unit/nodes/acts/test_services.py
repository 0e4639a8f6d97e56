"""Restart and reset: only what is idle for certain may be disturbed."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.cli.nodes.service import SERVICES as CHOICES
from gpuctl.nodes.acts import services
from gpuctl.nodes.model import Node
from gpuctl.nodes.node_use import node
from tests.rig.gpu_user_facts import facts, job, process


def use(made: dict[str, Any]) -> Node:
    return node("gpu-1", made)


def test_an_idle_node_may_be_disturbed() -> None:
    assert services.against_restart(use(facts())) == []
    assert services.against_reset(use(facts()), 3) == []


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (facts(process(7), on={3: [7]}), "GPU 3: alice from 10.0.0.5 works there"),
        (facts(slurm_jobs=[job("9", 2)], slurmd=True), "GPU 2 is reserved: job 9 has it"),
        (facts(pid_namespace="nested"), "GPU 0 is UNKNOWN"),
        (facts(on_bus=9), "1 of its GPUs do not answer"),
    ],
)
def test_a_node_that_is_used_or_unknown_is_left_alone(made: dict[str, Any], reason: str) -> None:
    assert reason in "\n".join(services.against_restart(use(made)))


def test_a_node_that_could_not_be_read_is_left_alone() -> None:
    assert "unknown" in services.against_restart(Node("gpu-1", why="nvidia-smi failed"))[0]


def test_a_reset_is_refused_for_its_own_gpu_alone() -> None:
    made = facts(process(7), on={3: [7]}, slurm_jobs=[job("9", 2)], slurmd=True)
    assert services.against_reset(use(made), 0) == []
    assert services.against_reset(use(made), 3) == ["GPU 3: alice from 10.0.0.5 works there"]
    assert "reserved" in services.against_reset(use(made), 2)[0]
    assert "lists no GPU 9" in services.against_reset(use(made), 9)[0]


def test_a_node_is_in_use_if_any_gpu_is_also_beside_an_ill_one() -> None:
    made = facts(process(7), on={3: [7]}, slurm_jobs=[job("9", 2)], slurmd=True)
    reasons = ["GPU 3: alice from 10.0.0.5 works there", "GPU 2 is reserved: job 9 has it, and no process on it"]
    assert services.against_any_use(use(made)) == reasons
    ill = facts()
    ill["gpus"][4].update(processes=None, errors={"memory": "[GPU requires reset]"})
    assert services.against_any_use(use(ill)) == []
    assert "unknown" in services.against_any_use(Node("gpu-1", why="nvidia-smi failed"))[0]


def test_memory_of_nobody_and_an_ill_gpu_are_what_a_reset_is_for() -> None:
    made = facts()
    made["gpus"][3]["used_mib"] = 40_000
    made["gpus"][4].update(processes=None, errors={"memory": "[GPU requires reset]"})
    assert services.against_reset(use(made), 3) == []
    assert services.against_reset(use(made), 4) == []


def test_the_command_offers_the_services_that_are_known() -> None:
    assert set(CHOICES) == set(services.SERVICES)
    assert all(bool(one.units) + bool(one.module) + bool(one.pods) == 1 for one in services.SERVICES.values())
