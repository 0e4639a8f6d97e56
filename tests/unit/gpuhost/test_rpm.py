"""Packages of rpm: what dnf prints and rpm has, as texts and transactions. Real dnf is in the integration tests."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import undo
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import _stack_rpms
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.model import Refused, Step, Unreadable
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources import lock, rpm, rpm_journal, rpm_packages
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources.lock import LIST, Lock
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources.rpm_journal import Journal

from tests.rig.trees.host import TreeHost, program, put

DATA = Path(__file__).parents[2] / "data/gpu_stack"
RUNNING = "5.14.0-427.el9"
# Two kernels beside each other, in two ways of naming them, two architectures, and a package in two versions.
INSTALLED = [
    f"kernel-core\t0:{RUNNING}\tx86_64\t1",
    "kernel-core\t0:5.14.0-503.el9\tx86_64\t2",
    "kernel6.12\t0:6.12.8-1.amzn2023\tx86_64\t3",
    "kernel6.12\t0:6.12.9-1.amzn2023\tx86_64\t4",
    "kmod-nvidia-6.1\t3:580.105.08-1.el9\tx86_64\t3",
    "kmod-nvidia-6.1\t3:580.178.04-1.el9\tx86_64\t4",
    "nvidia-driver-cuda\t3:580.178.04-1.el9\tx86_64\t9",
    "nvidia-driver-cuda\t3:580.105.08-1.el9\tx86_64\t4",
    "dkms\t0:3.2.2-1.el9\tnoarch\t3",
    "libnvidia-ml\t3:580.178.04-1.el9\ti686\t3",
    "libnvidia-ml\t3:580.178.04-1.el9\tx86_64\t3",
    "glibc\t0:2.34-100.el9\ti686\t1",
    "glibc\t0:2.34-83.el9\tx86_64\t1",
]
OLD, NEW = "3:580.105.08-1.el9", "3:580.178.04-1.el9"
TABLE = """{title}:
 dkms     noarch     {version}     cuda-rhel9     6.2 k

Transaction Summary
"""
LOG = "/run/standin-arguments"


@pytest.fixture
def host(tmp_path: Path) -> TreeHost:
    put(tmp_path, LOG, "")
    put(tmp_path, "/proc/sys/kernel/osrelease", f"{RUNNING}.x86_64\n")
    rpm_has(tmp_path, *INSTALLED)
    dnf_prints(tmp_path, "")
    (tmp_path / "tmp").mkdir()
    return TreeHost(tmp_path)


def rpm_has(root: Path, *rows: str, owner: str = "") -> None:
    """A stand-in rpm with these packages, which keeps what it is asked to change."""
    lines = "\n".join(rows)
    script = f"""#!/bin/sh
case "$1" in
-qa) while IFS= read -r row; do printf '%s\\n' "$row"; done <<'END'
{lines}
END
;;
-q) case "$*" in
  *--provides*kmod-*) echo "installonlypkg(kernel-module)" ;;
  *--provides*) echo "nvidia = 1" ;;
  *) printf '{owner}' ;;
  esac ;;
*) echo "rpm $*" >> "$GPUCTL_ROOT{LOG}" ;;
esac
"""
    program(root, "rpm", script)


def dnf_prints(root: Path, out: str, err: str = "", runs: str = "") -> None:
    """A stand-in dnf that keeps its arguments; `runs`: what it prints when it is to change something."""
    put(root, "/run/dnf-out", out)
    put(root, "/run/dnf-err", err)
    put(root, "/run/dnf-runs", runs)
    script = f"""#!/bin/sh
show() {{ while IFS= read -r line; do printf '%s\\n' "$line"; done < "$GPUCTL_ROOT/run/$1"; }}
echo "dnf $*" >> "$GPUCTL_ROOT{LOG}"
case "$*" in
*repoquery*) echo kernel-core ;;
*assumeyes*) show dnf-runs; show dnf-err >&2 ;;
*shell*) show dnf-out; show dnf-err >&2 ;;
esac
"""
    program(root, "dnf", script)


def changes(host: TreeHost) -> list[str]:
    """What rpm and dnf were asked to change."""
    return [line for line in host.read(LOG).splitlines() if line.startswith("rpm") or "assumeyes" in line]


def interrupted(host: TreeHost, **versions: str) -> None:
    """gpuctl's transaction was installing these packages."""
    rpm_journal.save(host, Journal({name.replace("_", "-"): [version] for name, version in versions.items()}))


