"""Other owners of a kernel parameter, and whose value is in force after a reboot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rig.trees.host import content, link, put, small_server, states, tune, undo

SWAPPINESS = {"sysctl.vm.swappiness": "1"}
WANTS = "/etc/systemd/system/multi-user.target.wants"
UNIT = "/etc/systemd/system/site.service"
INSTALL = "[Install]\nWantedBy=multi-user.target\n"
ALWAYS = {"thp.enabled": "always"}
THP = "/sys/kernel/mm/transparent_hugepage/enabled"


def only(answer: dict[str, Any]) -> dict[str, Any]:
    """The single knob of an answer."""
    (knob,) = [k for k in answer["knobs"] if not k["knob"].startswith("program.")]
    return dict(knob)


def unit(root: Path, command: str, enabled: bool = True, install: str = INSTALL) -> None:
    """Give the host a service with this command line."""
    put(root, UNIT, f"[Service]\nType=oneshot\nExecStart={command}\n{install}")
    if enabled:
        link(root, f"{WANTS}/site.service", UNIT)


@pytest.mark.parametrize(
    "command",
    [
        "/sbin/sysctl -w vm.swappiness=60",
        '/sbin/sysctl -q "vm/swappiness=60"',
        "/bin/sh -c 'echo 60 > /proc/sys/vm/swappiness'",
        "/bin/sh -c 'printf \"60\\n\" | tee -a /proc/sys/vm/swappiness'",
        "/bin/sh -c 'sysctl vm.max_map_count=1; \\\n  sysctl -w vm.swappiness=60'",
        "/usr/local/bin/site.sh --now",
        "/sbin/sysctl -p /etc/site-sysctls",
    ],
)
def test_a_service_that_sets_the_parameter_at_boot_wins(tmp_path: Path, command: str) -> None:
    root = small_server(tmp_path)
    put(root, "/usr/local/bin/site.sh", "#!/bin/sh\n# vm.swappiness=1\nsysctl -w vm.swappiness=60\n", 0o755)
    put(root, "/etc/site-sysctls", "vm.swappiness = 60\n")
    unit(root, command)
    for _ in range(2):
        knob = only(tune(root, SWAPPINESS))
        assert (knob["state"], knob["now"], knob["boot"]) == ("contested", "1", "60")
        assert [c["wins"] for c in knob["conflicts"]] == [True]


@pytest.mark.parametrize(
    "command",
    [
        "/sbin/sysctl -w vm.swappiness=1 vm.max_map_count=60",
        "/bin/sh -c 'echo 1 >/proc/sys/vm/swappiness'",
        "/sbin/sysctl -w vm.swappiness_of_mine=60",
        "/usr/bin/large",
    ],
)
def test_a_service_that_sets_the_same_value_or_another_parameter_is_no_rival(tmp_path: Path, command: str) -> None:
    root = small_server(tmp_path)
    put(root, "/usr/bin/large", "\x7fELF vm.swappiness=60\n", 0o755)
    unit(root, command)
    knob = only(tune(root, SWAPPINESS))
    assert (knob["state"], knob["conflicts"]) == ("ok", [])


def test_a_value_of_several_numbers_is_compared_as_a_whole(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456\n")
    unit(root, '/sbin/sysctl -w "net.ipv4.tcp_rmem=4096 131072 33554432"')
    knob = {"sysctl.net.ipv4.tcp_rmem": "4096 131072 33554432"}
    assert states(tune(root, knob)) == {"sysctl.net.ipv4.tcp_rmem": "ok"}
    unit(root, '/sbin/sysctl -w net.ipv4.tcp_rmem="4096 87380 6291456"', enabled=False)
    assert only(tune(root, knob))["boot"] == "4096 87380 6291456"


def test_a_disabled_service_is_named_and_loses(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    unit(root, "/sbin/sysctl -w vm.swappiness=60", enabled=False)
    knob = only(tune(root, SWAPPINESS))
    assert (knob["state"], [c["wins"] for c in knob["conflicts"]]) == ("ok", [False])


def test_services_of_a_timer_a_package_or_a_drop_in_win(tmp_path: Path) -> None:
    timed, packaged, changed = (small_server(tmp_path / name) for name in ("timed", "packaged", "changed"))
    unit(timed, "/sbin/sysctl -w vm.swappiness=60", enabled=False, install="")
    link(timed, "/etc/systemd/system/timers.target.wants/site.timer", "/etc/systemd/system/site.timer")
    put(packaged, "/usr/lib/systemd/system/vendor.service", f"[Service]\nExecStart=sysctl vm.swappiness=60\n{INSTALL}")
    link(packaged, f"{WANTS}/vendor.service", "/usr/lib/systemd/system/vendor.service")
    put(changed, "/usr/lib/systemd/system/vendor.service", f"[Service]\nExecStart=vendor\n{INSTALL}")
    put(changed, "/etc/systemd/system/vendor.service.d/site.conf", "[Service]\nExecStartPre=sysctl vm.swappiness=60\n")
    link(changed, f"{WANTS}/vendor.service", "/usr/lib/systemd/system/vendor.service")
    for root in (timed, packaged, changed):
        assert only(tune(root, SWAPPINESS))["state"] == "contested", root


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/tmpfiles.d/site.conf", "w! /proc/sys/vm/swappiness - - - - 60\n"),
        ("/usr/lib/tmpfiles.d/site.conf", "w /proc/sys/vm/swap* - - - - 60\n"),
        ("/usr/local/lib/tmpfiles.d/site.conf", "w /proc/sys/vm/swappiness - - - - 60\\n\n"),
        ("/etc/tmpfiles.d/site.conf", "f+ /proc/sys/vm/swappiness - - - - 60\n"),
        ("/etc/rc.local", "#!/bin/sh\nsysctl -w vm.swappiness=60\n"),
        ("/etc/cron.d/site", "@reboot root /sbin/sysctl -w vm.swappiness=60\n"),
    ],
)
def test_tmpfiles_cron_and_rc_local_win(tmp_path: Path, path: str, text: str) -> None:
    root = small_server(tmp_path)
    put(root, path, text, 0o755)
    knob = only(tune(root, SWAPPINESS))
    assert (knob["state"], knob["boot"]) == ("contested", "60")
    put(root, path, text.replace("60", "1"), 0o755)
    assert only(tune(root, SWAPPINESS))["state"] == "ok"


def test_lines_of_sysctl_conf_are_commented_out_and_put_back(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    text = "# ours\n  vm/swappiness=60\nvm.swappiness = 1\r\nvm.max_map_count=9\n"
    put(root, "/etc/sysctl.conf", text, 0o640)
    before = content(root)
    assert only(tune(root, SWAPPINESS, check=True))["state"] == "differs"
    assert content(root) == before
    assert only(tune(root, SWAPPINESS))["state"] == "ok"
    assert (root / "etc/sysctl.conf").read_text() == text.replace("  vm/", "#gpuctl#   vm/").replace("\r", "")
    assert (root / "etc/sysctl.conf").stat().st_mode & 0o777 == 0o640
    assert only(tune(root, SWAPPINESS))["changed"] is False
    undo(root)
    assert content(root) == before


def test_a_linked_sysctl_conf_stays_a_link(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/site/sysctls", "vm.swappiness=60\n")
    link(root, "/etc/sysctl.conf", "site/sysctls")
    assert only(tune(root, SWAPPINESS))["state"] == "ok"
    assert (root / "etc/site/sysctls").read_text() == "#gpuctl# vm.swappiness=60\n"
    undo(root)
    assert (root / "etc/sysctl.conf").is_symlink()
    assert (root / "etc/site/sysctls").read_text() == "vm.swappiness=60\n"


PAIRS = [("dirty_bytes", "dirty_ratio"), ("dirty_background_ratio", "dirty_background_bytes")]
PAIRS += [("overcommit_kbytes", "overcommit_ratio")]


@pytest.mark.parametrize(("key", "twin"), PAIRS)
def test_the_other_key_of_a_pair_wins_where_it_is_set_later(tmp_path: Path, key: str, twin: str) -> None:
    root = small_server(tmp_path)
    put(root, f"/proc/sys/vm/{key}", "90\n")
    put(root, f"/proc/sys/vm/{twin}", "0\n")
    put(root, "/etc/sysctl.d/10-site.conf", f"vm.{key} = 90\n")
    put(root, "/etc/sysctl.d/20-site.conf", f"vm.{twin} = 40\n")
    put(root, "/etc/sysctl.conf", f"vm.{twin}=0\nvm.{twin}=40\n")
    knob = {f"sysctl.vm.{key}": "90"}
    assert only(tune(root, knob, check=True))["boot"] == f"vm.{twin}=40"
    assert only(tune(root, knob))["state"] == "ok"
    assert (root / "etc/sysctl.conf").read_text() == f"vm.{twin}=0\n#gpuctl# vm.{twin}=40\n"
    put(root, "/etc/sysctl.d/zzz.conf", f"vm.{twin} = 40\n")
    assert (only(tune(root, knob))["state"], only(tune(root, knob))["boot"]) == ("contested", f"vm.{twin}=40")


ALIASES = [
    ("net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding"),
    ("net.netfilter.nf_conntrack_max", "net.nf_conntrack_max"),
    ("vm.nr_hugepages", "vm.nr_hugepages_mempolicy"),
    ("kernel.nmi_watchdog", "kernel.watchdog"),
    ("kernel.soft_watchdog", "kernel.watchdog"),
]


@pytest.mark.parametrize(("key", "alias"), ALIASES)
def test_another_name_of_the_value_is_compared_in_every_file(tmp_path: Path, key: str, alias: str) -> None:
    root = small_server(tmp_path)
    put(root, f"/proc/sys/{key.replace('.', '/')}", "1\n")
    put(root, "/etc/sysctl.conf", f"{alias} = 1\n")
    knob = {f"sysctl.{key}": "0"}
    assert only(tune(root, knob))["state"] == "ok"
    assert (root / "etc/sysctl.conf").read_text() == f"#gpuctl# {alias} = 1\n"
    put(root, "/etc/sysctl.d/zzz.conf", f"{alias} = 0\n")
    assert (only(tune(root, knob))["state"], only(tune(root, knob))["conflicts"]) == ("ok", [])
    put(root, "/etc/sysctl.d/zzz.conf", f"{alias} = 1\n")
    assert (only(tune(root, knob))["state"], only(tune(root, knob))["boot"]) == ("contested", "1")
    (root / "etc/sysctl.d/zzz.conf").unlink()
    unit(root, f"/sbin/sysctl -w {alias}=1")
    assert only(tune(root, knob))["state"] == "contested"


@pytest.mark.parametrize("reapply", ["1", "0"])
def test_the_other_key_of_a_pair_in_tuned_wins_unless_tuned_applies_our_file_again(
    tmp_path: Path, reapply: str
) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/sys/vm/dirty_bytes", "8192\n")
    put(root, "/proc/sys/vm/dirty_ratio", "0\n")
    put(root, "/etc/systemd/system/multi-user.target.wants/tuned.service", "")
    put(root, "/etc/tuned/active_profile", "site\n")
    put(root, "/etc/tuned/site/tuned.conf", "[sysctl]\nvm.dirty_ratio=40\n")
    put(root, "/etc/tuned/tuned-main.conf", f"reapply_sysctl = {reapply}\n")
    knob = only(tune(root, {"sysctl.vm.dirty_bytes": "8192"}))
    assert knob["state"] == {"1": "ok", "0": "contested"}[reapply]


def test_a_line_behind_ours_in_our_file_wins_and_one_that_sorts_before_it_loses(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/sysctl.d/50-site.conf", "vm.swappiness = 30\n")
    assert [c["wins"] for c in only(tune(root, SWAPPINESS, check=True))["conflicts"]] == [False]
    tune(root, SWAPPINESS)
    ours = root / "etc/sysctl.d/99-zz-gpuctl.conf"
    ours.write_text(ours.read_text() + "vm.swappiness = 40\n")
    knob = only(tune(root, SWAPPINESS))
    assert (knob["state"], knob["boot"]) == ("contested", "40")


@pytest.mark.parametrize("value", ["always", "never"])
def test_an_echo_of_the_desired_value_is_no_rival(tmp_path: Path, value: str) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/rc.local", f"#!/bin/sh\necho {value} > {THP}\n", 0o755)
    knob = only(tune(root, ALWAYS))
    assert knob["state"] == {"always": "ok", "never": "contested"}[value]
