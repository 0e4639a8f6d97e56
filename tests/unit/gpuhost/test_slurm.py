"""slurm_gres on a host: lines of its GPUs, changed on a drained and empty node only; refused, undone."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import gpu
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources import slurm as resource
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.slurm import configuration, devices, node, rules
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.slurm.fields import GpuType
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import slurm_gres

from tests.rig.host import wait_until
from tests.rig.trees.gpus import H100, smi
from tests.rig.trees.host import content, link, put, states, tune, undo
from tests.rig.trees.slurm import CGROUP, CONF, GRES, slurm_node

LINES = "Name=gpu Type=h100 File=/dev/nvidia0 Cores=0-1\nName=gpu Type=h100 File=/dev/nvidia1 Cores=2-3\n"
OTHERS = "# of the site\nName=shm Count=4\n"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "STEADY", 0)
    monkeypatch.setattr(resource, "PATIENCE", 0)
    monkeypatch.setattr(resource, "ANSWER", 1)
    monkeypatch.setattr(resource, "LIMIT", 30.0)


def apply(root: Path, settings: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Rows by knob."""
    rows = slurm_gres.from_variables(settings, [])
    answer = tune(root, {row["name"]: row["value"] for row in rows}, scope="slurm_gres", **options)
    return {row["knob"]: row for row in answer["knobs"]}


def one(root: Path, settings: dict[str, Any], **options: Any) -> dict[str, Any]:
    return dict(next(iter(apply(root, settings, **options).values())))


def file(root: Path, path: str) -> str:
    return (root / path[1:]).read_text()


def restarts(root: Path) -> int:
    calls = root / "run/standin-calls"
    return calls.read_text().split().count("restart") if calls.exists() else 0


def test_lines_follow_the_host_and_undo_brings_every_byte_back(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, GRES, f"{OTHERS}name=GPU type=old file=/dev/null # by hand\n", 0o640)
    before = content(root)
    row = one(root, {"autodetect": False}, check=True)
    assert (row["state"], row["now"]) == ("differs", "name=GPU type=old file=/dev/null")
    assert content(root) == before | {"run/standin-calls": content(root)["run/standin-calls"]}
    rows = apply(root, {"autodetect": False, "constrain_devices": True, "constrain_cores": True})
    assert [(row["state"], row["changed"]) for row in rows.values()] == [("ok", True)] * 2, rows
    assert file(root, GRES) == f"{OTHERS}{LINES}"
    assert (root / GRES[1:]).stat().st_mode & 0o777 == 0o640
    assert file(root, CGROUP) == "# Created by gpuctl.\nConstrainDevices=yes\nConstrainCores=yes\n"
    assert restarts(root) == 1
    rows = apply(root, {"autodetect": False, "constrain_devices": True, "constrain_cores": True})
    assert [(row["state"], row["changed"]) for row in rows.values()] == [("ok", False)] * 2
    assert restarts(root) == 1
    answer = undo(root)
    assert set(states(answer).values()) == {"ok"}
    shown = {row["knob"]: row["steps"][0]["before"] for row in answer["knobs"]}
    assert shown["slurm.gres"] == "; ".join(LINES.splitlines())
    assert restarts(root) == 2
    left = {path: text for path, text in content(root).items() if not path.startswith(("run/", "var/lib/"))}
    assert left == {path: text for path, text in before.items() if not path.startswith(("run/", "var/lib/"))}


def test_lines_that_others_add_stay_and_theirs_are_a_conflict(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    apply(root, {"cores": True, "constrain_ram": True})
    put(root, CGROUP, file(root, CGROUP) + "AllowedRAMSpace=98\n")
    assert states(undo(root, only=["slurm.cgroup"])) == {"slurm.cgroup": "ok"}
    assert file(root, CGROUP) == "# Created by gpuctl.\nAllowedRAMSpace=98\n"
    put(root, GRES, file(root, GRES).replace("h100", "h200"))
    assert states(undo(root)) == {"slurm.gres": "conflict"}
    assert "h200" in file(root, GRES)


def test_a_field_that_is_left_out_gets_its_line_back(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, CGROUP, "ConstrainCores=no # slow\nConstrainSwapSpace=yes\n")
    apply(root, {"constrain_cores": True, "constrain_devices": True})
    assert file(root, CGROUP) == "ConstrainCores=yes\nConstrainSwapSpace=yes\nConstrainDevices=yes\n"
    assert one(root, {"constrain_devices": True})["state"] == "ok"
    assert file(root, CGROUP) == "ConstrainCores=no # slow\nConstrainSwapSpace=yes\nConstrainDevices=yes\n"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("IDLE", "its node n1 is IDLE, not drained: scontrol update NodeName=n1 State=DRAIN"),
        ("DOWN*", "its node n1 is DOWN*, not drained"),
        ("MIXED Reason=State=IDLE+DRAIN", "its node n1 is MIXED, not drained"),
        ("MIXED+DRAIN", "its node n1 is MIXED+DRAIN with jobs: wait until they end"),
        ("IDLE+COMPLETING+DRAIN", "with jobs"),
        ("", "whether its node n1 is drained is not known: slurm_load_node error"),
    ],
)
def test_a_node_with_work_is_left_alone(tmp_path: Path, state: str, reason: str) -> None:
    root = slurm_node(tmp_path)
    put(root, "/run/standin-state", state)
    row = one(root, {"cores": True})
    assert row["state"] == "refused"
    assert reason in row["reason"]
    assert not (root / GRES[1:]).exists()
    assert restarts(root) == 0