def test_a_package_has_its_version_and_its_reason_and_kernels_stay_beside_each_other(host: TreeHost) -> None:
    names = ["dkms", "kernel-core=5.14.0-503.el9", "kernel-core=6.0-1.el9", "kernel6.12=6.12.8-1.amzn2023", "gone"]
    assert rpm_packages.states(host, [*names, "libnvidia-ml"]) == {
        "dkms": "3.2.2-1.el9 auto",
        "kernel-core=5.14.0-503.el9": "5.14.0-503.el9 manual",
        "kernel-core=6.0-1.el9": None,
        "kernel6.12=6.12.8-1.amzn2023": "6.12.8-1.amzn2023 auto",
        "gone": None,
        "libnvidia-ml": f"{NEW} auto",  # in two architectures
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in ("kernel", "kernel-core", "kernel6.12", "kernel6.12-devel", "kernel-64k-core")),
        *((name, False) for name in ("kernel-headers", "kernel6.12-headers", "kernel-cross-headers", "kernel-tools")),
        *((name, False) for name in ("kernel-tools-libs", "kernel-srpm-macros", "kernel-doc", "kernelshark")),
    ],
)
def test_only_packages_of_a_kernel_itself_stay_beside_each_other(name: str, expected: bool) -> None:
    assert rpm_packages.is_kernel(name) is expected


def test_several_versions_that_gpuctl_has_not_caused_are_reported_and_left_alone(host: TreeHost) -> None:
    assert rpm_packages.states(host, ["nvidia-driver-cuda"]) == {"nvidia-driver-cuda": f"{NEW},{OLD} several"}
    assert rpm.duplicates(host) == ["nvidia-driver-cuda"]
    assert rpm.repair(host) == []
    wrong = rpm.write_rpms(host, {"nvidia-driver-cuda": f"{NEW} manual"})["nvidia-driver-cuda"]
    assert f"installed in several versions: nvidia-driver-cuda ({NEW},{OLD})" in wrong
    with pytest.raises(Refused, match="installed in several versions"):
        _stack_rpms.steps(host, {"nvidia-driver-cuda": NEW}, ["nvidia-driver-cuda"], [], [])
    assert changes(host) == []


def test_of_a_replacement_that_gpuctl_began_the_earlier_version_is_erased(host: TreeHost) -> None:
    interrupted(host, nvidia_driver_cuda=NEW)
    assert rpm_packages.states(host, ["nvidia-driver-cuda"]) == {"nvidia-driver-cuda": f"{NEW},{OLD} unfinished auto"}
    assert rpm.unfinished(host) == ["nvidia-driver-cuda"]
    with pytest.raises(RuntimeError, match="rpm cannot complete nvidia-driver-cuda"):
        rpm.repair(host)  # as this rpm erases nothing
    assert changes(host) == [f"rpm --erase --nodeps --allmatches -- nvidia-driver-cuda-{OLD}.x86_64"]


@pytest.mark.parametrize(
    ("name", "version"),
    [("kmod-nvidia-6.1", NEW), ("kernel-core", "5.14.0-503.el9"), ("kernel6.12", "6.12.9-1.amzn2023")],
)
def test_no_kernel_is_erased_whatever_was_interrupted(host: TreeHost, name: str, version: str) -> None:
    rpm_journal.save(host, Journal({name: [version]}))
    with pytest.raises(RuntimeError, match=f"{name}-.* may stay beside other versions, and is not erased"):
        rpm.repair(host)
    assert changes(host) == []


def test_what_has_the_running_kernel_is_not_removed(host: TreeHost, tmp_path: Path) -> None:
    rpm_has(tmp_path, *INSTALLED, owner=f"nvidia-driver-cuda\\t{OLD}\\nkernel-core\\t0:{RUNNING}\\n")
    key = f"kernel-core={RUNNING}"
    assert f"has the kernel that runs, {RUNNING}.x86_64, and is not removed" in rpm.write_rpms(host, {key: None})[key]
    interrupted(host, nvidia_driver_cuda=NEW)
    with pytest.raises(RuntimeError, match="nvidia-driver-cuda has the kernel that runs"):
        rpm.repair(host)
    assert changes(host) == []


def test_a_journal_that_cannot_be_read_stops_every_change(host: TreeHost, tmp_path: Path) -> None:
    put(tmp_path, rpm_journal.PLACE, "{")
    assert "rpm-transaction.json cannot be used" in rpm.write_rpms(host, {"dkms": None})["dkms"]
    assert changes(host) == []


def test_a_recorded_table_has_what_is_installed_replaced_and_removed() -> None:
    installs, removes = rpm.resolved((DATA / "dnf_assumeno_upgrade.txt").read_text())
    assert ("dkms", "3.2.2-1.el9") in installs
    assert {name for name, _ in removes} == {"nvidia-fabric-manager", "kmod-nvidia-latest-dkms"}
    assert all("-" in version for _, version in installs | removes)


LATER = "3.2.3-1.el9"
OPTIONAL = """Errors during downloading metadata for repository 'extras':
  - Curl error (7): Couldn't connect to server for https://user:secret@mirror/repodata/repomd.xml
Error: Failed to download metadata for repo 'extras': Cannot download repomd.xml
Ignoring repositories: extras
Failed loading plugin "x": No module named 'x'
Error: Operation aborted.
"""


