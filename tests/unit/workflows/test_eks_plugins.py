"""Device plugins of a cluster: whom they serve, what stays, and what a failure leaves of the findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.findings import Finding
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube.cluster import Object, Request
from gpuctl.eks import device_plugins, node_resources
from gpuctl.eks import objects as aws_objects
from gpuctl.eks.device_plugins import AWS_EFA, EFA, NVIDIA, GroupNodes
from gpuctl.eks.facts import Type
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.eks.node_template import Nic, NodeNetwork
from gpuctl.eks.objects import Kind
from gpuctl.eks.wait import Waiter
from gpuctl.workflows import eks_plugins
from tests.rig.standin_namespace import StandinNamespace

GROUP = GroupNodes("gpu", "p4d.24xlarge", "AL2023_x86_64_NVIDIA", 1, 8, 4)
READY = [{"type": "Ready", "status": "True"}]


class StandinCluster(StandinNamespace):
    """Stand-in of a cluster whose kubelets and plugins do nothing. `answers`: raises an error for a request, or not."""

    def __init__(self, answers: Callable[[Request], GpuctlError | None] = lambda _: None) -> None:
        super().__init__()
        self.answers = answers

    def once(self, request: Request, silent_s: float = 0) -> Object:
        if error := self.answers(request):
            raise error
        return super().once(request, silent_s)

    def join(self, name: str, group: str = "gpu", offers: dict[str, str] | None = None) -> None:
        self.add(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"eks.amazonaws.com/nodegroup": group}},
                "status": {"allocatable": offers or {}, "capacity": offers or {}, "conditions": READY},
            }
        )

    def live(self, plugin: device_plugins.Plugin) -> Object:
        found = [item for item in self.items.values() if item["metadata"]["name"] == plugin.name]
        assert len(found) == 1
        return found[0]


def ensure(cluster: StandinCluster, *groups: GroupNodes, lines: list[str] | None = None) -> list[Finding]:
    clock = iter(range(0, 10**9, 300))
    printed = lines if lines is not None else []
    waiter = Waiter(printed.append, lambda _: None, lambda: float(next(clock)))
    return eks_plugins.ensure(cluster, groups, "us-east-1", waiter)


def group(name: str, state: str = "ACTIVE", **data: Any) -> aws_objects.Object:
    return aws_objects.Object(Kind.GROUP, name, name, state, ours=True, data={"amiType": GROUP.ami, **data})


def groups_of(*listed: aws_objects.Object) -> dict[str, GroupNodes]:
    """Groups of a file with the group gpu, beside those that AWS lists."""
    cluster = EksCluster(
        "lab", "us-east-1", "1.36", [NodeGroup("gpu", "p4d.24xlarge", 0, 2, 1, taints=("a=b:NoExecute",))]
    )
    kinds = {"p4d.24xlarge": Type("p4d.24xlarge", 96, "x86_64", frozenset(), gpus=8)}
    made: Any = SimpleNamespace(cluster=cluster, facts=SimpleNamespace(types=kinds))
    nics = NodeNetwork([Nic(0, 0, "interface"), Nic(1, 0, "efa-only")], 100)
    planned: Any = SimpleNamespace(networks={"gpu": nics})
    return {one.group: one for one in eks_plugins.groups_of(made, planned, listed)}


def test_groups_of_gpuctl_beside_the_file_are_served_and_only_active_ones_of_the_file_judged() -> None:
    taints = [{"key": "x", "effect": "NO_SCHEDULE"}]
    theirs = replace(group("theirs"), ours=False)
    found = groups_of(group("gpu", "DEGRADED"), group("old", taints=taints), group("gone", "DELETING"), theirs)
    assert set(found) == {"gpu", "old"}
    assert not any(one.active for one in found.values())
    assert (found["gpu"].needs, found["old"].needs) == ({"nvidia.com/gpu": 8, EFA: 1}, {"nvidia.com/gpu": 1})
    assert found["old"].taints == ("x:NoSchedule",)
    assert groups_of(group("gpu"))["gpu"].active
    assert groups_of()["gpu"].needs  # the plugin may be applied before its nodes come


def test_a_renamed_or_degraded_group_does_not_lose_its_plugin() -> None:
    cluster = StandinCluster()
    cluster.join("node-0")
    ensure(cluster, replace(GROUP, active=False))
    ensure(cluster, replace(GROUP, group="other", active=False))
    for plugin in (NVIDIA, AWS_EFA):
        assert device_plugins.selected_groups(cluster.live(plugin)) == {"gpu", "other"}


def test_a_group_whose_image_offers_gpus_gets_no_second_plugin_beside_another_group() -> None:
    """The first run applies the plugin for one group; the second sees nodes that offer GPUs without it."""
    cluster = StandinCluster()
    plain = replace(GROUP, efas=0, active=False)
    ensure(cluster, plain)
    cluster.join("node-1", "image", {"nvidia.com/gpu": "8"})
    ensure(cluster, plain, replace(plain, group="image", ami="CUSTOM"))
    assert device_plugins.selected_groups(cluster.live(NVIDIA)) == {"gpu"}


def theirs(groups: list[GroupNodes], name: str = "theirs") -> Object:
    made = device_plugins.daemon_set(NVIDIA, groups, "us-east-1")
    made["metadata"] = {"name": name, "namespace": "gpu-operator"}
    return made


def test_a_plugin_of_others_on_other_nodes_is_no_second_one_and_ours_is_never_to_be_removed() -> None:
    cluster = StandinCluster()
    cluster.join("node-0")
    plain = replace(GROUP, efas=0, active=False)
    ensure(cluster, plain)
    cluster.add(theirs([replace(GROUP, group="elsewhere")]), namespace="gpu-operator")
    assert [(one.check, str(one.verdict)) for one in ensure(cluster, plain)] == [("device-plugin", "OK")]
    cluster.add(theirs([GROUP], "second"), namespace="gpu-operator")
    finding = ensure(cluster, plain)[0]
    assert (str(finding.verdict), "gpu-operator/second" in finding.message) == ("WARN", True)
    assert "DaemonSet second in gpu-operator" in finding.hint
    assert NVIDIA.name not in finding.hint
    assert "remove" not in finding.hint


def restricted(labels: dict[str, str], name: str = "theirs") -> Object:
    """NVIDIA's plugin of others, for nodes with these labels."""
    made = theirs([], name)
    del made["spec"]["template"]["spec"]["affinity"]
    made["spec"]["template"]["spec"]["nodeSelector"] = labels
    return made


