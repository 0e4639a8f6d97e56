"""Owners of processes by their control groups: every form of every runtime, and no traceback for any text."""

from __future__ import annotations

import csv

import pytest

from gpuctl.domain.gpu_owners import Kind, Owner, owner_of
from tests.rig import fuzz_owners
from tests.rig.recordings import recording

A = "0123456789abcdef" * 4
B = "fedcba9876543210" * 4
UID = "4a163a05-439d-484b-8e53-2968bc15824f"
UNDERSCORES = UID.replace("-", "_")
HASH = "7260904bbd08e72e4dff95d9fccd2ee8"
SLUID = "s5K1KKYAYG5D00"
KUBEPODS, STEPS = "/kubepods.slice", "/system.slice/slurmstepd.scope"
MANAGER = "/user.slice/user-1000.slice/user@1000.service"
BURSTABLE = f"{KUBEPODS}/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORES}.slice"


def pod(uid: str = UID, **more: object) -> Owner:
    return Owner(Kind.POD, pod=uid, static=len(uid) == 32, **more)  # type: ignore[arg-type]


PATHS = {
    "kubelet, systemd, burstable": (f"{BURSTABLE}/cri-containerd-{A}.scope", pod(container=A, runtime="containerd")),
    "kubelet, systemd, besteffort": (
        f"{KUBEPODS}/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORES}.slice/crio-{A}.scope",
        pod(container=A, runtime="crio"),
    ),
    "kubelet, systemd, guaranteed": (
        f"{KUBEPODS}/kubepods-pod{UNDERSCORES}.slice/docker-{A}.scope",
        pod(container=A, runtime="docker"),
    ),
    "kubelet, cgroupfs": (f"/kubepods/burstable/pod{UID}/{A}", pod(container=A)),
    "kubelet, cgroupfs, guaranteed": (f"/kubepods/pod{UID}/{A}", pod(container=A)),
    "kubelet, cgroupfs, cri-o": (f"/kubepods/besteffort/pod{UID}/crio-{A}", pod(container=A, runtime="crio")),
    "static pod": (
        f"{KUBEPODS}/kubepods-burstable.slice/kubepods-burstable-pod{HASH}.slice/cri-containerd-{A}.scope",
        pod(HASH, container=A, runtime="containerd"),
    ),
    "kind": (
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORES}.slice/cri-containerd-{A}.scope",
        pod(container=A, runtime="containerd"),
    ),
    "kind in docker": (
        f"/docker/{B}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORES}.slice/cri-containerd-{A}.scope",
        pod(container=A, runtime="containerd"),
    ),
    "conmon of cri-o": (
        f"{BURSTABLE}/crio-conmon-{A}.scope",
        pod(container=A, runtime="crio", unit=f"crio-conmon-{A}.scope", monitor=True),
    ),
    "colons": (
        f"/kubepods-burstable-pod{UNDERSCORES}.slice:cri-containerd:{A}",
        pod(container=A, runtime="containerd"),
    ),
    "colons below a slice": (f"/system.slice:docker:{A}", Owner(Kind.CONTAINER, container=A, runtime="docker")),
    "systemd in a pod": (
        f"{BURSTABLE}/cri-containerd-{A}.scope/system.slice/train.service",
        pod(container=A, runtime="containerd"),
    ),
    "docker in a pod": (f"/kubepods/pod{UID}/{A}/docker/{B}", pod(container=B, runtime="docker")),
    "docker, version 2": (f"/system.slice/docker-{A}.scope", Owner(Kind.CONTAINER, container=A, runtime="docker")),
    "docker, version 1": (f"/docker/{A}", Owner(Kind.CONTAINER, container=A, runtime="docker")),
    "docker, rootless": (
        f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{A}.scope",
        Owner(Kind.CONTAINER, container=A, runtime="docker", uid=1000),
    ),
    "containerd": (f"/k8s.io/{A}", Owner(Kind.CONTAINER, container=A, runtime="containerd")),
    "podman": (
        f"/machine.slice/libpod-{A}.scope/container",
        Owner(Kind.CONTAINER, container=A, runtime="podman"),
    ),
    "podman, rootless": (
        f"/user.slice/user-1001.slice/user@1001.service/user.slice/libpod-{A}.scope/container",
        Owner(Kind.CONTAINER, container=A, runtime="podman", uid=1001),
    ),
    "podman, cgroupfs": (f"/libpod_parent/libpod-{A}", Owner(Kind.CONTAINER, container=A, runtime="podman")),
    "ecs": (f"/ecs/0123456789abcdef0123456789abcdef/{A}", Owner(Kind.CONTAINER, container=A, runtime="ecs")),
    "slurm, version 2": (
        "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_3",
        Owner(Kind.SLURM, job="4711", step="0"),
    ),
    "slurm, batch": (f"{STEPS}/job_9/step_batch/user/task_0", Owner(Kind.SLURM, job="9", step="batch")),
    "slurm, adopted ssh": (f"{STEPS}/job_9/step_extern/user/task_x", Owner(Kind.SLURM, job="9", step="extern")),
    "slurm, interactive": (f"{STEPS}/job_9/step_interactive/user", Owner(Kind.SLURM, job="9", step="interactive")),
    "slurm, several slurmd": (
        "/system.slice/node-1_slurmstepd.scope/job_4711/step_0/user/task_0",
        Owner(Kind.SLURM, job="4711", step="0", slurm_node="node-1"),
    ),
    "slurm, SLUID": (
        f"/system.slice/slurmstepd.scope/{SLUID}/step_0/user/task_0",
        Owner(Kind.SLURM, sluid=SLUID, step="0"),
    ),
    "slurm's own": ("/system.slice/slurmstepd.scope/system", Owner(Kind.SERVICE, unit="slurmstepd.scope")),
    "slurm, version 1": ("/slurm/uid_1000/job_7/step_1/task_2", Owner(Kind.SLURM, job="7", step="1", uid=1000)),
    "slurm, version 1, several slurmd": (
        "/slurm_node-1/uid_1000/job_7/step_1/task_2",
        Owner(Kind.SLURM, job="7", step="1", uid=1000, slurm_node="node-1"),
    ),
    "slurm in a pod": (
        f"{BURSTABLE}/cri-containerd-{A}.scope/system.slice/slurmstepd.scope/job_5/step_0/user/task_0",
        Owner(Kind.SLURM, job="5", step="0", pod=UID, container=A, runtime="containerd"),
    ),
    "ssh session": ("/user.slice/user-1000.slice/session-12.scope", Owner(Kind.SESSION, session="12", uid=1000)),
    "console session": ("/user.slice/user-0.slice/session-c1.scope", Owner(Kind.SESSION, session="c1", uid=0)),
    "user service": (
        "/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service",
        Owner(Kind.USER_SERVICE, uid=1000, unit="jupyter.service"),
    ),
    "user manager": (f"{MANAGER}/init.scope", Owner(Kind.USER_SERVICE, uid=1000, unit="init.scope")),
    "a user's own control group with the name of a job": (
        f"{MANAGER}/slurmstepd.scope/job_1/step_0",
        Owner(Kind.USER_SERVICE, uid=1000, unit="slurmstepd.scope"),
    ),
    "a pod in a rootless container": (
        f"{MANAGER}/user.slice/libpod-{A}.scope/container/kubelet.slice/kubelet-kubepods-pod{UNDERSCORES}.slice",
        Owner(Kind.CONTAINER, container=A, runtime="podman", uid=1000),
    ),
    "ssh without pam_systemd": ("/system.slice/ssh.service", Owner(Kind.SESSION, unit="ssh.service")),
    "ssh by a socket": (
        "/system.slice/system-sshd.slice/sshd@7-10.0.0.1:22-10.0.0.5:50022.service",
        Owner(Kind.SESSION, unit="sshd@7-10.0.0.1:22-10.0.0.5:50022.service"),
    ),
    "service": ("/system.slice/triton.service", Owner(Kind.SERVICE, unit="triton.service")),
    "instance of a service": (
        "/system.slice/system-vllm.slice/vllm@7.service",
        Owner(Kind.SERVICE, unit="vllm@7.service"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("path", "expected"), PATHS.values(), ids=list(PATHS))
def test_version_2_names_the_owner_in_its_one_line(path: str, expected: Owner) -> None:
    assert owner_of(f"0::{path}\n") == expected
    assert owner_of(f"0::{path} (deleted)\n") == expected


@pytest.mark.parametrize(("path", "expected"), PATHS.values(), ids=list(PATHS))
def test_one_controller_of_version_1_is_enough(path: str, expected: Owner) -> None:
    lines = ["12:freezer:/", f"9:cpu,cpuacct:{path}", "2:pids:/", "1:name=systemd:/", "0::/"]
    assert owner_of("\n".join(lines)) == expected


@pytest.mark.parametrize(
    "path",
    [
        name
        for name in PATHS
        if name.startswith("slurm, version 1") or name in ("kubelet, cgroupfs", "docker, version 1")
    ],
)
def test_a_login_session_beside_a_job_or_container_is_not_the_owner(path: str) -> None:
    session = "/user.slice/user-118.slice/session-18.scope"
    text = f"4:devices:{PATHS[path][0]}\n2:pids:{session}\n1:name=systemd:{session}\n0::{session}\n"
    assert owner_of(text) == PATHS[path][1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "its control groups could not be read"),
        ("0::/\n", "it is in the root control group, or the path is hidden by a cgroup namespace"),
        ("0::/docker/shortid\n", "its control group /docker/shortid has no known form"),
        ("0::/podman/x\n", "its control group /podman/x has no known form"),
        ("garbage", "its control groups could not be read"),
        ("0::/system.slice/slurmstepd.scope/job_x/step_0", ""),
    ],
)
def test_an_unknown_form_is_told_and_never_guessed(text: str, why: str) -> None:
    one = owner_of(text)
    assert (one.kind, one.why) == ((Kind.UNKNOWN, why) if why else (Kind.SERVICE, ""))
    assert (one.pod, one.container, one.job) == ("", "", "")


