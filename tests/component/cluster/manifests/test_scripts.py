"""The programs of a pod's start, run as they are in a folder of their own, with stand-ins for what an image brings."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from gpuctl.cluster.clusterfile.read import load
from gpuctl.cluster.environment import EnvironmentRequest, environment
from gpuctl.cluster.manifests.config import hostfile, start_files
from gpuctl.cluster.manifests.secret import IDENTITY, JUPYTER, KEYS, VSCODE
from gpuctl.remote import packing
from gpuctl.remote.connection import MODULES
from gpuctl.remote.model import Program
from gpuctl.remote.supervisor import frames, protocol
from tests.rig.cluster.files import OPENSHIFT

SECRET = {key: f"the-{key}" for key in KEYS}
EDITORS = ("sshd", "code-server", "jupyter-lab")
# Keeps its own words and its variables, and stays, as a server would.
STANDIN = """#!/bin/sh
echo "$@" >"$STANDINS/$(basename "$0").words"
env >"$STANDINS/$(basename "$0").env"
exec sleep 60
"""


@dataclass(frozen=True)
class Pod:
    """The folders of a pod that is not one."""

    folder: Path

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def variables(self, name: str) -> dict[str, str]:
        own = {"RUN": self.run, "KEYS": self.folder / "keys", "START": self.folder / "start"}
        return {
            **{f"GPUCTL_{word}": str(place) for word, place in own.items()},
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "POD_NAME": name,
            "STANDINS": str(self.folder / "standins"),
        }

    def words(self, program: str) -> str:
        return (self.folder / f"standins/{program}.words").read_text()

    def started(self) -> list[str]:
        return sorted(path.stem for path in (self.folder / "standins").glob("*.words"))

    @contextlib.contextmanager
    def starting(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the start program until the block ends."""
        with (self.folder / "log").open("wb") as log:
            words = ["sh", str(self.folder / "start/start.sh")]
            program = subprocess.Popen(words, env=self.variables(name), stdout=log, stderr=log, start_new_session=True)
        try:
            yield program
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, 9)
            program.wait()

    def ready(self, name: str, programs: int) -> None:
        """Start it, and wait until it is ready and so many stand-ins have begun."""
        with self.starting(name):
            until = time.monotonic() + 20
            while not (self.run / "ready").exists() or len(list((self.folder / "standins").glob("*.env"))) < programs:
                assert time.monotonic() < until, self.log
                time.sleep(0.02)


def made(folder: Path, programs: Mapping[str, str], secret: Mapping[str, str]) -> Pod:
    for name in ("run", "keys", "start", "bin", "home", "standins"):
        (folder / name).mkdir()
    for name, text in start_files(environment(load(OPENSHIFT))).items():
        (folder / "start" / name).write_text(text)
    for name, text in secret.items():
        (folder / "keys" / name).write_text(text)
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    return Pod(folder)


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return made(tmp_path, dict.fromkeys(EDITORS, STANDIN), SECRET)


def test_the_first_pod_knows_its_rank_and_starts_the_editors(pod: Pod) -> None:
    pod.ready("h100-roce-0", 3)
    assert (pod.run / "env").read_text() == "export NODE_RANK=0\numask 0002\n"
    assert pod.started() == ["code-server", "jupyter-lab", "sshd"]
    assert "gpuctl: rank 0, mode rdma" in pod.log


def test_every_other_pod_starts_sshd_alone(pod: Pod) -> None:
    pod.ready("h100-roce-11", 1)
    assert (pod.run / "env").read_text() == "export NODE_RANK=11\numask 0002\n"
    assert pod.started() == ["sshd"]


def test_a_pod_that_stands_alone_is_the_first(pod: Pod) -> None:
    pod.ready("h100-roce-single", 3)
    assert (pod.run / "env").read_text() == "export NODE_RANK=0\numask 0002\n"


def test_the_editors_find_their_passwords_in_files_of_this_user_alone(pod: Pod) -> None:
    pod.ready("h100-roce-0", 3)
    code_server = yaml.safe_load((pod.run / "code-server.yaml").read_text())
    assert (code_server["auth"], code_server["password"], code_server["bind-addr"]) == (
        "password",
        SECRET[VSCODE],
        "0.0.0.0:8080",
    )
    jupyter = json.loads((pod.run / "jupyter.json").read_text())
    assert jupyter["IdentityProvider"]["token"] == SECRET[JUPYTER]
    assert jupyter["ServerApp"]["port"] == 8888
    private = [pod.run / "code-server.yaml", pod.run / "jupyter.json", *(pod.run / "keys").iterdir()]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}


