"""gpu_settings of an inventory on a real host with systemd: beside a profile, over a reboot, and undone."""

from __future__ import annotations

from typing import Any

from tests.integration.conftest import Hosts
from tests.rig import TestHost
from tests.rig.command import Gpuctl, reach
from tests.rig.host import wait_until

SETTINGS = {
    "persistence": True,
    "power_limit": 500,
    "compute_mode": "default",
    "mig": [{"gpus": [0], "instances": {"1g.10gb": 7}}],
    "mps": [{"name": "train", "gpus": [1, 2], "active_thread_percentage": 50}],
}
FILE_OF_GROUP = """gpu_settings:
  persistence: on
  power_limit: 500W
  mig: [{gpus: [0], instances: {1g10: 7}}]
  clock: 1980
"""
MPS = "gpuctl-mps-train.service"
CLIENTS = "/var/lib/standins/nvidia-cuda-mps-control/clients"
PROCESSES = "/var/lib/standins/nvidia-smi/processes.csv"


def test_a_profile_and_gpu_settings_in_one_visit_over_a_reboot_and_back(gpuctl: Gpuctl, hosts: Hosts) -> None:
    (host,) = hosts(1, machine="p5")
    host.standin("nvidia-smi")
    host.standin("nvidia-cuda-mps-control")
    profile = gpuctl.profile({"sysctl.vm.swappiness": 1})
    inventory = gpuctl.inventory({host.name: reach(host, gpu_settings=SETTINGS)})
    words = ("--inventory", inventory, "--output", "json")
    tune = ("tune-nodes", *words, "--profile", profile)
    before = _etc(host)

    promised = gpuctl(*tune, "--check").hosts[host.name]
    changed = gpuctl(*tune, "--via", "ssh").hosts[host.name]
    assert {name for name, state in _states(promised).items() if state == "differs"} == {
        knob["knob"] for knob in changed["knobs"] if knob["changed"]
    }
    assert set(_states(changed).values()) == {"ok"}, changed
    assert {"sysctl.vm.swappiness", *(f"gpu.{name}" for name in SETTINGS)} < _states(changed).keys()
    again = gpuctl(*tune, "--via", "ansible")
    assert (again.code, [k["knob"] for k in again.hosts[host.name]["knobs"] if k["changed"]]) == (0, [])

    host.reboot()
    wait_until(lambda: _smi(host, 0) == "Enabled, 500.00, Default, Enabled", 30, "gpuctl-gpu does not set the GPUs")
    wait_until(lambda: host.run("systemctl", "is-active", MPS, check=False).returncode == 0, 30, "MPS does not start")
    assert _smi(host, 1) == "Enabled, 500.00, Exclusive_Process, Disabled"
    assert host.run("nvidia-smi", "-L").stdout.count("  MIG 1g.10gb ") == 7
    assert gpuctl("drift", *words, "--profile", profile).code == 0

    host.write(CLIENTS, "1\n")
    host.write(PROCESSES, "1, python3, 1024, GPU-x\n")
    refused = gpuctl("rollback", *words, "--only", "gpu.mps").hosts[host.name]["knobs"][0]
    assert (refused["state"], refused["reason"].split(";")[0]) == (
        "refused",
        "stops MPS train, used by systemd (pid 1)",
    )
    host.run("rm", CLIENTS, PROCESSES)

    # As its timer does 20 s after a boot, but all the time.
    host.run("systemd-run", "--unit=again-and-again", "sh", "-c", "while /usr/local/sbin/gpuctl-gpu; do :; done")
    back = gpuctl("rollback", *words)
    assert back.code == 0, [knob for knob in back.hosts[host.name]["knobs"] if knob["state"] != "ok"]
    assert _smi(host, 0) == _smi(host, 1) == "Disabled, 700.00, Default, Disabled"
    assert host.run("systemctl", "show", "--property=LoadState", "--value", MPS).stdout.strip() == "not-found"
    assert _etc(host) == before


def test_a_mistake_in_group_variables_touches_no_host(gpuctl: Gpuctl) -> None:
    folder = gpuctl.home / "prod"
    (folder / "group_vars").mkdir(parents=True)
    (folder / "hosts.yml").write_text("all: {children: {h100: {hosts: {gpu-1: {ansible_host: 127.0.0.1}}}}}\n")
    (folder / "group_vars/h100.yml").write_text(FILE_OF_GROUP)
    said = gpuctl("tune-nodes", "--inventory", folder, "--check")
    assert said.code == 2
    for line in (3, 4, 5):
        assert f"group_vars/h100.yml:{line}: " in said.err, said.err


def _states(host: dict[str, Any]) -> dict[str, str]:
    return {knob["knob"]: knob["state"] for knob in host["knobs"]}


def _smi(host: TestHost, index: int) -> str:
    fields = "persistence_mode,power.limit,compute_mode,mig.mode.current"
    shown = host.run("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", check=False).stdout
    return shown.splitlines()[index] if shown else ""


def _etc(host: TestHost) -> list[str]:
    """Files that gpuctl may have written."""
    return host.run("sh", "-c", "find /etc /usr/local -newer /etc/hostname -type f | sort").stdout.splitlines()