def of_group(name: str) -> Object:
    return restricted({device_plugins.GROUP_LABEL: name})


def test_beside_a_plugin_of_others_on_one_group_a_new_group_gets_ours() -> None:
    cluster = StandinCluster()
    plain = replace(GROUP, efas=0, active=False)
    theirs_too, new = replace(plain, group="a"), replace(plain, group="new")
    for one in (plain, theirs_too, new):
        cluster.join(f"node-{one.group}", one.group)
    ensure(cluster, plain)
    cluster.add(of_group("a"), namespace="gpu-operator")
    found = ensure(cluster, plain, theirs_too, new)
    assert [str(one.verdict) for one in found] == ["OK", "OK"]
    assert "gpu-operator/theirs" in found[1].message
    assert device_plugins.selected_groups(cluster.live(NVIDIA)) == {"gpu", "new"}


def test_two_plugins_on_one_group_do_not_keep_ours_from_another() -> None:
    cluster = StandinCluster()
    plain = replace(GROUP, efas=0, active=False)
    new = replace(plain, group="new")
    for one in (plain, new):
        cluster.join(f"node-{one.group}", one.group)
    ensure(cluster, plain)
    cluster.add(of_group("gpu"), namespace="gpu-operator")
    found = ensure(cluster, plain, new)
    assert [str(one.verdict) for one in found] == ["OK", "WARN"]
    assert device_plugins.selected_groups(cluster.live(NVIDIA)) == {"gpu", "new"}


def test_a_plugin_of_others_that_selects_no_node_of_ours_keeps_nobody_from_ours() -> None:
    cluster = StandinCluster()
    plain = replace(GROUP, efas=0, active=False)
    cluster.join("node-0")
    cluster.add(of_group("elsewhere"), namespace="gpu-operator")
    assert [str(one.verdict) for one in ensure(cluster, plain)] == ["OK"]
    assert device_plugins.selected_groups(cluster.live(NVIDIA)) == {"gpu"}


def test_a_daemon_set_of_others_with_gpuctls_name_is_not_changed() -> None:
    cluster = StandinCluster()
    cluster.join("node-0")
    made = of_group("elsewhere")
    made["metadata"] = {"name": NVIDIA.name, "namespace": "kube-system"}
    cluster.add(made)
    [finding] = ensure(cluster, replace(GROUP, efas=0, active=False))
    assert (str(finding.verdict), cluster.writes) == ("WARN", [])


