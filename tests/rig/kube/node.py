"""A real node for a test's cluster: containerd and kubelet in namespaces of their own, so that containers do run.

    with node(cluster):
        cluster.kubectl("exec", "web", "--", "hostname")

Needs root, containerd, runc, containernetworking-plugins, iproute2 and the kubelet beside the control plane. Nothing
is pulled: the one image is nearly empty, and what a pod runs comes from this machine's /usr (`serving`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.rig import ground
from tests.rig.kube.assets import assets
from tests.rig.kube.plane import NO_COLLECTOR, Plane

PROGRAMS = ("containerd", "ctr", "runc", "ip", "nsenter", "unshare", "setpriv", "python3")
IMAGE = "localhost/empty:1"
PATIENCE = 120.0  # seconds until the node is ready
CGROUPS = Path("/sys/fs/cgroup")
# Taken from the range that is set aside for tests of networks (RFC 2544); other tests may run at the same time.
NUMBER = os.getpid() % 250
OURS, ITS, PODS = f"198.18.{NUMBER}.1", f"198.18.{NUMBER}.2", f"198.19.{NUMBER}.0/24"
NAME = f"real-{NUMBER}"

# Runs as the first process of the node's namespaces: when it ends, so does every container.
START = r"""
set -eu
hostname "$NAME"
mount --make-rprivate /
# What containerd and kubelet write at fixed places goes to $D; no folder for it is made on the machine's disk.
mount -t tmpfs tmpfs /var/lib
for at in log lib/kubelet lib/containerd lib/cni; do
  mkdir -p "$D/var/$at" "/var/$at"
  mount --bind "$D/var/$at" "/var/$at"
done
mount --make-shared /var/lib/kubelet
mount -t tmpfs tmpfs /run
# kubelet insists on these settings of the whole machine: it is shown files that have its values.
pretend() { echo "$2" >"$D/${1##*/}"; mount --bind "$D/${1##*/}" "$1"; }
pretend /proc/sys/vm/overcommit_memory 1
pretend /proc/sys/vm/panic_on_oom 0
pretend /proc/sys/kernel/panic 10
pretend /proc/sys/kernel/panic_on_oops 1
pretend /proc/sys/kernel/keys/root_maxkeys 1000000
pretend /proc/sys/kernel/keys/root_maxbytes 25000000
ip link set lo up
for group in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do
  mkdir -p "/sys/fs/cgroup/$group/$NAME"
done
for file in cpus mems; do cat /sys/fs/cgroup/cpuset/cpuset.$file >"/sys/fs/cgroup/cpuset/$NAME/cpuset.$file"; done
containerd --config "$D/containerd.toml" >"$D/containerd.log" 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.1; done
ctr -n k8s.io images import "$D/image.tar"
"$KUBELET" --config "$D/kubelet.json" --kubeconfig "$CONFIG" --cert-dir "$D/certs" --root-dir /var/lib/kubelet \
  --container-runtime remote --container-runtime-endpoint unix:///run/containerd/containerd.sock \
  --hostname-override "$NAME" --node-ip "$IP" --pod-infra-container-image "$IMAGE" >"$D/kubelet.log" 2>&1 &
wait -n
"""

CONTAINERD = """version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
                    "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  # A machine may not let runc lower oom_score_adj; no container would start.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""

# Answers each connection with the pod's name and hangs up; crashes at SIGTERM, as no first process does by itself.
ANSWERS = """
import os, signal, socket
signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
listener = socket.create_server(("0.0.0.0", 8080))
while True:
    found, _ = listener.accept()
    found.sendall(socket.gethostname().encode())
    found.close()
"""


def missing() -> str:
    """Why there can be no real node here; empty where there can be one."""
    found = assets()
    if found is None or not (found / "kubelet").exists():
        return "no kubelet beside the control plane (tests/rig/kube/assets.py)"
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        return f"no {', '.join(lacking)}: install containerd, runc, containernetworking-plugins and iproute2"
    if os.getuid() != 0:
        return "a node's namespaces take root"
    return "" if (CGROUPS / "memory").is_dir() else "this kubelet takes cgroup v1"


def serving(name: str, replicas: int) -> dict[str, Any]:
    """A Deployment whose pods tell their names on port 8080."""
    mounts = [{"name": "usr", "mountPath": "/usr", "readOnly": True}]
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/usr/bin/python3", "-ISc", ANSWERS],
        "ports": [{"containerPort": 8080}],
        "volumeMounts": mounts,
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "usr", "hostPath": {"path": "/usr"}}],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    wanted = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": wanted}


