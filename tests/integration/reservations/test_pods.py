"""Reservations whose sessions are pods of a real node: ssh with checked keys, warnings, disks, and what goes wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3

from gpuctl.edges import ports
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.ssh_keys import pair
from gpuctl.reservations.agent import NotReady
from gpuctl.reservations.database import FileDatabase
from gpuctl.workflows.reservations_disk_objects import SNAPSHOT_API, claim, claim_name
from gpuctl.workflows.reservations_disks import ClusterDisks
from gpuctl.workflows.reservations_pod_objects import Sizes
from tests.integration.cluster.deploy import lab
from tests.integration.cluster.deploy.real_node import IMAGE, VOLUMES, WITH_JUPYTER, real_node
from tests.integration.reservations.test_single_server import CALL
from tests.rig.command import Gpuctl, Said
from tests.rig.kube import node
from tests.rig.kube.plane import Plane

EXAMPLE = Path(__file__).parents[3] / "examples/reservations/kubernetes.yaml"
NAMESPACE = "gpu-reservations"
SIZES = Sizes("100m", "64Mi", "1Gi", "nfs")


@dataclass
class Site:
    """A service of the cluster, and its user root, who has a key."""

    plane: Plane
    gpuctl: Gpuctl
    socket: Path
    service: subprocess.Popen[str] | None = None

    @property
    def public(self) -> Path:
        return self.gpuctl.home / ".ssh/id_ed25519.pub"

    def serve(self, *words: str) -> None:
        options = ("--cpu", SIZES.cpu, "--memory", SIZES.memory, "--disk-size", SIZES.disk)
        of_cluster = ("--context", "lab", "--image", IMAGE, "--storage-class", SIZES.storage_class, *options)
        at = ("--type", "h100", "--socket", self.socket, "--state", self.gpuctl.home / "state")
        kubeconfig = self.gpuctl.home / "kubeconfig"
        self.service = self.gpuctl.start(
            "reservations", "serve", *of_cluster, *at, "--kubeconfig", kubeconfig, *words, stderr=subprocess.STDOUT
        )
        assert self.service.stdout is not None
        line = self.service.stdout.readline()
        assert line.startswith("reservations are served"), line + self.service.stdout.read()

    def stop(self) -> None:
        if self.service is not None:
            os.killpg(self.service.pid, signal.SIGINT)
            assert self.service.wait(30) == 130
            self.service = None

    def run(self, *words: object) -> Said:
        return self.gpuctl(*words, "--socket", self.socket)

    def reserve(self, *words: object) -> dict[str, Any]:
        keys = ("--key", self.public, "--no-agent")
        done = self.run("reserve", *keys, *words, "--output", "json")
        assert done.code == 0, done.out + done.err
        row: dict[str, Any] = done.json
        return row

    def show(self, id_: str) -> dict[str, Any]:
        """A reservation, also one that is over."""
        rows = [*self.call("state")["reservations"], *self.call("history")["reservations"]]
        return next(row for row in rows if row["id"] == id_)

    def call(self, do: str, user: str = "root", **content: Any) -> Any:
        argv = ["/usr/bin/python3", "-c", CALL, str(self.socket), json.dumps({"do": do, **content})]
        return json.loads(subprocess.run(argv, user=user, group=user, capture_output=True, check=True).stdout)

    def cancel(self, id_: str) -> None:
        assert self.run("reservations", "cancel", id_).code == 0
        self.until(lambda: not any(row["id"] == id_ for row in self.call("state")["reservations"]))

    def pods(self) -> list[dict[str, Any]]:
        return list(self.plane.get("pods", namespace=NAMESPACE)["items"])

    def until(self, ready: Callable[[], object]) -> None:
        lab.wait_for(ready, 120)

    def config(self, id_: str) -> Path:
        printed = self.run("reservations", "ssh-config", id_)
        assert printed.code == 0, printed.err
        path = self.gpuctl.home / f"{id_}.conf"
        path.write_text(printed.out)
        return path

    def ssh(self, id_: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        argv = ["ssh", "-F", str(self.config(id_)), "-i", str(self.public.with_suffix("")), *options]
        argv += [f"gpuctl-{id_}", command]
        return subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=60, env=self.gpuctl.environment()
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("cluster")
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o755)
    with real_node(folder, {"nvidia.com/gpu": "4", "vpc.amazonaws.com/efa": "2"}) as plane:
        home = folder / "home"
        (home / ".ssh").mkdir(mode=0o700, parents=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / ".ssh/id_ed25519")], check=True)
        plane.kubectl("apply", "-f", str(EXAMPLE))
        (home / "kubeconfig").write_text(json.dumps(_of_the_service(plane)))
        with tempfile.TemporaryDirectory(prefix="gpuctl-reservations-") as at:  # other accounts have to enter it
            Path(at).chmod(0o755)
            site = Site(plane, Gpuctl(home), Path(at) / "s")
            with (home / "passwd").open("a") as accounts:  # a person, as accounts with a shell are
                accounts.write("games:x:5:60:games:/usr/games:/bin/sh\n")
            try:
                site.serve()
                _bring_disk(site, folder / VOLUMES)
                yield site
            finally:
                site.stop()


def _of_the_service(plane: Plane) -> dict[str, Any]:
    """A kubeconfig of the account that the example makes."""
    url = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/gpuctl-reservations/token"
    token = plane.api("POST", url, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    return {**plane.context("lab", namespace=NAMESPACE), "users": [{"name": "admin", "user": {"token": token}}]}


def _bring_disk(site: Site, volumes: Path) -> None:
    """The claim as gpuctl makes it, and a folder that heeds fsGroup, as a CSI driver's volumes do."""
    plane, service = site.plane, FileDatabase(site.gpuctl.home / "state").stored().identity
    made = claim(service, "root/data", "root", SIZES.disk, SIZES.storage_class)
    made["metadata"]["namespace"] = NAMESPACE
    plane.apply(made)
    url = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/{made['metadata']['name']}"
    lab.wait_for(lambda: plane.api("GET", url)["status"].get("phase") == "Bound")
    folder = volumes / plane.api("GET", url)["metadata"]["uid"]
    folder.mkdir()
    folder.chmod(0o777)


