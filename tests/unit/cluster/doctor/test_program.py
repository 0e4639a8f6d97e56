"""The program that looks at a pod, as it runs there: by itself on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from gpuctl.cluster.doctor import probe_pods, program
from gpuctl.cluster.doctor.pod import main
from gpuctl.edges.kube.pod_exec import Done
from gpuctl.remote import connection, packing
from tests.rig.cluster.snapshots import env_of


def started(asked: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    found = subprocess.Popen(
        packing.command(sys.executable), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert found.stdin is not None
    found.stdin.write(program.encode(asked))
    found.stdin.flush()
    return found


def request(folder: Path, **changed: Any) -> dict[str, Any]:
    asked = probe_pods.request(env_of(folder), ["lab-0", "lab-1"], "lab-1")
    return {**asked, "names": ["localhost"], "ssh": [], "master": None, "token": "tok ", "limit_s": 20.0, **changed}


def test_the_program_tells_all_of_a_real_machine_in_one_line(tmp_path: Path) -> None:
    running = started(request(tmp_path, sample_s=0.1))
    assert running.stdout is not None
    answer = program.decode(running.stdout.read(), "tok ")
    assert running.wait(10) == 0
    assert answer is not None
    assert answer["machine"]["cpus"] == os.cpu_count()
    assert answer["network"]["interfaces"]["lo"]["mtu"] > 0
    assert answer["disk"]["/"]["size"] > 0
    assert not any("unread" in each and "*" in each["unread"] for each in answer.values())


def test_the_program_ends_when_nobody_listens_any_more(tmp_path: Path) -> None:
    running = started(request(tmp_path, sample_s=30.0))
    assert running.stdin is not None
    begun = time.monotonic()
    running.stdin.close()
    running.wait(20)
    assert time.monotonic() - begun < 20


def test_a_subject_that_is_late_takes_no_other_along(tmp_path: Path) -> None:
    running = started(request(tmp_path, sample_s=5.0, limit_s=0.5))
    assert running.stdout is not None
    answer = program.decode(running.stdout.read(), "tok ")
    running.wait(10)
    assert answer is not None
    assert answer["jobs"]["unread"] == {"*": "no answer within 0.5 s"}
    assert answer["disk"]["/"]["size"] > 0


def test_all_subjects_that_hang_end_together_so_that_the_others_are_reported_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, limits = threading.Event(), list[float]()

    def late(job: object, limit_s: float, left_s: float) -> None:
        limits.append(left_s)
        time.sleep(0.1)

    monkeypatch.setattr(main, "SUBJECTS", {name: lambda *_: gone.wait() for name in ("a", "b", "c")})
    monkeypatch.setattr(main, "_result", late)
    main.gather(Host(tmp_path), {"limit_s": 20.0})
    gone.set()
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] < 20.0 - 0.15


def test_an_answer_that_is_garbled_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="incorrect"):
        program.decode(b"\ntok YWJjZGVmZ2hpamts\n", "tok ")


@pytest.mark.parametrize(
    ("done", "why"),
    [
        (Done(127, "exec: not found"), "its image has no python9 that can be run: exec: not found"),
        (Done(1, "gpuctl-old-python 3.6"), "its Python is 3.6"),
        (Done(1, "Traceback\nKeyError: 'x'"), "our program failed in the pod: KeyError: 'x'"),
        (Done(137, ""), "our program was killed in the pod (exit code 137)"),
    ],
)
def test_where_it_gave_no_answer_how_it_ended_is_reported_with_the_python_that_was_named(done: Done, why: str) -> None:
    assert probe_pods._parse(b"", "tok ", {}) is None
    assert connection.explain_exit(done, probe_pods.PROBING, "python9").wrong == why


def test_an_answer_that_is_cut_off_is_none() -> None:
    assert program.decode(b"noise\ntok eJxLTEo", "tok ") is None
    assert program.decode(b"noise", "tok ") is None


def test_a_pod_asks_for_those_after_it_and_the_first(tmp_path: Path) -> None:
    env = env_of(tmp_path, nodes=100)
    names = [env.pod_name(rank) for rank in range(100)]
    asked = probe_pods.request(env, names, "lab-90")
    assert [each["pod"] for each in asked["ssh"]] == [f"lab-{n}" for n in (*range(91, 100), *range(7))]
    assert asked["names"] == [f"lab-{n}.lab.team.svc" for n in (90, *range(91, 100), *range(7))]
    assert asked["master"] == {"host": "lab-0.lab.team.svc", "port": 29500}
