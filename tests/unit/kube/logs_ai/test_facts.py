"""Facts of pods, nodes and events as lines."""

from __future__ import annotations

from typing import Any

from gpuctl.kube.logs_ai.facts import of_events, of_node, of_pod
from gpuctl.kube.logs_ai.model import Events

OOM = "ran out of memory (OOMKilled)"
END = {"exitCode": 137, "reason": "OOMKilled", "startedAt": "T1", "finishedAt": "T2", "message": "last\nwords"}
POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "team",
        "uid": "u",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter2x"},
        "ownerReferences": [{"kind": "StatefulSet", "name": "trainer"}],
    },
    "spec": {
        "nodeName": "gpu-1",
        "nodeSelector": {"pool": "h100"},
        "tolerations": [
            {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "tolerationSeconds": 300},
        ],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}},
            {"name": "kube-api-access-x", "projected": {}},
        ],
        "initContainers": [{"name": "fetch", "image": "b:1"}],
        "containers": [
            {
                "name": "main",
                "image": "a:1",
                "command": ["torchrun", "train.py"],
                "args": ["-c", "set -e\nexport X=1"],
                "env": [
                    {"name": "MODE", "value": "hunter2x"},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "db", "key": "k"}}},
                ],
                "envFrom": [{"configMapRef": {"name": "common"}}],
                "resources": {"limits": {"memory": "64Gi", "nvidia.com/gpu": "8"}},
                "livenessProbe": {"httpGet": {"path": "/healthz"}},
            }
        ],
    },
    "status": {
        "phase": "Running",
        "startTime": "T0",
        "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "m"}],
        "containerStatuses": [
            {
                "name": "main",
                "restartCount": 2,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
                "lastState": {"terminated": END},
            }
        ],
    },
}


def test_a_pod_is_described_without_values_of_variables_and_annotations() -> None:
    lines = of_pod(POD)
    assert lines == [
        "status: CrashLoopBackOff, phase Running, not ready, restarts: 2, since T0",
        "owner: StatefulSet trainer",
        "node: gpu-1",
        "node selector: pool=h100",
        "tolerations: nvidia.com/gpu:NoSchedule",
        "volumes: data (persistentVolumeClaim datasets)",
        "condition Ready=False (ContainersNotReady: m)",
        "init container fetch: not ready, restarts: 0, image b:1",
        "container main: not ready, restarts: 2, image a:1",
        "  state: waiting (CrashLoopBackOff): back-off 5m0s",
        f"  last state: terminated (OOMKilled, exit code 137): it {OOM}; from T1 to T2; it wrote: last words",
        "  limits: memory=64Gi, nvidia.com/gpu=8",
        "  variables (values are not shown): MODE, KEY (of Secret db), all of ConfigMap common",
        '  livenessProbe: {"httpGet": {"path": "/healthz"}}',
        '  command: ["torchrun", "train.py"]',
        "  args:",
        "    -c",
        "    set -e",
        "    export X=1",
    ]
    assert "hunter2x" not in "\n".join(lines)


def test_a_node_is_described_by_what_decides_about_pods() -> None:
    node = {
        "metadata": {"name": "gpu-1", "labels": {"nvidia.com/gpu.product": "H100", "other": "x"}},
        "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "allocatable": {"nvidia.com/gpu": "8"},
            "nodeInfo": {"kernelVersion": "6.8", "machineID": "secret-ish"},
        },
    }
    assert of_node(node) == [
        "condition Ready=True (KubeletReady)",
        "taints: gpu=yes:NoSchedule",
        "allocatable: nvidia.com/gpu=8",
        "type: nvidia.com/gpu.product=H100",
        "versions: kernelVersion=6.8",
    ]


def test_events_of_both_apis_are_in_the_order_of_time() -> None:
    old = {
        "type": "Warning",
        "reason": "BackOff",
        "count": 7,
        "lastTimestamp": "2026-01-01T00:02:00Z",
        "message": "a\nb",
    }
    new = {
        "type": "Normal",
        "reason": "Scheduled",
        "eventTime": "2026-01-01T00:01:00.5Z",
        "message": "c",
        "reportingComponent": "default-scheduler",
        "lastTimestamp": None,
    }
    assert of_events(Events([old, new])) == [
        "2026-01-01T00:01:00.5Z Normal Scheduled (default-scheduler): c",
        "2026-01-01T00:02:00Z Warning BackOff x7 (): a b",
    ]
    assert of_events(Events()) == ["(none)"]
    assert of_events(Events(why="forbidden")) == ["(unknown: forbidden)"]


def test_of_headers_of_a_probe_only_names_are_shown() -> None:
    get = {"path": "/", "httpHeaders": [{"name": "X-Auth", "value": "hunter2x"}]}
    pod = {**POD, "spec": {"containers": [{"name": "main", "livenessProbe": {"httpGet": get}}]}}
    assert '  livenessProbe: {"httpGet": {"httpHeaders": ["X-Auth"], "path": "/"}}' in of_pod(pod)