@contextlib.contextmanager
def network() -> Iterator[str]:
    """A network namespace with one cable to this machine; the address of this end, for the API to listen on."""
    _remove_network()
    with ground.network_namespaces():
        _do("ip", "netns", "add", NAME)
        try:
            _do("ip", "link", "add", NAME, "type", "veth", "peer", "name", "eth0", "netns", NAME)
            _do("ip", "addr", "add", f"{OURS}/30", "dev", NAME)
            _do("ip", "link", "set", NAME, "up")
            _do("ip", "-n", NAME, "addr", "add", f"{ITS}/30", "dev", "eth0")
            _do("ip", "-n", NAME, "link", "set", "eth0", "up")
            yield OURS
        finally:
            _remove_network()


def _remove_network() -> None:
    for what in (["link", "del", NAME], ["netns", "del", NAME]):
        subprocess.run(["ip", *what], check=False, capture_output=True)


@contextlib.contextmanager
def node(cluster: Plane) -> Iterator[None]:
    """Start the node inside of `network` and wait until it is ready; all of it ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix=f"node-{os.getpid()}-"))
    _write(folder, cluster)
    process = _start(folder, cluster)
    try:
        _wait_until_ready(cluster, process, folder)
        yield
    finally:
        process.kill()
        process.wait()
        for top in CGROUPS.glob(f"*/{NAME}"):
            _remove_cgroup(top)
        shutil.rmtree(folder, ignore_errors=True)


def _write(folder: Path, cluster: Plane) -> None:
    (folder / "cni").mkdir()
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True}
    bridge["ipam"] = {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}
    net = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
    (folder / "cni/pods.conflist").write_text(json.dumps(net))
    (folder / "containerd.toml").write_text(CONTAINERD.format(image=IMAGE, folder=folder))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(cluster.folder / "ca.crt")))
    _write_image(folder / "image.tar")


def _kubelet(ca: Path) -> dict[str, Any]:
    none = {"enabled": False}
    room = dict.fromkeys(("memory.available", "nodefs.available", "imagefs.available"), "1Mi")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ITS,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": {"anonymous": none, "webhook": none, "x509": {"clientCAFile": str(ca)}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{NAME}",
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "protectKernelDefaults": True,
        "resolvConf": "/dev/null",
        "evictionHard": room,
        "nodeStatusUpdateFrequency": "1s",
        "featureGates": {"BoundServiceAccountTokenVolume": True},
    }


def _write_image(path: Path) -> None:
    """An image (docker's archive format) with the folders that programs of /usr take; it has sh, sleep, nsenter."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as made:
        for name in ("usr", "tmp", "dev", "proc", "sys", "etc"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            made.addfile(folder)
        for name in ("sh", "sleep", "nsenter"):
            made.add(os.path.realpath(f"/usr/bin/{name}"), arcname=f"usr/bin/{name}")
        for library in {one for name in ("sh", "sleep", "nsenter") for one in _libraries(f"/usr/bin/{name}")}:
            made.add(os.path.realpath(library), arcname=library)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/usr/bin/sleep", "infinity"], "Env": ["PATH=/usr/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    listed = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    parts = {"config.json": config, "manifest.json": json.dumps(listed).encode(), "layer.tar": layer.getvalue()}
    with tarfile.open(path, "w") as made:
        for name, data in parts.items():
            part = tarfile.TarInfo(name)
            part.size = len(data)
            made.addfile(part, io.BytesIO(data))


def _libraries(program: str) -> list[str]:
    """The libraries a program is linked with, the loader among them."""
    told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [word for word in told.split() if word.startswith("/")]


def _start(folder: Path, cluster: Plane) -> subprocess.Popen[bytes]:
    more = {"D": str(folder), "NAME": NAME, "IP": ITS, "IMAGE": IMAGE, "CONFIG": str(cluster.kubeconfig)}
    more |= {"KUBELET": str(cluster.assets / "kubelet"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **NO_COLLECTOR}
    inside = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/run/netns/{NAME}", *inside, "bash", "-c", START]
    with (folder / "node.log").open("wb") as log:
        return subprocess.Popen(
            argv, env=more, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )


def _wait_until_ready(cluster: Plane, process: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not _is_ready(cluster):
        logs = "\n".join(path.read_text(errors="replace")[-1500:] for path in folder.glob("*.log"))
        assert process.poll() is None, f"the node ended\n{logs}"
        assert time.monotonic() < end, f"the node is not ready within {PATIENCE} s\n{logs}"
        time.sleep(0.3)


def _is_ready(cluster: Plane) -> bool:
    # A kubectl for each time that it is asked would take the processors that the node needs for its start.
    with contextlib.suppress(AssertionError):  # not registered yet
        conditions = cluster.api("GET", f"/api/v1/nodes/{NAME}")["status"].get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return False


def _remove_cgroup(top: Path) -> None:
    """The last processes may still be on their way out."""
    for _ in range(50):
        for folder, *_ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        if not top.exists():
            return
        time.sleep(0.1)


def _do(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)
