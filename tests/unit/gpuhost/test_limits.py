"""Limits: for logins and for services, refused where they would lock everybody out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import limits

from tests.unit.gpuhost.trees import changed, content, program, put, small_server, states, tune, undo

KNOBS = {"limits.memlock": "unlimited", "limits.nofile": "1048576"}
LIMITS, SYSTEM, USER = (
    "etc/security/limits.d/99-zz-gpuctl.conf",
    "etc/systemd/system.conf.d/99-zz-gpuctl.conf",
    "etc/systemd/user.conf.d/99-zz-gpuctl.conf",
)
HEAD = "Limit                     Soft Limit  Hard Limit  Units\n"  # of /proc/PID/limits
# Answers for the manager: its defaults come from its file at daemon-reload, as systemd's do.
SYSTEMCTL = """#!/bin/sh
held=$GPUCTL_ROOT/run/standin-manager
case "$1" in
show) for name in $(echo "${2#--property=}" | /usr/bin/tr , ' '); do /usr/bin/grep "^$name=" "$held" ; done ;;
daemon-reload)
  printf 'DefaultLimitMEMLOCK=8388608\\nDefaultLimitNOFILE=524288\\n' > "$held"
  for file in "$GPUCTL_ROOT"/etc/systemd/system.conf.d/*.conf; do
    [ -e "$file" ] || continue
    while IFS= read -r line; do case "$line" in Default*)
      /bin/sed -i "/^${line%%=*}=/d" "$held"; echo "$line" >> "$held";; esac; done < "$file"
  done ;;
esac
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = small_server(tmp_path)
    program(root, "systemctl", SYSTEMCTL)
    put(root, "/run/standin-manager", "DefaultLimitMEMLOCK=8388608\nDefaultLimitNOFILE=524288\n")
    put(root, "/proc/sys/fs/nr_open", "1073741816\n")
    put(root, "/proc/self/status", "CapEff:\t000001ffffffffff\n")
    put(root, "/etc/passwd", "root:x:0:0::/root:/bin/bash\nadmin:x:1000:1000::/home/admin:/bin/bash\n")
    program(root, "su")
    program(root, "sudo")
    return root


def knob(answer: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(k for k in answer["knobs"] if k["knob"] == name)
    return found


def test_logins_and_services_get_them_and_undo_gives_back_every_byte(root: Path) -> None:
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


def test_a_manager_that_has_not_read_its_files_is_told_to(root: Path) -> None:
    tune(root, KNOBS)
    put(root, "/run/standin-manager", "DefaultLimitMEMLOCK=8388608\nDefaultLimitNOFILE=1048576\n")
    assert states(tune(root, KNOBS, check=True)) == {"limits.memlock": "differs", "limits.nofile": "ok"}
    assert set(states(tune(root, KNOBS)).values()) == {"ok"}


def test_more_open_files_than_the_kernel_allows_are_refused(root: Path) -> None:
    put(root, "/proc/sys/fs/nr_open", "524288\n")
    answer = tune(root, {"limits.nofile": "1048576"})
    assert states(answer) == {"limits.nofile": "refused"}
    assert "fs.nr_open is 524288" in answer["knobs"][0]["reason"]


def test_where_the_kernel_would_not_give_them_they_are_unsupported(root: Path) -> None:
    put(root, "/proc/self/status", "CapEff:\t00000000a80425fb\n")
    put(
        root,
        "/proc/self/limits",
        f"{HEAD}Max open files            1024        20000       files\n",
    )
    answer = tune(root, {"limits.nofile": "1048576"})
    assert states(answer) == {"limits.nofile": "unsupported"}
    assert "20000" in answer["knobs"][0]["reason"]


@pytest.mark.parametrize("broken", ["su", "sudo"])
def test_a_login_that_would_break_takes_everything_back(root: Path, broken: str) -> None:
    before = content(root)
    program(root, broken, "#!/bin/sh\necho 'cannot open session: Permission denied' >&2\nexit 1\n")
    after_standin = content(root)
    answer = tune(root, KNOBS)
    assert set(states(answer).values()) == {"failed"}
    assert "taken back" in answer["knobs"][0]["reason"]
    assert "Permission denied" in answer["knobs"][0]["reason"]
    assert content(root) == {**after_standin, "run/standin-manager": before["run/standin-manager"]}


def test_a_later_file_wins_and_is_named(root: Path) -> None:
    put(root, "/etc/security/limits.d/zzz-site.conf", "* hard memlock 64\n")
    put(root, "/etc/security/limits.d/20-nproc.conf", "* - memlock 64\n")
    told = knob(tune(root, KNOBS), "limits.memlock")
    assert told["state"] == "contested"
    found = {(c["where"], c["wins"]) for c in told["conflicts"]}
    assert found == {
        ("/etc/security/limits.d/zzz-site.conf:1", True),
        ("/etc/security/limits.d/20-nproc.conf:1", False),
    }


def test_services_that_still_have_the_old_limits_are_listed(root: Path) -> None:
    put(root, "/sys/fs/cgroup/system.slice/slurmd.service/cgroup.procs", "4711\n4712\n")
    put(
        root,
        "/proc/4711/limits",
        f"{HEAD}Max locked memory         8388608     8388608     bytes\n",
    )
    told = knob(tune(root, KNOBS), "limits.memlock")
    assert told["notes"] == ["1 services run with another memlock limit until they are restarted: slurmd.service"]


@pytest.mark.parametrize(("key", "value"), [("nofile", "1GiB"), ("memlock", "lots"), ("nofile", "-1"), ("stack", True)])
def test_a_wrong_value_is_refused(key: str, value: object) -> None:
    kind = limits.type_of(key)
    assert kind is not None
    with pytest.raises(ValueError, match="must be"):
        kind.check(value)
