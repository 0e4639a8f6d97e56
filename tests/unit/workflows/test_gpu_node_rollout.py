"""Roll-outs over a living fleet: batches, verification, reboots, and where they stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.gpu_node.bootstrap import bootstrap
from gpuctl.core import run_history
from gpuctl.core.errors import InvalidInput
from tests.rig.living_fleet import NEW, FleetHost, LivingFleet

JOB = ("1 processes on GPUs: 77, python",)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))


def roll(fleet: LivingFleet, patch: pytest.MonkeyPatch, *words: str) -> Result:
    fleet.connect(patch)
    return CliRunner().invoke(bootstrap, ["-i", "prod", "--yes", "-o", "json", *words])


def rows(result: Result) -> dict[str, dict[str, Any]]:
    document = json.loads(result.stdout)
    assert document["exit_code"] == result.exit_code
    return {row["host"]: row for row in document["hosts"]}


def states(result: Result) -> dict[str, str]:
    return {name: row["status"] for name, row in rows(result).items()}


def test_after_a_batch_with_a_host_that_does_not_verify_the_others_are_not_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = LivingFleet(**{f"n{number}": FleetHost(loads=True, misses=number == 2) for number in range(1, 6)})
    result = roll(fleet, monkeypatch, "--batch", "2", "--max-fail", "0")
    assert states(result) == {
        "n1": "done",
        "n2": "failed",
        **dict.fromkeys(("n3", "n4", "n5"), "not started"),
    }
    assert rows(result)["n2"]["step"] == "verify"
    assert "gpus: nvidia-smi lists 0 of 1 GPUs" in rows(result)["n2"]["error"]["wrong"]
    assert rows(result)["n3"]["error"]["wrong"] == "1 of 2 hosts of batch 1 failed (n2), more than 0%"
    assert fleet.acts["n3"] == []
    assert result.exit_code == 3
    [name] = run_history.names()
    record = run_history.load(name)
    assert (record.exit_code, record.hosts["n2"]["status"], record.hosts["n5"]["batch"]) == (3, "failed", 3)

    tolerant = roll(fleet, monkeypatch, "--batch", "40%", "--max-fail", "50%")
    assert states(tolerant) == {"n1": "up to date", "n2": "up to date", **dict.fromkeys(("n3", "n4", "n5"), "done")}


def test_a_share_of_a_batch_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(fails="disk full"), b=FleetHost(loads=True), c=FleetHost(loads=True))
    result = roll(fleet, monkeypatch, "--batch", "2", "--max-fail", "50%")
    assert states(result) == {"a": "failed", "b": "done", "c": "done"}
    assert rows(result)["a"]["step"] == "install"
    assert "disk full" in rows(result)["a"]["error"]["wrong"]
    assert result.exit_code == 1


def test_only_hosts_whose_running_module_differs_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {"a": FleetHost(), "b": FleetHost(loads=True), "c": FleetHost(packages=NEW), "d": FleetHost(NEW, NEW)}
    fleet = LivingFleet(**hosts)
    result = roll(fleet, monkeypatch, "--reboot")
    assert fleet.acts == {"a": ["install", "reboot"], "b": ["install"], "c": ["reboot"], "d": []}
    assert states(result) == {"a": "done", "b": "done", "c": "done", "d": "up to date"}
    assert [row["batch"] for row in rows(result).values()] == [1, 2, 3, None]
    assert [row["rebooted"] for row in rows(result).values()] == [True, False, True, False]
    assert result.exit_code == 0


def test_without_reboot_a_host_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(), b=FleetHost(loads=True))
    result = roll(fleet, monkeypatch, "--batch", "1")
    assert states(result) == {"a": "waits for a reboot", "b": "done"}
    assert fleet.acts == {"a": ["install"], "b": ["install"]}


def test_a_host_that_does_not_come_back_stops_the_roll_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(returns=False), b=FleetHost())
    result = roll(fleet, monkeypatch, "--reboot", "--reboot-limit", "0.001s")
    assert states(result) == {"a": "failed", "b": "not started"}
    assert "did not come back" in rows(result)["a"]["error"]["wrong"]
    assert fleet.acts["b"] == []


def test_a_job_that_began_meanwhile_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    host = FleetHost()
    fleet = LivingFleet(a=host)
    installs = host.install

    def install() -> Any:
        host.busy = JOB
        return installs()

    monkeypatch.setattr(host, "install", install)
    result = roll(fleet, monkeypatch, "--reboot")
    assert rows(result)["a"]["error"]["wrong"] == f"not rebooted: {JOB[0]}"
    assert host.acts == ["install"]


def test_hosts_that_are_refused_or_not_reached_are_in_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(busy=JOB), b=FleetHost(reached=False), c=FleetHost(loads=True))
    result = roll(fleet, monkeypatch, "--batch", "1")
    assert states(result) == {"a": "refused", "b": "not reached", "c": "done"}
    assert fleet.acts == {"a": [], "b": [], "c": ["install"]}
    assert result.exit_code == 3


def test_what_an_interrupted_dpkg_left_is_repaired_in_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(fails="disk full"), b=FleetHost(interrupted=("nvidia-dkms-580-open",), loads=True))
    result = roll(fleet, monkeypatch, "--batch", "1")
    assert (states(result)["b"], fleet.acts["b"]) == ("not started", [])
    fleet.hosts["a"] = FleetHost(NEW, NEW)
    assert states(roll(fleet, monkeypatch, "--batch", "1")) == {"a": "up to date", "b": "done"}
    assert fleet.acts["b"] == ["repair", "install"]


def test_after_ctrl_c_the_same_command_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(loads=True), b=FleetHost(loads=True))
    host = fleet.hosts["b"]

    def interrupted() -> Any:
        host.acts.append("install")
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "install", interrupted)
    result = roll(fleet, monkeypatch, "--batch", "1")
    assert "the same command goes on from here" in result.stderr
    [name] = run_history.names()
    record = run_history.load(name)
    assert (record.exit_code, record.hosts["a"]["status"], record.hosts["b"]["status"]) == (130, "done", "unfinished")
    fleet.hosts["b"] = FleetHost(loads=True)
    again = roll(fleet, monkeypatch, "--batch", "1")
    assert states(again) == {"a": "up to date", "b": "done"}


def test_without_a_terminal_it_needs_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    LivingFleet(a=FleetHost()).connect(monkeypatch)
    result = CliRunner().invoke(bootstrap, ["-i", "prod", "--batch", "1"])
    assert isinstance(result.exception, InvalidInput)