def test_a_repository_that_may_be_absent_does_not_stop_a_change_that_is_as_planned(
    host: TreeHost, tmp_path: Path
) -> None:
    dnf_prints(tmp_path, TABLE.format(title="Upgrading", version=LATER), OPTIONAL)
    wrong = rpm.write_rpms(host, {"dkms": f"{LATER} auto"})["dkms"]
    assert "cannot change the packages: " in wrong  # by dnf, which changes nothing here
    assert "secret" not in wrong
    assert len(changes(host)) == 2
    assert "--downloadonly" in changes(host)[0]
    # What was resolved anew may be another change.
    assert "--cacheonly" in changes(host)[1]
    assert all("exit_on_lock=1" in line and "installonly_limit=0" in line for line in changes(host))


def test_another_dnf_at_work_is_waited_for(host: TreeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dnf_prints(tmp_path, "", "Error: RPMDB already locked by 4711\n")
    script = (tmp_path / "usr/bin/dnf").read_text()
    # The other one ends after the first question.
    later = 'show dnf-err >&2; echo "Error: another reason" > "$GPUCTL_ROOT/run/dnf-err"'
    program(tmp_path, "dnf", script.replace("show dnf-out; show dnf-err >&2", later))
    monkeypatch.setattr(rpm, "PAUSE_S", 0.0)
    assert rpm.write_rpms(host, {"dkms": f"{LATER} auto"}) == {"dkms": "dnf cannot do this: another reason"}
    assert sum("shell" in line for line in host.read(LOG).splitlines()) == 2


def test_another_dnf_that_does_not_end_is_named(
    host: TreeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dnf_prints(tmp_path, "", "Error: RPMDB already locked by 4711\n")
    monkeypatch.setattr(rpm, "PATIENCE_S", -1.0)
    reason = "dnf cannot do this: RPMDB already locked by 4711"
    assert rpm.write_rpms(host, {"dkms": f"{LATER} auto"}) == {"dkms": reason}


@pytest.mark.parametrize(
    ("out", "err", "reason"),
    [
        ("", OPTIONAL, "dnf would now do what is not planned: not install dkms 3.2.3-1.el9; plan again"),
        ("", "Error: Unable to find a match: dkms-3.2.3\n", "dnf cannot do this: Unable to find a match: dkms-3.2.3"),
        (
            "",
            "Error: Failed to download metadata for repo 'cuda': https://user:secret@mirror/: all mirrors were tried\n",
            "dnf cannot do this: Failed to download metadata for repo 'cuda': https://mirror/: all mirrors were tried",
        ),
        (
            TABLE.format(title="Upgrading", version=LATER).replace(
                " dkms", " make     noarch     4.3-8.el9 base 5 k\n dkms"
            ),
            "",
            "dnf would now do what is not planned: install make 4.3-8.el9; plan again",
        ),
        (
            TABLE.format(title="Upgrading", version=LATER).replace(
                "\nTransaction", "Removing:\n kernel-core   x86_64   5.14.0-427.el9   @System   0\n\nTransaction"
            ),
            "",
            f"dnf would now do what is not planned: remove kernel-core {RUNNING}; plan again",
        ),
    ],
)
def test_what_is_not_the_plan_is_not_done(host: TreeHost, tmp_path: Path, out: str, err: str, reason: str) -> None:
    dnf_prints(tmp_path, out, err)
    assert rpm.write_rpms(host, {"dkms": f"{LATER} auto"}) == {"dkms": reason}
    assert changes(host) == []


def test_a_host_that_cannot_be_read_after_the_transaction_has_an_error_and_its_packages_stay_unfinished(
    host: TreeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dnf_prints(tmp_path, TABLE.format(title="Upgrading", version=LATER), runs="Running transaction\n")

    def unreadable(host: TreeHost, keys: object) -> dict[str, str]:
        raise Unreadable("rpm: the database is locked")

    monkeypatch.setattr(rpm, "versions", unreadable)
    wrong = rpm.write_rpms(host, {"dkms": f"{LATER} auto"})["dkms"]
    assert "the database is locked; and it could not be taken back" in wrong
    assert rpm_journal.load(host).installs == {"dkms": [LATER]}


def test_a_dependency_is_one_again_after_an_interruption_before_its_mark(host: TreeHost, tmp_path: Path) -> None:
    rpm_journal.save(host, Journal({"kernel-core": ["1"], "dkms": ["3.2.2-1.el9"]}, {}, {"dkms": "auto"}))
    dnf = (tmp_path / "usr/bin/dnf").read_text().replace("echo kernel-core", "echo dkms")
    program(tmp_path, "dnf", dnf)  # dnf installs each as if for itself
    [step] = _stack_rpms.steps(host, {"dkms": "3.2.2-1.el9"}, [], [], [])
    assert (step.before, step.after) == ("3.2.2-1.el9 unfinished auto", "3.2.2-1.el9 auto")


@pytest.mark.parametrize(
    ("kernel", "packages", "locked"),
    [
        ("5.14.0-427.el9.x86_64", ["kernel-core", "kernel-devel"], ["kernel-core", "kernel-devel"]),
        (
            "5.14.0-427.el9.x86_64+64k",
            ["kernel-core", "kernel-64k-core", "kernel-64k"],
            ["kernel-64k-core", "kernel-64k"],
        ),
        ("5.14.0-427.el9.x86_64+rt", ["kernel-rt-core", "kernel-64k-core"], ["kernel-rt-core"]),
    ],
)
def test_the_packages_of_the_running_kernel_are_locked_of_its_flavour(
    host: TreeHost, tmp_path: Path, kernel: str, packages: list[str], locked: list[str]
) -> None:
    put(tmp_path, "/proc/sys/kernel/osrelease", f"{kernel}\n")
    rpm_has(tmp_path, *(f"{name}\t0:{RUNNING}\tx86_64\t1" for name in packages))
    steps = _stack_rpms.steps(host, {}, [], [], ["kernel*"])
    assert [step.setting for step in steps if step.setting.startswith("lock:")] == [f"lock:{name}" for name in locked]


def test_a_kernel_of_no_package_cannot_be_locked(host: TreeHost, tmp_path: Path) -> None:
    put(tmp_path, "/proc/sys/kernel/osrelease", "6.1.0-custom+rt\n")
    with pytest.raises(Unreadable, match=r"no package of rpm has the running kernel 6\.1\.0-custom\+rt"):
        _stack_rpms.steps(host, {}, [], [], ["kernel*"])


CONF = "/etc/dnf/plugins/versionlock.conf"


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("/etc/dnf/dnf.conf", "[main]\nplugins=0\n", "/etc/dnf/dnf.conf has plugins=0"),
        (CONF, f"[main]\nenabled = 0\nlocklist = {LIST}\n", f"{CONF} has enabled=0"),
        (CONF, "[main]\nenabled = 1\n", f"{CONF} names no list of locks"),
        (CONF, f"[main]\nenabled = 1\nlocklist = {LIST}\n", ""),
    ],
)
def test_locks_that_dnf_does_not_obey_are_refused(
    host: TreeHost, tmp_path: Path, path: str, text: str, reason: str
) -> None:
    put(tmp_path, path, text)
    assert lock.unheeded(host).startswith(reason)
    assert bool(lock.unheeded(host)) is bool(reason)
    with pytest.raises(Refused, match=r"dnf|list") if reason else contextlib.nullcontext():
        _stack_rpms.steps(host, {}, [], [], ["dkms"])


def test_locks_are_in_the_list_that_the_plugin_reads(host: TreeHost, tmp_path: Path) -> None:
    put(tmp_path, CONF, "[main]\nenabled = 1\nlocklist = /etc/locks.list\n")
    Lock("dkms").write(host, "3.2.2-1.el9")
    assert host.read("/etc/locks.list") == "dkms-0:3.2.2-1.el9.*\n"
    assert (Lock("dkms").read(host), host.exists(LIST)) == ("3.2.2-1.el9", False)


def test_an_undo_without_package_lists_says_how_to_get_them(host: TreeHost) -> None:
    step = Step("rpm:dkms", "3.2.2-1.el9 auto", "3.2.1-1.el9 auto")
    assert undo._unavailable(host, [step]) == "the host has no package lists of dnf: run `dnf makecache` on it"


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no name of a package"):
        _ = rpm.Change({"a\nrun": "1-1"}, {}).script


@pytest.mark.parametrize("before", ["", "# site's\nbash-0:5.1-1.el9.*\n", "bash-0:5.1-1.el9.*"])
def test_a_lock_is_a_line_of_its_own_and_others_stay(tmp_path: Path, before: str) -> None:
    put(tmp_path, LIST, before, 0o640)
    host, lock = TreeHost(tmp_path), Lock("dkms")
    lock.write(host, "3.2.2-1.el9")
    assert host.read(LIST).splitlines() == [*before.splitlines(), "dkms-0:3.2.2-1.el9.*"]
    assert (lock.read(host), Lock("bash-0").read(host)) == ("3.2.2-1.el9", None)
    lock.write(host, "3:4.0-1.el9")
    assert lock.read(host) == "3:4.0-1.el9"
    lock.write(host, None)
    assert host.read(LIST).splitlines() == before.splitlines()
    assert (tmp_path / LIST[1:]).stat().st_mode & 0o777 == 0o640
