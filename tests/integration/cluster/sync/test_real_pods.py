"""Syncs to real pods: containers on a real node, reached through a real API."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuctl.cli.cluster.sync import sync as command
from gpuctl.cluster.sync import excludes, flow, pods, watch
from gpuctl.cluster.sync.local import Local
from gpuctl.cluster.sync.model import Outcome
from gpuctl.cluster.sync.push import SyncRequest
from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.domain.findings import Verdict
from gpuctl.domain.kube_errors import NotFound
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.pod_exec import BrokenOff, Command, NotStarted
from tests.integration.cluster.sync.cut import Cut
from tests.integration.cluster.sync.pods import SHARED, files_in, hashes, inside, pod, real_node, start
from tests.integration.cluster.sync.watching import AWAIT, Heard, until
from tests.rig.cluster.files import write
from tests.rig.cluster.receiver import fill
from tests.rig.kube.plane import Plane

OWN: dict[str, Any] = {"/workspace": {"emptyDir": {}}}
TARGET = "/workspace/code"
PYTHON = ["python3", "-ISc"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("disks")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Plane]:
    with real_node(folder) as started:
        shared, small = ({"hostPath": {"path": str(folder / name)}} for name in (SHARED, "small"))
        listed = [pod(f"lab-{number}", "lab", OWN) for number in range(2)]
        listed += [pod(f"team-{number}", "team", {"/workspace": shared}) for number in range(2)]
        listed += [pod("small-0", "small", {"/workspace": small})]
        bare = pod("bare-0", "bare", OWN)
        bare["spec"]["containers"][0]["volumeMounts"].pop(0)
        start(started, *listed, bare)
        yield started


@pytest.fixture
def found(cluster: Plane) -> kube.Cluster:
    return kube.connect(files=[cluster.kubeconfig])


@pytest.fixture
def here(tmp_path: Path) -> Path:
    fill(tmp_path / "here", {"train.py": "print(1)", "pkg/model.py": "x = 1", "pkg/deep/data.txt": "data"})
    return tmp_path / "here"


def sync(found: kube.Cluster, here: Path, *names: str, target: str = TARGET, force: bool = False) -> list[Outcome]:
    targets = pods.named(found, names, target)
    return flow.sync(
        flow.PodConnector(found), targets, Local(here, excludes.read_patterns(here, [])), SyncRequest(target, force)
    )


def in_pod(cluster: Plane, name: str, target: str = TARGET) -> dict[str, str]:
    return files_in(cluster, name, target)


# ---- programs in containers -----------------------------------------------------------------------------------------


def test_a_program_tells_its_exit_code_and_what_it_complained_of(found: kube.Cluster) -> None:
    printed: list[bytes] = []
    program = "import sys; print('out'); print('wrong', file=sys.stderr); sys.exit(7)"
    done = pod_exec.run(found, "lab-0", Command([*PYTHON, program]), out=printed.append)
    assert (done.code, done.err, b"".join(printed)) == (7, "wrong", b"out\n")


def test_words_reach_the_program_as_they_are(found: kube.Cluster) -> None:
    words = ["a b", "$(id)", "'\"", "", "ü☃", "--", "a\nb"]
    printed: list[bytes] = []
    program = "import json, os, sys; print(json.dumps(list(map(os.fsdecode, map(os.fsencode, sys.argv[1:])))))"
    pod_exec.run(found, "lab-0", Command([*PYTHON, program, *words]), out=printed.append)
    assert json.loads(b"".join(printed)) == words


def test_input_and_output_flow_at_the_same_time(found: kube.Cluster) -> None:
    data, times = os.urandom(1 << 20), 16
    program = f"""
import hashlib, sys
digest, left = hashlib.sha256(), {times << 20}
while left:
    part = sys.stdin.buffer.read(min(left, 1 << 16))
    left -= len(part)
    digest.update(part)
    sys.stdout.buffer.write(part)