def excluding() -> Object:
    """A plugin of others with a rule that is not In."""
    made = theirs([GROUP])
    affinity = made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    rule = {"key": "team", "operator": "NotIn", "values": ["b"]}
    affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = [{"matchExpressions": [rule]}]
    return made


@pytest.mark.parametrize(
    ("other", "joined", "message"),
    [
        (of_group("elsewhere"), False, "serves gpu is not known: no node has joined"),
        (excluding(), True, "serves gpu is not known"),
        (restricted({"nvidia.com/gpu.deploy.device-plugin": "true"}), True, "serves gpu is not known"),
    ],
)
def test_a_plugin_of_others_that_may_serve_a_group_is_left_alone_with_a_warning(
    other: Object, joined: bool, message: str
) -> None:
    cluster = StandinCluster()
    if joined:
        cluster.join("node-0")
    cluster.add(other, namespace="gpu-operator")
    [finding] = ensure(cluster, replace(GROUP, efas=0, active=False))
    assert (str(finding.verdict), message in finding.message) == ("WARN", True)
    assert cluster.writes == []


def test_a_plugin_of_others_for_all_nodes_is_left_alone_before_one_has_joined() -> None:
    cluster = StandinCluster()
    cluster.add(restricted({}), namespace="gpu-operator")
    [finding] = ensure(cluster, replace(GROUP, efas=0, active=False))
    assert (str(finding.verdict), cluster.writes) == ("OK", [])


def test_a_plugin_that_withholds_all_gpus_of_a_node_is_one() -> None:
    cluster = StandinCluster()
    cluster.join("node-0", offers={"nvidia.com/gpu": "8"})
    cluster.join("node-1")
    [finding] = ensure(cluster, replace(GROUP, efas=0, ami="CUSTOM", active=False))
    assert (str(finding.verdict), cluster.writes) == ("OK", [])


