"""A GPU pod of `gpuctl eks pod` on a real node: ssh with checked host keys, keys, files, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import urllib3

from gpuctl.domain import public_keys
from gpuctl.edges import ports
from gpuctl.edges.ssh_keys import pair
from gpuctl.eks.gpu_pod import objects
from gpuctl.eks.gpu_pod.model import Form
from tests.integration.cluster.deploy import lab
from tests.integration.cluster.deploy.real_node import IMAGE, VOLUMES, WITH_JUPYTER, real_node
from tests.rig.command import Gpuctl, Said
from tests.rig.kube import node
from tests.rig.kube.plane import Plane

HOST = "lab.gpu.default.lab"
ROOM = ("--cpu", "300m", "--memory", "256Mi", "--shm", "64Mi")


@dataclass(frozen=True)
class Person:
    """A user with an ssh key, and a kubeconfig of the cluster."""

    gpuctl: Gpuctl

    @property
    def public(self) -> Path:
        return self.gpuctl.home / ".ssh/id_ed25519.pub"

    @property
    def files(self) -> Path:
        return self.gpuctl.home / ".config/gpuctl/ssh"

    def __call__(self, command: str, *words: object) -> Said:
        kubeconfig = str(self.gpuctl.home / "kubeconfig")
        return self.gpuctl("eks", command, "lab", "--context", "lab", *words, KUBECONFIG=kubeconfig)

    def run(self, script: str) -> Said:
        return self("connect", "--", script)


def person(home: Path, plane: Plane) -> Person:
    (home / ".ssh").mkdir(mode=0o700, parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / ".ssh/id_ed25519")], check=True)
    (home / "kubeconfig").write_text(json.dumps(plane.context("lab")))
    return Person(Gpuctl(home))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("cluster")
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o755)
    with real_node(folder, {"nvidia.com/gpu": "4"}) as plane:
        for pod in ("gpu", "bare"):
            _bring_workspace(plane, folder / VOLUMES, pod)
        yield plane


def _bring_workspace(plane: Plane, volumes: Path, pod: str) -> None:
    """The claim as gpuctl makes it, and a folder that heeds fsGroup, as a CSI driver's volumes do."""
    claim = objects.workspace(pod, Form(IMAGE, workspace="1Gi", storage_class="nfs"))
    plane.apply(claim)
    url = f"/api/v1/namespaces/default/persistentvolumeclaims/{claim['metadata']['name']}"
    lab.wait_for(lambda: plane.api("GET", url)["status"].get("phase") == "Bound")
    folder = volumes / plane.api("GET", url)["metadata"]["uid"]
    folder.mkdir()
    folder.chmod(0o777)


@pytest.fixture(scope="module")
def me(cluster: Plane, tmp_path_factory: pytest.TempPathFactory) -> Person:
    """The user who made the pod."""
    user = person(tmp_path_factory.mktemp("me") / "home", cluster)
    image = ("--image", WITH_JUPYTER, "--jupyter")
    made = user("pod", *image, *ROOM, "--key", user.public, "--no-agent", "-o", "json")
    assert made.code == 0, made.out + made.err
    checks = [(one["check"], one["verdict"]) for one in made.json["findings"]]
    assert checks == [("pod", "OK"), ("ssh", "OK"), ("jupyter", "OK")]
    return user


@pytest.fixture
def other(cluster: Plane, tmp_path: Path) -> Person:
    """A second user, who reaches the cluster, and whose key may not log in."""
    return person(tmp_path / "home", cluster)


def fingerprint(user: Person) -> str:
    (key,) = public_keys.parse(user.public.read_text(), "file", "read it")
    return key.fingerprint


def uid(plane: Plane) -> str:
    return str(plane.api("GET", "/api/v1/namespaces/default/pods/gpu")["metadata"]["uid"])


def test_the_pod_is_a_guaranteed_one_of_an_ordinary_user_with_its_cache_off_home(cluster: Plane, me: Person) -> None:
    shell = me.run("id -u; echo $HOME $HF_HOME; touch /workspace/stays; stat -f -c %T /dev/shm")
    assert (shell.code, shell.out.split()) == (
        0,
        ["1000", "/workspace/home", "/workspace/huggingface", "tmpfs"],
    ), shell.err
    assert cluster.api("GET", "/api/v1/namespaces/default/pods/gpu")["status"]["qosClass"] == "Guaranteed"


def test_files_are_copied_both_ways(me: Person, tmp_path: Path) -> None:
    source = tmp_path / "with spaces: and a colon"
    source.mkdir()
    (source / "weights").write_bytes(bytes(range(256)) * 4096)
    assert me("cp", source, ":/workspace/copy").code == 0
    assert me("cp", ":/workspace/copy", tmp_path / "back").code == 0
    assert (tmp_path / "back/weights").read_bytes() == (source / "weights").read_bytes()


def test_a_second_users_key_is_refused_added_and_revoked(me: Person, other: Person) -> None:
    refused = other.run("true")
    assert (refused.code, "Permission denied" in refused.err) == (255, True)
    theirs, mine = fingerprint(other), fingerprint(me)
    added = me("keys", "--key", other.public)
    assert (added.code, theirs in added.out, mine in added.out) == (0, True, True), added.err
    assert other.run("echo in").out == "in\n"
    ambiguous = me("keys", "--revoke", "file:id_ed25519.pub")  # both files have this name
    assert (ambiguous.code, theirs in ambiguous.err) == (2, True)
    revoked = me("keys", "--revoke", theirs)
    assert (revoked.code, theirs in revoked.out, mine in revoked.out) == (0, False, True), revoked.err
    assert other.run("true").code == 255
    assert me.run("echo in").out == "in\n"