def test_a_change_that_is_still_being_tried_is_waited_for(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, node.LOCK, "")
    with (root / node.LOCK[1:]).open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        row = one(root, {"cores": True})
        assert (row["state"], "is still being tried" in row["reason"]) == ("unknown", True)
    assert one(root, {"cores": True})["state"] == "ok"


def apply_killed(root: Path, settings: dict[str, Any]) -> None:
    """Let SIGKILL end the program that tries new files, at its restart of slurmd: the new files are left untested."""
    path = root / "usr/bin/systemctl"
    put(root, "/usr/bin/systemctl.real", path.read_text(), 0o755)
    # Its parent is timeout, whose parent is that program.
    kill = "/bin/kill -9 $(/usr/bin/awk '{print $4}' /proc/$PPID/stat); exit 1"
    put(root, "/usr/bin/systemctl", f'#!/bin/sh\n[ "$1" != restart ] || {{ {kill}; }}\nexec {path}.real "$@"\n', 0o755)
    assert "ok" not in {row["state"] for row in apply(root, settings).values()}
    (root / "usr/bin/systemctl.real").rename(path)
    wait_until(lambda: is_free(root), 20, "what the killed program had started does not end")


def is_free(root: Path) -> bool:
    with (root / node.LOCK[1:]).open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_files_that_a_killed_program_left_untested_are_named_and_put_back_first(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, GRES, OTHERS)
    settings = {"cores": True, "constrain_devices": True}
    apply_killed(root, settings)
    assert file(root, GRES) == f"{OTHERS}{LINES}"
    rows = apply(root, settings, check=True)
    assert {row["state"] for row in rows.values()} == {"differs"}
    assert "an earlier change was cut off: /etc/slurm/.gres.conf.gpuctl-former is the" in rows["slurm.gres"]["notes"][0]
    assert "/etc/slurm/.cgroup.conf.gpuctl-absent is a note that" in rows["slurm.cgroup"]["notes"][0]
    put(root, "/run/standin-state", "ALLOCATED+DRAIN")
    refused = one(root, {"cores": True})
    assert (refused["state"], refused["reason"].startswith("an earlier change was cut off")) == ("refused", True)
    put(root, "/run/standin-state", "IDLE+DRAIN")
    put(root, "/run/standin-fails", "Name=gpu")  # put back, tried anew, and taken back again
    assert {row["state"] for row in apply(root, settings).values()} == {"failed"}
    assert (file(root, GRES), (root / CGROUP[1:]).exists()) == (OTHERS, False)
    (root / "run/standin-fails").unlink()
    assert {row["state"] for row in apply(root, settings).values()} == {"ok"}
    assert set(states(undo(root)).values()) == {"ok"}
    assert file(root, GRES) == OTHERS
    assert sorted(path.name for path in (root / "etc/slurm").iterdir()) == ["gres.conf", "slurm.conf"]


def test_a_file_that_was_edited_after_a_killed_change_is_not_put_back(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, GRES, OTHERS)
    apply_killed(root, {"cores": True})
    edited = f"{OTHERS}Name=shard Count=8\n"
    put(root, GRES, edited)
    row = one(root, {"cores": True})
    assert row["state"] == "refused"
    assert "/etc/slurm/gres.conf was edited after an earlier change of it was cut off" in row["reason"]
    undo(root)
    assert file(root, GRES) == edited
    assert one(root, {"constrain_devices": True})["state"] == "failed"
    assert file(root, GRES) == edited
    (root / "etc/slurm/.gres.conf.gpuctl-former").unlink()
    assert one(root, {"cores": True})["state"] == "ok"
    assert file(root, GRES).startswith(edited)