def mount(root: str, point: str) -> str:
    return f"812 790 259:1 {root} {point} rw,relatime - ext4 /dev/root rw"


@pytest.mark.parametrize("text", ["0::/\n", "0::/../../init.scope/x\n", ""])
def test_mounts_name_pod_and_container_where_the_path_is_hidden(text: str) -> None:
    hosts = mount(f"/var/lib/kubelet/pods/{UID}/etc-hosts", "/etc/hosts")
    assert owner_of(text, hosts) == pod()
    container = mount(f"/var/lib/docker/containers/{A}/hostname", "/etc/hostname")
    assert owner_of(text, container) == Owner(Kind.CONTAINER, container=A)
    podman = mount(f"/containers/storage/overlay-containers/{A}/userdata/hosts", "/etc/hosts")
    assert owner_of(text, podman) == Owner(Kind.CONTAINER, container=A)
    scope = f"0::/../cri-containerd-{A}.scope\n"
    assert owner_of(scope, hosts) == pod(container=A, runtime="containerd")


def test_the_kubelets_volumes_on_the_host_are_no_owner() -> None:
    """On the host, a pod's folder is a mount point, not the root of a mount."""
    volume = mount("/", f"/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~projected/token")
    assert owner_of("0::/\n", volume).kind is Kind.UNKNOWN