def test_the_host_key_of_another_pod_is_refused(me: Person) -> None:
    known = me.files / f"{HOST}.known_hosts"
    before = known.read_text()
    known.write_text(f"{before.split()[0]} {pair()[1]}\n")
    refused = ssh(me, "true")
    assert (refused.returncode, "Host key verification failed" in refused.stderr) == (255, True)
    known.write_text(before)
    assert ssh(me, "echo in").stdout == "in\n"


def ssh(user: Person, command: str) -> subprocess.CompletedProcess[str]:
    """Plain ssh with the entry that gpuctl wrote."""
    key = str(user.gpuctl.home / ".ssh/id_ed25519")
    argv = ["ssh", "-F", str(user.files / f"{HOST}.conf"), "-i", key, HOST, command]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env=user.gpuctl.environment())


def test_a_forward_that_is_cut_ends_the_session_and_the_next_login_works(cluster: Plane, me: Person) -> None:
    kubeconfig = str(me.gpuctl.home / "kubeconfig")
    argv = ("eks", "connect", "lab", "--context", "lab", "--", "echo started; sleep 300")
    session = me.gpuctl.start(*argv, KUBECONFIG=kubeconfig)
    assert session.stdout is not None
    assert session.stdout.readline() == "started\n"
    lab.restart(cluster)
    assert session.wait(60) == 255
    lab.wait_for(lambda: me.run("echo in").out == "in\n")


def test_jupyter_is_forwarded_over_ssh_and_asks_for_its_token(me: Person) -> None:
    token = me("jupyter", "--token").out.strip()
    port = next(port for port in range(18888, 19888) if ports.free(port))
    words = ("eks", "jupyter", "lab", "--context", "lab", "--local", str(port))
    forward = me.gpuctl.start(*words, KUBECONFIG=str(me.gpuctl.home / "kubeconfig"))
    assert forward.stderr is not None
    assert forward.stderr.readline().startswith(f"Jupyter: http://127.0.0.1:{port} until Ctrl-C")
    lab.wait_for(lambda: ports.answers(port))
    statuses = [
        urllib3.request("GET", f"http://127.0.0.1:{port}/api/contents", headers=header, retries=False).status
        for header in ({}, {"Authorization": f"token {token}"})
    ]
    assert statuses == [403, 200]
    taken = me("jupyter", "--local", port)
    assert (taken.code, f"the local port {port} is in use" in taken.err) == (2, True)
    os.killpg(forward.pid, signal.SIGINT)
    assert forward.wait(30) in (130, 255)
    assert token not in me.run("cat /proc/[0-9]*/cmdline /proc/self/environ").out


def test_a_pod_that_was_deleted_is_made_again_with_its_workspace_and_another_host_key(
    cluster: Plane, me: Person
) -> None:
    assert me.run("touch /workspace/stays").code == 0
    before, key = uid(cluster), (me.files / f"{HOST}.known_hosts").read_text()
    cluster.kubectl("delete", "pod", "gpu")
    missing = me.run("true")
    assert (missing.code, "`gpuctl eks pod lab` makes it" in missing.err) == (2, True)
    made = me("pod", "--image", WITH_JUPYTER, *ROOM, "--no-agent")
    assert made.code == 0, made.out + made.err
    assert uid(cluster) != before
    assert me.run("ls /workspace").out.split()[-1] == "stays"
    now = (me.files / f"{HOST}.known_hosts").read_text()
    assert set(now.split()) & set(key.split()) == {"ssh-ed25519"}
    lab.wait_for(lambda: len(_host_secrets(cluster)) == 1)  # that of the pod before went with it


def _host_secrets(cluster: Plane) -> list[str]:
    return cluster.kubectl("get", "secrets", "-l", "gpuctl.io/part=host", "-o", "name").split()


def change_gpus(me: Person) -> Said:
    return me("pod", "--gpus", 2, "--no-agent")


def private_key(me: Person) -> Said:
    return me("pod", "--key", me.public.with_suffix(""))


def unknown_key(me: Person) -> Said:
    return me("keys", "--revoke", "SHA256:none")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (change_gpus, "gpus: 1, not 2"),
        (private_key, "it holds a private key"),
        (unknown_key, "no key is SHA256:none"),
    ],
)
def test_wrong_input_changes_nothing(
    command: Callable[[Person], Said], message: str, cluster: Plane, me: Person
) -> None:
    before = uid(cluster), me("keys").out
    refused = command(me)
    assert (refused.code, message in refused.err) == (2, True), refused.err
    assert (uid(cluster), me("keys").out) == before


def test_the_gpu_test_names_a_pod_without_driver(me: Person) -> None:
    tested = me("test-gpu", "-o", "json")
    assert (tested.code, tested.json["verdict"]) == (1, "FAIL")
    assert "no nvidia-smi" in tested.json["findings"][0]["message"]


def test_an_image_without_sshd_is_named(me: Person) -> None:
    made = me("pod", "--pod", "bare", "--image", node.IMAGE, *ROOM, "--key", me.public, "--no-agent", "-o", "json")
    assert made.code == 1
    assert made.json["findings"][0]["message"] == "the image has no sshd: ssh cannot reach the pod"
