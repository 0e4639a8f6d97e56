"""Kernel arguments: of the running kernel, at the next boot, and their other owners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import kernel_line
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import cmdline as kind

from tests.rig.trees.boot import CONFIG, ENTRY, GRUB_CFG, KERNELS, boot, debian, entries, lines, red_hat
from tests.rig.trees.host import changed, content, program, put, small_server, states, tune, undo

DROP_IN = "etc/default/grub.d/99-zz-gpuctl.cfg"
PT = {"cmdline.iommu": "pt"}
SEVERAL = {"cmdline.iommu": "pt", "cmdline.nosmt": "present", "cmdline.isolcpus": "managed_irq,domain,2-31"}


def only(answer: dict[str, Any]) -> dict[str, Any]:
    (reading,) = answer["knobs"]
    return dict(reading)


@pytest.mark.parametrize("host", [debian, red_hat])
def test_arguments_come_with_the_next_boot_and_a_second_run_changes_nothing(tmp_path: Path, host: Any) -> None:
    root = host(tmp_path)
    before = content(root)
    checked = tune(root, SEVERAL, check=True)
    assert content(root) == before
    answer = tune(root, SEVERAL)
    assert changed(checked) == changed(answer) == set(SEVERAL)
    assert set(states(answer).values()) == {"pending"}
    assert [(k["now"], k["boot"], k["reboot"]) for k in answer["knobs"]] == [
        ("absent", "pt", True),
        ("absent", "present", True),
        ("absent", "managed_irq,domain,2-31", True),
    ]
    tuned = content(root)
    assert changed(tune(root, SEVERAL)) == set()
    boot(root)
    assert set(states(tune(root, SEVERAL)).values()) == {"ok"}
    tuned.update({path: content(root)[path] for path in tuned if path.startswith("proc/")})
    assert content(root) == tuned


@pytest.mark.parametrize("host", [debian, red_hat])
def test_undo_gives_back_every_file_to_the_byte(tmp_path: Path, host: Any) -> None:
    root = host(tmp_path)
    before = content(root)
    tune(root, SEVERAL)
    assert set(states(undo(root)).values()) == {"ok"}
    assert content(root) == before


def test_recovery_entries_are_left_alone(tmp_path: Path) -> None:
    root = debian(tmp_path)
    tune(root, PT)
    assert [line for line in lines(root) if ("iommu=pt" in line) == (" single " in line)] == []
    assert len(lines(root)) == 5


def test_ours_stands_behind_what_a_cloud_image_ships(tmp_path: Path) -> None:
    root = debian(tmp_path)
    cloud = 'GRUB_CMDLINE_LINUX_DEFAULT="console=tty1 console=ttyS0"\n'
    put(root, "/etc/default/grub.d/50-cloudimg-settings.cfg", cloud)
    assert only(tune(root, PT))["state"] == "pending"
    assert lines(root)[0].endswith(" console=tty1 console=ttyS0 iommu=pt")


@pytest.mark.parametrize("host", [debian, red_hat])
def test_an_argument_of_the_owner_needs_nothing_and_stays_after_undo(tmp_path: Path, host: Any) -> None:
    root = host(tmp_path)
    if host is debian:
        put(root, "/etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"\n')
        put(root, f"/{CONFIG}", GRUB_CFG.replace(" quiet\n", " quiet iommu=pt\n"))
    else:
        red_hat(root, "root=/dev/sda1 ro iommu=pt")
    boot(root)
    before = content(root)
    assert only(tune(root, PT))["state"] == "ok"
    undo(root)
    assert content(root) == before


def test_a_drop_in_that_grub_cfg_does_not_know_yet_needs_only_update_grub(tmp_path: Path) -> None:
    root = debian(tmp_path)
    tune(root, PT)
    put(root, f"/{CONFIG}", GRUB_CFG)  # as after a run that was killed before update-grub
    reading = only(tune(root, PT, check=True))
    assert (reading["state"], reading["boot"], reading["steps"]) == ("differs", "absent", [])
    assert only(tune(root, PT))["boot"] == "pt"


def test_another_value_is_named_with_file_and_line_and_ours_counts(tmp_path: Path) -> None:
    root = debian(tmp_path)
    put(root, "/etc/default/grub", 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=off"\n')
    reading = only(tune(root, PT))
    assert (reading["state"], reading["boot"]) == ("pending", "pt")
    rival = {"owner": "GRUB", "where": "/etc/default/grub:2", "value": "off", "wins": False}
    assert reading["conflicts"] == [rival]
    assert lines(root)[0].endswith(" iommu=off iommu=pt")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('export GRUB_CMDLINE_LINUX_DEFAULT="${GRUB_CMDLINE_LINUX_DEFAULT} \\\niommu=off"\n', "off"),
        ("GRUB_CMDLINE_LINUX_DEFAULT+=' iommu=off'\n", "off"),
        ('# ours is gone\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\n', 'resets GRUB_CMDLINE_LINUX_DEFAULT to "quiet"'),
    ],
)
def test_a_file_that_is_read_after_ours_wins_and_is_named(tmp_path: Path, text: str, line: str) -> None:
    root = debian(tmp_path)
    put(root, "/etc/default/grub.d/zz-site.cfg", text)
    # update-grub is run by dash, which knows no +=; the sides agree that ours does not come through.
    program(root, "update-grub")
    reading = only(tune(root, PT))
    assert (reading["state"], reading["boot"]) == ("contested", "absent")
    number = text.count("\n", 0, text.index("GRUB_")) + 1
    rival = {"owner": "GRUB", "where": f"/etc/default/grub.d/zz-site.cfg:{number}", "value": line, "wins": True}
    assert reading["conflicts"] == [rival]
    assert changed(tune(root, PT)) == set()


def test_a_later_file_that_resets_the_line_is_no_rival_if_the_value_is_set_elsewhere(tmp_path: Path) -> None:
    root = debian(tmp_path)
    put(root, "/etc/default/grub", 'GRUB_CMDLINE_LINUX="iommu=pt"\n')
    put(root, "/etc/default/grub.d/10_cloud.cfg", "GRUB_TIMEOUT=0\n")
    put(root, "/etc/default/grub.d/zz-site.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n')
    put(root, f"/{CONFIG}", GRUB_CFG.replace(" quiet\n", " iommu=pt quiet\n"))
    reading = only(tune(root, PT))
    assert (reading["state"], reading["conflicts"]) == ("pending", [])


def test_arguments_of_the_active_tuned_profile_are_named(tmp_path: Path) -> None:
    root = debian(tmp_path)
    put(root, "/etc/systemd/system/multi-user.target.wants/tuned.service", "")
    put(root, "/etc/tuned/active_profile", "site\n")
    put(root, "/etc/tuned/site/tuned.conf", '[bootloader]\ncmdline_site="iommu=soft quiet"\n')
    rival = {"owner": "tuned profile site", "where": "/etc/tuned/site/tuned.conf:2", "value": "soft", "wins": False}
    assert only(tune(root, PT, check=True))["conflicts"] == [rival]


def test_a_line_that_somebody_added_to_our_drop_in_is_a_conflict(tmp_path: Path) -> None:
    root = debian(tmp_path)
    tune(root, PT)
    put(root, f"/{DROP_IN}", (root / DROP_IN).read_text().replace("iommu=pt", "iommu=strict"))
    assert states(undo(root)) == {"cmdline.iommu": "conflict"}
    assert "iommu=strict" in (root / DROP_IN).read_text()
    assert states(undo(root, force=True)) == {"cmdline.iommu": "ok"}
    assert not (root / DROP_IN).exists()


def test_grubby_replaces_another_value_and_undo_brings_it_back(tmp_path: Path) -> None:
    root = red_hat(tmp_path, "root=/dev/sda1 ro iommu=off")
    assert only(tune(root, PT))["was"] == {"now": "absent", "boot": "off"}
    assert set(entries(root)) == {"options root=/dev/sda1 ro iommu=pt"}
    undo(root)
    assert set(entries(root)) == {"options root=/dev/sda1 ro iommu=off"}


def test_a_kernel_that_was_installed_since_gets_the_argument_too_and_undo_takes_it_from_all(tmp_path: Path) -> None:
    root = red_hat(tmp_path)
    tune(root, PT)
    newer = "5.14.0-570.el9.x86_64"
    put(root, f"/boot/loader/entries/4f1c-{newer}.conf", ENTRY.format(newer, "root=/dev/sda1 ro"))
    reading = only(tune(root, PT, check=True))
    assert (reading["state"], reading["boot"]) == ("differs", "pt on 2 of 3 kernels")
    tune(root, PT)
    assert all("iommu=pt" in line for line in entries(root))
    undo(root)
    assert not any("iommu" in line for line in entries(root))


@pytest.mark.parametrize("options", ["root=/dev/sda1 iommu=off", "root=/dev/sda1 iommu=soft iommu=off"])
def test_arguments_that_differ_between_kernels_are_refused(tmp_path: Path, options: str) -> None:
    root = red_hat(tmp_path)
    put(root, f"/boot/loader/entries/4f1c-{KERNELS[0]}.conf", ENTRY.format(KERNELS[0], options))
    reading = only(tune(root, PT))
    assert reading["state"] == "refused"
    assert "(absent | " in reading["reason"]
    assert "iommu=off" in entries(root)[1]


def test_arguments_that_rhel_8_keeps_in_grubs_environment_count(tmp_path: Path) -> None:
    root = red_hat(tmp_path, "$kernelopts $tuned_params")
    block = "# GRUB Environment Block\nkernelopts=root=/dev/sda1 ro iommu=pt \ntuned_params=\n"
    put(root, "/boot/grub2/grubenv", block.ljust(1024, "#"))
    reading = only(tune(root, PT))
    assert (reading["state"], reading["boot"]) == ("pending", "pt")


def test_right_arguments_are_read_without_starting_a_program(tmp_path: Path) -> None:
    root = red_hat(tmp_path)
    tune(root, PT)
    program(root, "grubby", "#!/bin/sh\nexit 1\n")
    assert states(tune(root, PT)) == {"cmdline.iommu": "pending"}


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/run/systemd/container", "a container has no kernel of its own"),
        ("/boot/efi/loader/loader.conf", "this host boots by systemd-boot"),
        ("/boot/extlinux/extlinux.conf", "this host boots by extlinux"),
        ("/run/ostree-booted", "this host boots by an image updated as a whole (ostree)"),
    ],
)
def test_a_host_that_boots_otherwise_cannot_have_arguments(tmp_path: Path, path: str, reason: str) -> None:
    root = debian(tmp_path)
    put(root, path, "\n")
    reading = only(tune(root, PT))
    assert (reading["state"], reading["reason"]) == ("unsupported", reason)


def test_a_host_without_a_boot_loader_of_its_own_cannot_have_arguments(tmp_path: Path) -> None:
    assert only(tune(small_server(tmp_path), PT))["reason"].startswith("this host boots by neither GRUB")


def test_a_grub_cfg_without_entries_is_unknown(tmp_path: Path) -> None:
    root = debian(tmp_path)
    put(root, f"/{CONFIG}", "### BEGIN /etc/grub.d/10_linux ###\n### END /etc/grub.d/10_linux ###\n")
    reading = only(tune(root, PT))
    assert (reading["state"], reading["reason"]) == ("unknown", "/boot/grub/grub.cfg has no entry that boots Linux")


def test_entries_of_other_systems_on_the_disk_do_not_count(tmp_path: Path) -> None:
    root = debian(tmp_path)
    tune(root, PT)
    other = "### BEGIN /etc/grub.d/30_os-prober ###\nmenuentry 'Arch' {\n\tlinux /boot/vmlinuz root=/dev/sdb1\n}\n"
    text = (root / CONFIG).read_text().replace("### BEGIN /etc/grub.d/30_os-prober ###\n", other)
    put(root, f"/{CONFIG}", text)
    assert only(tune(root, PT))["boot"] == "pt"


@pytest.mark.parametrize(
    ("cpus", "reason"),
    [("0-3", "leaves no processor"), ("2-64", "names processors that do not exist")],
)
def test_processors_are_left_for_everything_else(tmp_path: Path, cpus: str, reason: str) -> None:
    root = debian(tmp_path)
    put(root, "/sys/devices/system/cpu/present", "0-3\n")
    reading = only(tune(root, {"cmdline.isolcpus": cpus}))
    assert reading["state"] == "refused"
    assert reason in reading["reason"]
    assert only(tune(root, {"cmdline.isolcpus": "domain,1-3"}))["state"] == "pending"


def two_sockets(tmp_path: Path, cores: int) -> Path:
    """A host of two NUMA nodes whose cores have two threads, the second half of the numbers."""
    root = debian(tmp_path)
    for node in range(2):
        first = range(node * cores, (node + 1) * cores)
        threads = [*first, *(cpu + 2 * cores for cpu in first)]
        put(root, f"/sys/devices/system/node/node{node}/cpulist", ",".join(map(str, threads)) + "\n")
        for cpu in first:
            for thread in (cpu, cpu + 2 * cores):
                base = f"/sys/devices/system/cpu/cpu{thread}/topology"
                put(root, f"{base}/thread_siblings_list", f"{cpu},{cpu + 2 * cores}\n")
    put(root, "/sys/devices/system/cpu/present", f"0-{4 * cores - 1}\n")
    return root


@pytest.mark.parametrize(
    ("cores", "system", "rest"),
    [(48, "0-3,48-51,96-99,144-147", "4-47,52-95,100-143,148-191"), (2, "0,2,4,6", "1,3,5,7")],
)
def test_whole_cores_of_each_node_are_isolated(tmp_path: Path, cores: int, system: str, rest: str) -> None:
    root = two_sockets(tmp_path, cores)
    knobs = {"cmdline.isolcpus": "managed_irq,isolated", "cmdline.irqaffinity": "housekeeping"}
    answer = tune(root, knobs)
    assert [k["desired"] for k in answer["knobs"]] == [f"managed_irq,{rest}", system]
    assert states(answer) == dict.fromkeys(knobs, "pending")
    assert changed(tune(root, knobs)) == set()


def test_a_host_of_one_core_a_node_isolates_none(tmp_path: Path) -> None:
    reading = only(tune(two_sockets(tmp_path, 1), {"cmdline.nohz_full": "isolated"}))
    assert (reading["state"], "too few cores" in reading["reason"]) == ("unsupported", True)


@pytest.mark.parametrize(
    ("name", "value", "normal"),
    [
        ("iommu", "pt", "pt"),
        ("init_on_alloc", 0, "0"),
        ("init-on-alloc", "1", "1"),
        ("nosmt", True, "present"),
        ("nosmt", "force", "force"),
        ("intel_iommu", True, "on"),
        ("mitigations", False, "off"),
        ("pcie_aspm.policy", "performance", "performance"),
        ("somethingnew", "present", "present"),
        ("isolcpus", "managed_irq,domain,1-31,33-63:1/2", "managed_irq,domain,1-31,33-63:1/2"),
    ],
)
def test_values_are_taken_as_the_kernel_writes_them(name: str, value: object, normal: str) -> None:
    value_type = kind.type_of(name)
    assert value_type is not None
    assert value_type.check(value) == normal
    assert value_type.check(normal) == normal


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("iommu", "pt; reboot", "one line of text"),
        ("mitigations", 'off"', "letters, digits"),
        ("mitigations", "$(id)", "letters, digits"),
        ("mitigations", "off quiet", "letters, digits"),
        ("mitigations", "", "letters, digits"),
        ("isolcpus", "two", "list of processors"),
        ("init_on_alloc", 2, "between 0 and 1"),
        ("console", "ttyS0", "several times"),
        ("hugepagesz", "1G", "several times"),
        ("rd.driver.blacklist", "nouveau", "several times"),
        ("root", "/dev/sda1", "belongs to the boot loader"),
    ],
)
def test_an_argument_that_could_break_the_line_or_the_boot_is_refused(name: str, value: object, wrong: str) -> None:
    value_type = kind.type_of(name)
    assert value_type is not None
    with pytest.raises(ValueError, match=wrong):
        value_type.check(value)


@pytest.mark.parametrize("name", ["transparent_hugepage", "hugepages", "", "a b", "a=b", "$x", "ä"])
def test_an_invalid_name_or_one_of_another_knob_is_unknown(name: str) -> None:
    assert kind.type_of(name) is None


def test_a_line_is_read_as_the_kernel_reads_it() -> None:
    arguments = kernel_line.split('ro dyndbg="file a.c +p" init-on-alloc=1 iommu=soft init_on_alloc=0 nosmt iommu')
    assert kernel_line.value(arguments, "dyndbg") == '"file a.c +p"'
    assert kernel_line.values(arguments, "init_on_alloc") == ["1", "0"]
    assert kernel_line.value(arguments, "iommu") == kernel_line.value(arguments, "nosmt") == "present"
    assert kernel_line.value(arguments, "alloc") is None
