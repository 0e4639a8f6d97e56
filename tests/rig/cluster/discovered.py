"""Clusters as `discover` reads them, with the shapes of real ones.

Labels and resources of nodes are as NVIDIA's GPU feature discovery, the SR-IOV and the EFA device plugins write them:
run-ai/fake-gpu-operator, design/samples (nodes with MIG); NVIDIA/aicr, docs/conformance (p5.48xlarge); the network
attachment is that of EldritchJS/ml-dev-env, k8s/network-attachments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from gpuctl.cluster.deploy.cluster_snapshot import Maybe
from gpuctl.cluster.discover.draft import Draft, draft
from gpuctl.cluster.discover.facts import Facts
from tests.rig.cluster.files import ROOT

GOLDEN = ROOT / "tests/data/cluster/discover"
Object = dict[str, Any]
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "1"}
ROOM = {"cpu": "191450m", "memory": "2049000Mi", "ephemeral-storage": "93478772582", "pods": "110"}
FORBIDDEN = '"alice" has no permission to list nodes in the whole cluster'


def node(name: str, labels: Mapping[str, str] = H100, has: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """A node that is ready; `has`: what it offers besides eight GPUs, cores and memory."""
    offered = {**ROOM, "nvidia.com/gpu": "8", **(has or {})}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": spec,
        "status": {"allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def storage_class(name: str, provisioner: str, default: bool = False) -> Object:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"metadata": {"name": name, "annotations": annotations}, "provisioner": provisioner}


def attachment(name: str, resource: str, plugin: str = "sriov") -> Object:
    config = {"cniVersion": "1.0.0", "name": name, "type": plugin, "mtu": 9000}
    annotations = {"k8s.v1.cni.cncf.io/resourceName": resource} if resource else {}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"config": json.dumps(config)}}


def daemon(on: str, cpu: str, memory: str) -> Object:
    """A pod of a DaemonSet."""
    container = {"resources": {"requests": {"cpu": cpu, "memory": memory}}}
    owner = [{"kind": "DaemonSet", "name": "daemon"}]
    meta = {"name": f"daemon-{on}", "namespace": "system", "ownerReferences": owner}
    return {"metadata": meta, "spec": {"nodeName": on, "containers": [container]}}


def facts(**changes: Any) -> Facts:
    """A plain cluster: two nodes with eight H100 and nothing else, NFS and Ceph block storage."""
    plain = Facts(
        server="https://lab.example.org:6443",
        named="lab",
        namespace="team",
        space=Maybe({"metadata": {"name": "team"}}),
        openshift=False,
        multus=False,
        nodes=Maybe([node("gpu-0"), node("gpu-1")]),
        pods=Maybe([]),
        classes=Maybe([storage_class("nfs", "nfs.csi.k8s.io"), storage_class("rbd", "lab.rbd.csi.ceph.com", True)]),
        claims=Maybe([]),
        attachments=Maybe([]),
    )
    return replace(plain, **changes)


def nodes(*listed: Object) -> dict[str, Any]:
    return {"nodes": Maybe(list(listed))}


def openshift(**changes: Any) -> Facts:
    """Four H100 and four adapters a node, a network for each, Ceph; one node is cordoned, two are older."""
    adapters = {f"openshift.io/eno{number}np0rdma": "1" for number in (5, 6)}
    four = {**H100, "nvidia.com/gpu.count": "4"}
    has = {"nvidia.com/gpu": "4", **adapters}
    listed = [node(f"gpu-node-{number}", four, has) for number in (1, 2, 3)]
    away = node("gpu-node-4", four, has, unschedulable=True)
    older = [
        node(f"old-{number}", {"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}, {"nvidia.com/gpu": "4"})
        for number in (1, 2)
    ]
    given: dict[str, Any] = {
        "server": "https://api.h100.example.org:6443",
        "named": "api-h100-example-org:6443",
        "namespace": "nccl-test",
        "openshift": True,
        "multus": True,
        "nodes": Maybe([*listed, away, *older]),
        "pods": Maybe([daemon("gpu-node-1", "1450m", "1000Mi"), daemon("gpu-node-2", "450m", "1Gi")]),
        "classes": Maybe(
            [
                storage_class("ocs-external-storagecluster-ceph-rbd", "openshift-storage.rbd.csi.ceph.com", True),
                storage_class("ocs-external-storagecluster-cephfs", "openshift-storage.cephfs.csi.ceph.com"),
            ]
        ),
        "attachments": Maybe(
            [
                attachment("eno5np0-network", "openshift.io/eno5np0rdma"),
                attachment("eno6np0-network", "openshift.io/eno6np0rdma"),
                attachment("storage-network", "", "macvlan"),
            ]
        ),
        "usable": ("restricted-v2",),
        "constraints_why": '"alice" has no permission to list securitycontextconstraints in the whole cluster',
    }
    return facts(**{**given, **changes})


def eks(**changes: Any) -> Facts:
    """Two p5.48xlarge, which no attachments and no OpenShift know of."""
    labels = {
        **H100,
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "eks.amazonaws.com/nodegroup": "gpu-worker",
        "topology.k8s.aws/network-node-layer-3": "nn-d2e25ce93dad9593e",
    }
    has = {"vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "10562Mi"}
    taint = [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
    names = ("ip-10-0-171-111.ec2.internal", "ip-10-0-206-2.ec2.internal")
    given: dict[str, Any] = {
        "server": "https://0123456789ABCDEF0123456789ABCDEF.gr7.us-west-2.eks.amazonaws.com",
        "named": "arn:aws:eks:us-west-2:111122223333:cluster/p5-efa",
        "namespace": "training",
        "nodes": Maybe([*(node(name, labels, has, taints=taint) for name in names), _without_gpus("ip-10-0-0-7")]),
        "classes": Maybe(
            [storage_class("gp3", "ebs.csi.aws.com", True), storage_class("fsx-lustre", "fsx.csi.aws.com")]
        ),
    }
    return facts(**{**given, **changes})


def _without_gpus(name: str) -> Object:
    found = node(name, {})
    del found["status"]["allocatable"]["nvidia.com/gpu"]
    return found


DRAFTS: Mapping[str, tuple[Facts, str]] = {
    "h100-roce-openshift.yaml": (openshift(), "quay.io/example/ml:2026.10"),
    "p5-efa-eks.yaml": (eks(), "quay.io/example/ml:2026.10"),
    "namespaced-user.yaml": (
        facts(
            nodes=Maybe([], FORBIDDEN), pods=Maybe([], "pods may not be listed"), classes=Maybe([], "classes may not")
        ),
        "",
    ),
}


def written(name: str) -> str:
    found, image = DRAFTS[name]
    return draft(found, image).text


def names() -> Sequence[str]:
    return list(DRAFTS)


IMAGE = "quay.io/team/ml:1"


def drafted(found: Facts) -> Draft:
    return draft(found, IMAGE)


def document(found: Facts) -> dict[str, Any]:
    """What the draft says, once it is read as YAML."""
    read: dict[str, Any] = yaml.safe_load(drafted(found).text)
    return read


def left(found: Facts) -> list[str]:
    return [path for path, _ in drafted(found).left]


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in DRAFTS:
        (GOLDEN / each).write_text(written(each))