def test_no_command_line_no_variable_and_no_log_shows_a_secret(pod: Pod) -> None:
    pod.ready("h100-roce-0", 3)
    shown = [path.read_text() for path in (pod.folder / "standins").iterdir()]
    assert len(shown) == 6
    assert not [value for value in SECRET.values() if any(value in text for text in (*shown, pod.log))]


def test_what_is_not_exposed_listens_inside_the_pod_alone(tmp_path: Path) -> None:
    text = OPENSHIFT.read_text().replace("expose: [vscode, jupyter]", "expose: [jupyter]")
    (tmp_path / "one.yaml").write_text(text)
    settings = start_files(environment(load(tmp_path / "one.yaml")))["settings.sh"]
    assert "vscode_address=127.0.0.1\n" in settings
    assert "jupyter_address=0.0.0.0\n" in settings


def test_an_image_without_editors_is_reported_and_starts(tmp_path: Path) -> None:
    pod = made(tmp_path, {"sshd": STANDIN}, SECRET)
    pod.ready("h100-roce-0", 1)
    assert "no code-server in the image" in pod.log
    assert "no jupyter-lab in the image" in pod.log


def test_an_empty_secret_stops_the_pod_and_says_who_fills_it(tmp_path: Path) -> None:
    pod = made(tmp_path, {}, {key: text for key, text in SECRET.items() if key != IDENTITY})
    with pod.starting("h100-roce-0") as program:
        assert program.wait(20) == 1
    assert "the Secret is empty: gpuctl cluster deploy fills it" in pod.log
    assert not (pod.run / "ready").exists()


def test_a_pod_ends_when_it_is_reported_to(pod: Pod) -> None:
    with pod.starting("h100-roce-3") as program:
        until = time.monotonic() + 20
        while not (pod.run / "ready").exists() and time.monotonic() < until:
            time.sleep(0.02)
        program.terminate()
        assert program.wait(10) == 0


# Stays without a process of its own, as sshd does while nobody is logged in.
STANDIN_SSHD = """#!/bin/sh
mkfifo "$STANDINS/forever"
read -r line <"$STANDINS/forever"
"""
# Writes its checkpoint on SIGTERM, as trainings do; then ends.
STANDIN_TRAINING = """#!/bin/sh
trap 'sleep 0.5; echo saved >"$STANDINS/checkpoint"; exit 0' TERM
: >"$STANDINS/training"
while :; do sleep 0.05; done
"""