def test_a_session_is_a_pod_with_its_gpus_that_its_owner_alone_reaches(site: Site) -> None:
    row = site.reserve("--gpus", "2", "--hours", "0.25", "--disk", "data")
    id_ = row["id"]
    assert (row["state"], row["slots"]) == ("active", [{"node": node.NAME, "gpus": [0, 1]}])
    shell = site.ssh(id_, "id -u; echo $GPUCTL_RESERVATION; touch /workspace/stays; cat /etc/motd")
    assert shell.returncode == 0, shell.stderr
    assert shell.stdout.split()[:2] == ["1000", id_]
    assert "Server listening on 127.0.0.1 port 2222" in site.run("reservations", "logs").out
    assert "/workspace is the disk and stays when the session ends" in shell.stdout
    [pod] = site.pods()
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert "vpc.amazonaws.com/efa" not in pod["spec"]["containers"][0]["resources"]["limits"]
    assert (pod["status"]["qosClass"], pod["spec"]["nodeName"]) == ("Guaranteed", node.NAME)
    where = {"reservation": id_, "node": node.NAME}
    for verb in ("login", "tunnel"):
        assert "it belongs to root, and you are games" in site.call(verb, user="games", **where)["error"]
    known = site.gpuctl.home / f".config/gpuctl/ssh/gpuctl-{id_}.known_hosts"
    path = site.config(id_)
    known.write_text(f"{known.read_text().split()[0]} {pair()[1]}\n")
    argv = ["ssh", "-F", str(path), "-i", str(site.public.with_suffix("")), f"gpuctl-{id_}", "true"]
    refused = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=60, env=site.gpuctl.environment()
    )
    assert (refused.returncode, "Host key verification failed" in refused.stderr) == (255, True)
    _an_added_person_logs_in(site, id_)
    _warnings_are_shown(site, id_)
    site.cancel(id_)
    assert site.pods() == []
    left = [
        *site.plane.get("secrets", namespace=NAMESPACE)["items"],
        *site.plane.get("configmap", namespace=NAMESPACE)["items"],
    ]
    assert [item["metadata"]["name"] for item in left if id_ in item["metadata"]["name"]] == []
    again = site.reserve("--gpus", "4", "--hours", "1", "--disk", "data")  # the whole node
    [whole] = site.pods()
    assert whole["spec"]["containers"][0]["resources"]["limits"]["vpc.amazonaws.com/efa"] == "2"
    assert site.ssh(again["id"], "echo $GPUCTL_EFA_ADAPTERS").stdout.split()[-1] == "2"
    assert site.ssh(again["id"], "ls /workspace").stdout.split()[-1] == "stays"
    site.cancel(again["id"])


