"""Restart of a service and reset of a GPU on a made-up host: refused while used, and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts import gpu_reset, restart
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts.answer_types import GpuReset, Restarted
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host, Result

from gpuctl.engine import typed_json
from tests.rig.gpu_user_facts import parsed
from tests.rig.gpu_user_trees import row, xml_with

UNIT = "nvidia-fabricmanager.service"
IDLE = xml_with({})
UUID = str(parsed(IDLE)["gpus"][3]["uuid"])
RESET = "GPU 00000000:53:00.0 was successfully reset.\nAll done.\n"


class StandinHost(Host):
    """Stand-in for a host: systemctl show and nvidia-smi print texts in turn, the last one again and again."""

    def __init__(self, root: Path, *texts: str, changed: Result | None = None) -> None:
        super().__init__(root)
        self.texts, self.changed = list(texts), changed or Result(0, "", "")
        self.changes: list[str] = []

    def run(self, *argv: str, changes: bool = False, **more: Any) -> Result:
        """See Host."""
        if changes:
            self.changes.append(" ".join(argv))
            return self.changed
        text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
        return Result(0, text, "")


def unit(state: str = "active", start: int = 1, load: str = "loaded") -> str:
    rows = {"LoadState": load, "ActiveState": state, "SubState": "running", "ExecMainStartTimestampMonotonic": start}
    return "".join(f"{name}={value}\n" for name, value in rows.items())


def restarted(host: Host, **more: Any) -> dict[str, Any]:
    restart.PAUSE_S, restart.SETTLES_S = 0.0, 0.05
    answer = restart.run(host, {"units": [UNIT], **more})
    typed_json.read(answer, Restarted)
    return answer


RESTARTS = {
    "it runs with a new process": ([unit(), unit(start=2)], "done"),
    "it dies": ([unit(), unit("failed", 2)], "failed"),
    "its process is the one from before": ([unit()], "failed"),
    "it starts for a while": ([unit(), unit("activating", 2), unit("activating", 2), unit(start=3)], "done"),
    "the host does not have it": ([unit("inactive", 0, "not-found")], "absent"),
}


@pytest.mark.parametrize(("texts", "state"), RESTARTS.values(), ids=list(RESTARTS))
def test_a_service_is_restarted_and_read_back(tmp_path: Path, texts: list[str], state: str) -> None:
    host = StandinHost(tmp_path, *texts)
    assert restarted(host)["state"] == state
    assert host.changes == ([] if state == "absent" else [f"systemctl restart {UNIT}"])


def test_check_mode_restarts_nothing(tmp_path: Path) -> None:
    host = StandinHost(tmp_path, unit())
    assert (restarted(host, check=True)["state"], host.changes) == ("due", [])


def test_a_host_that_is_busy_by_now_is_left_alone_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/comm").write_text("slurmstepd\n")
    host = StandinHost(tmp_path, unit(), unit(start=2))
    assert (restarted(host)["state"], host.changes) == ("busy", [])
    assert restarted(StandinHost(tmp_path, unit(), unit(start=2)), force=True)["state"] == "done"


def module(tmp_path: Path, refcnt: str) -> StandinHost:
    folder = tmp_path / "sys/module/efa"
    folder.mkdir(parents=True)
    (folder / "refcnt").write_text(f"{refcnt}\n")
    device = tmp_path / "sys/class/infiniband/rdmap0s6/device"
    device.mkdir(parents=True)
    (device / "driver").symlink_to("/sys/bus/pci/drivers/efa")
    return StandinHost(tmp_path, "")


def test_a_module_is_loaded_again_only_if_nothing_uses_it(tmp_path: Path) -> None:
    host = module(tmp_path, "0")
    answer = restarted(host, module="efa")
    assert (answer["state"], answer["after"]["devices"]) == ("done", "rdmap0s6")
    assert host.changes == ["modprobe -r efa", "modprobe efa"]


def test_a_module_in_use_stays_even_if_forced(tmp_path: Path) -> None:
    host = module(tmp_path, "32")
    assert (restarted(host, module="efa", force=True)["state"], host.changes) == ("busy", [])
    assert restarted(StandinHost(tmp_path, ""), module="ena")["state"] == "absent"


def reset(host: Host, **more: Any) -> dict[str, Any]:
    answer = gpu_reset.run(host, {"gpu": 3, "uuid": UUID, **more})
    typed_json.read(answer, GpuReset)
    return answer


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)


def test_an_unused_gpu_is_reset_and_read_back(tmp_path: Path) -> None:
    host = StandinHost(tmp_path, IDLE, changed=Result(0, RESET, ""))
    assert reset(host)["state"] == "done"
    assert host.changes == [f"nvidia-smi --gpu-reset -i {UUID}"]


def test_a_gpu_that_still_asks_for_a_reset_has_failed(tmp_path: Path) -> None:
    ill = IDLE.replace("<gpu_recovery_action>None<", "<gpu_recovery_action>Reset<")
    assert ill != IDLE
    answer = reset(StandinHost(tmp_path, ill, changed=Result(0, RESET, "")))
    assert answer["state"] == "failed"
    assert "still asks for" in answer["reason"]


def test_a_refusal_of_nvidia_smi_is_its_own_text(tmp_path: Path) -> None:
    text = "The following GPUs could not be reset:\n  GPU 00000000:53:00.0: In use by another client\n"
    answer = reset(StandinHost(tmp_path, IDLE, changed=Result(255, text, "")))
    assert (answer["state"], "In use by another client" in answer["reason"]) == ("failed", True)


@pytest.mark.parametrize(
    ("text", "uuid", "state"),
    [
        (xml_with({3: [row(7)]}), UUID, "busy"),
        (IDLE, str(parsed(IDLE)["gpus"][2]["uuid"]), "changed"),
        ("Unable to determine the device handle", UUID, "unknown"),
    ],
)
def test_a_gpu_that_is_used_or_another_one_is_not_reset(tmp_path: Path, text: str, uuid: str, state: str) -> None:
    host = StandinHost(tmp_path, text)
    assert (reset(host, uuid=uuid)["state"], host.changes) == (state, [])


def test_a_gpu_whose_device_is_open_is_not_reset(tmp_path: Path) -> None:
    folder = tmp_path / "proc/77/fd"
    folder.mkdir(parents=True)
    minor = parsed(IDLE)["gpus"][3]["minor"]
    (folder / "5").symlink_to(f"/dev/nvidia{minor}")
    answer = reset(StandinHost(tmp_path, IDLE))
    assert answer["state"] == "busy"
    assert "77" in answer["reason"]