# Read by hand: case -> kind, pod, runtime.
RECORDED = {
    "docker format with scope": (Kind.POD, "123", "containerd"),
    "GKE format": (Kind.POD, UID, ""),
    "EKS format": (Kind.POD, "dde1244b-5bb5-4297-b544-85f3bc0d80bf", "containerd"),
    "Kind format": (Kind.POD, "c6a7bc8c-2ae5-4b89-a872-4c5a250d5ac8", "containerd"),
    "CRI.o format": (Kind.CONTAINER, "", "containerd"),  # its own label is wrong: the scope is containerd's
    "containerd format": (Kind.POD, HASH, "containerd"),
    "k8s.io format": (Kind.CONTAINER, "", "containerd"),
    "fallback docker format": (Kind.POD, "e039200acb850c82bb901653cc38ff6e", ""),
    "no match - invalid format": (Kind.SERVICE, "", ""),
    "empty string": (Kind.UNKNOWN, "", ""),
    "short container ID": (Kind.UNKNOWN, "", ""),
}


def test_recorded_lines_have_the_container_of_their_source() -> None:
    with recording("cgroup/beyla_cgroup_lines.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["case"] for row in rows] == list(RECORDED)
    for row in rows:
        one = owner_of(row["proc_pid_cgroup_line"] or "")
        assert one.container == (row["container_id"] or ""), row["case"]
        assert (one.kind, one.pod, one.runtime) == RECORDED[row["case"]], row["case"]


def test_recorded_processes_of_slurm_have_their_job() -> None:
    old = owner_of(recording("cgroup/slurm_v1_proc_pid_cgroup.txt").read_text())
    assert old == Owner(Kind.SLURM, job="4824887", uid=1000)
    new = owner_of(recording("cgroup/slurm_v2_proc_pid_cgroup.txt").read_text())
    assert new == Owner(Kind.SLURM, job="1320003", step="0")


def test_no_text_makes_a_traceback_or_a_false_job() -> None:
    fuzz_owners.control_groups([path for path, _ in PATHS.values()], 300)
