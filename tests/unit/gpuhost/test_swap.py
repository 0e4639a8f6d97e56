"""Swap: off now and after a reboot; undo restores it with its priority."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources.swap import unit_of

from tests.rig.trees.host import (
    TreeHost,
    changed,
    content,
    link,
    program,
    put,
    small_server,
    states,
    tune,
    undo,
    units,
)

KNOB = "swap.off"
HEAD = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
# Both stand-ins update /proc/swaps like the kernel.
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


def test_swap_goes_off_now_and_at_boot_and_undo_restores_it(tmp_path: Path) -> None:
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


def generated(root: Path, name: str, text: str) -> None:
    """A generated unit, with the link that starts it at boot."""
    put(root, f"/run/systemd/generator/{name}", text)
    link(root, f"/run/systemd/generator/swap.target.wants/{name}", f"../{name}")


def test_a_swap_unit_of_its_own_is_masked_and_one_out_of_fstab_is_not(tmp_path: Path) -> None:
    root = server(tmp_path)
    units(root, **{"dev-zram0__swap": {"boot": "generated"}, "dev-sda3__swap": {"boot": "generated"}})
    generated(root, "dev-zram0.swap", "[Swap]\nWhat=/dev/zram0\n")
    generated(root, "dev-sda3.swap", "[Unit]\nSourcePath=/etc/fstab\n[Swap]\nWhat=/dev/sda3\n")
    before = content(root)
    knob = tune(root, {KNOB: "off"})["knobs"][0]
    assert (knob["state"], knob["was"]["boot"]) == ("ok", "/dev/sda3, dev-zram0.swap")
    assert (root / "etc/systemd/system/dev-zram0.swap").readlink() == Path("/dev/null")
    assert not (root / "etc/systemd/system/dev-sda3.swap").is_symlink()
    undo(root)
    assert content(root) == before


def test_an_area_that_systemd_finds_itself_once_fstab_is_silent_is_masked_in_the_same_run(tmp_path: Path) -> None:
    class FindsByType(TreeHost):
        """systemd's generator for partitions of the type "Linux swap": writes nothing while fstab has swap."""

        def _run(self, argv: Any, *more: Any) -> Any:
            done = super()._run(argv, *more)
            if argv[:2] == ("systemctl", "daemon-reload") and "#gpuctl#" in self.read("/etc/fstab"):
                generated(root, "dev-sda4.swap", "[Swap]\nWhat=/dev/sda4\n")
            return done

    root = server(tmp_path)
    units(root, **{"dev-sda4__swap": {"boot": "generated"}})
    before = content(root)
    assert states(tune(root, {KNOB: "off"}, host=FindsByType(root))) == {KNOB: "ok"}
    assert (root / "etc/systemd/system/dev-sda4.swap").readlink() == Path("/dev/null")
    assert changed(tune(root, {KNOB: "off"})) == set()
    undo(root)
    assert (root / "etc/fstab").read_text() == before["etc/fstab"]
    assert not (root / "etc/systemd/system/dev-sda4.swap").is_symlink()


def test_a_swap_unit_made_by_hand_is_disabled_because_a_mask_would_stand_in_its_place(tmp_path: Path) -> None:
    root = server(tmp_path)
    put(root, "/etc/systemd/system/swapfile.swap", "[Swap]\nWhat=/swapfile\n[Install]\nWantedBy=swap.target\n")
    units(root, swapfile__swap={"boot": "enabled"})
    before = content(root)
    assert states(tune(root, {KNOB: "off"})) == {KNOB: "ok"}
    assert changed(tune(root, {KNOB: "off"})) == set()
    undo(root)
    assert content(root) == before


def test_a_swap_unit_that_nothing_starts_is_left_alone(tmp_path: Path) -> None:
    root = server(tmp_path)
    put(root, "/usr/lib/systemd/system/spare.swap", "[Swap]\nWhat=/spare\n")
    reading = tune(root, {KNOB: "off"})["knobs"][0]
    assert (reading["state"], [s["setting"] for s in reading["steps"] if "spare" in s["setting"]]) == ("ok", [])


def test_where_a_units_name_changes_from_boot_to_boot_its_target_is_masked(tmp_path: Path) -> None:
    root = server(tmp_path)
    units(root, swap__target={"boot": "static"})
    generated(root, r"dev-disk-by\x2ddiskseq-3\x2dpart4.swap", "[Swap]\nWhat=/dev/disk/by-diskseq/3-part4\n")
    assert states(tune(root, {KNOB: "off"})) == {KNOB: "ok"}
    assert (root / "etc/systemd/system/swap.target").readlink() == Path("/dev/null")