def test_disks_are_made_renamed_and_deleted_by_their_owner_and_a_clone_says_why_not(site: Site) -> None:
    def claims() -> list[str]:
        items = site.plane.get("persistentvolumeclaims", namespace=NAMESPACE)["items"]
        return [item["metadata"]["annotations"]["gpuctl/disk"] for item in items]

    def disks() -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in site.run("reservations", "disk", "list", "--output", "json").json}

    made = site.run("reservations", "disk", "create", "scratch")
    assert (made.code, "disk scratch is being made" in made.out) == (0, True), made.err
    assert "root/scratch" in claims()
    assert site.run("reservations", "disk", "rename", "scratch", "models").code == 0
    site.until(lambda: disks()["models"]["size"])
    assert disks()["models"]["size"] == SIZES.disk
    assert "root/scratch" in claims()
    refused = site.run("reservations", "disk", "clone", "models", "copy")
    assert (refused.code, "the storage class nfs is not known to copy volumes" in refused.err) == (2, True)
    theirs = site.call("deletedisk", user="games", key="key-00001", command={"disk": "root/models"})
    assert "it belongs to root, and you are games" in theirs["error"]
    unasked = site.run("reservations", "disk", "delete", "models")
    assert (unasked.code, "everything on it will be deleted" in unasked.err) == (2, True)
    assert site.run("reservations", "disk", "delete", "models", "--yes").code == 0
    site.until(lambda: "models" not in disks())
    assert "root/scratch" not in claims()