class StandinRollout(StandinCluster):
    """Stand-in of a cluster that restarts the pods of a changed DaemonSet after `looks` readings of DaemonSets."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def once(self, request: Request, silent_s: float = 0) -> Object:
        is_change = request.method == "PATCH"
        if is_change and ("dryRun", "All") in request.query:
            before = next(iter(self.daemon_sets()), None)
            changes = before is None or before["spec"] != dict(request.body or {})["spec"]
            generation = (before["metadata"]["generation"] if before else 0) + changes
            return {**dict(request.body or {}), "metadata": {"generation": generation}}
        if request.method == "GET" and request.path.endswith("/daemonsets") and "labelSelector" in dict(request.query):
            self.looks -= 1
            if self.looks <= 0:
                for one in self.daemon_sets():
                    one["status"] |= {"observedGeneration": one["metadata"]["generation"], "updatedNumberScheduled": 1}
        answer = super().once(request, silent_s)
        if is_change:
            (one,) = self.daemon_sets()
            one["metadata"]["generation"] = one["metadata"].get("generation", 0) + 1
            one["status"] = {"observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": 1}
            one["status"]["updatedNumberScheduled"] = 1 if one["metadata"]["generation"] == 1 else 0
            return one
        return answer

    def daemon_sets(self) -> list[Object]:
        return [one for one in self.items.values() if one["kind"] == "DaemonSet"]


@pytest.mark.parametrize(("looks", "done"), [(2, True), (99, False)])
def test_after_a_change_of_the_plugin_its_new_pods_are_awaited(looks: int, done: bool) -> None:
    cluster, lines = StandinRollout(looks), list[str]()
    plain = replace(GROUP, efas=0)
    ensure(cluster, replace(plain, active=False), lines=lines)
    assert not any("restart" in line for line in lines)
    cluster.join("node-0", offers={"nvidia.com/gpu": "8"})
    new = replace(plain, group="new", active=False)
    found = ensure(cluster, plain, new, lines=lines)
    assert "changes: its pods restart on the nodes of gpu" in lines[0]
    assert any("is not taken up yet" in line for line in lines)
    late = [one for one in found if one.subject == "restart"]
    assert bool(late) is not done
    assert all(str(one.verdict) == "WARN" for one in late)


def test_a_failure_of_one_plugin_or_of_the_wait_keeps_the_other_findings() -> None:
    def refuse(request: Request) -> GpuctlError | None:
        if request.method == "PATCH" and request.path.endswith(AWS_EFA.name):
            return Forbidden("apply it", "you may not")
        if request.path.endswith("/pods"):
            return Forbidden("list pods", "you may not")
        return None

    cluster = StandinCluster(refuse)
    cluster.join("node-0")
    found = {(one.check, one.subject): str(one.verdict) for one in ensure(cluster, GROUP)}
    assert found == {
        ("device-plugin", NVIDIA.title): "OK",
        ("device-plugin", AWS_EFA.title): "UNKNOWN",
        ("gpu-resources", "gpu"): "FAIL",
    }


def test_without_the_right_to_list_pods_the_nodes_are_awaited_and_the_cause_is_that_right() -> None:
    looks = iter(range(99))

    def answer(request: Request) -> GpuctlError | None:
        if request.path.endswith("/nodes") and next(looks) == 2:
            cluster.join("node-0", offers={"nvidia.com/gpu": "8"})
        return Forbidden("list pods", "no permission", "ask for a role") if request.path.endswith("/pods") else None

    cluster, lines = StandinCluster(answer), list[str]()
    cluster.join("node-0")
    plain = replace(GROUP, efas=0)
    assert str(ensure(cluster, plain, lines=lines)[-1].verdict) == "OK"
    cause = "node-0: its pods of NVIDIA's device plugin are not known: cannot list pods: no permission"
    assert f"node group gpu: {cause}; ask for a role" in lines
    cluster.join("node-0", offers={})
    cluster.live(NVIDIA)
    finding = ensure(cluster, plain)[-1]
    assert (str(finding.verdict), finding.hint) == ("FAIL", "ask for a role")


@pytest.mark.parametrize(("silent", "verdict"), [(2, "OK"), (99, "UNKNOWN")])
def test_a_kubernetes_that_does_not_answer_for_a_time_is_asked_again(silent: int, verdict: str) -> None:
    looks = iter(range(99))

    def answer(request: Request) -> GpuctlError | None:
        if not request.path.endswith("/nodes"):
            return None
        return Unreachable("list nodes", "no answer") if 0 < next(looks) <= silent else None

    cluster, lines = StandinCluster(answer), list[str]()
    cluster.join("node-0", offers={"nvidia.com/gpu": "8", EFA: "4"})
    findings = ensure(cluster, GROUP, lines=lines)
    assert (findings[-1].check, str(findings[-1].verdict)) == ("gpu-resources", verdict)
    assert str(findings[0].verdict) == "OK"
    assert "not known: cannot list nodes: no answer" in lines[0]


def test_efa_is_awaited_on_an_image_without_nvidias_driver() -> None:
    cluster, lines = StandinCluster(), list[str]()
    cluster.join("node-0")
    ensure(cluster, replace(GROUP, ami="AL2023_x86_64_NEURON", gpus=0), lines=lines)
    assert "0 of 1 node of gpu offer 4 EFA interfaces" in lines[0]


def test_every_node_has_the_pod_of_its_plugin_as_the_cause() -> None:
    """Also nodes beyond the few whose events are read."""
    cluster = StandinCluster()
    plain = replace(GROUP, efas=0, desired=6)
    ensure(cluster, replace(plain, active=False))
    owner = {"kind": "DaemonSet", "uid": cluster.live(NVIDIA)["metadata"]["uid"]}
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    for number in range(6):
        cluster.join(f"node-{number}")
        status = [{"name": "x", "image": "y", "ready": False, "state": {"waiting": waiting}}]
        cluster.add(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"plugin-{number}",
                    "ownerReferences": [owner],
                    "labels": {"app.kubernetes.io/name": NVIDIA.name},
                },
                "spec": {"nodeName": f"node-{number}", "containers": [{"name": "x"}]},
                "status": {"phase": "Pending", "containerStatuses": status},
            },
            namespace="kube-system",
        )
    assert ensure(cluster, plain)[-1].message.startswith("6 of 6 nodes do not offer 8 GPUs")
    observed = eks_plugins.observe(cluster, [plain], {"nvidia.com/gpu": [cluster.live(NVIDIA)]})
    causes = node_resources.causes(plain, observed.nodes["gpu"], observed)
    assert [one.text.partition(":")[0] for one in causes] == [f"node-{number}" for number in range(6)]
    assert all("the image y cannot be pulled" in one.text for one in causes), causes