def test_an_area_that_its_unit_must_make_first_comes_back_with_its_unit(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/swaps", f"{HEAD}/dev/zram0 partition 8388604 0 100\n")
    put(root, "/proc/meminfo", "MemAvailable: 4000000 kB\n")
    program(root, "swapoff", SWAPOFF)
    program(root, "swapon", "#!/bin/sh\necho 'read swap header failed' >&2\nexit 255\n")
    units(root, **{"dev-zram0__swap": {"boot": "generated", "now": "inactive"}})
    generated(root, "dev-zram0.swap", "[Swap]\nWhat=/dev/zram0\n")
    tune(root, {KNOB: "off"})
    undo(root)
    state = json.loads((root / "run/standin-units.json").read_text())["dev-zram0.swap"]
    assert state == {"boot": "generated", "now": "active"}, "it was unmasked before it was started"


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/dev/sda3", "dev-sda3.swap"),
        ("/dev/disk/by-uuid/1-2", r"dev-disk-by\x2duuid-1\x2d2.swap"),
        ("/my swap", r"my\x20swap.swap"),
    ],
)
def test_the_unit_of_an_area_is_named_as_systemd_escape_does(path: str, unit: str) -> None:
    assert unit_of(path) == unit


def test_an_area_may_have_a_space_in_its_path(tmp_path: Path) -> None:
    root = server(tmp_path)
    put(root, "/proc/swaps", f"{HEAD}/my\\040swap file 8388604 0 -2\n")
    reading = tune(root, {KNOB: "off"}, check=True)["knobs"][0]
    assert reading["now"] == "/my swap 8191 MiB"
    assert "swap:/my swap" in [step["setting"] for step in reading["steps"]]


def test_the_azure_agent_and_units_that_bring_swap_later_are_named(tmp_path: Path) -> None:
    root = server(tmp_path)
    put(root, "/etc/waagent.conf", "# disk\nResourceDisk.EnableSwap=y\n")
    for name in ("late", "unused"):
        put(root, f"/etc/systemd/system/{name}.service", "[Service]\nExecStart=/sbin/swapon /late\n[Install]\n")
    link(root, "/etc/systemd/system/multi-user.target.wants/late.service", "../late.service")
    reading = tune(root, {KNOB: "off"})["knobs"][0]
    assert reading["state"] == "contested"
    assert [(c["owner"], c["where"], c["wins"]) for c in reading["conflicts"]] == [
        ("unit", "/etc/systemd/system/late.service:2", True),
        ("unit", "/etc/systemd/system/unused.service:2", False),
        ("Azure agent", "/etc/waagent.conf:2", True),
    ]


GENERATOR, ZRAM = "/usr/lib/systemd/system-generators/zram-generator", "/etc/systemd/zram-generator.conf"


def test_an_area_that_zram_generator_makes_at_the_next_boot_is_named(tmp_path: Path) -> None:
    root = server(tmp_path)
    put(root, ZRAM, "# site\n[zram0]\nzram-size = ram / 2\n\n[zram1]\nmount-point = /var/compressed\n[zram2]\n")
    put(root, f"{ZRAM}.d/off.conf", "[zram2]\nzram-size=0\n")
    assert states(tune(root, {KNOB: "off"})) == {KNOB: "ok"}, "the generator is not installed"
    put(root, GENERATOR, "")
    reading = tune(root, {KNOB: "off"})["knobs"][0]
    assert reading["state"] == "contested"
    assert [(c["owner"], c["where"], c["value"], c["wins"]) for c in reading["conflicts"]] == [
        ("zram-generator", f"{ZRAM}:2", "[zram0]", True)
    ]


def test_an_area_that_zram_generator_has_made_is_masked(tmp_path: Path) -> None:
    root = server(tmp_path)
    put(root, GENERATOR, "")
    put(root, "/usr/lib/systemd/zram-generator.conf.d/10.conf", "[zram0]\n")
    units(root, **{"dev-zram0__swap": {"boot": "generated"}})
    generated(root, "dev-zram0.swap", "[Swap]\nWhat=/dev/zram0\n")
    for _ in range(2):
        assert states(tune(root, {KNOB: "off"})) == {KNOB: "ok"}


