"""What holds for every object of every environment, whatever the cluster file says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.cluster.clusterfile.read import load
from gpuctl.cluster.environment import Environment, EnvironmentRequest, environment
from gpuctl.cluster.manifests import FIXED, KINDS, VOLUMES, as_yaml, everything, secret
from gpuctl.cluster.manifests.container import user
from gpuctl.core.errors import InvalidInput
from gpuctl.edges.ssh_keys import pair
from tests.rig.cluster import golden
from tests.rig.cluster.files import EKS, OPENSHIFT, ROCE, cluster
from tests.rig.cluster.rendered import CASES, RDMA, containers, environments, named, one, pod_specs


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Environment, list[dict[str, Any]]]]:
    """Every environment with its name and objects."""
    found = environments(tmp_path_factory.mktemp("clusters"))
    return [(name, env, everything(env)) for name, env in found]


def keys(value: object) -> Iterator[str]:
    """Every name in a document."""
    if isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def test_every_object_says_whose_it_is(every: Any) -> None:
    for name, env, objects in every:
        for each in objects:
            labels = each["metadata"]["labels"]
            assert env.labels.items() <= labels.items(), name
            assert each["metadata"]["name"].startswith((env.name, f"gpuctl-{env.namespace}-{env.name}")), name


def test_what_can_be_made_is_listed_for_who_removes_it(every: Any) -> None:
    made = {(each["apiVersion"], each["kind"]) for _, _, objects in every for each in objects}
    assert made == set(KINDS)
    assert VOLUMES in made


def test_nothing_is_made_twice(every: Any) -> None:
    for name, _, objects in every:
        assert len(named(objects)) == len(objects), name


def test_two_environments_of_a_namespace_share_no_object(tmp_path: Path) -> None:
    for path in (OPENSHIFT, EKS):
        asked = [
            EnvironmentRequest(name="alice"),
            EnvironmentRequest(name="bob"),
            EnvironmentRequest(name="alice", single=True),
        ]
        alice, bob, single = (named(everything(environment(load(path), each))) for each in asked)
        assert not alice & bob
        assert not alice & single


def test_no_pod_sees_the_nodes_folders_or_processes(every: Any) -> None:
    for name, env, objects in every:
        assert not {"hostPath", "hostPID", "hostIPC"} & set(keys(objects)), name
        asked = env.rdma and env.cluster.network.rdma.host_network
        assert all(bool(spec.get("hostNetwork")) == asked for spec in pod_specs(objects)), name


def test_nothing_is_privileged_unless_the_file_says_so(every: Any) -> None:
    for name, env, objects in every:
        found = [c for spec in pod_specs(objects) for c in containers(spec) if c["securityContext"].get("privileged")]
        assert bool(found) == (env.rdma and env.cluster.security.requires_privileged_scc), name


def test_in_tcp_mode_every_pod_keeps_to_the_restricted_profile(every: Any) -> None:
    specs = [(name, spec) for name, env, objects in every if not env.rdma for spec in pod_specs(objects)]
    assert len(specs) == 2 * (len(CASES) + 2)
    for name, spec in specs:
        pod = spec["securityContext"]
        assert (pod["runAsNonRoot"], pod["seccompProfile"]["type"], pod.get("runAsUser")) != (True, "RuntimeDefault", 0)
        assert pod["runAsNonRoot"], name
        for container in containers(spec):
            own = container["securityContext"]
            assert own == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}, name


def test_every_container_has_limits_and_asks_for_just_as_much(every: Any) -> None:
    for name, env, objects in every:
        for spec in pod_specs(objects):
            for container in containers(spec):
                asked, limits = container["resources"]["requests"], container["resources"]["limits"]
                assert asked == limits, name
                assert {"cpu", "memory"} <= set(limits), name
            (main,) = spec["containers"]
            assert main["resources"]["limits"][env.cluster.gpus.resource] == str(env.cluster.gpus.per_node), name
            adapters = env.cluster.network.rdma.resources
            assert (set(adapters) <= set(main["resources"]["limits"])) == (env.rdma or not adapters), name
            assert all("sizeLimit" in volume["emptyDir"] for volume in spec["volumes"] if "emptyDir" in volume), name


def test_no_pod_gets_a_token_of_the_cluster(every: Any) -> None:
    for name, _, objects in every:
        assert all(spec["automountServiceAccountToken"] is False for spec in pod_specs(objects)), name


def test_nothing_that_is_rendered_holds_a_secret(every: Any) -> None:
    for name, env, objects in every:
        found = one(objects, "Secret")
        assert not {"data", "stringData"} & set(found), name
        text = as_yaml.as_yaml(objects)
        assert all(value not in text for value in secret.values(env, pair).values()), name


def test_a_filled_secret_differs_from_the_rendered_one_by_its_values_alone() -> None:
    env = environment(load(EKS))
    filled = secret.filled(env, {}, pair)
    assert {**filled, "data": None} == {**secret.empty(env), "data": None}
    assert set(filled["data"]) == set(secret.KEYS)
    assert filled["data"][secret.VSCODE] != filled["data"][secret.JUPYTER]


def test_what_a_secret_on_the_cluster_has_is_kept() -> None:
    env = environment(load(EKS))
    there = secret.filled(env, {}, pair)["data"]
    assert secret.filled(env, there, pair)["data"] == there
    lacking = {key: value for key, value in there.items() if key not in (secret.HOST, secret.JUPYTER)}
    mended = secret.filled(env, lacking, pair)["data"]
    assert {key for key in secret.KEYS if mended[key] == there[key]} == {secret.VSCODE}


def test_only_editors_are_exposed_and_only_those_that_the_file_names(every: Any) -> None:
    for name, env, objects in every:
        services = [each for each in objects if each["kind"] == "Service" and each["spec"].get("clusterIP") != "None"]
        assert [port["name"] for each in services for port in each["spec"]["ports"]] == list(
            env.cluster.ports.expose
        ), name
        ways = [each for each in objects if each["kind"] in ("Route", "Ingress")]
        assert bool(ways) == bool(env.cluster.ports.expose), name
        for way in ways:
            assert way["spec"].get("tls") or way["metadata"]["annotations"], name


def test_the_policy_lets_in_only_pods_of_the_environment_and_browsers(every: Any) -> None:
    for name, env, objects in every:
        rules = one(objects, "NetworkPolicy")["spec"]["ingress"]
        assert all(rule["from"] for rule in rules), name
        assert rules[0]["from"] == [{"podSelector": one(objects, "NetworkPolicy")["spec"]["podSelector"]}], name
        opened = [port["port"] for rule in rules[1:] for port in rule["ports"]]
        assert opened == list(env.cluster.ports.expose), name


def test_pods_of_an_environment_never_share_a_node(every: Any) -> None:
    for name, env, objects in every:
        for spec in pod_specs(objects) if not env.single else ():
            (apart,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            assert apart["topologyKey"] == "kubernetes.io/hostname", name
            assert apart["labelSelector"] == one(objects, "StatefulSet")["spec"]["selector"], name


def test_named_nodes_are_the_only_ones(tmp_path: Path) -> None:
    spec = pod_specs(everything(environment(load(OPENSHIFT))))[0]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchFields"][0]["values"] for term in terms] == [[f"gpu-node-{n}"] for n in range(1, 5)]


def test_scaling_changes_the_number_of_pods_and_the_hostfile_and_starts_no_pod_anew() -> None:
    few, many = (everything(environment(load(EKS), EnvironmentRequest(nodes=count))) for count in (2, 512))
    differing = [(a, b) for a, b in zip(few, many, strict=True) if a != b]
    assert [a["kind"] for a, _ in differing] == ["ConfigMap", "StatefulSet"]
    (hosts, more), (pods, scaled) = differing
    assert more["data"]["hostfile"].splitlines()[511] == "p5-efa-511.p5-efa.training.svc slots=8"
    assert len(hosts["data"]["hostfile"].splitlines()) == 2
    assert scaled["spec"] == {**pods["spec"], "replicas": 512}


def test_another_mode_keeps_what_a_stateful_set_cannot_change(tmp_path: Path) -> None:
    rdma, tcp = (
        one(everything(environment(load(OPENSHIFT), EnvironmentRequest(mode))), "StatefulSet")
        for mode in ("rdma", "tcp")
    )
    for field in FIXED["StatefulSet"]:
        assert rdma["spec"][field] == tcp["spec"][field]
    assert rdma["spec"]["template"] != tcp["spec"]["template"]


def test_every_variable_of_nccl_has_its_reason(every: Any) -> None:
    for name, _, objects in every:
        for each in (each for each in objects if each["kind"] in ("Pod", "StatefulSet")):
            (spec,) = pod_specs([each])
            set_there = {entry["name"] for entry in spec["containers"][0]["env"] if "_" in entry["name"]}
            nccl = {variable for variable in set_there if variable.startswith("NCCL_")}
            told = {key.partition("why.")[2] for key in each["metadata"]["annotations"] if ".NCCL_" in key}
            assert nccl == told != set(), name


def variables(env: Environment) -> dict[str, str]:
    (spec,) = pod_specs(everything(env))
    return {entry["name"]: entry["value"] for entry in spec["containers"][0]["env"] if "value" in entry}


def test_nccl_is_reported_what_the_file_says_and_nothing_else(tmp_path: Path) -> None:
    found = variables(environment(load(OPENSHIFT)))
    assert found["NCCL_IB_HCA"] == "=mlx5_6,mlx5_7,mlx5_8,mlx5_9"
    assert (found["NCCL_CROSS_NIC"], found["NCCL_DMABUF_ENABLE"], found["NCCL_IB_GID_INDEX"]) == ("0", "1", "3")
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("h100-roce-0.h100-roce.nccl-test.svc", "29500")
    plain = variables(environment(cluster(tmp_path, {"network": {"rdma": RDMA["network"]["rdma"]}})))
    assert {name for name in plain if name.startswith("NCCL_")} == {
        "NCCL_DEBUG",
        "NCCL_DMABUF_ENABLE",
        "NCCL_IB_HCA",
        "NCCL_SOCKET_IFNAME",
    }
    assert (plain["NCCL_SOCKET_IFNAME"], plain["NCCL_DMABUF_ENABLE"]) == ("=net1", "0")


def test_efa_is_reported_nothing_of_infiniband() -> None:
    found = variables(environment(load(EKS)))
    assert {name for name in found if name.startswith("NCCL_")} == {"NCCL_DEBUG", "NCCL_SOCKET_IFNAME"}


def test_tcp_looks_for_no_adapter_and_takes_no_plugin() -> None:
    found = variables(environment(load(EKS), EnvironmentRequest("tcp")))
    assert (found["NCCL_IB_DISABLE"], found["NCCL_NET"]) == ("1", "Socket")


def test_our_own_constraints_allow_what_the_file_asks_for_and_no_more(every: Any) -> None:
    asked = {name: objects for name, _, objects in every if name in ("openshift-root rdma", "openshift rdma")}
    made = one(asked["openshift-root rdma"], "SecurityContextConstraints")
    assert made["allowedCapabilities"] == ["IPC_LOCK", "SETGID", "SETUID", "SYS_CHROOT", "SYS_RESOURCE"]
    assert not made["allowPrivilegedContainer"]
    assert made["users"] == made["groups"] == []
    role = one(asked["openshift-root rdma"], "Role")
    assert role["rules"][0]["resourceNames"] == [made["metadata"]["name"]]
    assert role["rules"][0]["verbs"] == ["use"]
    assert "SecurityContextConstraints" not in {kind for kind, _ in named(asked["openshift rdma"])}


def test_privileged_binds_the_clusters_own_constraints_and_makes_none(every: Any) -> None:
    (objects,) = [objects for name, _, objects in every if name == "openshift-privileged rdma"]
    assert one(objects, "Role")["rules"][0]["resourceNames"] == ["privileged"]
    assert "SecurityContextConstraints" not in {kind for kind, _ in named(objects)}


def test_pods_of_both_modes_have_a_group_in_common(tmp_path: Path) -> None:
    rights = {"ipc_lock": True, "rdma_as_root": True}
    for flavour, number in (("kubernetes", 2000), ("openshift", 0)):
        own = {} if flavour == "openshift" else {"run_as_user": number}
        file = cluster(
            tmp_path, {"cluster": {"flavour": flavour}, "network": {"rdma": ROCE}, "security": {**rights, **own}}
        )
        root = user(environment(file, EnvironmentRequest("rdma")))
        other = user(environment(file, EnvironmentRequest("tcp")))
        assert (root["runAsUser"], root["runAsGroup"], root.get("fsGroup")) == (0, number, other.get("fsGroup"))
        assert other.get("runAsGroup", 0) == number  # users of OpenShift have group 0


def test_a_service_account_that_the_file_names_is_used_and_not_made(every: Any) -> None:
    (objects,) = [objects for name, _, objects in every if name == "own-volumes tcp"]
    assert "ServiceAccount" not in {kind for kind, _ in named(objects)}
    assert pod_specs(objects)[0]["serviceAccountName"] == "theirs"


@pytest.mark.parametrize("name", golden.FILES)
def test_the_golden_files_are_what_is_rendered(name: str) -> None:
    assert golden.text(golden.FILES[name]) == (golden.FOLDER / name).read_text()


def test_yaml_and_json_hold_the_same() -> None:
    objects = everything(environment(load(OPENSHIFT)))
    assert (
        list(yaml.safe_load_all(as_yaml.as_yaml(objects))) == json.loads(as_yaml.as_json(objects))["items"] == objects
    )


# As kubectl 1.32 reads them: 08 is 8, 0X1F is 31, 0_495 is 495.
READ_AS_NUMBERS = ["1e3", "-5E+2", "08", "+09", "0_495", "-.5", ".5e3", "1e3_", "0o17", "0x1f", "0X1F", "0B11"]


@pytest.mark.parametrize("text", [*READ_AS_NUMBERS, "y", "N", "no", "1:30", "null", "~", "2026-01-01"])
def test_text_that_a_yaml_reader_may_take_for_another_type_is_quoted(text: str) -> None:
    rendered = as_yaml.as_yaml([{"kind": "A", "name": text}])
    assert f"name: '{text}'\n" in rendered


@pytest.mark.parametrize("text", ["\x85x", "a\u2028b", "a\n\x85b"])
def test_line_breaks_that_are_not_newlines_are_kept(text: str) -> None:
    assert yaml.safe_load(as_yaml.as_yaml([{"kind": "A", "name": text}]))["name"] == text


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (EnvironmentRequest("rdma"), "does not enable it"),
        (EnvironmentRequest(nodes=0), "0 nodes were requested"),
        (EnvironmentRequest(nodes=2, single=True), "a standalone pod is on one node"),
        (EnvironmentRequest(name="Alice"), "not a name of a-z"),
        (EnvironmentRequest(name="a" * 41), "is 41 characters long"),
    ],
)
def test_what_the_file_does_not_allow_is_refused(tmp_path: Path, asked: EnvironmentRequest, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        environment(cluster(tmp_path), asked)


def test_no_more_nodes_than_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"5 nodes were requested, and nodes\.gpu_nodes names 4"):
        environment(load(OPENSHIFT), EnvironmentRequest(nodes=5))