def test_undo_puts_back_what_a_killed_program_left(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, GRES, OTHERS)
    apply_killed(root, {"cores": True, "constrain_devices": True})
    assert set(states(undo(root)).values()) == {"ok"}
    assert (file(root, GRES), (root / CGROUP[1:]).exists()) == (OTHERS, False)
    assert sorted(path.name for path in (root / "etc/slurm").iterdir()) == ["gres.conf", "slurm.conf"]


def test_undo_of_a_slurmd_that_is_restarted_again_and_again_names_a_way_out(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    apply(root, {"cores": True})
    (root / "run/standin-slurmd").unlink()
    put(root, "/run/standin-returns", "")
    (row,) = undo(root)["knobs"]
    assert (row["state"], "systemctl stop slurmd.service" in row["reason"]) == ("refused", True)
    (root / "run/standin-returns").unlink()  # stopped
    assert set(states(undo(root)).values()) == {"ok"}
    assert not (root / GRES[1:]).exists()


def test_undo_waits_for_the_drain_too(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    apply(root, {"cores": True})
    put(root, "/run/standin-state", "ALLOCATED+DRAIN")
    (row,) = undo(root)["knobs"]
    assert row["state"] == "refused"
    assert "with jobs" in row["reason"]
    put(root, "/run/standin-state", "IDLE+DRAIN")
    assert set(states(undo(root)).values()) == {"ok"}
    assert not (root / GRES[1:]).exists()


def test_job_steps_of_a_stopped_slurmd_count(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    (root / "run/standin-slurmd").unlink()
    put(root, "/proc/78/comm", "slurmstepd\n")
    put(root, "/proc/79/comm", "slurmstepd\n")  # of no job, with control groups of version 2
    put(root, "/proc/79/cmdline", "/usr/sbin/slurmstepd\0infinity\0")
    row = one(root, {"cores": True}, allow_busy=True)
    assert (row["state"], "Slurm runs 1 job steps here" in row["reason"]) == ("refused", True)


def test_a_slurmd_that_does_not_run_is_left_stopped(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    (root / "run/standin-slurmd").unlink()
    put(root, "/run/standin-state", "DOWN*")
    row = one(root, {"cores": True})
    assert (row["state"], row["reason"], row["changed"]) == ("pending", "slurmd.service does not run", True)
    assert file(root, GRES).endswith(LINES)
    assert restarts(root) == 0


def test_a_slurmd_that_does_not_work_with_it_gets_its_files_back(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, GRES, OTHERS)
    put(root, "/run/standin-fails", "Name=gpu")
    rows = apply(root, {"cores": True, "constrain_devices": True})
    assert {row["state"] for row in rows.values()} == {"failed"}
    assert "the files before are back, and it runs" in rows["slurm.gres"]["reason"]
    assert file(root, GRES) == OTHERS
    assert not (root / CGROUP[1:]).exists()
    assert sorted(path.name for path in (root / "etc/slurm").iterdir()) == ["gres.conf", "slurm.conf"]
    assert (root / "run/standin-slurmd").exists()


def test_a_slurmctld_that_falls_silent_gets_the_files_before(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, GRES, OTHERS)
    put(root, "/run/standin-silent", "after")
    row = one(root, {"cores": True})
    assert (row["state"], "the files before are back" in row["reason"]) == ("failed", True), row
    assert file(root, GRES) == OTHERS


def test_nothing_is_tried_without_an_answer_of_slurmctld(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, GRES, OTHERS)
    put(root, "/run/standin-silent", "before")
    row = one(root, {"cores": True})
    assert (row["state"], "slurmctld does not answer): nothing is changed" in row["reason"]) == ("failed", True), row
    assert (file(root, GRES), restarts(root)) == (OTHERS, 0)


def test_a_change_that_makes_the_node_invalid_is_taken_back(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, GRES, OTHERS)
    put(root, "/run/standin-invalid", "Name=gpu")
    row = one(root, {"cores": True})
    assert (row["state"], "IDLE+DRAIN+INVALID_REG" in row["reason"]) == ("failed", True), row
    assert file(root, GRES) == OTHERS


def test_a_node_that_slurmctld_calls_invalid_is_pending(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, "/run/standin-state", "IDLE+DRAIN+INVALID_REG")
    put(root, "/run/standin-invalid", "")
    row = one(root, {"cores": True})
    assert (row["state"], row["changed"]) == ("pending", True)
    assert "slurmctld calls n1 invalid" in row["reason"]
    assert set(states(undo(root)).values()) == {"ok"}


def test_what_slurmd_itself_refuses_is_not_written(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, GRES, "odd=1\n")
    row = one(root, {"cores": True})
    assert row["state"] == "refused"
    assert f"slurmd does not start with it: error opening/reading {GRES}" in row["reason"]
    put(root, GRES, "")
    row = one(root, {"autodetect": "nvml"})
    assert row["state"] == "unsupported"
    assert "set slurm_gres.autodetect to off" in row["reason"]


@pytest.mark.parametrize(
    ("gres", "state", "reason"),
    [
        ("gpu:h100:4", "refused", "slurmctld expects gpu:h100:4, and the host has gpu:h100:2"),
        ("gpu:a100:2(S:0-1)", "refused", "slurmctld expects gpu:a100:2"),
        ("gpu:2", "ok", ""),
        ("gpu:h100:2(S:0-1),shm:4", "ok", ""),
        (
            "(null)",
            "pending",
            "slurmctld has no GPU for n1: put GresTypes=gpu, and Gres=gpu:h100:2 in its NodeName line",
        ),
        ("gpu:h100:1", "pending", "slurmctld has gpu:h100:1 for n1"),
    ],
)
def test_slurmctld_must_not_expect_more(tmp_path: Path, gres: str, state: str, reason: str) -> None:
    row = one(slurm_node(tmp_path, gres=gres), {"cores": True})
    assert (row["state"], reason in row["reason"]) == (state, True), row


@pytest.mark.parametrize(
    ("at_controller", "message"),
    [
        ({"h100": 2}, ""),
        ({"nvidia_h100_80gb_hbm3": 2}, ""),
        ({"": 2}, ""),
        (
            {"h100": 1, "a100": 1},
            "slurmctld expects gpu:h100:1,gpu:a100:1, and the host has gpu:nvidia_h100_80gb_hbm3:2",
        ),
        ({"a100": 1}, ""),  # fewer: slurmctld decides which count
        ({"h100": 3}, "slurmctld expects gpu:h100:3, and the host has gpu:nvidia_h100_80gb_hbm3:2"),
    ],
)
def test_types_of_nvml_are_compared_where_totals_match(at_controller: dict[str, int], message: str) -> None:
    due = {devices.nvml_type(H100): 2}
    assert rules.excess(due, at_controller, by_type=False) == message


def test_shared_files_and_those_of_slurmctld_are_left(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, GRES, "NodeName=n[1-9] Name=gpu File=/dev/nvidia[0-7]\n")
    assert "is shared by nodes" in one(root, {"cores": True})["reason"]
    (root / GRES[1:]).unlink()
    put(root, "/proc/mounts", "/dev/sda1 / ext4 rw 0 0\nnas:/slurm /etc/slurm nfs4 rw 0 0\n")
    assert "is on a network file system (nfs4)" in one(root, {"cores": True})["reason"]
    put(root, "/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n")
    link(root, GRES, "/home/gres.conf")
    assert "is a link to /home/gres.conf" in one(root, {"cores": True})["reason"]
    put(root, CONF, "SlurmctldParameters=enable_configless\n")
    assert "has enable_configless" in one(root, {"cores": True})["reason"]
    put(root, "/proc/77/cmdline", "/usr/sbin/slurmd\0--conf-server\0ctl\0")
    assert "slurmd gets its files from slurmctld" in one(root, {"cores": True})["reason"]


def test_a_lost_gpu_or_one_without_its_file_is_not_left_out(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, "/sys/bus/pci/devices/0000:20:00.0/class", "0x030200\n")
    put(root, "/sys/bus/pci/devices/0000:20:00.0/vendor", "0x10de\n")
    assert "the PCI bus has 3 GPUs, and the driver 2" in one(root, {"cores": True})["reason"]
    put(root, "/sys/bus/pci/devices/0000:20:00.0/vendor", "0x1002\n")
    (root / "dev/nvidia1").unlink()
    assert "/dev/nvidia1 is missing" in one(root, {"cores": True})["reason"]


def test_a_file_that_slurmd_has_not_read_is_pending(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, GRES, LINES)
    put(root, "/run/standin-began", str(10**6))  # 1 s after the boot, which was 1000 s ago
    row = one(root, {"cores": True})
    assert (row["state"], row["reason"][:53]) == ("pending", "slurmd has run since before gres.conf was changed: dr")


def test_a_mig_instance_has_its_three_files(tmp_path: Path) -> None:
    root = slurm_node(tmp_path, H100, gres="gpu:h100_3g.40gb:1,gpu:h100_1g.10gb:1")
    smi(root, "-i", "0", "-mig", "1")
    assert "has no instance" in one(root, {"cores": False})["reason"]
    smi(root, "mig", "-i", "0", "-cgi", "3g.40gb,1g.10gb", "-C")
    rows = [line.split() for line in smi(root, "mig", "-lgi").splitlines() if " MIG " in line]
    numbers = {words[3]: words[5] for words in rows}
    for minor, number in enumerate(numbers.values()):
        for path in (f"gi{number}", f"gi{number}/ci0"):
            cap = 10 * minor + len(path)
            put(root, f"/proc/driver/nvidia/capabilities/gpu0/mig/{path}/access", f"DeviceFileMinor: {cap}\n")
            put(root, f"/dev/nvidia-caps/nvidia-cap{cap}", "")
    row = one(root, {"cores": False})
    assert row["changed"], row
    lines = file(root, GRES).splitlines()[1:]
    assert len(lines) == 2
    assert all("MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap" in line for line in lines)
    assert {line.split()[1] for line in lines} == {"Type=h100_3g.40gb", "Type=h100_1g.10gb"}


def test_lines_wait_for_a_mig_layout_that_changes_in_the_same_run(tmp_path: Path) -> None:
    root = slurm_node(tmp_path, H100, gres="gpu:h100:1")
    rows = {row["name"]: row["value"] for row in slurm_gres.from_variables({"cores": False}, [])}
    layout = {"gpu.mig": gpu.TYPES["mig"].check([{"gpus": "all", "instances": {"1g.10gb": 7}}])}
    answer = {row["knob"]: row for row in tune(root, {**rows, **layout}, check=True)["knobs"]}
    assert (answer["gpu.mig"]["state"], answer["slurm.gres"]["state"]) == ("differs", "refused"), answer
    assert "the MIG layout changes first" in answer["slurm.gres"]["reason"]
    assert tune(root, rows, check=True)["knobs"][0]["state"] == "differs"


def test_a_slurm_conf_that_slurmd_may_not_read_is_left(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, "/run/standin-conf", "/opt/slurm/etc/slurm.conf")
    row = one(root, {"cores": True})
    assert (row["state"], "slurmd may read /opt/slurm/etc/slurm.conf" in row["reason"]) == ("refused", True), row
    put(root, "/proc/77/cmdline", f"/usr/sbin/slurmd\0-f\0{CONF}\0")
    assert one(root, {"cores": True})["state"] == "ok"


def test_numbers_of_cores_need_the_same_count_at_slurmctld(tmp_path: Path) -> None:
    root = slurm_node(tmp_path)
    put(root, "/run/standin-threads", "1")
    row = one(root, {"cores": True})
    reason = "slurmctld counts 4 cores with 1 threads each, and the host has 4 with 2"
    assert (row["state"], reason in row["reason"]) == ("refused", True), row
    assert one(root, {"cores": False})["state"] == "ok"


@pytest.mark.parametrize(
    ("gres", "known"),
    [
        ("gpu:2g.10gb:3", {"2g.10gb": 3}),
        ("gpu:1g.5gb:2,gpu:tesla:1", {"1g.5gb": 2, "tesla": 1}),
        ("gpu:H100:no_consume:8(S:0-1),shard:h100:16", {"h100": 8}),
        ("gpu:3090:4", {"3090": 4}),
        ("gpu:4(S:0,1),gpu", {"": 5}),
        ("(null)", {}),
    ],
)
def test_gres_of_slurmctld_is_read_as_slurm_does(gres: str, known: dict[str, int]) -> None:
    assert rules.expected(gres) == known


def test_gres_that_is_not_understood_is_no_zero(tmp_path: Path) -> None:
    row = one(slurm_node(tmp_path, gres="gpu:a:b:c"), {"cores": True})
    assert (row["state"], "is not understood" in row["reason"]) == ("unknown", True)


def test_a_type_has_a_letter() -> None:
    assert GpuType().check("1g.10gb") == "1g.10gb"
    with pytest.raises(ValueError, match="with a letter"):
        GpuType().check("3090")


def test_only_a_newline_ends_a_line_of_slurms_files() -> None:
    text = "# a page\x0cbreak \x85 and \u2028 in a comment\nConstrainCores=yes\n"
    assert configuration.values(text, "cgroup.conf") == {"ConstrainCores": "yes"}
    assert configuration.replaced(text, {}, "cgroup.conf") == text
