"""A cluster file is read strictly: every mistake at once, with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpuctl.cli.cluster.file import validate
from gpuctl.cluster.clusterfile.read import load, parse
from gpuctl.core.errors import InvalidInput
from tests.rig.cluster.files import BUILT, EKS, ON_OPENSHIFT, OPENSHIFT, ROCE, cluster, mistakes, write

OLDER = Path(__file__).parents[3] / "data/cluster/older"


@pytest.mark.parametrize("example", [OPENSHIFT, EKS], ids=lambda path: path.stem)
def test_the_examples_have_no_mistakes(example: Path) -> None:
    assert parse(example).mistakes == ()


@pytest.mark.parametrize("older", sorted(OLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_file_of_the_older_layout_has_the_hint_to_migrate_it(older: Path) -> None:
    hint = f"`gpuctl cluster migrate {older}` converts the older layout"
    with pytest.raises(InvalidInput) as refused:
        load(older)
    assert refused.value.hint == hint
    for form in ("json", "yaml"):
        done = CliRunner().invoke(validate, [str(older), "-o", form])
        assert (done.exit_code, yaml.safe_load(done.stdout)["hint"]) == (2, hint)


def test_the_hint_of_other_mistakes_names_the_fields_and_a_correct_file_has_none(tmp_path: Path) -> None:
    path = write(tmp_path, {"gpus": {"per_node": 0}})
    done = CliRunner().invoke(validate, [str(path), "-o", "json"])
    assert "gpuctl cluster schema" in json.loads(done.stdout)["hint"]
    done = CliRunner().invoke(validate, [str(OPENSHIFT), "-o", "json"])
    assert (done.exit_code, json.loads(done.stdout)["hint"]) == (0, "")


def test_what_the_field_measured_stands_in_the_example() -> None:
    found = load(OPENSHIFT)
    rdma = found.network.rdma
    assert (rdma.devices, rdma.cross_nic, rdma.dmabuf) == (("mlx5_6", "mlx5_7", "mlx5_8", "mlx5_9"), 0, True)
    assert (found.gpus.per_node, found.resources.cpu, found.storage.workspace_size) == (4, "64", "100Gi")


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    found = cluster(tmp_path)
    assert (found.storage.datasets_size, found.ports.master, found.gpus.default_nodes) == ("500Gi", 29500, 2)
    assert (found.network.rdma.enabled, found.security.requires_privileged_scc, found.ports.expose) == (
        False,
        False,
        (),
    )


def test_all_mistakes_are_reported_at_once_each_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        """\
cluster:
  name: Lab_1
  api: http://lab.example.org
  namespace: team
  flavor: eks
storage:
  mode: volumeClaimTemplates
  workspace_size: 100G
  datasets_size: 500
  datasets_size: 1Ti
