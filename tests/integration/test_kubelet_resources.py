"""kubelet_resources against a real API server, with a kubelet's credentials, and against the real kubelet."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kubelet import configuration, drain
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kubelet.fields import NAMES, TYPES

from tests.rig.kube.assets import assets, missing
from tests.rig.kube.plane import Plane, for_tests
from tests.rig.needs import need
from tests.rig.trees.host import TreeHost, program, put

NODE = "gpu-0"
OPTIONS = {"--kubeconfig": "/etc/kubernetes/kubelet.conf"}
VALUES: dict[str, Any] = {
    "cpu_manager_policy": "static",
    "topology_manager_policy": "single-numa-node",
    "topology_manager_scope": "pod",
    "reserved_cpus": "0",
    "kube_reserved": {"cpu": "500m", "memory": "1Gi"},
}
TEXT = """kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
# the site's
evictionHard:
  memory.available: 200Mi
kubeReserved:
  memory: 512Mi
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    yield from for_tests(controllers=False)


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    spec = {
        "nodeName": NODE,
        "containers": [{"name": "main", "image": "none"}],
        "tolerations": [{"operator": "Exists"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def owner(kind: str) -> list[dict[str, Any]]:
    """A reference to an owner; there are no controllers here that would look for it."""
    return [{"apiVersion": "apps/v1", "kind": kind, "name": "agent", "uid": "0", "controller": True}]


def test_a_node_is_drained_once_the_kubelet_itself_reads_so(cluster: Plane, tmp_path: Path) -> None:
    put(tmp_path, "/proc/sys/kernel/hostname", f"{NODE}\n")
    (tmp_path / "run").mkdir()
    put(tmp_path, "/etc/kubernetes/kubelet.conf", cluster.as_node(NODE).read_text())
    real = shutil.which(cluster.kubectl_program)
    program(tmp_path, "kubectl", f'#!/bin/sh\nexec {real} "$@"\n')
    host = TreeHost(tmp_path)
    assert drain.why_not(host, OPTIONS) == f"its node {NODE} is not cordoned: kubectl drain {NODE} --ignore-daemonsets"
    cluster.kubectl("cordon", NODE)
    cluster.apply(pod("train-0"), pod("agent-x", ownerReferences=owner("DaemonSet")))
    assert f"its node {NODE} has pods: default/train-0: kubectl drain" in drain.why_not(host, OPTIONS)
    cluster.kubectl("delete", "pod", "train-0", "--grace-period=0", "--force")
    assert drain.why_not(host, OPTIONS) == ""
    assert list((tmp_path / "run").iterdir()) == []  # kubectl's cache is gone
    assert "whether its node other is drained is not known" in drain.why_not(
        host, {**OPTIONS, "--hostname-override": "other"}
    )


def test_the_real_kubelet_accepts_the_edited_file_and_refuses_a_wrong_word(tmp_path: Path) -> None:
    need(missing(controllers=False))
    folder = assets()
    need("" if folder and (folder / "kubelet").exists() else "no kubelet beside the control plane")
    assert folder is not None
    desired = {NAMES[name]: TYPES[name].check(value) for name, value in VALUES.items()}
    fields = {key: configuration.written(TEXT, key, value) for key, value in desired.items()}
    good = configuration.replaced(TEXT, fields, "config.yaml")
    wrong = configuration.replaced(good, {"topologyManagerPolicy": "topologyManagerPolicy: some\n"}, "config.yaml")
    for text, is_wrong in ((good, False), (wrong, True), (json.dumps(json_of(desired)), False)):
        put(tmp_path, "/config.yaml", text)
        argv = [str(folder / "kubelet"), f"--config={tmp_path}/config.yaml", f"--root-dir={tmp_path}/root"]
        # It ends by itself: without an API server it cannot authorize anybody, which it notices after the file.
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert ("invalid configuration" in done.stderr) == is_wrong, done.stderr
        assert "failed to load" not in done.stderr


def json_of(desired: dict[str, Any]) -> dict[str, Any]:
    """The drop-in's fields."""
    return {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **desired}