def test_swap_that_somebody_enabled_with_another_priority_is_a_conflict(tmp_path: Path) -> None:
    root = server(tmp_path)
    tune(root, {KNOB: "off"})
    put(root, "/proc/swaps", f"{HEAD}/dev/sda3 partition 8388604 0 9\n")
    answer = undo(root)
    assert states(answer) == {KNOB: "conflict"}
    assert "on priority=9, neither ours (absent) nor what it was" in answer["knobs"][0]["reason"]


def test_swap_that_somebody_enabled_is_disabled_again(tmp_path: Path) -> None:
    root = server(tmp_path)
    before = content(root)
    tune(root, {KNOB: "off"})
    put(root, "/proc/swaps", f"{HEAD}/dev/sda3 partition 8388604 0 9\n")
    assert states(tune(root, {KNOB: "off"})) == {KNOB: "ok"}
    undo(root)
    assert content(root) == before


def test_an_error_of_swapoff_is_reported(tmp_path: Path) -> None:
    root = server(tmp_path)
    program(root, "swapoff", "#!/bin/sh\necho 'swapoff failed: Cannot allocate memory' >&2\nexit 4\n")
    reading = tune(root, {KNOB: "off"})["knobs"][0]
    assert reading["state"] == "failed"
    assert "Cannot allocate memory" in reading["reason"]


def test_swap_in_a_container_is_unsupported(tmp_path: Path) -> None:
    root = server(tmp_path)
    put(root, "/proc/self/status", "CapEff:\t00000000a80425fb\n")
    assert states(tune(root, {KNOB: "off"})) == {KNOB: "unsupported"}


def test_a_host_without_swap_is_fine(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/swaps", HEAD)
    assert states(tune(root, {KNOB: "off"})) == {KNOB: "ok"}


def test_unreadable_swap_is_unknown(tmp_path: Path) -> None:
    assert states(tune(small_server(tmp_path), {KNOB: "off"})) == {KNOB: "unknown"}


@pytest.mark.parametrize("line", ["/dev/sda3 none swap sw,pri=9 0 0", ""])
def test_a_line_that_somebody_edited_is_a_conflict(tmp_path: Path, line: str) -> None:
    root = server(tmp_path)
    tune(root, {KNOB: "off"})
    put(root, "/etc/fstab", f"UUID=1 / ext4 defaults 0 1\n{line}\n")
    assert states(undo(root)) == {KNOB: "conflict"}
    assert (root / "proc/swaps").read_text() == HEAD


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("/sbin/swapon --show >> /var/log/boot.log", "ok"),
        ("swapon -s", "ok"),
        ("echo run swapon later", "ok"),
        ("command -v swapon > /dev/null || exit 0", "ok"),
        ("command -v swapon && swapon -a", "contested"),
        ("swapon -s; swapon /late", "contested"),
        ("find /swap -type f -exec swapon {} +", "contested"),
        ("echo $(swapon -a)", "contested"),
    ],
)
def test_a_script_that_only_lists_or_names_swap_is_no_rival(tmp_path: Path, line: str, state: str) -> None:
    root = server(tmp_path)
    put(root, "/etc/rc.local", f"#!/bin/sh\n{line}\n", 0o755)
    assert tune(root, {KNOB: "off"})["knobs"][0]["state"] == "ok" or state == "contested"
    assert tune(root, {KNOB: "off"})["knobs"][0]["state"] == state


@pytest.mark.parametrize(
    "files",
    [
        {"late.service": "[Service]\nExecStart=/opt/late.sh\n[Install]\n", "late.timer": "[Timer]\nOnBootSec=5\n"},
        {
            "late.service": "[Service]\nExecStart=/sbin/swapon /late\n[Install]\n",
            "late.timer": "[Timer]\nOnBootSec=5\n",
        },
        {
            "late.service": "[Service]\nExecStart=/bin/true\n[Unit]\nWants=more.service\n",
            "more.service": "[Service]\nExecStart=/opt/late.sh\n[Install]\n",
        },
    ],
)
def test_swap_that_a_script_a_timer_or_a_wanted_unit_brings_back_is_named(
    tmp_path: Path, files: dict[str, str]
) -> None:
    root = server(tmp_path)
    put(root, "/opt/late.sh", "#!/bin/sh\nmkswap /late && swapon /late\n", 0o755)
    for name, text in files.items():
        put(root, f"/etc/systemd/system/{name}", text)
    assert tune(root, {KNOB: "off"})["knobs"][0]["state"] == "ok"
    started = "late.timer" if "late.timer" in files else "late.service"
    link(root, f"/etc/systemd/system/multi-user.target.wants/{started}", f"../{started}")
    assert tune(root, {KNOB: "off"})["knobs"][0]["state"] == "contested"
