"""Swap: off now, off after a reboot, and back with the priority it had."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.gpuhost.trees import changed, content, program, put, small_server, states, tune, undo, units

KNOB = "swap.off"
HEAD = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
# Both stand-ins keep /proc/swaps the way the kernel does.
SWAPOFF = '#!/bin/sh\n/bin/sed -i "\\\\#^$1 #d" "$GPUCTL_ROOT/proc/swaps"\n'
SWAPON = """#!/bin/sh
priority=-2
[ "$1" = -p ] && priority=$2 && shift 2
printf '%s partition 8388604 0 %s\\n' "$1" "$priority" >> "$GPUCTL_ROOT/proc/swaps"
"""


def server(tmp_path: Path, used: int = 0, priority: int = 5) -> Path:
    root = small_server(tmp_path)
    put(root, "/proc/swaps", f"{HEAD}/dev/sda3 partition 8388604 {used} {priority}\n")
    put(root, "/proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 4000000 kB\n")
    put(
        root,
        "/etc/fstab",
        "# disks\nUUID=1 / ext4 defaults 0 1\n/dev/sda3 none swap sw,pri=5 0 0\r\n/swap none swap noauto 0 0\n",
    )
    program(root, "swapoff", SWAPOFF)
    program(root, "swapon", SWAPON)
    return root


def test_it_goes_off_now_and_at_boot_and_comes_back_as_it_was(tmp_path: Path) -> None:
    root = server(tmp_path)
    before = content(root)
    assert changed(tune(root, {KNOB: "off"}, check=True)) == {KNOB}
    assert content(root) == before
    assert states(tune(root, {KNOB: "off"})) == {KNOB: "ok"}
    assert (root / "proc/swaps").read_text() == HEAD
    assert "#gpuctl# /dev/sda3 none swap sw,pri=5 0 0\r\n" in (root / "etc/fstab").read_bytes().decode()
    assert changed(tune(root, {KNOB: "off"})) == set()
    undo(root)
    assert content(root) == before


def test_a_priority_that_the_kernel_chose_is_left_to_the_kernel(tmp_path: Path) -> None:
    root = server(tmp_path, priority=-2)
    before = content(root)
    tune(root, {KNOB: "off"})
    undo(root)
    assert content(root) == before


def test_more_swapped_out_than_memory_is_free_is_refused_with_both_numbers(tmp_path: Path) -> None:
    root = server(tmp_path, used=5000000)
    before = content(root)
    answer = tune(root, {KNOB: "off"})
    assert states(answer) == {KNOB: "refused"}
    assert "4882 MiB are swapped out and only 3906 MiB of memory" in answer["knobs"][0]["reason"]
    assert content(root) == before


def test_used_swap_disturbs_a_busy_host(tmp_path: Path) -> None:
    root = server(tmp_path, used=1000)
    put(root, "/proc/4711/comm", "slurmstepd\n")
    answer = tune(root, {KNOB: "off"})
    assert states(answer) == {KNOB: "refused"}
    assert "Slurm runs 1 job steps" in answer["knobs"][0]["reason"]
    assert states(tune(root, {KNOB: "off"}, allow_busy=True)) == {KNOB: "ok"}


def test_a_swap_unit_of_its_own_is_masked(tmp_path: Path) -> None:
    root = server(tmp_path)
    put(root, "/run/systemd/generator/dev-zram0.swap", "[Swap]\nWhat=/dev/zram0\n")
    put(root, "/run/systemd/generator/dev-sda3.swap", "[Unit]\nSourcePath=/etc/fstab\n[Swap]\nWhat=/dev/sda3\n")
    units(root, **{"dev-zram0__swap": {"boot": "generated", "now": "active"}})
    knob = tune(root, {KNOB: "off"})["knobs"][0]
    assert "unit:dev-zram0.swap:boot" in [step["setting"] for step in knob["steps"]]
    assert not any("dev-sda3.swap" in step["setting"] for step in knob["steps"])


def test_a_container_cannot_have_it(tmp_path: Path) -> None:
    root = server(tmp_path)
    put(root, "/proc/self/status", "CapEff:\t00000000a80425fb\n")
    assert states(tune(root, {KNOB: "off"})) == {KNOB: "unsupported"}


def test_a_host_without_swap_is_fine(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/swaps", HEAD)
    assert states(tune(root, {KNOB: "off"})) == {KNOB: "ok"}


def test_unreadable_is_unknown(tmp_path: Path) -> None:
    assert states(tune(small_server(tmp_path), {KNOB: "off"})) == {KNOB: "unknown"}


@pytest.mark.parametrize("line", ["/dev/sda3 none swap sw,pri=9 0 0", ""])
def test_a_line_that_somebody_edited_is_a_conflict(tmp_path: Path, line: str) -> None:
    root = server(tmp_path)
    tune(root, {KNOB: "off"})
    put(root, "/etc/fstab", f"UUID=1 / ext4 defaults 0 1\n{line}\n")
    assert states(undo(root)) == {KNOB: "conflict"}
    assert (root / "proc/swaps").read_text() == HEAD
