"""Pods of an environment that may be training: who is at work there is told, by name and rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.launch import gpu_processes as program

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.preflight.idle import DRAIN
from gpuctl.nccl.preflight.pods import advice, at_work


def process(proc: Path, pid: int, name: str, *variables: str, device: str = "") -> None:
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "environ").write_bytes("\0".join(variables).encode())
    if device:
        (folder / "fd/7").symlink_to(device)


def test_ranks_and_whoever_has_a_gpu_open_are_at_work_and_nobody_else(tmp_path: Path) -> None:
    process(tmp_path, 1, "sh", "RANK=0", "MASTER_ADDR=lab-0")
    process(tmp_path, 20, "python", "RANK=3", "WORLD_SIZE=8")
    process(tmp_path, 21, "all_reduce_perf", "OMPI_COMM_WORLD_RANK=0", device="/dev/nvidia0")
    process(tmp_path, 22, "jupyter", device="/dev/nvidia3")
    process(tmp_path, 23, "nvidia-smi", device="/dev/nvidia0")
    process(tmp_path, 24, "python", device="/dev/nvidiactl")
    (tmp_path / "self").mkdir()
    assert program.gpu_processes(tmp_path) == [
        {"pid": 20, "name": "python", "rank": 3},
        {"pid": 21, "name": "all_reduce_perf", "rank": 0},
        {"pid": 22, "name": "jupyter", "rank": None},
    ]


def told(*found: dict[str, Any], hidden: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    return {"processes": list(found), "hidden": list(hidden)}


def test_a_job_forbids_the_run_and_a_pod_that_gives_no_answer_is_unknown() -> None:
    found = at_work(
        {"a on n1": told({"pid": 20, "name": "python", "rank": 3}), "b on n2": "it gave no answer", "c on n3": told()}
    )
    assert [(one.subject, one.verdict, one.message) for one in found] == [
        ("a on n1", Verdict.FAIL, "a job runs there: rank 3: python (20)"),
        ("b on n2", Verdict.UNKNOWN, "its use is unknown: it gave no answer"),
    ]
    assert found[0].hint == "end it or wait for it: a test in someone's job spoils both"


def test_where_nobody_is_at_work_all_is_well() -> None:
    assert [one.verdict for one in at_work({"a": told(), "b": told()})] == [Verdict.OK]


def test_processes_that_we_may_not_look_at_are_unknown() -> None:
    (found,) = at_work({"a": told(hidden=[{"pid": 9, "name": "python"}]), "b": told()})
    assert (found.subject, found.verdict) == ("a", Verdict.UNKNOWN)
    assert found.message == "GPU use of python (9) is unknown: permission denied"


def test_a_process_of_another_user_is_hidden_and_sshd_is_in_every_pod(tmp_path: Path) -> None:
    for pid, name in ((7, "python"), (8, "sshd")):
        process(tmp_path, pid, name)
    process(tmp_path, 9, "sh")
    seen = tmp_path / "9"
    assert program.unreadable_processes(tmp_path, is_readable=lambda folder: folder == seen) == [
        {"pid": 7, "name": "python"}
    ]
    assert program.is_readable(seen)
    assert program.is_readable(tmp_path / "gone")


def test_advice_for_hosts_is_none_for_pods() -> None:
    def said(rule: str, words: str) -> str:
        return advice(Finding(rule, "a", Verdict.FAIL, "it is wrong", hint=words))

    assert "gpuctl cluster doctor" in said("names", "put b into DNS, or into /etc/hosts of a")
    assert said("names", "") == ""
    assert said("idle", DRAIN).startswith("end it or wait for it")
    assert said("idle", "look for it with `fuser`") == "look for it with `fuser`"


def test_of_many_processes_only_a_few_are_named() -> None:
    (found,) = at_work({"a": told(*({"pid": n, "name": "python", "rank": n} for n in range(8)))})
    assert found.message.endswith("rank 2: python (2) and 5 more")
