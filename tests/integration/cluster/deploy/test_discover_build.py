"""A cluster file drafted from a real control plane deploys there, and images are built from a folder or git.

First the cluster is a plain one, then it has OpenShift's kinds; its builds are a stand-in's (no CRD can bring them).
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.cluster.clusterfile import read
from gpuctl.cluster.deploy import flow
from gpuctl.cluster.deploy.apply import Applied
from gpuctl.cluster.deploy.flow import PlanRequest
from tests.integration.cluster.deploy import building
from tests.integration.cluster.deploy import lab as made
from tests.integration.cluster.deploy.building import OF_FOLDER, Building
from tests.integration.cluster.deploy.lab import Lab, standin_provisioner
from tests.integration.cluster.deploy.test_failures import account
from tests.rig.cluster.discovered import attachment
from tests.rig.cluster.files import BUILT, ON_OPENSHIFT
from tests.rig.command import Gpuctl, Said
from tests.rig.kube.plane import Plane, for_tests
from tests.rig.kube.standin_openshift_builds import DIGEST, REGISTRY, StandinBuilds

BUILDS = "/apis/build.openshift.io/v1"
IMAGE = "quay.io/team/ml:1"
MADE = "statefulsets,pods,services,persistentvolumeclaims,networkpolicies"


@pytest.fixture(scope="module")
def plain() -> Iterator[Plane]:
    """A cluster with GPU nodes and storage, and no kind of OpenShift's."""
    for started in for_tests():
        for number in range(2):
            made.node(started, f"gpu-{number}", new=False)
        meta = {"name": "rbd", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
        started.apply({**kind, "metadata": meta, "provisioner": "lab.rbd.csi.ceph.com"})
        with standin_provisioner(started):
            yield started


@pytest.fixture(scope="module")
def openshift(plain: Plane) -> Plane:
    """The same cluster with the kinds of OpenShift and a class for shared storage: its tests come last."""
    made.prepare(plain, nodes=2)
    plain.apply(made.crd("build.openshift.io", "v1", "Build", "builds", True))
    made.wait_for(lambda: "builds" in [each["name"] for each in plain.api("GET", BUILDS)["resources"]])
    return plain


@pytest.fixture
def lab(plain: Plane, tmp_path: Path) -> Iterator[Lab]:
    yield from made.namespaces(plain, tmp_path)


@pytest.fixture
def shift(openshift: Plane, tmp_path: Path) -> Iterator[Lab]:
    yield from made.namespaces(openshift, tmp_path)


def discover(lab: Lab, *words: object, kubeconfig: Path | None = None) -> tuple[Said, Path]:
    """Draft the file of the lab's cluster and namespace."""
    path = lab.folder / "drafted.yaml"
    given = ("--namespace", lab.namespace, "--output-file", path, *words)
    return building.inside(kubeconfig or lab.plane.kubeconfig, "cluster", "discover", *given), path


def deploy(lab: Lab, path: Path, **wish: Any) -> list[dict[str, Any]]:
    """Deploy it and wait; the pods."""
    plan = flow.plan(lab.cluster(), read.load(path), PlanRequest(**wish))
    flow.deploy(lab.cluster(), plan, lab.tell, 100, Applied())
    found: list[dict[str, Any]] = lab.get("pods")["items"]
    return found


def test_the_draft_of_a_plain_cluster_deploys_once_the_fabric_is_filled_in(lab: Lab) -> None:
    said, path = discover(lab, "--image", IMAGE)
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        f"written to {path}\n"
        "fill in: network.rdma.fabric: roce or infiniband: `rdma link` or `ibv_devinfo` on a node shows it\n"
    )
    assert lab.get(MADE)["items"] == []
    text = path.read_text()
    path.write_text(text.replace("# fabric: UNKNOWN", "fabric: roce"))
    pods = deploy(lab, path, mode="rdma")
    limits = [each["spec"]["containers"][0]["resources"]["limits"] for each in pods]
    assert {(each["nvidia.com/gpu"], each["nvidia.com/roce"], each["cpu"]) for each in limits} == {("8", "1", "172")}
    assert {each["spec"]["nodeName"] for each in pods} == {"gpu-0", "gpu-1"}
    there = yaml.safe_load(text)
    assert (there["cluster"]["flavour"], there["storage"]["mode"]) == ("kubernetes", "volumeClaimTemplates")


