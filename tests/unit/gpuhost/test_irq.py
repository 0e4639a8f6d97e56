"""Interrupts near their devices, and irqbalance, which would move them."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import irq as kind

from tests.rig.trees.hardware import GPU, NIC, Card, Refusing, cards, irq, metal
from tests.rig.trees.host import Counting, changed, content, program, put, states, tune, undo, units

AFFINITY = {"irq.affinity": "node"}
NIC_0 = Card("0000:10:00.0", NIC, 0, (30, 31))
GPU_1 = Card("0000:9b:00.0", GPU, 1, (40,))
UNIT = "/usr/lib/systemd/system/irqbalance.service"
OURS = "etc/systemd/system/irqbalance.service.d/50-gpuctl.conf"


def knob(answer: dict[str, Any], name: str) -> dict[str, Any]:
    return next(k for k in answer["knobs"] if k["knob"] == name)


def balancer(root: Path, on: bool = True, hints: bool = False) -> Path:
    """irqbalance as a distribution installs it, enabled and running, or neither; old versions have hint policies."""
    put(root, UNIT, "[Service]\nExecStart=/usr/sbin/irqbalance --foreground $IRQBALANCE_ARGS\n")
    put(
        root,
        "/usr/sbin/irqbalance",
        "\x7fELF usage: --hintpolicy= --banirq=\n" if hints else "\x7fELF --banirq=\n",
        0o755,
    )
    put(root, "/proc/77/cmdline", "/usr/sbin/irqbalance\0--foreground\0")
    units(root, irqbalance__service={"boot": "enabled", "now": "active", "pid": "77"} if on else {})
    return root


def test_interrupts_move_to_their_devices_node_and_undo_moves_them_back(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), NIC_0, GPU_1)
    answer = tune(root, AFFINITY)
    assert [irq(root, n) for n in (30, 31, 40)] == ["0-1", "0-1", "2-3"]
    reading = knob(answer, "irq.affinity")
    assert reading["was"] == {"now": "3 of 3 interrupts elsewhere", "boot": "kernel default"}
    assert (reading["now"], reading["boot"]) == ("node", "node")
    undo(root)
    assert [irq(root, n) for n in (30, 31, 40)] == ["0-3"] * 3


def test_check_says_what_a_run_changes_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    root = balancer(cards(metal(tmp_path), NIC_0, GPU_1))
    knobs = {**AFFINITY, "irq.balance": "off"}
    before = content(root)
    checked = tune(root, knobs, check=True)
    assert content(root) == before
    assert changed(checked) == changed(tune(root, knobs)) == {*knobs, "program.gpuctl-boot"}
    before = content(root)
    assert changed(tune(root, knobs)) == set()
    assert content(root) == before


def test_moving_interrupts_is_refused_while_a_job_runs(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), NIC_0)
    put(root, "/proc/5/comm", "slurmstepd\n")
    reading = knob(tune(root, AFFINITY), "irq.affinity")
    assert reading["state"] == "refused"
    assert reading["reason"].startswith("moves interrupts of running devices")
    assert irq(root, 30) == "0-3"
    assert knob(tune(root, AFFINITY, allow_busy=True), "irq.affinity")["state"] == "ok"


def test_an_interrupt_that_somebody_else_moved_since_is_a_conflict_and_stays(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), NIC_0)
    tune(root, AFFINITY)
    put(root, "/proc/irq/31/smp_affinity_list", "2\n")
    assert states(undo(root))["irq.affinity"] == "conflict"
    assert [irq(root, n) for n in (30, 31)] == ["0-1", "2"]


def test_interrupts_that_a_driver_gave_up_need_not_be_put_back(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), NIC_0)
    tune(root, AFFINITY)
    (root / "sys/bus/pci/devices/0000:10:00.0/msi_irqs/31").unlink()
    assert states(undo(root))["irq.affinity"] == "ok"
    assert irq(root, 30) == "0-3"


def test_interrupts_that_the_kernel_manages_stay_and_are_not_tried_again_before_the_next_boot(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), NIC_0, GPU_1)
    host = Refusing(root, writes={"/irq/31/": errno.EIO})
    reading = knob(tune(root, AFFINITY, host), "irq.affinity")
    assert (reading["state"], reading["notes"]) == (
        "ok",
        ["1 of 3 interrupts are the kernel's own and stay as they are"],
    )
    host.asked.clear()
    assert changed(tune(root, AFFINITY, host)) == set()
    put(root, "/proc/sys/kernel/random/boot_id", "another\n")
    tune(root, AFFINITY, host)
    assert [path for path in host.asked if "/irq/" in path] == ["/proc/irq/31/smp_affinity_list"]


def test_a_host_whose_interrupts_are_all_the_kernels_own_cannot_have_them_pinned(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), NIC_0)
    host = Refusing(root, writes={"/irq/": errno.EIO})
    reading = knob(tune(root, AFFINITY, host), "irq.affinity")
    assert (reading["state"], reading["reason"]) == ("unsupported", "the kernel manages all 2 interrupts itself")


def test_a_device_without_a_node_is_left_alone_and_named(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), NIC_0, Card("0000:9b:00.0", GPU, -1, (40,)))
    reading = knob(tune(root, AFFINITY), "irq.affinity")
    assert (reading["state"], reading["notes"]) == ("ok", ["left alone, as their NUMA node is unknown: 0000:9b:00.0"])
    assert irq(root, 40) == "0-3"


def test_where_no_device_has_a_node_nothing_is_known(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), Card("0000:9b:00.0", GPU, -1, (40,)))
    reading = knob(tune(root, AFFINITY), "irq.affinity")
    assert reading["state"] == "unknown"
    assert "0000:9b:00.0" in reading["reason"]


def test_on_a_machine_with_one_node_every_device_belongs_there(tmp_path: Path) -> None:
    root = cards(metal(tmp_path, nodes=1), Card("0000:9b:00.0", GPU, -1, (40,)), everywhere="0")
    assert states(tune(root, AFFINITY))["irq.affinity"] == "ok"
    assert irq(root, 40) == "0-3"


def test_a_host_without_nic_and_gpu_has_nothing_to_pin(tmp_path: Path) -> None:
    assert states(tune(metal(tmp_path), AFFINITY))["irq.affinity"] == "unsupported"


def test_a_device_that_has_no_interrupts_yet_is_named_and_pinned_by_gpuctl_boot_later(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), Card("0000:9b:00.0", GPU, 1, ()))
    reading = knob(tune(root, AFFINITY), "irq.affinity")
    assert reading["state"] == "ok"
    assert reading["notes"] == ["no interrupts yet (no driver, link down, GPU not awake): 0000:9b:00.0"]
    assert "irq.affinity node\n" in (root / "etc/gpuctl/boot.conf").read_text()


def test_a_container_has_no_interrupts_of_its_own(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), NIC_0)
    put(root, "/run/systemd/container", "lxc\n")
    assert set(states(tune(root, {**AFFINITY, "irq.balance": "off"})).values()) >= {"unsupported"}


def test_irqbalance_that_stays_on_is_named_and_has_the_last_word(tmp_path: Path) -> None:
    root = balancer(cards(metal(tmp_path), NIC_0))
    reading = knob(tune(root, AFFINITY), "irq.affinity")
    assert reading["state"] == "contested"
    assert reading["conflicts"] == [
        {
            "owner": "irqbalance",
            "where": "/etc/systemd/system/multi-user.target.wants/irqbalance.service",
            "value": "irqbalance moves them as it sees fit",
            "wins": True,
        }
    ]


def test_irqbalance_that_the_same_profile_stops_is_no_conflict(tmp_path: Path) -> None:
    root = balancer(cards(metal(tmp_path), NIC_0))
    answer = tune(root, {**AFFINITY, "irq.balance": "off"}, check=True)
    assert knob(answer, "irq.affinity")["conflicts"] == []


def test_irqbalance_that_excludes_these_interrupts_is_no_conflict(tmp_path: Path) -> None:
    root = balancer(cards(metal(tmp_path), NIC_0))
    put(root, "/etc/default/irqbalance", 'IRQBALANCE_ARGS="--banirq=30 --banirq=31"\n')
    assert knob(tune(root, AFFINITY), "irq.affinity")["conflicts"] == []
    put(root, "/etc/default/irqbalance", 'IRQBALANCE_ARGS="--banirq=30"\n')
    assert knob(tune(root, AFFINITY), "irq.affinity")["conflicts"] != []


def test_irqbalance_is_stopped_and_does_not_start_again_and_undo_brings_it_back(tmp_path: Path) -> None:
    root = balancer(metal(tmp_path))
    before = (root / "run/standin-units.json").read_text()
    reading = knob(tune(root, {"irq.balance": "off"}), "irq.balance")
    assert (reading["was"], reading["now"], reading["boot"]) == ({"now": "running", "boot": "enabled"}, "off", "off")
    undo(root)
    assert '"irqbalance.service": {"boot": "enabled", "now": "active"' in before
    assert '"irqbalance.service": {"boot": "enabled", "now": "active"' in (root / "run/standin-units.json").read_text()


@pytest.mark.parametrize("installed", [True, False])
def test_a_right_host_is_read_without_starting_a_program(tmp_path: Path, installed: bool) -> None:
    root = balancer(metal(tmp_path), on=False) if installed else metal(tmp_path)
    tune(root, {"irq.balance": "off"})
    host = Counting(root)
    reading = knob(tune(root, {"irq.balance": "off"}, host), "irq.balance")
    assert (reading["state"], reading["now"]) == ("ok", "off" if installed else "not installed")
    assert host.started == []


def test_stopping_irqbalance_queries_systemd_once(tmp_path: Path) -> None:
    host = Counting(balancer(metal(tmp_path)))
    tune(tmp_path, {"irq.balance": "off"}, host, check=True)
    assert len(host.started) == 1


def test_owners_that_start_irqbalance_again_are_named(tmp_path: Path) -> None:
    root = balancer(metal(tmp_path))
    put(root, "/etc/rc.local", "systemctl disable irqbalance\nsystemctl start irqbalance\n", 0o755)
    reading = knob(tune(root, {"irq.balance": "off"}), "irq.balance")
    assert [c["where"] for c in reading["conflicts"]] == ["/etc/rc.local:2"]
    assert reading["state"] == "contested"


@pytest.mark.parametrize("policy", ["exact", "subset"])
def test_hint_policies_are_unsupported_where_irqbalance_has_none(tmp_path: Path, policy: str) -> None:
    reading = knob(tune(balancer(metal(tmp_path)), {"irq.balance": policy}), "irq.balance")
    assert reading["state"] == "unsupported"
    assert "no --hintpolicy" in reading["reason"]


def test_ignoring_hints_is_what_every_new_irqbalance_does(tmp_path: Path) -> None:
    root = balancer(metal(tmp_path), on=False)
    reading = knob(tune(root, {"irq.balance": "ignore"}), "irq.balance")
    assert (reading["was"], reading["now"], reading["boot"]) == ({"now": "off", "boot": "off"}, "ignore", "ignore")
    assert not (root / OURS).exists()
    assert changed(tune(root, {"irq.balance": "ignore"})) == set()


def test_an_old_irqbalance_gets_its_policy_by_a_drop_in_and_restarts(tmp_path: Path) -> None:
    root = balancer(metal(tmp_path), hints=True)
    put(root, "/etc/default/irqbalance", 'IRQBALANCE_ARGS="--banirq=5"\n')
    host = Counting(root)
    tune(root, {"irq.balance": "exact"}, host)
    ours = (root / OURS).read_text()
    assert "ExecStart=\nExecStart=/usr/sbin/irqbalance --foreground $IRQBALANCE_ARGS --hintpolicy=exact\n" in ours
    assert "systemctl try-restart irqbalance.service" in host.started
    put(root, "/proc/77/cmdline", "/usr/sbin/irqbalance\0--foreground\0--hintpolicy=exact\0")
    assert changed(tune(root, {"irq.balance": "exact"})) == set()


def test_an_old_irqbalance_with_another_policy_is_restarted(tmp_path: Path) -> None:
    root = balancer(metal(tmp_path), hints=True)
    tune(root, {"irq.balance": "exact"})
    reading = knob(tune(root, {"irq.balance": "exact"}, check=True), "irq.balance")
    assert (reading["state"], reading["now"], reading["boot"]) == ("differs", "ignore", "exact")


def test_undo_of_a_policy_removes_our_drop_in_and_restarts_irqbalance(tmp_path: Path) -> None:
    root = balancer(metal(tmp_path), hints=True)
    tune(root, {"irq.balance": "exact"})
    host = Counting(root)
    undo(root, host)
    assert not (root / OURS).exists()
    assert "systemctl try-restart irqbalance.service" in host.started


def test_a_policy_needs_irqbalance(tmp_path: Path) -> None:
    reading = knob(tune(metal(tmp_path), {"irq.balance": "ignore"}), "irq.balance")
    assert (reading["state"], reading["reason"]) == ("unsupported", "irqbalance is not installed on this host")


def test_masked_counts_as_off(tmp_path: Path) -> None:
    root = balancer(metal(tmp_path), on=False)
    (root / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
    (root / "etc/systemd/system/irqbalance.service").symlink_to("/dev/null")
    assert knob(tune(root, {"irq.balance": "off"}, Host(root)), "irq.balance")["state"] == "ok"


def test_yaml_off_is_taken_as_the_word() -> None:
    balance = kind.type_of("balance")
    assert balance is not None
    assert balance.check(False) == "off"
    with pytest.raises(ValueError, match="exact"):
        balance.check("on")


def test_systemd_is_not_asked_about_an_irqbalance_that_is_not_installed(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), NIC_0)
    program(root, "systemctl", "#!/bin/sh\nexit 1\n")
    assert states(tune(root, {"irq.balance": "off", **AFFINITY}, check=True))["irq.balance"] == "ok"