print(digest.hexdigest(), file=sys.stderr)
"""
    back = hashlib.sha256()
    done = pod_exec.run(found, "lab-0", Command([*PYTHON, program]), (data for _ in range(times)), back.update)
    assert done.err == back.hexdigest() == hashlib.sha256(data * times).hexdigest()


def test_a_missing_program_a_missing_pod_and_a_missing_container_are_reported_apart(found: kube.Cluster) -> None:
    with pytest.raises(NotStarted, match="cannot run no-such-program in the pod lab-0"):
        pod_exec.run(found, "lab-0", Command(["no-such-program"]))
    with pytest.raises(NotFound, match='pods "nobody" not found'):
        pod_exec.run(found, "nobody", Command(["python3"]))
    with pytest.raises(GpuctlError, match="container other is not valid for pod lab-0"):
        pod_exec.run(found, "lab-0", Command(["python3"], container="other"))


def test_a_broken_connection_is_no_exit_code(cluster: Plane, tmp_path: Path) -> None:
    with Cut(cluster, tmp_path) as way:
        through = kube.connect(files=[way.kubeconfig])
        program = pod_exec.start(
            through, "lab-0", Command([*PYTHON, "import time; print(1, flush=True); time.sleep(9)"])
        )
        assert program.read() == b"1\n"
        way.now()
        assert program.read() == b""
        with pytest.raises(Unreachable, match="the connection broke before it ended"):
            program.done()
        program.close()


def test_a_silent_program_and_a_stop_end_the_waiting(found: kube.Cluster) -> None:
    sleeps = [*PYTHON, "import time; time.sleep(20)"]
    with pytest.raises(Unreachable, match="it has not answered for 1 s"):
        pod_exec.run(found, "lab-0", Command(sleeps, silent_s=1))
    stop = Stop()
    threading.Timer(0.5, stop.set).start()
    begun = time.monotonic()
    with pytest.raises(BrokenOff):
        pod_exec.run(found, "lab-0", Command(sleeps, stop=stop))
    assert time.monotonic() - begun < 15  # the program sleeps for 20 s


# ---- syncs ----------------------------------------------------------------------------------------------------------


def test_five_thousand_files_reach_two_pods_and_are_the_same_there(
    cluster: Plane, found: kube.Cluster, tmp_path: Path
) -> None:
    here = tmp_path / "many"
    fill(here, {f"pkg{n % 50}/sub{n % 7}/mod{n}.py": f"def f{n}():\n    return {n}\n" * 30 for n in range(5000)})
    first = sync(found, here, "lab-0", "lab-1", target="/workspace/many")
    assert [(each.files, each.verdict) for each in first] == [(5000, Verdict.OK)] * 2
    assert in_pod(cluster, "lab-0", "/workspace/many") == hashes(here)
    assert in_pod(cluster, "lab-1", "/workspace/many") == hashes(here)
    (here / "pkg1/sub1/mod1.py").write_text("changed")
    again = sync(found, here, "lab-0", "lab-1", target="/workspace/many")
    assert [(each.files, each.bytes) for each in again] == [(1, 7)] * 2


def test_a_transfer_that_breaks_half_way_goes_on_and_is_right(cluster: Plane, here: Path, tmp_path: Path) -> None:
    for number in range(8):
        (here / f"part-{number}.bin").write_bytes(os.urandom(1 << 20))
    with Cut(cluster, tmp_path, after=4 << 20) as way:
        (outcome,) = sync(kube.connect(files=[way.kubeconfig]), here, "lab-0", target="/workspace/broken")
        assert way.cuts == 1
    assert (outcome.verdict, outcome.wrong) == (Verdict.OK, "")
    assert 0 < outcome.files < 11  # the second try sent only the rest
    assert in_pod(cluster, "lab-0", "/workspace/broken") == hashes(here)


def test_what_was_changed_in_one_pod_is_kept_there_and_the_other_gets_it(
    cluster: Plane, found: kube.Cluster, here: Path
) -> None:
    sync(found, here, "lab-0", "lab-1")
    writes = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    inside(cluster, "lab-0", writes, f"{TARGET}/train.py", "mine")
    inside(cluster, "lab-0", writes, f"{TARGET}/checkpoint.pt", "weights")
    (here / "train.py").write_text("print(2)")
    (here / "pkg/model.py").unlink()
    first, second = sync(found, here, "lab-0", "lab-1")
    assert [(each.path, each.why) for each in first.kept] == [("train.py", "changed in the pod since the last sync")]
    assert (first.deleted, second.deleted, second.kept) == (1, 1, ())
    there = in_pod(cluster, "lab-0")
    assert there["train.py"] == hashlib.sha256(b"mine").hexdigest()
    assert set(there) == {"train.py", "checkpoint.pt", "pkg/deep/data.txt"}
    assert in_pod(cluster, "lab-1") == hashes(here)
    sync(found, here, "lab-0", force=True)
    assert in_pod(cluster, "lab-0")["train.py"] == hashes(here)["train.py"]


def test_a_folder_that_pods_share_is_written_once_and_seen_by_all(
    cluster: Plane, found: kube.Cluster, here: Path
) -> None:
    first, second = sync(found, here, "team-0", "team-1")
    assert (first.kind, first.files, second.kind, second.files) == ("sync", 3, "sees", 3)
    assert second.verdict is Verdict.OK
    assert in_pod(cluster, "team-1") == hashes(here)


def test_a_full_disk_is_reported_keeps_what_was_there_and_can_be_repeated(
    cluster: Plane, found: kube.Cluster, here: Path
) -> None:
    (before,) = sync(found, here, "small-0")
    assert before.verdict is Verdict.OK
    (here / "large.bin").write_bytes(os.urandom(2 << 20))
    (here / "train.py").write_text("print(2)")
    (outcome,) = sync(found, here, "small-0")
    assert (outcome.verdict, outcome.wrong) == (Verdict.FAIL, "its disk is full (No space left on device)")
    assert "large.bin" not in in_pod(cluster, "small-0")
    assert in_pod(cluster, "small-0")["pkg/model.py"] == hashes(here)["pkg/model.py"]
    (here / "large.bin").unlink()
    (again,) = sync(found, here, "small-0")
    assert again.verdict is Verdict.OK
    assert in_pod(cluster, "small-0") == hashes(here)


def test_a_renamed_file_for_which_there_is_no_room_gives_up_its_old_name_and_then_fits(
    cluster: Plane, found: kube.Cluster, here: Path
) -> None:
    (here / "old.bin").write_bytes(os.urandom(600 << 10))  # the disk has 1 MiB
    (before,) = sync(found, here, "small-0", target="/workspace/renamed")
    assert before.verdict is Verdict.OK
    (here / "old.bin").rename(here / "renamed.bin")
    (outcome,) = sync(found, here, "small-0", target="/workspace/renamed")
    assert (outcome.wrong, outcome.deleted) == ("its disk is full (No space left on device)", 1)
    (again,) = sync(found, here, "small-0", target="/workspace/renamed")
    assert (again.files, again.verdict) == (1, Verdict.OK)
    assert in_pod(cluster, "small-0", "/workspace/renamed") == hashes(here)


def test_an_image_without_python_and_a_pod_that_does_not_run_are_reported(found: kube.Cluster, here: Path) -> None:
    bare, running = sync(found, here, "bare-0", "lab-0")
    assert bare.wrong.startswith("its image has no python3 that can be run: ")
    assert "--python names another one" in bare.hint
    assert (bare.verdict, running.verdict) == (Verdict.UNKNOWN, Verdict.OK)


def test_a_cluster_file_says_which_pods_and_a_check_changes_nothing(
    cluster: Plane, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    ours, others = pod("lab-0", "lab", OWN), pod("other-0", "other", OWN)
    for each in (ours, others):
        each["metadata"]["namespace"] = "team"
    start(cluster, ours, others)
    about = {"api": f"https://{cluster.address}:{cluster.port}", "namespace": "team"}
    words = [str(write(tmp_path, {"cluster": about})), "--source", str(here)]
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))

    def told(*more: str) -> list[tuple[str, int, str]]:
        done = CliRunner().invoke(command, [*words, "--output", "json", *more], catch_exceptions=False)
        assert done.exit_code == 0
        return [(each["pod"], each["files"], each["verdict"]) for each in json.loads(done.stdout)["pods"]]

    assert told("--check") == told("--check") == told() == [("lab-0", 3, "OK")]
    assert told("--check") == [("lab-0", 0, "OK")]


def test_who_may_not_exec_is_reported_what_to_ask_for(cluster: Plane, here: Path) -> None:
    at = {"namespace": "default"}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    names = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "looks", **at}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looks"}
    subject = {"kind": "ServiceAccount", "name": "default", **at}
    cluster.apply(
        {**names, "kind": "Role", "rules": [rule]},
        {**names, "kind": "RoleBinding", "subjects": [subject], "roleRef": role},
    )
    (outcome,) = sync(kube.connect(files=[cluster.as_account(cluster.folder)]), here, "lab-0")
    assert outcome.wrong.endswith('default" has no permission to get pods/exec in the namespace default')
    assert outcome.hint == "ask for a role that allows get and create of pods/exec"


def test_a_kubeconfig_of_another_cluster_is_refused(
    cluster: Plane, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    with pytest.raises(InvalidInput, match=r"the cluster file is for https://lab\.example\.org:6443"):
        CliRunner().invoke(command, [str(write(tmp_path)), "--source", str(here)], catch_exceptions=False)


# ---- watching -------------------------------------------------------------------------------------------------------


@pytest.fixture
def watched(found: kube.Cluster, here: Path) -> Iterator[Heard]:
    heard, stop, begun = Heard(), Stop(), threading.Event()
    targets = pods.named(found, ["lab-0", "lab-1"], "/workspace/watched")
    local = Local(here, excludes.read_patterns(here, []))
    settings = watch.Settings(flow.PodConnector(found, stop=stop), local, SyncRequest("/workspace/watched"), heard)
    thread = threading.Thread(target=watch.watch, args=(settings, targets, begun.set))
    thread.start()
    assert begun.wait(10)
    until(lambda: set(heard.versions) == {"lab-0", "lab-1"})
    yield heard
    stop.set()
    thread.join(20)
    assert not thread.is_alive()


def test_an_edit_is_in_the_pods_in_less_than_a_second(found: kube.Cluster, here: Path, watched: Heard) -> None:
    assert set(watched.versions) == {"lab-0", "lab-1"}
    took = []
    for number in range(3):
        command = Command([*PYTHON, AWAIT, "/workspace/watched/train.py", f"edit {number}"])
        waiting = pod_exec.start(found, "lab-1", command)
        assert waiting.read() == b"ready\n"
        begun = time.monotonic()
        (here / "train.py").write_text(f"edit {number}")
        assert waiting.read() == b"there\n"
        took.append(time.monotonic() - begun)
        waiting.close()
    assert min(took) < 1, took


def test_a_pod_that_is_replaced_gets_everything_again(cluster: Plane, here: Path, watched: Heard) -> None:
    cluster.kubectl("delete", "pod", "lab-1", "--wait=true")
    until(lambda: "lab-1" in watched.lost)
    (here / "train.py").write_text("written while it was away")
    start(cluster, pod("lab-1", "lab", OWN))
    until(lambda: watched.versions["lab-1"] == watched.latest and watched.latest > 1)
    until(lambda: in_pod(cluster, "lab-1", "/workspace/watched") == hashes(here))
    assert in_pod(cluster, "lab-0", "/workspace/watched") == hashes(here)