def test_a_user_of_one_namespace_gets_what_can_be_read_and_is_reported_what_cannot(lab: Lab) -> None:
    said, path = discover(lab, kubeconfig=account(lab))
    assert said.code == 1
    fields = [line.split(": ")[1] for line in said.err.splitlines() if line.startswith("fill in: ")]
    assert fields == ["storage.mode", "gpus.per_node", "resources.cpu", "resources.memory", "image.name"]
    words = " ".join(path.read_text().replace("# ", "").split())
    assert "has no permission to list nodes in the whole cluster" in words
    assert "has no permission to list storageclasses in the whole cluster" in words
    assert yaml.safe_load(path.read_text())["cluster"]["namespace"] == lab.namespace


def test_a_cluster_that_does_not_answer_leaves_no_file(lab: Lab) -> None:
    away = lab.folder / "away.kubeconfig"
    away.write_text(lab.plane.kubeconfig.read_text().replace(f":{lab.plane.port}", ":9"))
    said, path = discover(lab, kubeconfig=away)
    assert said.code == 3
    assert "does not answer" in said.err
    assert not path.exists()


def test_a_cluster_that_builds_no_images_says_what_to_do_instead(lab: Lab) -> None:
    words = ("cluster", "build", lab.path(OF_FOLDER), "--folder", building.source(lab.folder / "source"))
    done = building.inside(lab.plane.kubeconfig, *words)
    assert done.code == 2
    assert "does not serve build.openshift.io/v1" in done.err
    assert "podman build -t IMAGE . && podman push IMAGE" in done.err


