"""A launch's objects beside golden files: `python -m tests.unit.nccl.runners.kube.test_objects` writes these anew."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.nccl.model import Launch, Sweep
from gpuctl.nccl.runners.kube import mpijob, objects, scripts
from gpuctl.nccl.runners.kube.model import Settings, Task

GOLDEN = Path(__file__).parents[4] / "data/nccl_kube"
EFA = Settings(
    "example/nccl-tests:1",
    fabric={"vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5120Mi"},
    service_account="nccl",
    pull_secret="pull",  # noqa: S106 - the name of an object
)
TCP = Settings("example/nccl-tests:1", networks="rail-0,rail-1")
RING = Sweep(env={"NCCL_ALGO": "Ring"})


def task(settings: Settings, *nodes: str) -> Task:
    return Task("0a1b2c3d", 0, Launch(nodes, RING), settings, "ann@desk")


def made(found: Task, addresses: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    many = len(found.launch.nodes) > 1
    return [*([objects.service(found), *objects.workers(found)] if many else []), objects.launcher(found, addresses)]


CASES = {
    "efa-two-nodes": made(task(EFA, "node-1", "node-2"), ("10.0.0.1", "10.0.0.2")),
    "tcp-one-node": made(task(TCP, "node-1")),
    "efa-mpijob": [mpijob.job(task(replace(EFA, mpijob=True), "node-1", "node-2"))],
}


@pytest.mark.parametrize("name", CASES)
def test_objects_are_as_in_the_golden_file(name: str) -> None:
    assert list(yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text())) == CASES[name]


def pods() -> list[dict[str, Any]]:
    return [each for case in CASES.values() for each in case if each["kind"] == "Pod"]


@pytest.mark.parametrize("pod", pods(), ids=lambda pod: str(pod["metadata"]["name"]))
def test_no_pod_has_a_right_it_does_not_need(pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "nodeName"} & set(spec)
    assert not any("hostPath" in volume for volume in spec["volumes"])
    added = container["securityContext"]["capabilities"].get("add", [])
    assert added == []  # it would not reach an ordinary user
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert container["resources"]["requests"] == container["resources"]["limits"]


def test_root_only_where_it_was_asked_for_with_what_its_sshd_needs() -> None:
    spec = objects.worker_spec(task(replace(EFA, user=0), "node-1", "node-2"))
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (False, 0)
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK", "SETGID", "SETUID", "SYS_CHROOT"]
    launcher = objects.launcher_spec(task(replace(EFA, user=0), "node-1", "node-2"))
    assert "--allow-run-as-root" in launcher["containers"][0]["command"]


def test_the_keys_are_in_the_secret_alone() -> None:
    found = task(EFA, "node-1", "node-2")
    keys = objects.secret(found, ("PRIVATE-1", "ssh-ed25519 AAAA1"), ("PRIVATE-2", "ssh-ed25519 AAAA2"))
    assert sorted(keys["data"]) == [
        "authorized",
        "host",
        "identity",
        "known_hosts",
        "passwd",
        "ssh_config",
        "sshd_config",
    ]
    assert "PRIVATE" not in yaml.safe_dump_all([keys, *made(found)])


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh")
def test_the_operators_workers_are_reached_by_the_names_that_it_gives_them(tmp_path: Path) -> None:
    files = scripts.secret_files(task(replace(TCP, mpijob=True), "node-1", "node-2"), ("", ""), ("", ""))
    (tmp_path / "config").write_text(files["ssh_config"])
    argv = ["ssh", "-G", "-F", str(tmp_path / "config"), "w1"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"hostname nccl-0a1b2c3d-0-worker-1.nccl-0a1b2c3d-0", "port 2222", "user nccl"} <= set(said)


def test_two_launches_of_a_round_share_no_name() -> None:
    one, two = (Task("0a1b2c3d", number, Launch(("a", "b"), RING), TCP, "ann@desk") for number in (0, 1))
    names = [each["metadata"]["name"] for found in (one, two) for each in objects.workers(found)]
    assert len(set(names)) == 4


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for case, found in CASES.items():
        (GOLDEN / f"{case}.yaml").write_text(yaml.safe_dump_all(found, sort_keys=False, width=110))
