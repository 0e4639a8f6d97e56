"""kubelet_resources on a host: one file, changed under a stopped kubelet of a drained node; refused, undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources import kubelet as resource
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import kubelet_resources

from tests.rig.trees.host import changed, content, put, states, tune, undo
from tests.rig.trees.kubelet import CONFIG, FOLDER, STATE, TEXT, kubelet_host

STATIC = {"cpu_manager_policy": "static", "reserved_cpus": "0-1", "topology_manager_policy": "single-numa-node"}
MEMORY = {
    **STATIC,
    "memory_manager_policy": "Static",
    "kube_reserved": {"memory": "1Gi"},
    "reserved_memory": [{"numa_node": 0, "memory": "1Gi"}, {"numa_node": 1, "memory": "100Mi"}],
}
DROP_IN = f"{FOLDER}/99-gpuctl.conf"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "STEADY", 0.0)
    monkeypatch.setattr(resource, "PATIENCE", 0.0)


def apply(root: Path, resources: dict[str, Any], **options: Any) -> dict[str, Any]:
    rows = kubelet_resources.from_variables(resources, [])
    answer = tune(root, {row["name"]: row["value"] for row in rows}, scope="kubelet_resources", **options)
    return dict(answer["knobs"][0])


def file(root: Path, path: str) -> str:
    return (root / path[1:]).read_text()


def test_the_file_keeps_all_else_and_undo_brings_every_byte_back(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    before = content(root)
    row = apply(root, MEMORY, check=True)
    assert (row["state"], row["now"].split(", ")[0]) == ("differs", "cpuManagerPolicy none")
    assert content(root) == before | {"run/standin-calls": content(root)["run/standin-calls"]}
    row = apply(root, MEMORY)
    assert (row["state"], row["changed"]) == ("ok", True), row
    fields = yaml.safe_load(file(root, CONFIG))
    assert fields["reservedMemory"][1] == {"numaNode": 1, "limits": {"memory": "100Mi"}}
    assert (fields["cpuManagerPolicy"], fields["reservedSystemCPUs"], fields["maxPods"]) == ("static", "0-1", 50)
    assert (root / CONFIG[1:]).stat().st_mode & 0o777 == 0o640
    assert '"static"' in file(root, STATE)  # the state of the former policy was removed
    assert changed(tune(root, {"kubelet.resources": kubelet_resources.from_variables(MEMORY, [])[0]["value"]})) == set()
    assert set(states(undo(root)).values()) == {"ok"}
    assert file(root, CONFIG) == TEXT
    assert '"none"' in file(root, STATE)
    assert "run/standin-kubelet" in content(root)


def test_a_kubelet_with_a_folder_of_drop_ins_gets_one(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path, f"--config-dir={FOLDER}")
    assert apply(root, STATIC)["state"] == "ok"
    assert yaml.safe_load(file(root, DROP_IN))["reservedSystemCPUs"] == "0-1"
    assert file(root, CONFIG) == TEXT
    assert set(states(undo(root)).values()) == {"ok"}
    assert not (root / FOLDER[1:]).exists()


def test_a_field_that_is_left_out_gets_its_lines_back(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    apply(root, STATIC)
    put(root, CONFIG, file(root, CONFIG) + "podPidsLimit: 4096\n", 0o640)  # somebody's line, later
    assert apply(root, {"reserved_cpus": "0"})["state"] == "ok"
    assert file(root, CONFIG) == f'{TEXT}reservedSystemCPUs: "0"\npodPidsLimit: 4096\n'


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("node", "n1 ", "its node n1 is not cordoned: kubectl drain n1 --ignore-daemonsets"),
        ("pods", "ml/train-0\tJob\t\tRunning\nml/bare\t\t\tRunning\n", "its node n1 has pods: ml/train-0, ml/bare"),
        ("node", None, "whether its node n1 is drained is not known: Unable to connect"),
    ],
)
def test_a_node_that_is_not_drained_is_left_alone(tmp_path: Path, path: str, text: str | None, reason: str) -> None:
    root = kubelet_host(tmp_path)
    (root / f"run/standin-{path}").unlink()
    if text is not None:
        put(root, f"/run/standin-{path}", text)
    row = apply(root, STATIC)
    assert (row["state"], row["now"].split(",")[0]) == ("refused", "cpuManagerPolicy none")
    assert reason in row["reason"]
    assert file(root, CONFIG) == TEXT
    assert "stop" not in file(root, "/run/standin-calls")


def test_static_pods_and_those_of_daemonsets_are_not_in_the_way(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    put(root, "/run/standin-pods", "kube-system/etcd-n1\tNode\tabc\tRunning\nx/agent\tDaemonSet\t\tRunning\n")
    assert apply(root, STATIC)["state"] == "ok"


def test_undo_waits_for_the_drain_too(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    apply(root, STATIC)
    put(root, "/run/standin-node", "n1 ")
    (row,) = undo(root)["knobs"]
    assert row["state"] == "refused"
    assert "not cordoned" in row["reason"]
    put(root, "/run/standin-node", "n1 true")
    assert set(states(undo(root)).values()) == {"ok"}
    assert file(root, CONFIG) == TEXT


def test_a_kubelet_that_does_not_run_with_it_gets_its_file_back(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    put(root, "/run/standin-fails", "")
    row = apply(root, STATIC)
    assert row["state"] == "failed"
    assert "the file before is back, and it runs" in row["reason"]
    assert file(root, CONFIG) == TEXT
    assert "run/standin-kubelet" in content(root)


@pytest.mark.parametrize(
    ("options", "resources", "reason"),
    [
        (["--reserved-cpus=0"], STATIC, "command line has --reserved-cpus, which wins over its files"),
        ([], {"cpu_manager_policy": "static"}, "static needs reserved_cpus"),
        ([], {"reserved_cpus": "0-8"}, "reserved_cpus has 8, and the host's processors are 0-7"),
        ([], {**MEMORY, "kube_reserved": {"memory": "2Gi"}}, "is 1124Mi in all, and must be 2148Mi"),
        (["--eviction-hard=memory.available<200Mi"], MEMORY, "must be 1224Mi"),
    ],
)
def test_what_cannot_work_is_refused(
    tmp_path: Path, options: list[str], resources: dict[str, Any], reason: str
) -> None:
    row = apply(kubelet_host(tmp_path, *options), resources)
    assert row["state"] == "refused"
    assert reason in row["reason"]


def test_a_drop_in_that_is_read_later_is_named(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path, f"--config-dir={FOLDER}")
    put(root, f"{FOLDER}/zz-site.conf", "reservedSystemCPUs: 0-3\n")
    row = apply(root, STATIC)
    assert f"{FOLDER}/zz-site.conf sets reservedSystemCPUs, and is read after {DROP_IN}" in row["reason"]


def test_an_old_kubelet_has_no_memory_manager(tmp_path: Path) -> None:
    row = apply(kubelet_host(tmp_path, version="v1.20.2"), MEMORY)
    assert (row["state"], "needs Kubernetes 1.22" in row["reason"]) == ("unsupported", True)


def test_a_state_of_another_policy_is_pending_not_well(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    apply(root, STATIC)
    put(root, STATE, '{"policyName": "none"}')
    row = apply(root, STATIC, check=True)
    assert (row["state"], f"{STATE} is of policy none" in row["reason"]) == ("pending", True)


def test_a_host_without_kubelet_and_one_whose_kubelet_is_down(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    (root / "run/standin-kubelet").unlink()
    assert apply(root, STATIC)["state"] == "unknown"
    put(root, "/run/standin-absent", "")
    assert apply(root, STATIC)["state"] == "unsupported"


def test_the_variable_alone_owns_it_and_an_empty_one_gives_it_back(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    apply(root, STATIC)
    assert changed(tune(root, {})) == set()  # another profile
    tune(root, {}, scope="kubelet_resources")
    assert file(root, CONFIG) == TEXT
