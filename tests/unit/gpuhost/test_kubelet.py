"""kubelet_resources on a host: one file, changed under a stopped kubelet of a drained node; refused, undone."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kubelet import service
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.model import Unreadable
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources import kubelet as resource
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import kubelet_resources

from tests.rig.trees.host import TreeHost, changed, content, put, states, tune, undo
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
    monkeypatch.setattr(resource, "STEADY", 0)
    monkeypatch.setattr(resource, "PATIENCE", 0)


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


SITE = "podPidsLimit: 4096\nclusterDNS:\n- 10.0.0.10\n"


def test_lines_that_others_add_stay_after_undo(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    apply(root, STATIC)
    put(root, CONFIG, file(root, CONFIG) + SITE, 0o640)
    apply(root, {**STATIC, "reserved_cpus": "0"})
    assert set(states(undo(root)).values()) == {"ok"}
    assert file(root, CONFIG) == TEXT + SITE


def test_only_fields_that_gpuctl_set_are_given_back_and_each_is_named(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    apply(root, STATIC)
    theirs = "kubeReserved:\n  memory: 8Gi\n  cpu: '2'\n"
    put(root, CONFIG, file(root, CONFIG) + theirs, 0o640)
    assert apply(root, STATIC, check=True)["state"] == "ok"
    row = apply(root, {"topology_manager_policy": "single-numa-node"}, check=True)
    assert "cpuManagerPolicy static, reservedSystemCPUs 0-1" in row["now"]
    assert "cpuManagerPolicy none, reservedSystemCPUs not set" in row["desired"]
    put(root, CONFIG, file(root, CONFIG).replace('"0-1"', '"0-3"'), 0o640)  # no longer ours
    apply(root, {"topology_manager_policy": "single-numa-node"})
    assert file(root, CONFIG).endswith(f'reservedSystemCPUs: "0-3"\n{theirs}')
    (row,) = undo(root)["knobs"]
    assert (row["state"], "reservedSystemCPUs" in row["reason"]) == ("conflict", True)


def test_a_kubelet_that_writes_no_state_does_not_run(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    put(root, "/run/standin-hangs", "")
    row = apply(root, STATIC)
    assert (row["state"], "wrote no state file" in row["reason"]) == ("failed", True)
    assert file(root, CONFIG) == TEXT


def test_the_program_returns_to_the_former_file_without_gpuctl(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    put(root, "/run/standin-fails", "")
    new = root / "var/lib/kubelet/.config.yaml.gpuctl"
    put(root, "/var/lib/kubelet/.config.yaml.gpuctl", TEXT.replace("none #", "static #"))
    argv = ["sh", "-c", resource.SWAP, "gpuctl", str(new), str(root / CONFIG[1:]), "0", "0", "static", "none"]
    path = {"PATH": f"{root}/usr/bin:{root}/bin:{root}/usr/sbin", "GPUCTL_ROOT": str(root)}
    program = subprocess.Popen([*argv, str(root / STATE[1:])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=path)
    for stream in (program.stdout, program.stderr):  # as after the death of what reads them
        assert stream is not None
        stream.close()
    program.wait(timeout=30)
    assert file(root, CONFIG) == TEXT
    assert (root / "run/standin-kubelet").exists()
    assert [path.name for path in (root / "var/lib/kubelet").glob(".*")] == []


def test_a_kubelet_that_cannot_be_stopped_is_left_alone(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    put(root, "/run/standin-does-not-stop", "")
    row = apply(root, STATIC)
    assert "the kubelet is not stopped (Job for kubelet.service canceled.): nothing is changed" in row["reason"]
    assert file(root, CONFIG) == TEXT
    assert [path.name for path in (root / "var/lib/kubelet").glob(".*")] == []


@pytest.mark.parametrize(
    ("properties", "state"),
    [
        ("NRestarts=0", "ok"),
        ("NRestarts=3\nExecMainStartTimestampMonotonic=990000000", "pending"),
        ("NRestarts=3\nExecMainStartTimestampMonotonic=1000000", "ok"),
        ("ActiveState=activating", "pending"),
    ],
)
def test_a_kubelet_that_is_restarted_again_and_again_is_pending(tmp_path: Path, properties: str, state: str) -> None:
    root = kubelet_host(tmp_path)
    apply(root, STATIC)
    put(root, "/proc/uptime", "1000.00 1.0\n")
    put(root, "/run/standin-properties", properties)
    assert apply(root, STATIC, check=True)["state"] == state


def test_an_absent_state_file_is_pending(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    apply(root, STATIC)
    (root / STATE[1:]).unlink()
    row = apply(root, STATIC, check=True)
    assert (row["state"], f"{STATE} does not exist yet" in row["reason"]) == ("pending", True)


def test_a_mapping_of_a_drop_in_joins_that_of_the_main_file(tmp_path: Path) -> None:
    text = f"{TEXT}kubeReserved:\n  cpu: 500m\n  memory: 2Gi\n"
    root = kubelet_host(tmp_path, f"--config-dir={FOLDER}", text=text)
    row = apply(root, {"cpu_manager_policy": "static", "kube_reserved": {"memory": "1Gi"}}, check=True)
    assert row["state"] == "differs", row["reason"]


def test_the_unit_shows_the_options_of_a_kubelet_that_is_down(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    (root / "run/standin-kubelet").unlink()
    with pytest.raises(Unreadable, match="does not show the kubelet's command line"):
        service.configured(TreeHost(root))
    put(root, "/var/lib/kubelet/kubeadm-flags.env", '# kubeadm\nKUBELET_KUBEADM_ARGS="--root-dir=/data/kubelet"\n')
    for quote in ('"', ""):  # systemd before 250 shows none
        variable = f"{quote}KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/b.conf --kubeconfig=/k.conf{quote}"
        put(
            root,
            "/run/standin-properties",
            "ExecStart={ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS --config ${FILE} "
            "$KUBELET_KUBEADM_ARGS $NOTHING --hostname-override=gpu-7 ; ignore_errors=no ; pid=0 }\n"
            f"Environment={variable} FILE=/c.yaml\n"
            "EnvironmentFiles=/var/lib/kubelet/kubeadm-flags.env (ignore_errors=yes)\n",
        )
        assert service.configured(TreeHost(root)).options == {
            "--bootstrap-kubeconfig": "/b.conf",
            "--kubeconfig": "/k.conf",
            "--config": "/c.yaml",
            "--root-dir": "/data/kubelet",
            "--hostname-override": "gpu-7",
        }


def test_undo_of_a_kubelet_that_is_down_asks_for_its_node_or_refuses(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    apply(root, STATIC)
    (root / "run/standin-kubelet").unlink()
    (row,) = undo(root)["knobs"]
    assert (row["state"], "does not show the kubelet's command line" in row["reason"]) == ("refused", True)
    options = f"--kubeconfig=/etc/kubernetes/kubelet.conf --config={CONFIG} --hostname-override=gpu-7"
    put(root, "/run/standin-properties", f"ExecStart={{ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet {options} ; }}")
    (row,) = undo(root)["knobs"]
    assert (row["state"], "its node gpu-7" in row["reason"]) == ("refused", True)
    put(root, "/run/standin-node", "gpu-7 true")
    assert set(states(undo(root)).values()) == {"ok"}
    assert file(root, CONFIG) == TEXT


def test_a_kubelet_without_kubeconfig_is_not_judged_by_another_file(tmp_path: Path) -> None:
    root = kubelet_host(tmp_path)
    put(root, "/proc/77/cmdline", f"/usr/bin/kubelet\0--config\0{CONFIG}\0")
    row = apply(root, STATIC)
    assert (row["state"], "the kubelet has no --kubeconfig" in row["reason"]) == ("refused", True)