gpus: {per_node: 0}
resources: {cpu: 32Gi, memory: 128Gi}
image: {name: quay.io/team/ml:1}
ports: {jupyter: 8080}
"""
    )
    told = [(int(each.where.rpartition(":")[2]), each.wrong.split()[0], each.hint) for each in parse(path).mistakes]
    assert told == [
        (1, "cluster.flavour", ""),
        (2, "cluster.name", ""),
        (3, "cluster.api", ""),
        (5, "cluster.flavor", "did you mean flavour?"),
        (7, "storage.mode", "`kubectl get storageclass` lists the classes"),
        (8, "storage.workspace_size", "write 100Gi, a power of 1024"),
        (9, "storage.datasets_size", "write 500Gi"),
        (10, "datasets_size", "keep one"),
        (11, "gpus.per_node", ""),
        (12, "resources.cpu", ""),
        (14, "ports.jupyter", "choose another"),
    ]
    with pytest.raises(InvalidInput) as refused:
        load(path)
    assert refused.value.exit_code == 2
    assert refused.value.wrong.count("\n") == len(told) - 1


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("100", "write 100Gi"),
        ("100G", "write 100Gi, a power of 1024"),
        ("100GB", "write 100Gi, a power of 1024"),
        ("100gi", "write a whole number with Mi, Gi, Ti or Pi"),
        ("1.5Gi", "write a whole number with Mi, Gi, Ti or Pi"),
        ("0Gi", "write a whole number with Mi, Gi, Ti or Pi"),
    ],
)
def test_a_size_needs_a_binary_unit(tmp_path: Path, written: str, hint: str) -> None:
    (mistake,) = parse(write(tmp_path, {"storage": {"workspace_size": written}})).mistakes
    assert (mistake.hint, repr(written) in mistake.wrong) == (hint, True)


def rdma(**more: Any) -> dict[str, Any]:
    return {"network": {"rdma": {**ROCE, **more}}}


BOTH = {"dockerfile": "FROM a", "git": "https://example.org/ml.git"}
INGRESS = {"domain": "ml.example.org", "tls_secret": "tls", "from_namespace": "ingress-nginx"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"storage": {"mode": "volumeClaimTemplates"}}, "storage.mode is volumeClaimTemplates, which needs"),
        ({"storage": {"class_rwx": None, "class_rwo": "rbd"}}, "storage.mode is rwx, which needs storage.class_rwx"),
        ({"storage": {"folders": {"/workspace/a": "workspace/a"}}}, "is used by the pod itself"),
        ({"cluster": {"api": "https://lab.example.org:70000"}}, "its port at most 65535"),
        ({"cluster": {"namespace": "openshift-ingress"}}, "which is reserved for the cluster"),
        ({"network": {"rdma": {**ROCE, "resources": None}}}, "is enabled without the resource"),
        ({"network": {"rdma": {**ROCE, "fabric": None}}}, "but fabric is missing"),
        (rdma(resources={"nvidia.com/gpu": 8}), "which is the GPU resource"),
        (rdma(devices=["mlx5_0", "mlx5_1"], interfaces=["net1"]), "has 2 devices, 1 interfaces"),
        (rdma(attachments=["a"], host_network=True), "excludes attachments"),
        (rdma(fabric="efa", gid_index=3), "network.rdma.gid_index has no effect with EFA"),
        (rdma(devices=["mlx5_0"], environment={"NCCL_IB_HCA": "mlx5_0"}), "is set already, by network.rdma.devices"),
        ({"network": {"tcp": {"environment": {"NCCL_DEBUG": "INFO"}}}}, "is set already, by nccl.debug"),
        ({"security": {"ipc_lock": True}}, "applies to RDMA pods, and network.rdma is not enabled"),
        ({**rdma(), "security": {"requires_privileged_scc": True}}, "exists on OpenShift only"),
        ({**rdma(), "security": {"rdma_as_root": True}}, "has no effect without ipc_lock"),
        ({**ON_OPENSHIFT, "security": {"run_as_user": 1000}}, "OpenShift assigns user IDs to each namespace"),
        ({"nodes": {"gpu_nodes": ["a"]}}, "gpus.default_nodes is 2, and nodes.gpu_nodes names 1"),
        ({"nodes": {"gpu_nodes": ["a", "a"]}}, "nodes.gpu_nodes names a twice"),
        ({"ports": {"debug": 29500}}, "ports.master is 29500, as ports.debug is"),
        ({"ports": {"vscode": 80}}, "not a whole number from 1024 to 65535"),
        ({"ports": {"expose": ["vscode"]}}, "needs ports.ingress on this flavour"),
        ({"ports": {"expose": ["tensorboard"]}}, "cannot be 'tensorboard'"),
        ({**ON_OPENSHIFT, "ports": {"ingress": INGRESS}}, "is for clusters without Routes"),
        ({"ports": {"ingress": {**INGRESS, "tls_secret": None}}}, "passwords would be sent unencrypted"),
        ({"ports": {"ingress": {**INGRESS, "from_namespace": None}}}, "needs exactly one of from_namespace"),
        ({**ON_OPENSHIFT, "image": {"build": {"dockerfile": "FROM a"}}}, "image needs exactly one of name and build"),
        (BUILT, "image.build works on OpenShift only"),
        ({**ON_OPENSHIFT, "image": {"name": None, "build": BOTH}}, "image.build has both dockerfile and git"),
        ({"resources": {"shm": "128Gi"}}, "shared memory counts as memory"),
        ({"resources": {"hugepages_2mi": "5121Mi"}}, "not a whole number of 2 MiB pages"),
        ({"gpus": {"type": ""}}, "gpus.type is empty"),
        ({"nodes": {"selector": {"a b": "c"}}}, "not a label's name"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    found = mistakes(tmp_path, changes)
    assert len(found) == 1
    assert told in found[0]


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("https://ghp_secret@example.org/ml.git", True),
        ("https://ann:secret@example.org/ml.git", True),
        ("ssh://git:secret@example.org/ml.git", True),
        ("https://example.org/ml.git?access_token=secret@", True),
        ("https://example.org/ml.git?version=2", False),
        ("ssh://git@example.org/ml.git", False),
        ("https://example.org/team@home/ml.git", False),
    ],
)
def test_a_git_url_with_a_password_or_token_is_refused_without_printing_it(
    tmp_path: Path, url: str, is_refused: bool
) -> None:
    changes = {**ON_OPENSHIFT, "image": {"name": None, "build": {"git": url}}}
    messages = mistakes(tmp_path, changes)
    assert bool(messages) is is_refused
    assert not any("secret@" in message for message in messages)
    assert all("image.build.git holds a password or token" in message for message in messages)


@pytest.mark.parametrize(
    "url",
    [
        "http://ghp_secret@example.org/ml.git",
        "git+https://ghp_secret@example.org/ml.git",
        "HTTPS://ghp_secret@example.org/ml.git",
        "https://ghp_secret@example.org/m l.git",
        "https://ann:a secret@example.org/ml.git",
        "https://ann:a/secret@example.org/m l.git",
        "ann:secret@example.org/ml.git",
    ],
)
@pytest.mark.parametrize("field", ["git", "name", "api"])
def test_a_url_that_is_refused_for_its_form_is_quoted_without_its_password_or_token(
    tmp_path: Path, url: str, field: str
) -> None:
    changes: dict[str, Any] = {
        "git": {**ON_OPENSHIFT, "image": {"name": None, "build": {"git": url}}},
        "name": {"image": {"name": url}},
        "api": {"cluster": {"api": url}},
    }
    (message,) = mistakes(tmp_path, changes[field])
    assert "secret" not in message
    assert "<removed>@example.org/m" in message


@pytest.mark.parametrize("url", ["git@example.org:team/ml.git", "ssh://git@example.org/m l.git"])
def test_a_url_without_a_secret_is_quoted_as_it_is(tmp_path: Path, url: str) -> None:
    (message,) = mistakes(tmp_path, {**ON_OPENSHIFT, "image": {"name": None, "build": {"git": url}}})
    assert repr(url) in message


def test_the_host_of_a_route_has_to_fit_into_dns(tmp_path: Path) -> None:
    long = {
        "cluster": {"flavour": "openshift", "name": "a" * 40, "namespace": "b" * 30},
        "ports": {"expose": ["vscode"]},
    }
    (told,) = mistakes(tmp_path, long)
    assert "which is 78 characters long; DNS allows 63" in told


def test_a_rule_is_left_out_where_its_own_fields_are_wrong_and_only_there(tmp_path: Path) -> None:
    changes = {"resources": {"memory": "128", "shm": "256Gi"}, "ports": {"master": 8080}}
    found = mistakes(tmp_path, changes)
    assert [each.split()[0] for each in found] == ["resources.memory", "ports.master"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is an empty cluster file"),
        ("- a\n- b\n", "is not a mapping of cluster, storage"),
        ("cluster: [\n", "is not YAML"),
        ("cluster: &a {}\nstorage: *a\n", "is an alias (*a)"),
        ("cluster: !!python/name:os.system {}\n", "has the tag"),
    ],
)
def test_what_is_no_cluster_file_is_reported_without_a_fault_of_ours(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    assert any(told in mistake.wrong for mistake in parse(path).mistakes)


def test_an_empty_file_is_reported_as_one_of_clusters(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    path.write_text("")
    (mistake,) = parse(path).mistakes
    assert "gpuctl cluster" in mistake.hint


def test_a_missing_section_is_described_and_its_required_fields_are_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("gpus: {}\n")
    missing = {one.wrong.split()[0]: one for one in parse(path).mistakes}
    assert missing["cluster"].wrong == ("cluster is missing (the Kubernetes cluster, and the namespace to use on it)")
    assert missing["cluster"].hint == "give it name, api, namespace, flavour"
    assert missing["gpus.per_node"].wrong == "gpus.per_node is missing (GPUs that a pod requests: all GPUs of a node)"


def test_the_error_names_the_file_once_and_an_empty_file_gets_one_hint(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("# a cluster\n")
    with pytest.raises(InvalidInput) as caught:
        load(path)
    assert str(caught.value) == f"cannot use the cluster file: {path}: is an empty cluster file"
    assert "cluster schema" in caught.value.hint