def test_a_deleted_pod_lets_its_training_write_a_checkpoint_and_then_ends(tmp_path: Path) -> None:
    pod = made(tmp_path, {"sshd": STANDIN_SSHD}, SECRET)
    (pod.folder / "bin/train").write_text(STANDIN_TRAINING)
    (pod.folder / "bin/train").chmod(0o755)
    # The first process of a PID namespace, as in a pod; an idle shell there ignores SIGTERM.
    script = f"train & sh -c \"trap '' TERM; exec sleep 60\" & exec sh {pod.folder}/start/start.sh"
    namespace = ["unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user"))]
    argv = [*namespace, "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
    with (pod.folder / "log").open("wb") as log:
        program = subprocess.Popen(argv, env=pod.variables("h100-roce-1"), stdout=log, stderr=log)
        until = time.monotonic() + 20
        while not all((pod.folder / name).exists() for name in ("run/ready", "standins/training", "standins/forever")):
            assert time.monotonic() < until, pod.log
            time.sleep(0.02)
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        os.kill(int(children[0]), 15)
        assert program.wait(20) == 0, pod.log
    assert (pod.folder / "standins/checkpoint").read_text() == "saved\n"
    assert "all programs have ended" in pod.log
    assert not (pod.run / "ready").exists()


# As above, and says how often SIGTERM came.
COUNTING_TRAINING = """#!/bin/sh
trap 'echo TERM >>"$STANDINS/signals"; sleep 1; echo saved >"$STANDINS/checkpoint"; exit 0' TERM
: >"$STANDINS/training"
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize("order", [protocol.RUN, protocol.START])
def test_a_supervised_training_of_a_deleted_pod_gets_sigterm_once(tmp_path: Path, order: str) -> None:
    pod = made(tmp_path, {"sshd": STANDIN_SSHD, "train": COUNTING_TRAINING}, SECRET)
    token = f"{protocol.DETACHED if order == protocol.START else ''}{'a' * 32}"
    more = {"runs": f"{tmp_path}/runs", "name": "one", "files": {}, "actor": "ann", "about": "train"}
    sent = Program(["train"], grace_s=10, token=token).order(order, **more)
    (tmp_path / "order").write_bytes(packing.packed(MODULES) + frames.pack(protocol.ORDER, sent))
    supervisor = shlex.join(packing.command(sys.executable))
    # The order stays open, as the connection of a client does; another program has no supervisor.
    client = f"{{ cat {tmp_path}/order; sleep 60; }} | {supervisor} >/dev/null"
    script = f"{client} & sleep 70 & exec sh {tmp_path}/start/start.sh"
    namespace = ["unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user"))]
    argv = [*namespace, "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
    with (pod.folder / "log").open("wb") as log:
        program = subprocess.Popen(argv, env=pod.variables("h100-roce-1"), stdout=log, stderr=log)
        until = time.monotonic() + 30
        while not all((pod.folder / name).exists() for name in ("run/ready", "standins/training", "standins/forever")):
            assert time.monotonic() < until, pod.log
            time.sleep(0.02)
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        os.kill(int(children[0]), 15)
        assert program.wait(30) == 0, pod.log
    assert (pod.folder / "standins/checkpoint").read_text() == "saved\n"
    assert (pod.folder / "standins/signals").read_text() == "TERM\n"


def test_what_a_pod_writes_its_group_may_change(pod: Pod) -> None:
    pod.ready("h100-roce-0", 3)
    assert (pod.run / "env").stat().st_mode & 0o777 == 0o664
    environment_of_sshd = (pod.folder / "standins/sshd.words").read_text()
    assert f"BASH_ENV={pod.run}/env" in environment_of_sshd
    assert "internal-sftp -u 002" in (pod.folder / "start/sshd_config").read_text()
    words = ["bash", "-c", "umask; echo $NODE_RANK"]
    told = subprocess.run(words, env={"BASH_ENV": f"{pod.run}/env"}, capture_output=True, text=True, check=True)
    assert told.stdout == "0002\n0\n"


def test_the_log_says_how_many_gpus_there_are_and_how_much_memory_may_be_locked(tmp_path: Path) -> None:
    listed = [f"echo 'GPU {number}: NVIDIA H100 80GB HBM3 (UUID: GPU-{number})'" for number in range(2)]
    smi = "\n".join(["#!/bin/sh", *listed, ""])
    pod = made(tmp_path, {"nvidia-smi": smi, "sshd": STANDIN}, SECRET)
    pod.ready("h100-roce-1", 1)
    assert "gpuctl: gpus 2 of 4" in pod.log
    assert "gpuctl: memlock " in pod.log


def test_the_pods_user_gets_a_name_and_a_home(tmp_path: Path) -> None:
    pod = made(tmp_path, {"id": '#!/bin/sh\n[ "$1" != -un ] || exit 1\necho 1000660000\n'}, SECRET)
    words = ["sh", str(pod.folder / "start/prepare.sh")]
    subprocess.run(words, env=pod.variables("h100-roce-0"), check=True, timeout=20)
    *others, own = (pod.run / "passwd").read_text().splitlines()
    assert own.startswith("gpuctl:x:1000660000:1000660000::/home/gpuctl:/bin/")
    assert others == Path("/etc/passwd").read_text().splitlines()


def test_a_user_that_the_image_knows_keeps_its_name_and_stands_there_once(tmp_path: Path) -> None:
    pod = made(tmp_path, {"id": '#!/bin/sh\n[ "$1" != -un ] || { echo root; exit; }\necho 0\n'}, SECRET)
    words = ["sh", str(pod.folder / "start/prepare.sh")]
    subprocess.run(words, env=pod.variables("h100-roce-0"), check=True, timeout=20)
    users = [line.split(":") for line in (pod.run / "passwd").read_text().splitlines()]
    assert [user[5] for user in users if user[2] == "0"] == ["/home/gpuctl"]


def test_the_hostfile_has_every_pod_by_its_name_with_its_gpus() -> None:
    assert hostfile(environment(load(OPENSHIFT), EnvironmentRequest(nodes=3))).splitlines() == [
        f"h100-roce-{rank}.h100-roce.nccl-test.svc slots=4" for rank in range(3)
    ]
    assert hostfile(environment(load(OPENSHIFT), EnvironmentRequest(single=True))) == "localhost slots=4\n"
