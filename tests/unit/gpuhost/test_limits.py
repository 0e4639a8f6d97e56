"""Limits of logins and services; refused if they would lock everybody out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import limits
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources import line

from tests.rig.trees.host import changed, content, program, put, small_server, states, tune, undo

KNOBS = {"limits.memlock": "unlimited", "limits.nofile": "1048576"}
LIMITS, SYSTEM, USER = (
    "etc/security/limits.d/99-zz-gpuctl.conf",
    "etc/systemd/system.conf.d/99-zz-gpuctl.conf",
    "etc/systemd/user.conf.d/99-zz-gpuctl.conf",
)
HEAD = "Limit                     Soft Limit  Hard Limit  Units\n"  # of /proc/PID/limits
# Lists the permitted commands, but fails to run them.
BROKEN = "#!/bin/sh\n[ $2 = -l ] && [ $1 = -n ] && exit\necho 'cannot open session: Permission denied' >&2\nexit 1\n"
# A manager whose defaults come from its files at daemon-reload, as systemd's do.
DEFAULTS = "DefaultLimitMEMLOCK=8388608\nDefaultLimitMEMLOCKSoft=8388608\n"
DEFAULTS += "DefaultLimitNOFILE=524288\nDefaultLimitNOFILESoft=1024\n"
SYSTEMCTL = f"""#!/bin/sh
held=$GPUCTL_ROOT/run/standin-manager
case "$1" in
show) for name in $(echo "${{2#--property=}}" | /usr/bin/tr , ' '); do /usr/bin/grep "^$name=" "$held"; done; true ;;
daemon-reload)
  printf '{DEFAULTS}' > "$held"
  for file in "$GPUCTL_ROOT"/etc/systemd/system.conf.d/*.conf; do
    [ -e "$file" ] || continue
    while IFS== read -r name value; do case "$name" in Default*)
      /bin/sed -i "/^$name/d" "$held"
      printf '%s=%s\n' "$name" "${{value#*:}}" "${{name}}Soft" "${{value%:*}}" >> "$held";; esac; done < "$file"
  done ;;
esac
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = small_server(tmp_path)
    program(root, "systemctl", SYSTEMCTL)
    put(root, "/run/standin-manager", DEFAULTS)
    put(root, "/proc/sys/fs/nr_open", "1073741816\n")
    put(root, "/proc/self/status", "CapEff:\t000001ffffffffff\n")
    put(root, "/etc/passwd", "root:x:0:0::/root:/bin/bash\nadmin:x:1000:1000::/home/admin:/bin/bash\n")
    program(root, "su")
    program(root, "sudo")
    return root


def knob(answer: dict[str, Any], name: str) -> dict[str, Any]:
    reading: dict[str, Any] = next(k for k in answer["knobs"] if k["knob"] == name)
    return reading


def test_logins_and_services_get_limits_and_undo_restores_every_byte(root: Path) -> None:
    before = content(root)
    assert changed(tune(root, KNOBS, check=True)) == set(KNOBS)
    assert content(root) == before
    answer = tune(root, KNOBS)
    assert set(states(answer).values()) == {"ok"}
    assert knob(answer, "limits.memlock")["was"] == {"now": "8388608", "boot": "system default"}
    text = (root / LIMITS).read_text()
    assert all(f"{who} {kind} memlock unlimited\n" in text for who in ("*", "root") for kind in ("soft", "hard"))
    assert "[Manager]\n" in (root / SYSTEM).read_text()
    assert "DefaultLimitMEMLOCK=infinity\n" in (root / USER).read_text()
    assert changed(tune(root, KNOBS)) == set()
    undo(root)
    assert {**content(root), "run/standin-manager": ""} == {**before, "run/standin-manager": ""}


def test_a_manager_that_has_not_read_its_files_is_reloaded(root: Path) -> None:
    tune(root, KNOBS)
    put(root, "/run/standin-manager", "DefaultLimitMEMLOCK=8388608\nDefaultLimitNOFILE=1048576\n")
    assert states(tune(root, KNOBS, check=True)) == {"limits.memlock": "differs", "limits.nofile": "ok"}
    assert set(states(tune(root, KNOBS)).values()) == {"ok"}


def test_the_soft_limit_counts_as_well(root: Path) -> None:
    tune(root, KNOBS)
    soft = (root / "run/standin-manager").read_text().replace("NOFILESoft=1048576", "NOFILESoft=1024")
    put(root, "/run/standin-manager", soft)
    reading = knob(tune(root, KNOBS, check=True), "limits.nofile")
    assert (reading["state"], reading["now"], reading["boot"]) == ("differs", "1024:1048576", "1048576")


def test_more_open_files_than_the_kernel_allows_are_refused(root: Path) -> None:
    put(root, "/proc/sys/fs/nr_open", "524288\n")
    answer = tune(root, {"limits.nofile": "1048576"})
    assert states(answer) == {"limits.nofile": "refused"}
    assert "fs.nr_open is 524288" in answer["knobs"][0]["reason"]


def test_more_open_files_than_the_kernel_allows_after_a_reboot_are_refused(root: Path) -> None:
    put(root, "/etc/sysctl.d/50-site.conf", "fs.nr_open = 524288\n")
    answer = tune(root, {"limits.nofile": "1048576"})
    assert states(answer) == {"limits.nofile": "refused"}
    assert "at the next boot be 524288" in answer["knobs"][0]["reason"]


def test_the_bound_is_raised_by_one_run_and_the_limit_by_the_next(root: Path) -> None:
    put(root, "/proc/sys/fs/nr_open", "524288\n")
    both = {"limits.nofile": "1048576", "sysctl.fs.nr_open": "1048576"}
    assert states(tune(root, both)) == {"limits.nofile": "refused", "sysctl.fs.nr_open": "ok"}
    assert set(states(tune(root, both)).values()) == {"ok"}


@pytest.mark.parametrize("process", ["self", "1"])
def test_limits_that_the_kernel_would_not_grant_are_unsupported(root: Path, process: str) -> None:
    put(root, "/proc/self/status", "CapEff:\t00000000a80425fb\n")
    for number in ("self", "1"):
        most = 20000 if number == process else 1048576
        put(root, f"/proc/{number}/limits", f"{HEAD}Max open files            1024        {most}       files\n")
    answer = tune(root, {"limits.nofile": "1048576"})
    assert states(answer) == {"limits.nofile": "unsupported"}
    assert "20000" in answer["knobs"][0]["reason"]
    assert states(tune(root, {"limits.nofile": "20000"})) == {"limits.nofile": "ok"}


def test_capabilities_of_a_user_namespace_count_for_nothing(root: Path) -> None:
    put(root, "/proc/self/uid_map", "         0     100000      65536\n")
    for number in ("self", "1"):
        put(root, f"/proc/{number}/limits", f"{HEAD}Max open files            1024        20000       files\n")
    assert states(tune(root, {"limits.nofile": "1048576"})) == {"limits.nofile": "unsupported"}


@pytest.mark.parametrize("broken", ["su", "sudo"])
def test_a_broken_login_reverts_all_limits(root: Path, broken: str) -> None:
    before = content(root)
    program(root, broken, BROKEN)
    after_standin = content(root)
    answer = tune(root, KNOBS)
    assert set(states(answer).values()) == {"failed"}
    assert "reverted" in answer["knobs"][0]["reason"]
    assert "Permission denied" in answer["knobs"][0]["reason"]
    assert content(root) == {**after_standin, "run/standin-manager": before["run/standin-manager"]}


def test_a_login_that_fails_without_the_limits_too_is_reported_and_allows_undo(root: Path) -> None:
    before = content(root)
    tune(root, KNOBS)
    program(root, "su", BROKEN)
    assert set(states(undo(root)).values()) == {"ok"}
    assert {**content(root), "usr/bin/su": "", "run/standin-manager": ""} == {
        **before,
        "usr/bin/su": "",
        "run/standin-manager": "",
    }
    reason = tune(root, KNOBS)["knobs"][0]["reason"]
    assert "reverted" in reason
    assert "it fails without it too" in reason


@pytest.mark.parametrize(
    ("broken", "script"),
    [
        ("sudo", "#!/bin/sh\necho 'root is not in the sudoers file.' >&2\nexit 1\n"),
        ("su", "#!/bin/sh\n[ $2 != admin ] || { echo 'Your account has expired' >&2; exit 1; }\n"),
    ],
)
def test_a_locked_account_proves_nothing(root: Path, broken: str, script: str) -> None:
    put(root, "/etc/passwd", "root:x:0:0::/root:/bin/bash\nadmin:x:1000:1000::/:/bin/bash\nb:x:1001:1001::/:/bin/sh\n")
    program(root, broken, script)
    assert set(states(tune(root, KNOBS)).values()) == {"ok"}


def test_only_root_is_checked_while_logins_are_closed(root: Path) -> None:
    put(root, "/run/nologin", "System is going down\n")
    program(root, "su", "#!/bin/sh\n[ $2 = root ]\n")
    assert set(states(tune(root, KNOBS)).values()) == {"ok"}


def test_a_later_file_wins_and_is_named(root: Path) -> None:
    put(root, "/etc/security/limits.d/zzz-site.conf", "* hard memlock 64\n")
    put(root, "/etc/security/limits.d/20-nproc.conf", "* - memlock 64\n")
    for _ in range(2):
        reading = knob(tune(root, KNOBS), "limits.memlock")
        assert (reading["state"], reading["boot"]) == (
            "contested",
            "unlimited or 65536 for logins, unlimited for services",
        )
        conflicts = {(c["where"], c["wins"]) for c in reading["conflicts"]}
        assert conflicts == {
            ("/etc/security/limits.d/zzz-site.conf:1", True),
            ("/etc/security/limits.d/20-nproc.conf:1", False),
        }


def test_a_line_behind_ours_in_our_own_file_wins_and_is_named(root: Path) -> None:
    tune(root, KNOBS)
    path = root / LIMITS
    path.write_text(path.read_text() + "root hard memlock 64\n")
    reading = knob(tune(root, KNOBS), "limits.memlock")
    assert reading["state"] == "contested"
    assert [(c["where"].partition(":")[0], c["wins"]) for c in reading["conflicts"]] == [(f"/{LIMITS}", True)]


def test_a_later_file_of_systemd_wins_and_the_manager_is_not_reloaded_again(root: Path) -> None:
    put(root, "/etc/systemd/system.conf.d/zzz.conf", "[Manager]\nDefaultLimitNOFILE=1K:2K\n")
    for first in (True, False):
        reading = knob(tune(root, KNOBS), "limits.nofile")
        assert reading["state"] == "contested"
        assert reading["boot"] == "1048576 for logins, 1024:2048 or 1048576 for services"
        assert reading["changed"] is first
        assert [(c["value"], c["wins"]) for c in reading["conflicts"]] == [("DefaultLimitNOFILE=1K:2K", True)]


def test_a_limit_that_others_set_right_needs_no_line_of_ours(root: Path) -> None:
    put(root, "/etc/security/limits.conf", "# comment\n*  -  nofile  1048576 # all\nroot - nofile 1048576\n")
    put(root, "/etc/systemd/system.conf", "[Manager]\nDefaultLimitNOFILE=1048576:1048576\n")
    knobs = tune(root, {"limits.nofile": "1048576"}, check=True)["knobs"]
    assert [step["setting"] for step in knobs[0]["steps"]] == [f"line:/{USER}:DefaultLimitNOFILE"]


def test_users_with_their_own_limits_are_named(root: Path) -> None:
    put(root, "/etc/security/limits.d/10-db.conf", "postgres soft nofile 4096\n@dba - nofile 1048576\n")
    reading = knob(tune(root, KNOBS), "limits.nofile")
    assert reading["state"] == "ok"
    assert reading["notes"] == [
        "some users have their own nofile limit: /etc/security/limits.d/10-db.conf:1 (postgres soft nofile 4096)"
    ]


def test_services_that_still_have_the_old_limits_are_named(root: Path) -> None:
    for service, pid in {"slurmd": 4711, "dbus": 4712, "system-getty.slice/getty@tty1": 4713}.items():
        put(root, f"/sys/fs/cgroup/system.slice/{service}.service/cgroup.procs", f"{pid}\n9999\n")
        put(root, f"/proc/{pid}/limits", f"{HEAD}Max locked memory         8388608     8388608     bytes\n")
    put(root, "/usr/lib/systemd/system/dbus.service", "[Service]\nLimitMEMLOCK=8M\n")
    reading = knob(tune(root, KNOBS), "limits.memlock")
    note = "until they are restarted, these keep another memlock limit: slurmd.service, getty@tty1.service"
    assert reading["notes"] == [note]


@pytest.mark.parametrize(
    ("key", "value", "normal"),
    [("memlock", "64GiB", "68719476736"), ("stack", "unlimited", "unlimited"), ("nofile", 65536, "65536")],
)
def test_a_value_is_bytes_or_a_number(key: str, value: object, normal: str) -> None:
    kind = limits.type_of(key)
    assert kind is not None
    assert kind.check(value) == normal


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nofile", "1GiB"),
        ("nofile", "unlimited"),
        ("nofile", "-1"),
        ("memlock", "lots"),
        ("memlock", 1000),
        ("stack", True),
    ],
)
def test_a_wrong_value_is_refused(key: str, value: object) -> None:
    kind = limits.type_of(key)
    assert kind is not None
    with pytest.raises(ValueError, match="must be"):
        kind.check(value)


def test_a_stack_limit_is_for_logins_only_and_lines_for_services_are_taken_back(root: Path) -> None:
    answer = tune(root, {"limits.stack": "unlimited"})
    assert states(answer) == {"limits.stack": "ok"}
    assert (answer["knobs"][0]["now"], answer["knobs"][0]["boot"]) == (None, "unlimited")
    assert "* hard stack unlimited" in (root / LIMITS).read_text()
    assert not (root / SYSTEM).exists()
    # An earlier version of gpuctl had set it for services, too.
    put(root, f"/{SYSTEM}", f"{line.MARK}[Manager]\nDefaultLimitSTACK=infinity\n")
    record = root / "var/lib/gpuctl/records/000001.json"
    data = json.loads(record.read_text())
    entry = {"setting": f"line:/{SYSTEM}:DefaultLimitSTACK", "before": None, "after": "infinity", "got": "infinity"}
    data["entries"].append({"knob": "limits.stack", "error": "", **entry})
    record.write_text(json.dumps(data))
    assert states(tune(root, {"limits.stack": "unlimited"}, check=True)) == {"limits.stack": "differs"}
    assert states(tune(root, {"limits.stack": "unlimited"})) == {"limits.stack": "ok"}
    assert not (root / SYSTEM).exists()


PAM_FILES = {
    "applied by sshd": {"/etc/pam.d/sshd": "account required pam_nologin.so\nsession required pam_limits.so\n"},
    "applied by an include": {
        "/etc/pam.d/sshd": "@include common-session\n",
        "/etc/pam.d/common-session": "-session optional pam_systemd.so\nsession substack deeper\n",
        "/usr/lib/pam.d/deeper": "session [success=1 default=ignore] pam_limits.so\n",
    },
    "applied in two lines": {"/etc/pam.d/sshd": "Session \\\n required pam_limits.so # of ours\n"},
    "named in a comment": {"/etc/pam.d/sshd": "session required pam_unix.so # no pam_limits.so\n"},
    "other file": {"/etc/pam.d/sshd": "session required pam_limits.so conf=/etc/site-limits.conf\n"},
    "missing": {"/etc/pam.d/sshd": "# session required pam_limits.so\nauth required pam_limits.so\n"},
    "in a loop": {"/etc/pam.d/sshd": "session include sshd\n"},
}


@pytest.mark.parametrize("case", PAM_FILES)
def test_ssh_logins_without_pam_limits_get_the_limit_of_sshd(root: Path, case: str) -> None:
    put(root, "/etc/ssh/sshd_config", "Include /etc/ssh/sshd_config.d/*.conf\nUsePAM no\n")
    put(root, "/etc/ssh/sshd_config.d/50-site.conf", "UsePAM yes\n")
    for path, text in PAM_FILES[case].items():
        put(root, path, text)
    put(root, "/sys/fs/cgroup/system.slice/ssh.service/cgroup.procs", "4711\n")
    put(root, "/proc/4711/limits", f"{HEAD}Max locked memory         8388608     8388608     bytes\n")
    skipped = not case.startswith("applied")
    knobs = {"limits.memlock": "unlimited", "limits.stack": "unlimited"}
    memlock, stack = ("pending", "unsupported") if skipped else ("ok", "ok")
    assert states(tune(root, knobs)) == {"limits.memlock": memlock, "limits.stack": stack}
    if skipped:
        reason = knob(tune(root, knobs), "limits.memlock")["reason"]
        assert reason.startswith("ssh logins get 8388608, the limit of sshd itself: PAM has no pam_limits")
    put(root, "/proc/4711/limits", f"{HEAD}Max locked memory         unlimited   unlimited   bytes\n")
    assert states(tune(root, knobs))["limits.memlock"] == "ok"


def test_a_limit_in_sshds_own_unit_is_contested_where_sshd_does_without_pam(root: Path) -> None:
    put(root, "/etc/ssh/sshd_config", "Port 22\nMatch User a\nUsePAM yes\n")
    put(root, "/etc/pam.d/sshd", "session required pam_limits.so\n")
    put(root, "/sys/fs/cgroup/system.slice/ssh.service/cgroup.procs", "4711\n")
    put(root, "/proc/4711/limits", f"{HEAD}Max locked memory         8388608     8388608     bytes\n")
    put(root, "/etc/systemd/system/ssh.service.d/site.conf", "[Service]\nLimitMEMLOCK=8M\n")
    reading = knob(tune(root, {"limits.memlock": "unlimited"}), "limits.memlock")
    assert (reading["state"], "without PAM" in reading["reason"]) == ("contested", True)
