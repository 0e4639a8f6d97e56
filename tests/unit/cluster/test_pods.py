"""What a training needs of its pods, in every environment: they start together, know each other, and have room."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import everything
from gpuctl.cluster.manifests.pods import NETWORKS
from tests.rig.cluster.rendered import environments, named, one, pod_specs

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a path in the pod
Every = list[tuple[str, Environment, list[Object]]]


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Every:
    """Every environment with its name and objects."""
    return [(name, env, everything(env)) for name, env in environments(tmp_path_factory.mktemp("clusters"))]


@pytest.fixture(scope="module")
def many(every: Every) -> Every:
    """Those of several pods."""
    return [each for each in every if not each[1].single]


def mount(spec: Object, path: str) -> Any:
    return next((each for each in spec["containers"][0]["volumeMounts"] if each["mountPath"] == path), None)


def test_no_combination_of_flavour_mode_storage_and_number_is_left_out(every: Every) -> None:
    found = {(env.openshift, env.mode, env.cluster.storage.mode, env.single) for _, env, _ in every}
    assert found == set(product((True, False), ("rdma", "tcp"), ("rwx", "volumeClaimTemplates"), (True, False)))


def test_pods_start_together_and_find_each_other_before_they_are_ready(many: Every) -> None:
    for name, env, objects in many:
        pods, service = one(objects, "StatefulSet")["spec"], one(objects, "Service", env.name)
        assert (pods["podManagementPolicy"], pods["replicas"]) == ("Parallel", env.nodes), name
        assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True), name
        assert pods["serviceName"] == service["metadata"]["name"], name
        assert service["spec"]["selector"] == pods["selector"]["matchLabels"] == env.selector, name
        assert env.selector.items() <= pods["template"]["metadata"]["labels"].items(), name


def test_no_pod_of_a_training_may_be_evicted(many: Every) -> None:
    for name, env, objects in many:
        budget = one(objects, "PodDisruptionBudget")
        assert budget["spec"] == {"maxUnavailable": 0, "selector": {"matchLabels": env.selector}}, name


def test_shared_memory_is_of_the_size_that_the_file_says(every: Every) -> None:
    for name, env, objects in every:
        (spec,) = pod_specs(objects)
        (volume,) = [each for each in spec["volumes"] if each["name"] == mount(spec, SHARED_MEMORY)["name"]]
        assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": env.cluster.resources.shm}, name


def test_memory_is_locked_by_rdma_alone_and_only_where_the_file_says_so(every: Every) -> None:
    seen = set()
    for name, env, objects in every:
        (spec,) = pod_specs(objects)
        prepare, main = spec["initContainers"][0]["securityContext"], spec["containers"][0]["securityContext"]
        added = set(main.get("capabilities", {}).get("add", []))
        asked = env.rdma and env.cluster.security.ipc_lock and not env.cluster.security.requires_privileged_scc
        assert ("IPC_LOCK" in added) == asked, name
        assert prepare == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}, name
        assert env.rdma or not added, name
        seen.add(asked)
    assert seen == {True, False}


def test_volumes_are_shared_or_each_pods_own_as_the_file_says(every: Every) -> None:
    for name, env, objects in every:
        claims = [each["spec"] for each in objects if each["kind"] == "PersistentVolumeClaim"]
        pods = one(objects, "Pod" if env.single else "StatefulSet")["spec"]
        shared, own = env.cluster.storage.mode == "rwx", pods.get("volumeClaimTemplates", [])
        assert (len(claims), len(own)) == ((2, 0) if shared or env.single else (0, 2)), name
        modes = {mode for spec in [*claims, *(each["spec"] for each in own)] for mode in spec["accessModes"]}
        assert modes == {"ReadWriteMany" if shared else "ReadWriteOnce"}, name


def test_folders_of_the_volumes_are_bound_where_the_file_says(every: Every) -> None:
    bound = 0
    for name, env, objects in every:
        (spec,) = pod_specs(objects)
        for path, source in env.cluster.storage.folders.items():
            volume, _, folder = source.partition("/")
            assert mount(spec, path) == {"name": volume, "mountPath": path, "subPath": folder}, name
            bound += 1
    assert bound


def test_attached_networks_come_with_rdma_alone(every: Every) -> None:
    for name, env, objects in every:
        pods = one(objects, "Pod" if env.single else "StatefulSet")
        meta = pods["metadata"] if env.single else pods["spec"]["template"]["metadata"]
        wanted = ",".join(env.cluster.network.rdma.attachments) if env.rdma else ""
        assert meta["annotations"].get(NETWORKS, "") == wanted, name


def test_pods_are_kept_near_each_other_where_the_file_names_a_topology(many: Every) -> None:
    near = 0
    for name, env, objects in many:
        (spec,) = pod_specs(objects)
        found = spec["affinity"].get("podAffinity", {}).get("preferredDuringSchedulingIgnoredDuringExecution", [])
        key = env.cluster.nodes.topology_key
        assert [each["podAffinityTerm"]["topologyKey"] for each in found] == ([key] if key else []), name
        near += len(found)
    assert near


def test_tensorboard_and_the_debugger_are_reached_by_a_forward_alone(every: Every) -> None:
    for name, env, objects in every:
        ports = env.cluster.ports
        closed = {"tensorboard", "debug", ports.tensorboard, ports.debug}
        services = [each for each in objects if each["kind"] == "Service"]
        opened = {port[key] for each in services for port in each["spec"]["ports"] for key in ("name", "port")}
        rules = one(objects, "NetworkPolicy")["spec"]["ingress"]
        opened |= {port["port"] for rule in rules for port in rule.get("ports", [])}
        assert not closed & opened, name


def test_a_pod_that_stands_alone_has_no_more_than_it_needs(every: Every) -> None:
    for name, _, objects in (each for each in every if each[1].single):
        kinds = {kind for kind, _ in named(objects)}
        assert not {"StatefulSet", "PodDisruptionBudget"} & kinds, name
        assert "Pod" in kinds, name
