"""Every place from which others set kernel values at boot or later, and whose value is in force then."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.startup import hugeadm, search
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.startup.lines import ConfigLine, StartupLine

from tests.rig.trees.host import link, program, put, small_server, tune

SWAPPINESS = {"sysctl.vm.swappiness": "1"}
WANTS = "/etc/systemd/system/multi-user.target.wants"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
SET = "sysctl -w vm.swappiness=60"
SCRIPT = f"#!/bin/sh\n{SET}\n"
NM, NETWORKD = "NetworkManager.service", "networkd-dispatcher.service"


def knob(root: Path, knobs: dict[str, Any] | None = None) -> dict[str, Any]:
    """The single knob of a run."""
    (row,) = [k for k in tune(root, knobs or SWAPPINESS)["knobs"] if not k["knob"].startswith("program.")]
    return dict(row)


def places(row: dict[str, Any]) -> list[tuple[str, str, bool]]:
    return [(c["owner"], c["where"], c["wins"]) for c in row["conflicts"]]


@pytest.mark.parametrize(
    ("owner", "path", "text", "line"),
    [
        ("udev", "/etc/udev/rules.d/60-site.rules", 'KERNEL=="sda", SYSCTL{vm/swappiness}="60"\n', 1),
        ("udev", "/usr/lib/udev/rules.d/60-x.rules", 'SUBSYSTEM=="net", \\\n  SYSCTL{vm.swappiness}:="60"\n', 1),
        ("udev", "/etc/udev/rules.d/60-site.rules", f'ACTION=="add", RUN+="/sbin/{SET}"\n', 1),
        (
            "udev",
            "/run/udev/rules.d/60-x.rules",
            "RUN{program}+=\"/bin/sh -c 'echo 60 > /proc/sys/vm/swappiness'\"\n",
            1,
        ),
        ("cron", "/etc/cron.daily/site", SCRIPT, 2),
        ("cron", "/etc/cron.hourly/site", SCRIPT, 2),
        ("cron", "/etc/anacrontab", f"1 5 site {SET}\n", 1),
        ("cron", "/var/spool/cron/root", f"@reboot {SET}\n", 1),
        ("cron", "/var/spool/cron/crontabs/root", f"* * * * * {SET}\n", 1),
        ("cron", "/var/spool/cron/crontabs/ada", f"@reboot sudo {SET}\n", 1),
        ("cloud-init", "/etc/cloud/cloud.cfg.d/99.cfg", f"bootcmd:\n  - {SET}\n", 2),
        ("cloud-init", "/var/lib/cloud/instance/cloud-config.txt", "bootcmd:\n- - sysctl\n  - vm.swappiness=60\n", 3),
        ("cloud-init", "/var/lib/cloud/scripts/per-boot/site.sh", SCRIPT, 2),
        ("cloud-init", "/var/lib/cloud/instance/boothooks/part-001", SCRIPT, 2),
        ("modprobe.d", "/etc/modprobe.d/x.conf", f"install x /sbin/modprobe -i x; {SET}\n", 1),
        ("network hook", "/etc/dhcp/dhclient-exit-hooks.d/site", f"{SET}\n", 1),
    ],
)
def test_an_owner_that_sets_it_after_us_wins(tmp_path: Path, owner: str, path: str, text: str, line: int) -> None:
    root = small_server(tmp_path)
    put(root, path, text, 0o755)
    row = knob(root)
    assert (row["state"], row["boot"]) == ("contested", "60")
    assert places(row) == [(owner, f"{path}:{line}", True)]


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/etc/NetworkManager/dispatcher.d/50-site", NM),
        ("/usr/lib/NetworkManager/dispatcher.d/pre-up.d/50-site", NM),
        ("/etc/networkd-dispatcher/routable.d/50-site", NETWORKD),
    ],
)
def test_a_hook_of_a_network_service_wins_where_the_service_starts(tmp_path: Path, path: str, unit: str) -> None:
    root = small_server(tmp_path)
    put(root, path, SCRIPT, 0o755)
    assert (knob(root)["state"], [wins for *_, wins in places(knob(root))]) == ("ok", [False])
    link(root, f"{WANTS}/{unit}", f"/usr/lib/systemd/system/{unit}")
    assert knob(root)["state"] == "contested"
    (root / path.lstrip("/")).chmod(0o644)
    assert knob(root)["state"] == "ok"


def test_a_hook_in_etc_hides_that_of_a_package(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    link(root, f"{WANTS}/{NM}", f"/usr/lib/systemd/system/{NM}")
    put(root, "/usr/lib/NetworkManager/dispatcher.d/50-site", SCRIPT, 0o755)
    link(root, "/etc/NetworkManager/dispatcher.d/50-site", "/dev/null")
    assert (knob(root)["state"], knob(root)["conflicts"]) == ("ok", [])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/network/interfaces", f"auto eth0\niface eth0 inet dhcp\n  post-up {SET} || true\n"),
        ("/etc/network/interfaces.d/eth0", f"iface eth0 inet dhcp\n  up {SET}\n"),
        ("/etc/network/interfaces.d/eth0", "iface eth0 inet dhcp\n  pre-up /opt/site/tune.sh eth0\n"),
        ("/etc/network/if-up.d/site", SCRIPT),
    ],
)
def test_commands_of_ifupdown_win_where_it_is_installed(tmp_path: Path, path: str, text: str) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/network/interfaces", "source interfaces.d/*\n")
    put(root, "/opt/site/tune.sh", SCRIPT, 0o755)
    put(root, path, text, 0o755)
    assert knob(root)["state"] == "ok"
    program(root, "ifup")
    assert (knob(root)["state"], knob(root)["boot"]) == ("contested", "60")


def test_a_sysv_script_wins_unless_a_unit_of_its_name_replaces_it(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/init.d/site", f"#!/bin/sh\ncase $1 in start) {SET};; esac\n", 0o755)
    assert knob(root)["state"] == "ok"
    link(root, "/etc/rc3.d/S05site", "../init.d/site")
    assert places(knob(root)) == [("init.d", "/etc/rc3.d/S05site:2", True)]
    put(root, "/usr/lib/systemd/system/site.service", "[Service]\nExecStart=/bin/true\n")
    assert knob(root)["state"] == "ok"


def test_a_timer_starts_the_service_that_it_names(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/usr/lib/systemd/system/tune.service", f"[Service]\nExecStart=/sbin/{SET}\n")
    put(root, "/etc/systemd/system/site.timer", "[Timer]\nOnBootSec=60\nUnit=tune.service\n")
    assert knob(root)["conflicts"] == []
    link(root, "/etc/systemd/system/timers.target.wants/site.timer", "/etc/systemd/system/site.timer")
    assert (knob(root)["state"], knob(root)["boot"]) == ("contested", "60")


@pytest.mark.parametrize("folder", ["/etc/systemd/system", "/usr/lib/systemd/system"])
@pytest.mark.parametrize(
    ("command", "where", "value"),
    [
        ("/sbin/sysctl -w vm.swappiness=%i", "{unit}:2", "60"),
        ("/usr/local/bin/%p.sh", "/usr/local/bin/tune.sh:2", "60"),
        ("/usr/bin/sh %E/tune/%I", "/etc/tune/60:1", "60"),
        ("/bin/sh -c 'sysctl -w vm.swappiness=%%i'", "{unit}:2", "%i"),
        ("/usr/local/bin/%x.sh", "", ""),
    ],
)
def test_an_instance_of_a_template_runs_the_commands_with_its_names(
    tmp_path: Path, folder: str, command: str, where: str, value: str
) -> None:
    root = small_server(tmp_path)
    unit = f"{folder}/tune@.service"
    put(root, unit, f"[Service]\nExecStart={command}\n[Install]\nWantedBy=multi-user.target\n")
    put(root, "/usr/local/bin/tune.sh", SCRIPT, 0o755)
    put(root, "/etc/tune/60", f"{SET}\n")
    assert knob(root)["state"] == "ok"
    link(root, f"{WANTS}/tune@60.service", unit)
    row = knob(root)
    assert [(c["owner"], c["where"]) for c in row["conflicts"]] == (
        [("unit", where.format(unit=unit))] if where else []
    )
    assert all(value in c["value"] for c in row["conflicts"])


def test_a_drop_in_does_not_hide_the_packages_unit_that_it_adds_to(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/usr/lib/systemd/system/tune.service", f"[Service]\nExecStart=/sbin/{SET}\n")
    link(root, f"{WANTS}/tune.service", "/usr/lib/systemd/system/tune.service")
    put(root, "/etc/systemd/system/tune.service.d/limits.conf", "[Service]\nLimitNOFILE=1024\n")
    assert [c["where"] for c in knob(root)["conflicts"]] == ["/usr/lib/systemd/system/tune.service:2"]


def test_each_instance_of_a_template_is_one_unit_and_has_the_drop_ins_of_both(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    unit = "/usr/lib/systemd/system/tune@.service"
    put(root, unit, f"[Service]\nExecStart=/bin/sh -c 'echo %i > {THP}'\n")
    for instance in ("never", "madvise"):
        link(root, f"{WANTS}/tune@{instance}.service", unit)
    put(root, "/etc/systemd/system/tune@madvise.service.d/late.conf", "[Unit]\nAfter=multi-user.target\n")
    row = knob(root, {"thp.enabled": "always"})
    assert sorted((c["value"].split()[3], c["wins"]) for c in row["conflicts"]) == [("madvise", True), ("never", False)]


@pytest.mark.parametrize("option", ["Wants", "Requires", "Upholds", ""])
def test_a_unit_that_a_started_unit_names_starts_although_it_is_not_enabled(tmp_path: Path, option: str) -> None:
    root = small_server(tmp_path)
    install = "[Install]\nWantedBy=multi-user.target\n"
    put(root, "/etc/systemd/system/site.service", f"[Service]\nExecStart=/sbin/{SET}\n{install}")
    put(root, "/usr/lib/systemd/system/job.service", "[Unit]\nWants=site.target\n[Service]\nExecStart=/bin/true\n")
    put(root, "/etc/systemd/system/site.target", f"[Unit]\n{option}=other.service site.service\n")
    link(root, f"{WANTS}/job.service", "/usr/lib/systemd/system/job.service")
    assert knob(root)["state"] == ("contested" if option else "ok")


def test_a_unit_that_another_one_upholds_starts(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/systemd/system/site.service", f"[Service]\nExecStart=/sbin/{SET}\n[Install]\nUpheldBy=x.service\n")
    assert knob(root)["state"] == "ok"
    link(root, "/etc/systemd/system/x.service.upholds/site.service", "/etc/systemd/system/site.service")
    assert knob(root)["state"] == "contested"


@pytest.mark.parametrize(
    ("unit", "wins"),
    [
        ("[Service]\nExecStart=/bin/sh -c 'echo never > {}'\n", False),
        ("[Unit]\nAfter=network.target multi-user.target\n[Service]\nExecStart=/bin/sh -c 'echo never > {}'\n", True),
        ("[Service]\nExecStart=/bin/sh -c 'sleep 90; echo never > {}'\n", True),
        ("[Service]\nExecStart=/bin/sh -c 'sleep 2; echo never > {}'\n", False),
        ("[Service]\nExecStart=/bin/sh -c 'sleep $DELAY; echo never > {}'\n", True),
        ("[Service]\nType=idle\nExecStart=/bin/sh -c 'echo never > {}'\n", True),
    ],
)
def test_a_unit_that_waits_ends_after_gpuctl_boot(tmp_path: Path, unit: str, wins: bool) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/systemd/system/site.service", unit.format(THP) + "[Install]\nWantedBy=multi-user.target\n")
    link(root, f"{WANTS}/site.service", "/etc/systemd/system/site.service")
    row = knob(root, {"thp.enabled": "always"})
    assert (row["state"], [c["wins"] for c in row["conflicts"]]) == ("contested" if wins else "ok", [wins])


def test_a_script_of_the_active_tuned_profile_wins_over_sysctl_files(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, f"{WANTS}/tuned.service", "")
    put(root, "/etc/tuned/active_profile", "site\n")
    put(root, "/etc/tuned/site/tuned.conf", "[script]\nscript=${i:PROFILE_DIR}/start.sh\n")
    put(root, "/etc/tuned/site/start.sh", SCRIPT, 0o755)
    assert places(knob(root)) == [("tuned profile site", "/etc/tuned/site/start.sh:2", True)]
    put(root, "/etc/tuned/site/tuned.conf", "[script]\nscript=start.sh\n")
    assert knob(root)["state"] == "contested"


def test_ufw_applies_its_sysctl_file_where_it_is_on(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/sys/net/ipv4/conf/all/rp_filter", "2\n")
    put(root, "/etc/ufw/sysctl.conf", "net/ipv4/conf/all/rp_filter=1\n")
    put(root, "/etc/ufw/ufw.conf", "ENABLED=no\n")
    knobs = {"sysctl.net.ipv4.conf.all.rp_filter": "2"}
    assert knob(root, knobs)["state"] == "ok"
    put(root, "/etc/ufw/ufw.conf", "ENABLED=yes\n")
    assert (knob(root, knobs)["state"], knob(root, knobs)["boot"]) == ("contested", "1")


@pytest.mark.parametrize(
    ("path", "text", "mode"),
    [
        ("/etc/rc.local", SCRIPT, 0o644),
        ("/etc/cron.daily/site", SCRIPT, 0o644),
        ("/etc/cloud/cloud.cfg.d/99.cfg", f"runcmd:\n  - {SET}\n", 0o644),
        ("/var/lib/cloud/instance/cloud-config.txt", f"write_files:\n- content: |\n    {SET}\n", 0o644),
    ],
)
def test_what_does_not_run_at_the_next_boot_is_named_and_loses(tmp_path: Path, path: str, text: str, mode: int) -> None:
    root = small_server(tmp_path)
    put(root, path, text, mode)
    row = knob(root)
    assert (row["state"], [c["wins"] for c in row["conflicts"]]) == ("ok", [False])


def test_cloud_init_runs_once_only_modules_again_where_it_is_told_to_and_nothing_where_it_is_off(
    tmp_path: Path,
) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/cloud/cloud.cfg.d/99.cfg", f"cloud_final_modules:\n - [runcmd, always]\nruncmd:\n  - {SET}\n")
    assert knob(root)["state"] == "contested"
    put(root, "/etc/cloud/cloud-init.disabled", "")
    assert knob(root)["state"] == "ok"


@pytest.mark.parametrize(("family", "state"), [("debian", "ok"), ("rhel", "contested")])
def test_debians_cron_skips_names_with_a_dot(tmp_path: Path, family: str, state: str) -> None:
    root = small_server(tmp_path)
    if family == "debian":
        put(root, "/etc/debian_version", "12.5\n")
    put(root, "/etc/cron.daily/site.sh", SCRIPT, 0o755)
    assert knob(root)["state"] == state


@pytest.mark.parametrize(
    "text",
    [
        '#!/bin/sh\n[ "$(sysctl -n vm.swappiness)" = 1 ] || logger "swappiness is not 1"\n',
        "#!/bin/sh\ncat /proc/sys/vm/swappiness >> /var/log/site.log\n",
        "#!/bin/sh\nif [ -w /proc/sys/vm/swappiness ]; then true; fi\n",
        "#!/bin/sh\nread now < /proc/sys/vm/swappiness\n",
        "#!/usr/bin/python3\nprint(open('/proc/sys/vm/swappiness').read())\n",
        "#!/bin/sh\nsysctl vm.swappiness | mail root\n",
        "#!/bin/sh\n# sysctl -w vm.swappiness=60\n",
        "#!/bin/sh\ntrue  # not: sysctl -w vm.swappiness=60\n",
        "#!/bin/sh\nsysctl -a | grep vm.swappiness\n",
    ],
)
def test_a_script_that_only_reads_a_value_is_no_rival(tmp_path: Path, text: str) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/cron.daily/site", text, 0o755)
    assert (knob(root)["state"], knob(root)["conflicts"]) == ("ok", [])


@pytest.mark.parametrize(
    "text",
    [
        "sysctl -qw vm.swappiness=60 >/dev/null || true",
        "echo 60 | sudo tee /proc/sys/vm/swappiness >/dev/null",
        'echo "vm.swappiness=60" | sysctl -p -',
        "grep -q 1 /proc/sys/vm/swappiness || echo 60 >/proc/sys/vm/swappiness",
        "sysctl -n vm.swappiness; sysctl vm.swappiness=60",
        "echo 60 > /proc/sys/vm/swappiness; cat /proc/sys/vm/swappiness",
    ],
)
def test_the_ways_of_scripts_to_set_a_value_are_understood(tmp_path: Path, text: str) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/cron.daily/site", f"#!/bin/sh\n{text}\n", 0o755)
    assert (knob(root)["state"], knob(root)["boot"]) == ("contested", "60")


def test_a_write_after_a_test_and_one_whose_form_is_not_understood_are_rivals(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(
        root,
        "/etc/cron.daily/site",
        "#!/bin/sh\n[ -w /proc/sys/vm/swappiness ] && echo 60 > /proc/sys/vm/swappiness\n",
        0o755,
    )
    assert (knob(root)["state"], knob(root)["boot"]) == ("contested", "60")
    put(root, "/etc/cron.daily/site", "#!/bin/sh\ncp /etc/site/swappiness /proc/sys/vm/swappiness\n", 0o755)
    row = knob(root)
    assert (row["state"], row["boot"]) == ("contested", "cp /etc/site/swappiness /proc/sys/vm/swappiness")


@pytest.mark.parametrize(
    "text",
    [
        "file=/proc/sys/vm/swappiness\necho 60 > $file",
        'folder=/proc/sys/vm\nvalue=60\necho ${value} | tee "${folder}/swappiness"',
        "cd /proc/sys/vm\necho 60 > swappiness",
        "cd /proc/sys/vm && for name in overcommit_ratio swappiness; do echo 60 >$name; done",
        "(cd /proc/sys && cd vm && echo 60 >swappiness)",
        "pushd /proc/sys/vm >/dev/null; echo 60 > ./swappiness; popd",
        "echo 60 > ${FILE:-/proc/sys/vm/swappiness}",
        "key='vm.swappiness'; sysctl -w $key=60",
        'for file in /etc/site.d/*.conf; do sysctl -qp "$file"; done',
        "sysctl -p /etc/other.conf /etc/site.d/60-site.conf",
        "sysctl -p /etc/site.d/*.conf",
        "/usr/lib/systemd/systemd-sysctl /etc/site.d/60-site.conf",
        "sh -e /opt/plain",
        "/usr/bin/python3 -u /opt/site.py",
    ],
)
def test_names_in_parts_and_files_of_a_command_are_followed(tmp_path: Path, text: str) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/site.d/60-site.conf", "vm.swappiness = 60\n")
    put(root, "/etc/other.conf", "vm.max_map_count = 60\n")
    put(root, "/opt/plain", f"{SET}\n")
    put(root, "/opt/site.py", 'open("/proc/sys/vm/swappiness", "w").write("60")\n')
    put(root, "/etc/cron.daily/site", f"#!/bin/sh\n{text}\n", 0o755)
    row = knob(root)
    assert (row["state"], "60" in row["boot"]) == ("contested", True)
    put(root, "/etc/cron.daily/site", f"#!/bin/sh\n{text.replace('60', '1').replace('swappiness', 'other')}\n", 0o755)
    for path in ("/etc/site.d/60-site.conf", "/opt/plain", "/opt/site.py"):
        put(root, path, "vm.other = 60\n")
    assert knob(root)["state"] == "ok"


@pytest.mark.parametrize("text", ["cd /proc/sys/vm\ncd /tmp", "pushd /proc/sys/vm\npopd", "cd /proc/sys/vm\ncd ../net"])
def test_a_folder_that_a_script_has_left_does_not_count(tmp_path: Path, text: str) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/cron.daily/site", f"#!/bin/sh\n{text}\necho 60 > swappiness\n", 0o755)
    assert knob(root)["state"] == "ok"


def test_the_last_of_many_names_in_a_loop_counts_and_too_many_are_reported(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    loop = "for name in {}; do echo 60 > /proc/sys/vm/$name; done\n"
    names = [*(f"k{number}" for number in range(60)), "swappiness"]
    put(root, "/etc/cron.daily/site", f"#!/bin/sh\n{loop.format(' '.join(names))}", 0o755)
    assert knob(root)["state"] == "contested"
    searched = search.Search(Host(root))
    line = ConfigLine("cron", "/etc/crontab", 1, loop.format(" ".join(map(str, range(300)))))
    searched.with_named(StartupLine(line, runs=True, late=False))
    assert searched.unsearched == ["/etc/crontab:1 has a line that may be more than 256 commands"]


def test_a_decorative_line_behind_sysctl_p_does_not_hold_the_search_up(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/cron.daily/site", f"#!/bin/sh\nsysctl -p {'=-' * 200}\n: sysctl -p {' -' * 200} /\n", 0o755)
    assert knob(root)["state"] == "ok"


def test_a_line_that_may_fail_sets_the_value_all_the_same(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/site.conf", "-vm.swappiness = 60\n")
    put(root, "/etc/cron.daily/site", "#!/bin/sh\nsysctl -p /etc/site.conf\n", 0o755)
    assert (knob(root)["state"], knob(root)["boot"]) == ("contested", "60")


@pytest.mark.parametrize(
    "text",
    [
        "read value\ncd /proc/sys/vm\nvalue=1\necho $value > swappiness",
        "value=1; value=$1; echo $value > /proc/sys/vm/swappiness",
    ],
)
def test_a_value_that_a_script_computes_is_a_rival(tmp_path: Path, text: str) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/cron.daily/site", f"#!/bin/sh\n{text}\n", 0o755)
    assert knob(root)["state"] == "contested"


@pytest.mark.parametrize(
    "text",
    [
        "path=/sys/kernel/mm/transparent_hugepage\necho never > ${path}/enabled",
        "for file in /sys/kernel/mm/*transparent_hugepage/enabled; do echo never > $file; done",
        "echo never > /sys/kernel/mm/redhat_transparent_hugepage/enabled",
    ],
)
def test_the_usual_scripts_against_huge_pages_are_understood(tmp_path: Path, text: str) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/init.d/no-thp", f"#!/bin/sh\n{text}\n", 0o755)
    link(root, "/etc/rc3.d/S05no-thp", "../init.d/no-thp")
    row = knob(root, {"thp.enabled": "always"})
    assert (row["state"], "never" in row["boot"]) == ("contested", True)


@pytest.mark.parametrize(
    ("options", "name", "desired", "boot"),
    [
        ("--pool-pages-min 2MB:512", "sysctl.vm.nr_hugepages", "0", "512"),
        ("--pool-pages-min $SIZE:512", "sysctl.vm.nr_hugepages", "0", "unknown"),
        ("--pool-pages-mi 2M:512", "sysctl.vm.nr_hugepages", "0", "512"),
        ("--pool-pages-max 2MB:512", "sysctl.vm.nr_overcommit_hugepages", "0", "computed"),
        ("--pool-pages-min DEFAULT:1G --obey-mempolicy", "sysctl.vm.nr_hugepages", "0", "512"),
        ("--pool-pages-min=DEFAULT:+64", "sysctl.vm.nr_hugepages", "0", "+64"),
        ("--set-recommended-min_free_kbytes", "sysctl.vm.min_free_kbytes", "65536", "recommended"),
        ("--thp-never", "thp.enabled", "always", "--thp-never"),
    ],
)
def test_hugeadm_is_an_owner_of_what_its_options_set(
    tmp_path: Path, options: str, name: str, desired: str, boot: str
) -> None:
    for number, command in enumerate((f"/usr/bin/hugeadm {options}", "/usr/local/bin/pages")):
        root = small_server(tmp_path / str(number))
        put(root, "/proc/sys/vm/nr_hugepages", "0\n")
        put(root, "/proc/sys/vm/nr_overcommit_hugepages", "0\n")
        put(root, "/proc/meminfo", "MemTotal: 16000000 kB\nHugepagesize:       2048 kB\n")
        put(root, "/proc/sys/vm/min_free_kbytes", "65536\n")
        put(root, "/usr/local/bin/pages", f"#!/bin/sh\nhugeadm {options}\n", 0o755)
        put(root, "/etc/systemd/system/pages.service", f"[Service]\nExecStart={command}\n[Install]\n")
        link(root, f"{WANTS}/pages.service", "/etc/systemd/system/pages.service")
        put(root, "/etc/systemd/system/pages.service.d/late.conf", "[Unit]\nAfter=multi-user.target\n")
        row = knob(root, {name: desired})
        assert (row["state"], [c["wins"] for c in row["conflicts"]]) == ("contested", [True])
        assert boot in row["boot"]


@pytest.mark.parametrize(
    "options",
    [
        "--pool-list",
        "--pool-pages-min 1GB:4",
        "--pool-pages-min 2MB:0",
        "-d --pool-pages-min 2MB:8",
        "--dry --pool-pages-min 2MB:8",
    ],
)
def test_a_hugeadm_that_sets_the_same_or_nothing_is_no_owner(tmp_path: Path, options: str) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/sys/vm/nr_hugepages", "0\n")
    put(root, "/proc/meminfo", "Hugepagesize:       2048 kB\n")
    put(root, "/etc/cron.daily/pages", f"#!/bin/sh\nhugeadm {options}\n", 0o755)
    assert knob(root, {"sysctl.vm.nr_hugepages": "0"})["state"] == "ok"


@pytest.mark.parametrize(
    ("meminfo", "options", "boot"),
    [
        ("Hugepagesize:    1048576 kB\n", "--pool-pages-min 1GB:4", "4"),
        ("Hugepagesize:    1048576 kB\n", "--pool-pages-min DEFAULT:8G", "8"),
        ("Hugepagesize:    1048576 kB\n", "--pool-pages-min 2MB:512", ""),
        ("MemTotal: 16 kB\n", "--pool-pages-min DEFAULT:8G", "unknown"),
        ("MemTotal: 16 kB\n", "--pool-pages-min 2MB:512", "512"),
    ],
)
def test_hugeadm_counts_in_the_default_pages_of_the_host(tmp_path: Path, meminfo: str, options: str, boot: str) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/sys/vm/nr_hugepages", "0\n")
    put(root, "/proc/meminfo", meminfo)
    put(root, "/etc/cron.daily/pages", f"#!/bin/sh\nhugeadm {options}\n", 0o755)
    row = knob(root, {"sysctl.vm.nr_hugepages": "0"})
    assert row["state"] == ("contested" if boot else "ok")
    assert boot in row["boot"]


@pytest.mark.parametrize(
    ("options", "swap"),
    [
        ("--add-temp-swap=4", False),
        ("--add-temp-swap --persist", True),
        ("--persist --add-ramdisk-swap", True),
        ("--pool-pages-max 1GB:4", False),
        ("--p 2MB:4", False),
    ],
)
def test_hugeadm_leaves_swap_only_on_request_and_pools_of_other_pages_are_no_setting(options: str, swap: bool) -> None:
    page = hugeadm.page_size("Hugepagesize: 2048 kB\n")
    more = list(hugeadm.with_equivalents(f"hugeadm {options}", page))[1:]
    assert more == ([f"hugeadm {options} (= swapon )"] if swap else [])


def test_of_all_sysctl_files_only_those_behind_ours_win_again(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/sysctl.d/10-site.conf", "vm.swappiness = 60\n")
    put(root, "/etc/cron.daily/site", "#!/bin/sh\nsysctl -p /etc/sysctl.d/*.conf\n", 0o755)
    assert knob(root)["state"] == "ok"
    put(root, "/etc/cron.daily/site", "#!/bin/sh\nsysctl -p /etc/sysctl.d/10-site.conf\n", 0o755)
    assert knob(root)["state"] == "contested"


@pytest.mark.parametrize(
    ("text", "rival"),
    [
        ("for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done", True),
        ("for i in all eth0; do echo 0 > /proc/sys/net/ipv4/conf/$i/rp_filter; done", True),
        ("sysctl -w net.ipv4.conf.{all,default}.rp_filter=0", True),
        ("echo 0 > /proc/sys/net/ipv4/conf/$IFACE/rp_filter", False),
        ("echo 0 > /proc/sys/net/ipv4/conf/eth0/rp_filter", False),
    ],
)
def test_names_with_wildcards_are_compared(tmp_path: Path, text: str, rival: bool) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/sys/net/ipv4/conf/all/rp_filter", "2\n")
    put(root, "/etc/cron.daily/site", f"#!/bin/bash\n{text}\n", 0o755)
    assert knob(root, {"sysctl.net.ipv4.conf.all.rp_filter": "2"})["state"] == ("contested" if rival else "ok")


def test_a_script_that_a_script_runs_is_searched(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/cron.d/site", "@reboot root /opt/site/start\n")
    put(root, "/opt/site/start", "#!/bin/sh\nexec /opt/site/tune all\n", 0o755)
    put(root, "/opt/site/tune", "#!/bin/sh\n/opt/site/start\nsysctl -p /opt/site/values\n", 0o755)
    put(root, "/opt/site/values", "vm.swappiness = 60\n")
    assert places(knob(root)) == [("cron", "/opt/site/values:1", True)]


@pytest.mark.parametrize(
    ("path", "line"),
    [("/usr/local/sbin/tune", "@reboot root tune --all"), ("/opt/site/values", "@reboot root . /opt/site/values; run")],
)
def test_a_script_without_a_path_and_a_sourced_file_are_searched(tmp_path: Path, path: str, line: str) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/cron.d/site", f"{line}\n")
    put(root, path, SCRIPT if path.endswith("tune") else SET, 0o755)
    assert (knob(root)["state"], knob(root)["boot"]) == ("contested", "60")


def test_a_library_of_tuned_is_not_taken_for_what_a_profile_does(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/cron.d/site", "@reboot root . /usr/lib/tuned/functions; start\n")
    put(root, "/usr/lib/tuned/functions", SET)
    assert knob(root)["state"] == "ok"


@pytest.mark.parametrize(
    ("rule", "state"),
    [
        ('SUBSYSTEM=="block", ACTION=="add", ATTR{queue/read_ahead_kb}="128"\n', "ok"),
        ('SUBSYSTEM=="block", ACTION=="add|change", ATTR{queue/read_ahead_kb}="128"\n', "contested"),
        ('SUBSYSTEM=="block", ATTR{queue/read_ahead_kb}="128"\n', "contested"),
        ('SUBSYSTEM=="block", ATTR{queue/read_ahead_kb}=="128"\n', "ok"),
        ('SUBSYSTEM=="block", ATTR{queue/read_ahead_kb}="8192"\n', "ok"),
    ],
)
def test_a_rule_of_udev_wins_over_gpuctl_boot_where_it_is_applied_again(tmp_path: Path, rule: str, state: str) -> None:
    root = small_server(tmp_path)
    put(root, "/sys/block/sda/queue/read_ahead_kb", "4096\n")
    put(root, "/etc/udev/rules.d/60-site.rules", rule)
    assert knob(root, {"disk.read_ahead_kb": "4096"})["state"] == state


@pytest.mark.parametrize(("name", "state"), [("99-nfs.rules", "ok"), ("99-zzz.rules", "contested")])
def test_the_last_rule_for_nfs_wins(tmp_path: Path, name: str, state: str) -> None:
    root = small_server(tmp_path)
    put(root, f"/usr/lib/udev/rules.d/{name}", 'SUBSYSTEM=="bdi", ACTION=="add", ATTR{read_ahead_kb}="%c"\n')
    assert knob(root, {"disk.nfs_read_ahead_kb": "15380"})["state"] == state


def test_sysfsutils_is_named_and_loses_as_gpuctl_boot_runs_after_it(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    program(root, "systool")
    put(root, "/etc/sysfs.conf", "mode kernel/mm = 0644\nkernel/mm/transparent_hugepage/enabled = never\n")
    row = knob(root, {"thp.enabled": "always"})
    assert (row["state"], places(row)) == ("ok", [("sysfsutils", "/etc/sysfs.conf:2", False)])


@pytest.mark.parametrize("folder", ["kernel/mm", "devices/system/node/node0"])
def test_the_file_of_huge_pages_is_the_same_value_as_their_sysctl(tmp_path: Path, folder: str) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/sys/vm/nr_hugepages", "128\n")
    path = f"/sys/{folder}/hugepages/hugepages-2048kB/nr_hugepages"
    put(root, "/etc/cron.d/site", f"@reboot root echo 0 > {path}\n")
    assert knob(root, {"sysctl.vm.nr_hugepages": "128"})["state"] == "contested"


def test_a_pattern_of_tmpfiles_may_name_the_file_of_huge_pages(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/sys/vm/nr_hugepages", "128\n")
    put(root, "/etc/tmpfiles.d/site.conf", "w /sys/kernel/mm/hugepages/hugepages-*/nr_hugepages - - - - 0\n")
    assert knob(root, {"sysctl.vm.nr_hugepages": "128"})["state"] == "contested"


def test_a_knob_is_unknown_while_a_file_is_too_large_to_be_searched(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/cron.daily/large", "#!/bin/sh\n" + ": \n" * (search.FILE_BYTES // 3), 0o755)
    assert knob(root)["changed"] is True  # it is set all the same
    row = knob(root)
    assert (row["state"], row["now"]) == ("unknown", "1")
    assert row["reason"] == "another owner may set it at boot: not searched: /etc/cron.daily/large is larger than 1 MiB"


def test_a_known_winner_stays_contested_though_files_were_not_searched(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/cron.daily/large", "#!/bin/sh\n" + ": \n" * (search.FILE_BYTES // 3), 0o755)
    put(root, "/etc/cron.daily/site", SCRIPT, 0o755)
    tune(root, SWAPPINESS)
    assert knob(root)["state"] == "contested"


@pytest.mark.parametrize(("limit", "most"), [("FILES", 1), ("BYTES", 8), ("SECONDS", -1.0)])
def test_a_search_ends_at_its_limits_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: float
) -> None:
    monkeypatch.setattr(search, limit, most)
    put(tmp_path, "/a", "first\nline\n")
    put(tmp_path, "/b", "second\n")
    bounded = search.Search(Host(tmp_path))
    assert [line.text for path in ("/a", "/b") for line in bounded.lines("x", path)] != ["first", "line", "second"]
    assert bounded.unsearched == ["more files than are searched for other owners"]


def test_folders_and_pipes_among_the_files_are_passed_over(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    (root / "etc/cron.d/folder").mkdir(parents=True)
    os.mkfifo(root / "etc/cron.d/pipe")
    link(root, "/etc/cron.daily/dangling", "/missing")
    assert knob(root)["state"] == "ok"


def test_a_file_that_cannot_be_read_makes_knobs_unknown(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    link(root, "/etc/cron.d/loop", "loop")
    tune(root, SWAPPINESS)
    row = knob(root)
    assert (row["state"], "/etc/cron.d/loop: Too many levels" in row["reason"]) == ("unknown", True)


@pytest.mark.parametrize(("switch", "state"), [("no", "ok"), ("yes", "contested")])
def test_the_network_drivers_tune_sysctls_only_where_it_is_switched_on(tmp_path: Path, switch: str, state: str) -> None:
    root = small_server(tmp_path)
    put(root, "/usr/lib/systemd/system/openibd.service", "[Service]\nExecStart=/etc/init.d/openibd start bootid=%b\n")
    link(root, f"{WANTS}/openibd.service", "/usr/lib/systemd/system/openibd.service")
    start = 'if [ "X$RUN_SYSCTL" == Xyes ]; then\n  /sbin/sysctl_perf_tuning load\nfi'
    put(root, "/etc/init.d/openibd", f"#!/bin/bash\n{start}\n")
    put(root, "/sbin/sysctl_perf_tuning", SCRIPT, 0o755)
    put(root, "/etc/infiniband/openib.conf", f"# Run sysctl performance tuning script\nRUN_SYSCTL={switch}\n")
    assert knob(root)["state"] == state


def test_prologs_of_slurm_win_where_slurmd_starts(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, "/etc/slurm/slurm.conf", "SlurmctldHost=a\nProlog=/etc/slurm/prolog.d/*\nTaskProlog=/etc/slurm/task\n")
    put(root, "/etc/slurm/prolog.d/50-site", SCRIPT, 0o755)
    put(root, "/etc/slurm/task", SCRIPT, 0o755)
    assert knob(root)["state"] == "ok"
    link(root, f"{WANTS}/slurmd.service", "/usr/lib/systemd/system/slurmd.service")
    assert places(knob(root)) == [("Slurm", "/etc/slurm/prolog.d/50-site:2", True)]