def test_the_draft_of_an_openshift_cluster_deploys_as_it_is(shift: Lab) -> None:
    network = attachment("roce-0", "nvidia.com/roce")
    network["metadata"]["namespace"] = shift.namespace
    shift.plane.apply({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", **network})
    said, path = discover(shift, "--image", IMAGE)
    assert (said.code, said.err) == (0, f"written to {path}\n")
    there = yaml.safe_load(path.read_text())
    assert there["cluster"]["flavour"] == "openshift"
    assert (there["storage"]["mode"], there["storage"]["class_rwx"]) == ("rwx", "nfs")
    assert there["network"]["rdma"]["attachments"] == ["roce-0"]
    pods = deploy(shift, path)
    assert {each["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] for each in pods} == {"roce-0"}


# ---- builds ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def build(openshift: Plane, tmp_path: Path, gpuctl: Gpuctl) -> Iterator[Building]:
    with StandinBuilds(openshift) as builds:
        for lab in building.namespace(openshift, tmp_path):
            yield Building(lab, builds, gpuctl)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return building.source(tmp_path / "source")


def test_a_folder_becomes_an_image_and_its_log_is_shown(build: Building, folder: Path) -> None:
    done = build("--folder", folder, "--follow")
    assert (done.code, done.err.splitlines()[:2]) == (0, ["ImageStream lab: created", "BuildConfig lab: created"])
    image = f"{REGISTRY}/{build.lab.namespace}/lab:latest"
    assert done.out.splitlines() == [
        "STEP 1: FROM a",
        "STEP 2: COPY . /b",
        "Push successful",
        f"lab-1: {image} is built, digest {DIGEST}",
    ]
    taken = build.builds.builds["lab-1"]
    assert sorted(taken.files) == [".dockerignore", "Dockerfile", "big.bin", "empty", "keep.log", "link", "train.py"]
    assert taken.files["big.bin"] == (folder / "big.bin").read_bytes()
    assert (taken.files["keep.log"], taken.members["link"].linkname) == (b"kept\n", "train.py")


def test_git_needs_no_folder(build: Building) -> None:
    done = build.inside("-o", "json", file={**ON_OPENSHIFT, **BUILT})
    assert done.code == 0, done.err
    image = f"{REGISTRY}/{build.lab.namespace}/lab:latest"
    assert done.json == {"build": "lab-1", "image": image, "digest": DIGEST}
    source = build.lab.get("buildconfig", "lab")["spec"]["source"]
    assert source == {"type": "Git", "git": {"uri": "https://example.org/ml.git", "ref": "main"}, "contextDir": "image"}


def test_a_build_that_fails_says_why_with_the_end_of_its_log(build: Building, folder: Path) -> None:
    (folder / "Dockerfile").write_text("FROM a\nRUN fail\n")
    done = build.inside("--folder", folder)
    assert (done.code, done.out) == (3, "")
    told = done.err[done.err.index("cannot build") :].splitlines()
    assert told[:3] == [
        "cannot build lab-1: Dockerfile build strategy has failed. (DockerBuildFailed)",
        "    STEP 2: RUN fail",
        "    fail: command not found",
    ]
    assert "a step of the Dockerfile failed" in told[3]


def test_ctrl_c_cancels_a_build_that_runs_and_who_waited_for_it_goes_on(build: Building, folder: Path) -> None:
    dockerfile = folder / "Dockerfile"
    dockerfile.write_text("FROM a\nRUN wait\n")
    first = build.gpuctl.start(*build.words("--folder", folder, "--follow"), KUBECONFIG=build.known())
    made.wait_for(lambda: "STEP 2: RUN wait" in getattr(build.builds.builds.get("lab-1"), "log", []))
    dockerfile.write_text("FROM a\n")
    second = build.gpuctl.start(*build.words("--folder", folder), KUBECONFIG=build.known())
    building.until(second.stderr, "Build lab-1: is running; ours starts when it has finished")
    assert list(build.phases()) == ["lab-1"]
    first.send_signal(signal.SIGINT)
    said = build.gpuctl.said(first)
    assert said.code == 130
    assert "Build lab-1: is cancelled: The build was cancelled" in said.err
    assert build.gpuctl.said(second).code == 0
    assert build.phases() == {"lab-1": "Cancelled", "lab-2": "Complete"}


def test_ctrl_c_before_the_folder_is_taken_cancels_it_too(build: Building, folder: Path) -> None:
    build.builds.holding.set()
    running = build.gpuctl.start(*build.words("--folder", folder), KUBECONFIG=build.known())
    made.wait_for(lambda: "Pending" in build.phases().values())
    running.send_signal(signal.SIGINT)
    said = build.gpuctl.said(running)
    assert (said.code, build.phases()) == (130, {"lab-1": "Cancelled"})
    assert "Build lab-1: is cancelled" in said.err


def test_an_upload_that_is_cut_off_leaves_no_build_waiting_for_the_rest(build: Building, folder: Path) -> None:
    build.builds.cutting.set()
    done = build.inside("--folder", folder)
    assert done.code == 3
    assert f"cannot begin a build of lab: {build.builds.url} does not answer" in done.err
    assert "Build lab-1: is cancelled" in done.err
    assert build.phases() == {"lab-1": "Cancelled"}


def test_a_build_that_never_ran_says_why(build: Building, folder: Path) -> None:
    build.builds.refusing.set()
    done = build.inside("--folder", folder)
    assert done.code == 3
    assert "cannot build lab-1: Failed to create build pod. (CannotCreateBuildPod)" in done.err
    assert "does a quota of the namespace prevent it?" in done.err


def test_rights_that_are_missing_are_named_before_anything_is_made(build: Building, folder: Path) -> None:
    accounts = f"/api/v1/namespaces/{build.lab.namespace}/serviceaccounts"
    made.wait_for(lambda: build.lab.listed(accounts))
    known = account(build.lab)
    done = build.inside("--folder", folder, kubeconfig=known)
    assert done.code == 3
    assert "you have no permission to create buildconfigs/instantiatebinary, get builds, list builds" in done.err
    config = ["buildconfigs", "buildconfigs/instantiatebinary"]
    building.grant(build.lab, {"build.openshift.io": [*config, "builds"], "image.openshift.io": ["imagestreams"]})
    done = build.inside("--folder", folder, kubeconfig=known)
    assert "you have no permission to get builds/log in the namespace" in done.err
    assert build.lab.get("buildconfigs,imagestreams")["items"] == []


def test_a_config_of_that_name_that_is_not_ours_is_left_alone(build: Building, folder: Path) -> None:
    meta = {"name": "lab", "namespace": build.lab.namespace}
    build.lab.plane.apply({"apiVersion": "build.openshift.io/v1", "kind": "BuildConfig", "metadata": meta})
    done = build.inside("--folder", folder)
    assert done.code == 3
    assert "cannot apply BuildConfig lab: it exists and is not ours; it was left alone" in done.err
    assert build.phases() == {}


def test_a_cluster_without_a_registry_is_reported_before_a_build_waits_for_it(build: Building, folder: Path) -> None:
    build.builds.registry = False
    done = build.inside("--folder", folder)
    assert f"cannot build the image of lab: {build.builds.url} has no internal registry" in done.err
    assert "podman build" in done.err
    assert build.phases() == {}