def test_a_real_api_takes_the_copies_of_disks_with_the_rights_of_the_service(site: Site) -> None:
    """Without a storage driver: what it would make of the claims is not tested."""
    plane, driver = site.plane, "rook-ceph.rbd.csi.ceph.com"
    of_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "ceph"}}
    plane.apply({**of_class, "provisioner": driver})
    cluster = kube.connect("lab", NAMESPACE, [site.gpuctl.home / "kubeconfig"])
    disks = ClusterDisks(cluster, "service-of-a-test", "1Gi", "ceph")
    disks.make("root/source", "root")
    copies = {"root/by-clone": "PersistentVolumeClaim", "root/by-snapshot": "VolumeSnapshot"}
    with pytest.raises(NotReady, match="is Pending"):
        disks.copy("root/by-clone", "root", "root/source")
    group = "snapshot.storage.k8s.io"
    for kind, plural in (("VolumeSnapshot", "volumesnapshots"), ("VolumeSnapshotClass", "volumesnapshotclasses")):
        definition = lab.crd(group, "v1", kind, plural, kind == "VolumeSnapshot")
        definition["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, of a test"}
        plane.apply(definition)
        lab.wait_for(lambda plural=plural: plane.serves(f"{group}/v1", plural))
    plane.apply(
        {"apiVersion": SNAPSHOT_API, "kind": "VolumeSnapshotClass", "metadata": {"name": "s"}, "driver": driver}
    )
    with pytest.raises(NotReady, match="is being taken"):
        disks.copy("root/by-snapshot", "root", "root/source")
    [taken] = plane.api("GET", f"/apis/{group}/v1/namespaces/{NAMESPACE}/volumesnapshots")["items"]
    at = f"/apis/{group}/v1/namespaces/{NAMESPACE}/volumesnapshots/{taken['metadata']['name']}"
    plane.api("PATCH", at, {"status": {"readyToUse": True}})
    with pytest.raises(NotReady, match="is Pending"):
        disks.copy("root/by-snapshot", "root", "root/source")
    for volume, kind in copies.items():
        claim_of = plane.api("GET", f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/{claim_name(volume)}")
        assert claim_of["spec"]["dataSource"]["kind"] == kind
    assert {volume.id for volume in disks.volumes()} == {"root/source", *copies}
    for volume in ("root/source", *copies):
        lab.wait_for(lambda volume=volume: _is_deleted(disks, volume))
    assert (disks.volumes(), plane.api("GET", at.rpartition("/")[0])["items"]) == ([], [])


def _is_deleted(disks: ClusterDisks, volume: str) -> bool:
    try:
        disks.delete(volume)
    except NotReady:
        return False
    return True


def _an_added_person_logs_in(site: Site, id_: str) -> None:
    """The kubelet brings the key of the account games into the pod that runs; games may see it, not extend it."""
    private, public = pair()
    key = site.gpuctl.home / "key-of-games"
    key.with_suffix(".pub").write_text(public)
    key.touch(0o600)
    key.write_text(private)
    added = site.run("reservations", "add-user", id_, "games", "--key", key.with_suffix(".pub"))
    assert (added.code, "games gets access" in added.out) == (0, True), added.err
    site.until(lambda: not site.show(id_)["without_access"])
    login = ["ssh", "-F", str(site.config(id_)), "-o", "IdentitiesOnly=yes", "-i", str(key), f"gpuctl-{id_}", "id -u"]
    environment = site.gpuctl.environment()
    shell = subprocess.run(login, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert shell.stdout == "1000\n", shell.stderr
    where = {"reservation": id_, "node": node.NAME}
    assert site.call("login", user="games", **where)["alias"]
    extend = {"key": "key-00002", "command": {"reservation": id_, "seconds": 60, "over_promise": False}}
    assert "it belongs to root, and you are games" in site.call("extend", user="games", **extend)["error"]


def _warnings_are_shown(site: Site, id_: str) -> None:
    """The time of the session is below the first threshold: a warning is due at once, on terminals and in a file."""
    site.until(lambda: site.show(id_)["warning"])
    key = str(site.public.with_suffix(""))
    argv = ["ssh", "-tt", "-F", str(site.config(id_)), "-i", key, f"gpuctl-{id_}", "echo in; sleep 100"]
    environment = site.gpuctl.environment()
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as shell:
        assert shell.stdout is not None
        for line in iter(shell.stdout.readline, "in\n"):
            assert line, "the login has ended"
        assert site.run("reservations", "extend", id_, "--hours", "0.1").code == 0
        shown = next(line for line in iter(shell.stdout.readline, "") if "***" in line)
        shell.kill()
    # How much of the session is gone by now depends on the machine.
    assert re.search(rf"\*\*\* Reservation {id_} ends in (1\d|2[01]) min: its time is over", shown)
    site.until(lambda: site.show(id_)["warning"])
    assert site.show(id_)["warning"]["not_delivered"] == []
    assert re.search(r"ends in (1\d|2[01]) min", site.ssh(id_, "cat /run/gpuctl/warning").stdout)


def test_jupyter_is_forwarded_over_ssh_and_asks_for_its_token(site: Site) -> None:
    id_ = site.reserve("--gpus", "1", "--hours", "1", "--image", WITH_JUPYTER, "--jupyter")["id"]
    token = site.run("reservations", "jupyter", "--token").out.strip()
    port = next(port for port in range(19888, 20888) if ports.free(port))
    forward = site.gpuctl.start("reservations", "jupyter", id_, "--local", port, "--socket", site.socket)
    assert forward.stderr is not None
    assert forward.stderr.readline().startswith(f"Jupyter: http://127.0.0.1:{port} until Ctrl-C")
    lab.wait_for(lambda: ports.answers(port))
    statuses = [
        urllib3.request("GET", f"http://127.0.0.1:{port}/api/contents", headers=header, retries=False).status
        for header in ({}, {"Authorization": f"token {token}"})
    ]
    assert statuses == [403, 200]
    os.killpg(forward.pid, signal.SIGINT)
    assert forward.wait(30) in (130, 255)
    site.cancel(id_)
    missing = site.run("reserve", "--key", site.public, "--no-agent", "--image", IMAGE, "--jupyter", "-o", "json")
    assert (missing.code, missing.json["state"]) == (3, "failed"), missing.err
    assert "the image has no jupyter-lab" in missing.json["reason"]
    site.until(lambda: site.pods() == [])


def test_a_pod_that_goes_ends_its_reservation_with_the_reason_and_a_bad_image_is_named(site: Site) -> None:
    id_ = site.reserve("--gpus", "1", "--hours", "1")["id"]
    assert "nothing stays when the session ends" in site.ssh(id_, "cat /etc/motd").stdout
    site.plane.kubectl("delete", "pod", f"{id_}-1", "--wait=false", "-n", NAMESPACE)
    site.until(lambda: site.show(id_)["state"] == "failed")
    gone = f"the session disappeared from {node.NAME}", f"the session on {node.NAME} is over: its pod was deleted"
    assert site.show(id_)["reason"] in gone  # the pass may come before or after its grace period
    bad = site.reserve("--image", "localhost/none:1", "--hours", "1", "--no-wait")["id"]
    site.until(lambda: "localhost/none:1" in site.show(bad)["reason"])
    assert site.show(bad)["state"] == "preparing"
    log = site.run("reservations", "logs", bad)
    assert (log.code, "localhost/none:1" in log.out, "no log: " in log.out) == (0, True, True), log.err
    site.cancel(bad)


def test_a_request_that_cannot_be_granted_is_refused_and_nothing_is_made(site: Site) -> None:
    for words, why in (
        (("--no-agent",), "there is no public key to log in with"),
        (("--key", site.public, "--gpus", "5"), "a node of type h100 has 4 GPUs"),
        (("--key", site.public, "--image", "a b"), "'a b' is not a valid image"),
    ):
        refused = site.run("reserve", *words)
        assert (refused.code, why in refused.err) == (2, True), refused.err
    assert site.pods() == []


def test_a_pod_of_others_closes_the_node_until_it_has_ended(site: Site) -> None:
    limits = {"nvidia.com/gpu": "1"}
    spec = {
        "containers": [{"name": "main", "image": IMAGE, "command": ["sleep", "600"], "resources": {"limits": limits}}],
        "terminationGracePeriodSeconds": 0,
    }
    site.plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": spec})

    def reason() -> str:
        [row] = site.call("state")["nodes"]
        return str(row["reason"])

    site.until(lambda: "the pod default/other has 1 GPUs without a session; end it first" in reason())
    site.plane.kubectl("delete", "pod", "other")
    site.until(lambda: reason() == "")


def test_sessions_go_on_without_the_api_and_under_the_next_service(site: Site) -> None:
    id_ = site.reserve("--gpus", "1", "--hours", "1")["id"]
    lab.restart(site.plane, away_s=12)
    site.until(lambda: site.call("state")["nodes"][0]["state"] == "ready")
    assert site.show(id_)["state"] == "active"
    site.stop()
    site.serve()
    assert site.show(id_)["state"] == "active"
    assert site.ssh(id_, "echo in").stdout == "in\n"
    site.cancel(id_)


def test_a_unit_names_the_kubeconfig(site: Site) -> None:
    words = ("reservations", "serve", "--context", "lab", "--image", IMAGE, "--print-unit")
    unit = site.gpuctl(*words, KUBECONFIG=str(site.gpuctl.home / "kubeconfig"))
    assert unit.code == 0, unit.err
    assert f"--context lab --image {IMAGE} --kubeconfig {site.gpuctl.home}/kubeconfig" in unit.out
    names = ("-n", "reservations", "--context", "serve")
    unit = site.gpuctl("reservations", "serve", *names, *words[-3:], KUBECONFIG=str(site.gpuctl.home / "kubeconfig"))
    assert f"serve -n reservations --context serve --image {IMAGE} --kubeconfig" in unit.out
    refused = site.gpuctl("reservations", "serve", "--image", IMAGE, "--print-unit")
    assert (refused.code, "--image is for the nodes of a cluster" in refused.err) == (2, True)
