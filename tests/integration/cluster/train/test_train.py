"""`gpuctl cluster train` and `test` in two real pods: launchers are stand-ins, ssh, sockets and processes are real."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster.deploy import lab as made
from tests.integration.cluster.deploy.lab import wait_for
from tests.integration.cluster.deploy.real_node import IMAGE, VOLUMES, real_node
from tests.integration.cluster.train import pods
from tests.integration.cluster.train.pods import Env
from tests.rig.command import GPUCTL
from tests.rig.kube import node
from tests.rig.reports import valid_json, valid_junit, valid_metrics

STANDINS = Path(__file__).with_name("standins")
PRINTED = Path("tests/data/nvidia-smi/570-h100-8gpu.xml")
SMALL = {
    "image": {"name": IMAGE},
    "resources": {"cpu": "700m", "memory": "512Mi", "shm": "64Mi"},  # what they get, at most, too
    "gpus": {"per_node": 1},
}
LIMIT_S = 90


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Env]:
    folder = tmp_path_factory.mktemp("node")
    with real_node(folder) as started, pods.names(tmp_path_factory.mktemp("names")) as names:
        labs = made.namespaces(started, tmp_path_factory.mktemp("lab"))
        found = pods.two(next(labs), names, folder / VOLUMES, SMALL)
        _bring(found)
        yield found


def _bring(env: Env) -> None:
    """Launchers and the training, where the pods' PATH finds them."""
    (env.workspace / "bin").mkdir()
    for path in STANDINS.iterdir():
        name = path.name.removeprefix("standin-")
        shutil.copy(path, env.workspace / (f"bin/{name}" if name != path.name else name))
    env.workspace.chmod(0o777)


def gpuctl(env: Env, *words: str) -> list[str]:
    return [str(GPUCTL), "cluster", words[0], str(env.path), *words[1:]]


def around(env: Env) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(env.lab.plane.kubeconfig)}


def run(env: Env, *words: str) -> subprocess.CompletedProcess[str]:
    argv = gpuctl(env, *words)
    return subprocess.run(argv, env=around(env), capture_output=True, text=True, timeout=LIMIT_S, check=False)


