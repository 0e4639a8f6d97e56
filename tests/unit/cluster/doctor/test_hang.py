"""Each check of a hang, with what trips it and what passes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.doctor.diagnose import run_checks
from gpuctl.cluster.doctor.hang import HANG
from gpuctl.cluster.doctor.model import Facts, PodFacts
from tests.rig.cluster.environments import DATA, H100, ROCE, check, facts, lines, pod, ranks

LOST = (DATA / "nvidia-smi/device-lost.txt").read_text().strip()


def told(found: Facts, name: str) -> list[str]:
    return lines(check(HANG, name).run(found))


@pytest.mark.parametrize("each", [each for each in HANG.checks if not each.optional], ids=lambda each: each.name)
def test_no_check_finds_anything_in_a_job_that_is_well(each: Any, tmp_path: Path) -> None:
    found = facts(tmp_path, ROCE)
    assert lines(each.run(found)) == []
    assert each.run(found) != []


def test_pods_that_are_missing_or_not_ready_are_reported(tmp_path: Path) -> None:
    found = facts(tmp_path, pods={"lab-0": pod("lab-0", ready=False)})
    assert told(found, "pods") == [
        "FAIL Pod lab-0: it runs on gpu-0, and is not ready yet",
        "FAIL Pod lab-1: it does not exist",
    ]


def test_pods_that_say_nothing_are_unknown_and_no_other_check_speaks_for_them(tmp_path: Path) -> None:
    silent = {"lab-0": PodFacts(why="it cannot be probed"), "lab-1": PodFacts(why="it cannot be probed")}
    found = facts(tmp_path, ROCE, inside=silent)
    assert told(found, "probe") == ["UNKNOWN Pods lab-0, lab-1: it cannot be probed"]
    diagnosis = run_checks(HANG, found)
    assert diagnosis.cause == []
    assert not diagnosis.clean
    assert {"gpus", "adapters", "memlock", "ranks", "names"} <= {*diagnosis.skipped}


def test_pods_of_two_forms_or_images_are_reported(tmp_path: Path) -> None:
    pods = {"lab-0": pod("lab-0"), "lab-1": pod("lab-1", {"imageID": "mirror.example/ml@sha256:b"})}
    pods["lab-1"]["metadata"]["labels"]["controller-revision-hash"] = "r2"
    found = told(facts(tmp_path, pods=pods), "same")
    assert found == [
        "FAIL Pod lab-0, Pod lab-1: its revision is r1 in lab-0; its revision is r2 in lab-1",
        "FAIL Pod lab-0, Pod lab-1: it runs the image sha256:a in lab-0; it runs the image sha256:b in lab-1",
    ]


def test_a_pod_that_began_again_in_the_middle_of_the_job_is_reported_with_the_reason(tmp_path: Path) -> None:
    killed = {"restartCount": 1, "lastState": {"terminated": {"reason": "OOMKilled"}}, "state": {"running": {}}}
    pods = {"lab-0": pod("lab-0"), "lab-1": pod("lab-1", killed)}
    found = facts(tmp_path, pods=pods, tell={"lab-1": {"jobs": {"ranks": [], "age_s": 60}}})
    (line,) = told(found, "restarted")
    assert line.startswith("FAIL Pod lab-1: it started 60 s ago, the job's ranks in other pods 4000 s ago")
    assert line.endswith("(1 restarts, the last after OOMKilled)")
    assert [each.check for each in run_checks(HANG, found).cause] == ["restarted"]
    assert {each.check for each in run_checks(HANG, found).evidence} == {"ranks", "waits"}


def test_stopped_and_blocked_ranks_are_named_with_what_they_wait_in(tmp_path: Path) -> None:
    values = ranks(8, 8)
    values[0] |= {"state": "T", "still": True}
    values[1] |= {"state": "D", "still": True, "wait": "nfs_wait_bit_killable"}
    values[2] |= {"state": "D", "still": False}
    found = facts(tmp_path, tell={"lab-1": {"jobs": {"ranks": values}}})
    assert told(found, "stopped") == [
        "FAIL Pod lab-1: rank 8 (python3, process 100) is stopped",
        "FAIL Pod lab-1: rank 9 (python3, process 101) is blocked in the kernel, in nfs_wait_bit_killable",
    ]
    waits = "FAIL Pod lab-1: on lab-1 ranks 8, 9 are blocked in the kernel or stopped; lab-0 waits for it"
    assert told(found, "waits") == [waits]


def test_missing_ranks_are_reported_by_pod_and_by_number(tmp_path: Path) -> None:
    found = facts(tmp_path, tell={"lab-1": {"jobs": {"ranks": ranks(8, 8)[:7]}}})
    assert told(found, "ranks") == [
        "FAIL Pod lab-1: 7 of its 8 ranks run (rank 8, 9, 10, 11, 12, 13 and 1 more)",
        "FAIL lab: no process is rank 15 of the job",
    ]
    none = facts(tmp_path, tell={name: {"jobs": {"ranks": [], "hidden": 3}} for name in ("lab-0", "lab-1")})
    (line,) = told(none, "ranks")
    assert line.startswith("UNKNOWN lab: no rank of a job runs in any pod; 6 processes of other users")


def test_missing_ranks_may_be_in_a_pod_that_says_nothing(tmp_path: Path) -> None:
    found = facts(tmp_path)
    found = facts(tmp_path, inside={"lab-0": found.inside["lab-0"], "lab-1": PodFacts(why="no answer")})
    assert told(found, "ranks") == ["UNKNOWN Pods lab-1: ranks 8, 9, 10, 11, 12, 13 and 2 more may run there"]


def test_a_pod_that_a_whole_job_does_without_is_not_missed(tmp_path: Path) -> None:
    alone = {"lab-0": {"jobs": {"ranks": ranks(0, 8, world=8)}}, "lab-1": {"jobs": {"ranks": [], "age_s": 5}}}
    found = facts(tmp_path, tell=alone)
    assert [told(found, name) for name in ("restarted", "ranks", "waits")] == [[], [], []]


def test_two_jobs_at_the_same_time_do_not_agree_how_many_they_are(tmp_path: Path) -> None:
    found = facts(tmp_path, tell={"lab-1": {"jobs": {"ranks": ranks(8, 8, world=32)}}})
    assert told(found, "ranks") == ["FAIL lab: ranks disagree about their number: 16, 32"]


def test_a_rank_that_does_nothing_while_others_poll_is_who_they_wait_for(tmp_path: Path) -> None:
    values = ranks(8, 8)
    values[3] |= {"state": "S", "still": True}
    found = facts(tmp_path, tell={"lab-1": {"jobs": {"ranks": values}}})
    assert told(found, "waits") == ["FAIL Pod lab-1: on lab-1 rank 11 is doing nothing; lab-0 waits for it"]
    asleep = {name: {"jobs": {"ranks": ranks(0, 8, state="S", still=True)}} for name in ("lab-0", "lab-1")}
    assert told(facts(tmp_path, tell=asleep), "waits")[0].startswith("UNKNOWN lab:")


# ---- GPUs -----------------------------------------------------------------------------------------------------------


def gpu(**changed: Any) -> dict[str, Any]:
    return {"lab-1": {"gpu": changed}}


def test_gpus_that_do_not_answer_are_reported(tmp_path: Path) -> None:
    failed = facts(tmp_path, tell=gpu(xml="", error=LOST))
    assert told(failed, "gpus") == [f"FAIL Pod lab-1: nvidia-smi fails: {LOST}"]
    late = facts(tmp_path, tell=gpu(xml="", error="nvidia-smi gave no answer within 25 s", late=True))
    assert "the driver hangs" in told(late, "gpus")[0]
    seven = H100[: H100.rindex("<gpu id=")] + "</nvidia_smi_log>"
    fewer = facts(tmp_path, tell=gpu(xml=seven, error=LOST))
    assert told(fewer, "gpus") == [f"FAIL Pod lab-1: 7 of its 8 GPUs answer: {LOST}"]
    absent = facts(tmp_path, tell=gpu(xml="", error="nvidia-smi: not on this host", missing=True))
    assert told(absent, "gpus") == ["UNKNOWN Pod lab-1: its GPUs are unknown: nvidia-smi: not on this host"]


def test_a_pending_repair_of_gpu_memory_is_reported(tmp_path: Path) -> None:
    ill = H100.replace("<remapped_row_pending>No<", "<remapped_row_pending>Yes<", 1)
    assert told(facts(tmp_path, tell=gpu(xml=ill)), "gpu memory") == ["FAIL Pod lab-1: GPU 0: a row remap is pending"]


@pytest.mark.parametrize("word", ["[GPU requires reset]", "[Unknown Error]", "ERR!", "GPU is lost"])
def test_an_error_word_of_nvidia_smi_is_a_failure(tmp_path: Path, word: str) -> None:
    sick = H100.replace("<remapped_row_pending>No<", f"<remapped_row_pending>{word}<", 1)
    found = facts(tmp_path, tell=gpu(xml=sick))
    message = f'nvidia-smi reports "{word.strip("[]")}" for remapped_row_pending'
    assert told(found, "gpus") == [f"FAIL Pod lab-1: GPU 0: {message}"]
    assert told(found, "gpu memory") == [
        f"UNKNOWN Pod lab-1: GPU 0: pending repairs are unknown: remap_pending: {word}"
    ]


def standin_at_work(power_w: float, busy: int = 100) -> str:
    """The machine as nvidia-smi shows it with its GPUs at work."""
    text = H100.replace("<gpu_util>0 %", f"<gpu_util>{busy} %")
    parts = text.split("<gpu_power_readings>")
    drawn = [
        part[: part.index("<power_draw>")] + f"<power_draw>{power_w} W" + part[part.index("</power_draw>") :]
        for part in parts[1:]
    ]
    return "<gpu_power_readings>".join([parts[0], *drawn])


def test_gpus_that_do_nothing_while_others_wait_in_nccl_are_reported(tmp_path: Path) -> None:
    found = facts(tmp_path, tell={"lab-0": {"gpu": {"xml": standin_at_work(130)}}})
    (line,) = told(found, "gpu use")
    assert line.startswith("FAIL Pod lab-1: its GPUs are idle while those of lab-0 wait")
    all_wait = {name: {"gpu": {"xml": standin_at_work(130)}} for name in ("lab-0", "lab-1")}
    assert told(facts(tmp_path, tell=all_wait), "gpu use")[0].startswith("WARN lab: GPUs of every pod wait")
    work = {name: {"gpu": {"xml": standin_at_work(650)}} for name in ("lab-0", "lab-1")}
    assert told(facts(tmp_path, tell=work), "gpu use") == []


def test_the_kernels_log_is_left_to_an_admin_and_does_not_count(tmp_path: Path) -> None:
    found = run_checks(HANG, facts(tmp_path, ROCE))
    (each,) = (each for each in found.unavailable if each.check == "kernel log")
    assert each.subject == "Nodes gpu-0, gpu-1"
    assert "dmesg" in each.hint
    assert found.clean
