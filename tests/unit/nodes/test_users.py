"""Users of GPUs: who, what, since when and on which GPUs; and who is on a GPU of somebody else."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.nodes.model import User
from gpuctl.nodes.node_use import node
from tests.rig.gpu_user_facts import ALICE, NOW, OTHER, POD, STEPS, UID, facts, job, pod_devices, process, uuid


def users(made: dict[str, Any], me: frozenset[str] = frozenset()) -> tuple[User, ...]:
    return node("gpu-1", made, me).users


def only(made: dict[str, Any]) -> User:
    [user] = users(made)
    return user


GONE_POD = POD.replace(UID.replace("-", "_"), OTHER.replace("-", "_"))
DOCKER = f"0::/system.slice/docker-{'b' * 64}.scope"
OWNERS = {
    "ssh": (ALICE, {}, ("session", "alice from 10.0.0.5", "alice", "")),
    "ssh, then sudo": (ALICE, {"uid": 0}, ("session", "alice as root from 10.0.0.5", "alice", "")),
    "a session that logind has forgotten": (
        "0::/user.slice/user-1001.slice/session-9.scope",
        {"uid": 1001, "login_uid": 1001},
        ("session", "bob", "bob", ""),
    ),
    "a user service": (
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service",
        {"login_uid": None},
        ("user service", "alice", "alice", ""),
    ),
    "a service": ("0::/system.slice/vllm.service", {"uid": 0, "login_uid": None}, ("service", "vllm.service", "", "")),
    "a job": (f"{STEPS}/job_4711/step_0/user/task_1", {}, ("slurm job", "alice", "alice", "job 4711 step 0")),
    "a job of an unknown user": (
        f"{STEPS}/job_4711/step_batch/user/task_0",
        {"uid": 5000},
        ("slurm job", "uid 5000", "uid 5000", "job 4711 step batch"),
    ),
    "a pod": (POD, {"uid": 0, "login_uid": None}, ("pod", "team-a/trainer-0", "", "main")),
    "a pod whose logs are gone": (GONE_POD, {}, ("pod", f"pod {OTHER}", "", "main")),
    "docker": (DOCKER, {"login_uid": None}, ("container", "docker bbbbbbbbbbbb", "", "")),
    "rootless docker": (
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{'a' * 64}.scope",
        {"login_uid": None},
        ("container", "docker main of alice", "alice", ""),
    ),
    "an unknown form": ("0::/weird/place", {}, ("unknown", "UNKNOWN (runs as alice)", "", "")),
}  # fmt: skip


@pytest.mark.parametrize(("cgroup", "more", "expected"), OWNERS.values(), ids=list(OWNERS))
def test_the_owner_of_a_process(cgroup: str, more: dict[str, Any], expected: tuple[str, ...]) -> None:
    user = only(facts(process(7, cgroup, **more), on={2: [7]}))
    assert (user.kind, user.who, user.person, user.what) == expected
    assert (user.gpus, user.since, user.used_mib) == ((2,), NOW - 3600, 900)


def test_ranks_of_a_job_are_one_user_since_the_first_of_them() -> None:
    ranks = [process(70 + n, f"{STEPS}/job_9/step_0/user/task_{n}", since=NOW - 100 + n) for n in range(4)]
    user = only(facts(*ranks, on={n: [70 + n] for n in range(4)}))
    assert (user.gpus, user.since, user.used_mib, len(user.processes)) == ((0, 1, 2, 3), NOW - 100, 3600, 4)


def test_a_job_has_its_number_from_slurmd_where_the_path_has_a_sluid() -> None:
    one = process(7, f"{STEPS}/s5K1KKYAYG5D00/step_0/user/task_0", slurm={"SLURM_JOB_ID": "1"})
    assert only(facts(one, on={0: [7]}, slurm_pids={"7": ["4711", "0"]})).what == "job 4711 step 0"
    assert only(facts(one, on={0: [7]})).what == "job 1 step 0"
    assert only(facts({**one, "slurm": {}}, on={0: [7]})).what == "job s5K1KKYAYG5D00 step 0"


def test_a_process_without_details_is_unknown_with_the_reason() -> None:
    assert only(facts(on={0: [7]})).why == "it has ended, or is hidden there"
    assert "outside of the container" in only(facts(on={0: [7]}, pid_namespace="nested")).why


@pytest.mark.parametrize(
    ("login", "me", "mine"),
    [("alice", set(), True), ("root", {"alice"}, True), ("bob", {"bob"}, False), ("root", {"root"}, False)],
)
def test_mine_is_the_login_on_the_node_or_the_name_here_but_never_root(login: str, me: set[str], mine: bool) -> None:
    assert users(facts(process(7), on={0: [7]}, login=login), frozenset(me))[0].mine is mine


JOB = f"{STEPS}/job_9/step_0/user/task_0"


@pytest.mark.parametrize(
    ("made", "foreign"),
    [
        (facts(process(7, JOB), on={0: [7]}, slurm_jobs=[job("9", 0)], slurmd=True), {}),
        (facts(process(7, JOB), on={1: [7]}, slurm_jobs=[job("9", 0), job("10", 1)], slurmd=True), {1: "job 10"}),
        (facts(process(7, ALICE), on={1: [7]}, slurm_jobs=[job("10", 1)], slurmd=True), {1: "job 10"}),
        (facts(process(7, POD), on={0: [7]}, pod_devices=pod_devices(uuid(0)), kubelet=True), {}),
        (facts(process(7, POD), on={3: [7]}, pod_devices=pod_devices(uuid(3), uid=OTHER)), {3: f"pod {OTHER}"}),
        (facts(process(7, ALICE), on={0: [7]}, pod_devices=pod_devices(uuid(0))), {0: "team-a/trainer-0"}),
        # Nobody knows whose this is: no accusation.
        (facts(process(7, "0::/x/y"), on={0: [7]}, pod_devices=pod_devices(uuid(0))), {}),
    ],
)
def test_a_process_on_a_gpu_that_another_has(made: dict[str, Any], foreign: dict[int, str]) -> None:
    assert only(made).foreign == foreign


def test_a_time_sliced_gpu_has_several_holders_and_none_is_foreign() -> None:
    rows = pod_devices(f"{uuid(0)}::0") + pod_devices(f"{uuid(0)}::1", uid=OTHER)
    one = node("gpu-1", facts(process(7, POD), on={0: [7]}, pod_devices=rows))
    assert one.users[0].foreign == {}
    assert (one.gpus[0].shared, one.gpus[0].holders) == (True, (f"pod {OTHER}", "team-a/trainer-0"))


def test_a_session_on_a_free_gpu_of_a_slurm_node_is_unallocated() -> None:
    made = facts(process(7), on={5: [7]}, slurmd=True, slurm_jobs=[job("10", 1)])
    assert only(made).unallocated == (5,)
    assert only(facts(process(7), on={5: [7]})).unallocated == ()
    unsure = facts(process(7), on={5: [7]}, slurmd=True, slurm_jobs=[job("10", known=False)])
    assert only(unsure).unallocated == ()


def test_a_container_beside_kubernetes_is_unallocated() -> None:
    assert only(facts(process(7, DOCKER), on={5: [7]}, kubelet=True)).unallocated == (5,)
    assert only(facts(process(7, POD), on={5: [7]}, kubelet=True)).unallocated == (5,)
    assert only(facts(process(7, POD), on={5: [7]}, slurmd=True)).unallocated == ()


@pytest.mark.parametrize(("kinds", "shown"), [(["C"], "C"), (["C+G"], "C+G"), (["M+C"], "M+C"), (["C", "G"], "C+G")])
def test_the_type_of_a_process_is_in_nvidias_order(kinds: list[str], shown: str) -> None:
    made = facts(process(7), on={gpu: [7] for gpu in range(len(kinds))})
    for gpu, kind in enumerate(kinds):
        made["gpus"][gpu]["processes"][0]["type"] = kind
    assert only(made).processes[0].type == shown


def test_services_of_the_gpus_are_no_users() -> None:
    server = process(7, "0::/system.slice/mps.service", name="nvidia-cuda-mps", login_uid=None)
    made = facts(server, on={0: [7]})
    made["gpus"][0]["processes"][0]["name"] = "/usr/bin/nvidia-cuda-mps-server"
    one = node("gpu-1", made)
    assert (one.users[0].daemon, one.gpus[0].mps, one.gpus[0].state) == (True, True, "idle")


def test_a_process_that_only_holds_the_device_open_is_shown_without_memory() -> None:
    made = facts(process(66), open_by={"66": [0]})
    made["gpus"][0]["used_mib"] = 40_000
    [user] = users(made)
    assert (user.gpus, user.used_mib, user.processes[0].context) == ((0,), 0, False)