def started(env: Env, *words: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(gpuctl(env, *words), env=around(env), text=True, stdout=pipe, stderr=pipe)


def trainings(env: Env) -> list[str]:
    """What runs of the training in both pods."""
    told = [env.inside(f"lab-{rank}", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '") for rank in range(2)]
    return [f"lab-{rank}" for rank, text in enumerate(told) if "train.py" in text]


def until_said(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"it ended before it said {words!r}: {process.communicate()[1]}")


def test_two_processes_in_two_pods_meet_and_end_well(env: Env) -> None:
    done = run(env, "train", "--env", "WORD=a b", "--all-output", "train.py")
    assert "rank 0 of 2: the sum is 1, a b\n" in done.stdout, done.stderr
    assert "lab-1: rank 1 of 2: the sum is 1, a b\n" in done.stdout
    assert "UNKNOWN  gpus            lab-0, lab-1: the image has no nvidia-smi" in done.stdout
    assert "completed successfully" in done.stderr
    assert "launcher: torchrun: all pods have it; --launcher deepspeed-nossh is for scripts that need" in done.stderr
    assert (done.returncode, trainings(env)) == (0, [])


def test_check_shows_what_each_pod_would_run_and_finds_what_is_wrong_at_once(env: Env) -> None:
    host = f"lab-0.lab.{env.lab.namespace}.svc"
    done = run(env, "train", "--check", "--launcher", "torchrun", "train.py", "--check", "x y")
    command = f"torchrun --nnodes=2 --node_rank=1 --nproc_per_node=1 --master_addr={host} --master_port=29500"
    assert f"lab-1: {command} train.py --check 'x y'\n" in done.stdout, done.stderr
    done = run(env, "train", "--check", "--launcher", "deepspeed-nossh", "gone.py")
    assert "FAIL     script          lab-0, lab-1: it cannot be read: No such file or directory" in done.stdout
    assert "launcher        lab-0, lab-1: " in done.stdout
    assert done.returncode == 1


def test_the_pod_that_fails_is_named_and_the_one_that_hangs_is_ended(env: Env) -> None:
    done = run(env, "train", "--launcher", "torchrun", "train.py", "1", "fails")
    assert "lab-1: rank 1 ran out of memory\nFAIL     exit            lab-1: ended with exit code 7" in done.stderr
    assert "no process of it is left in lab-0, lab-1" in done.stderr
    assert (done.returncode, trainings(env)) == (1, [])


def test_ctrl_c_ends_it_in_all_pods_and_says_so(env: Env) -> None:
    with started(env, "train", "--launcher", "torchrun", "train.py", "all", "wait") as process:
        until_said(process, "rank 0 waits")
        assert trainings(env) == ["lab-0", "lab-1"]
        process.send_signal(signal.SIGINT)
        assert "no process of it is left in lab-0, lab-1" in process.communicate(timeout=LIMIT_S)[1]
    assert (process.returncode, trainings(env)) == (130, [])


def test_it_outlives_us_by_hostfile_and_ssh_and_is_found_and_ended_in_both_pods(env: Env) -> None:
    with started(env, "train", "--launcher", "deepspeed", "--env", "WORD=w", "train.py", "all", "wait") as process:
        until_said(process, "lab-1: rank 1 waits")
        process.kill()
        process.communicate()
    assert trainings(env) == ["lab-0", "lab-1"]
    second = run(env, "train", "--launcher", "torchrun", "train.py")
    assert "FAIL     busy            lab-0: train.py of" in second.stdout
    spared = run(env, "destroy")
    assert "FAIL     busy            lab-0: train.py of" in spared.stderr
    assert (spared.returncode, trainings(env)) == (2, ["lab-0", "lab-1"])  # nobody was there to say yes
    with started(env, "train", "--attach") as process:
        until_said(process, "lab-1: rank 1 of 2: the sum is 1, w")
        process.send_signal(signal.SIGINT)
        assert "the training continues" in process.communicate(timeout=LIMIT_S)[1]
    ended = run(env, "train", "--stop")
    assert "no process of it is left in lab-0, lab-1" in ended.stderr
    wait_for(lambda: trainings(env) == [])
    assert ended.returncode == 0


def test_by_ssh_too_the_pod_that_fails_is_named_though_the_other_hangs(env: Env) -> None:
    done = run(env, "train", "--launcher", "deepspeed", "train.py", "1", "fails")
    assert "rank 1 ran out of memory" in done.stderr
    assert "FAIL     exit            lab-1: ended with exit code 7" in done.stderr
    assert (done.returncode, trainings(env)) == (1, [])


def test_test_shows_a_row_a_pod_and_what_is_not_as_the_file_says(env: Env) -> None:
    replay = env.workspace / "bin/nvidia-smi"
    shutil.copy(PRINTED, env.workspace / "printed.xml")
    listed = "echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)'"
    replay.write_text(
        f"#!/bin/sh\n# Stands in for nvidia-smi.\n[ $1 = -L ] && {listed} || cat /workspace/printed.xml\n"
    )
    replay.chmod(0o755)
    done = run(env, "test")
    head, first, *_ = done.stdout.splitlines()
    assert head.split() == ["POD", "NODE", "GPUS", "DRIVER", "SHM", "RDMA", "MEMLOCK"]
    assert first.split()[:4] == ["lab-0", node.NAME, "OK", "1"]
    assert f"next: gpuctl cluster test {env.path} --bandwidth" in done.stderr
    assert done.returncode == 0, done.stdout
    replay.write_text(
        "#!/bin/sh\necho 'Unable to determine the device handle for GPU0000:91:00.0: Unknown Error'; exit 9\n"
    )
    done = run(env, "test")
    assert "FAIL     gpus            lab-0, lab-1: nvidia-smi: Unable to determine the device handle" in done.stdout
    assert done.returncode == 1
    replay.unlink()


def test_reports_of_test_and_doctor_fit_their_formats(env: Env, tmp_path: Path) -> None:
    metrics = tmp_path / "test.prom"
    tested = run(env, "test", "-o", "junit", "--metrics", str(metrics))
    assert tested.returncode == 1, tested.stdout  # the image has no nvidia-smi
    assert {"failure", "error"} & set(valid_junit(tested.stdout).values())
    assert {row["command"] for row, _ in valid_metrics(metrics.read_text())["gpuctl_findings"]} == {"cluster test"}
    assert valid_json(run(env, "test", "-o", "json").stdout)["command"] == "cluster test"
    diagnosed = run(env, "doctor", "hang", "-o", "junit", "--metrics", str(metrics))
    cases = valid_junit(diagnosed.stdout)
    assert ("gpuctl.cluster.doctor.pods", "pods") in cases, diagnosed.stdout
    targets = {row["target"] for row, _ in valid_metrics(metrics.read_text())["gpuctl_check_severity"]}
    assert targets == {"lab hang"}


def test_what_ssh_began_is_found_and_ended_though_the_pod_that_knew_of_it_was_made_anew(env: Env) -> None:
    """The last one here: the new pod's address is told to nobody."""
    with started(env, "train", "--launcher", "deepspeed", "train.py", "all", "wait") as process:
        until_said(process, "lab-1: rank 1 waits")
        process.kill()
        process.communicate()
    before = _uid(env)
    env.lab.plane.kubectl("delete", "pod", "lab-0", "-n", env.lab.namespace, "--wait=false")
    wait_for(lambda: _uid(env) not in ("", before), pods.PATIENCE)
    env.lab.plane.kubectl("wait", "pod/lab-0", "-n", env.lab.namespace, "--for=condition=Ready", "--timeout=180s")
    assert trainings(env) == ["lab-1"]
    ended = run(env, "train", "--stop")
    assert "unrecorded processes that still run in lab-1: " in ended.stderr
    assert "train.py all wait\nno process of it is left in lab-0, lab-1" in ended.stderr
    wait_for(lambda: trainings(env) == [])
    assert ended.returncode == 0


def _uid(env: Env) -> str:
    found = {each["metadata"]["name"]: each["metadata"]["uid"] for each in env.lab.get("pods")["items"]}
    return str(found.get("lab-0", ""))
