"""Parts of the stack on a host of RHEL's kind, by real dnf and rpm: one transaction, locks, interruptions, undo."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.api import visit
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts.stack import interrupted_rpms
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds.gpu_stack import EFA_BY_DNF
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources.lock import LIST, PLUGIN
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources.rpm import duplicates

from tests.rig.host import wait_until
from tests.rig.rpm_repository import MISSING, Rpm, RpmRoot
from tests.rig.trees.host import TreeHost, changed, program, put, small_server, states, tune, undo

LOCKS_ARE_READ = any(Path("/usr/lib").glob("python3*/*-packages/dnf-plugins/versionlock.py"))
pytestmark = pytest.mark.skipif(
    bool(MISSING) or not LOCKS_ARE_READ, reason="the packages dnf, rpm, createrepo-c and dnf-plugins-core"
)
EARLIER, OLD, NEW = "570.86.15", "580.105.08", "580.178.04"
DRIVER, MODULE, PERSISTENCED = "nvidia-driver-cuda", "kmod-nvidia-open-dkms", "nvidia-persistenced"
SET = (DRIVER, MODULE, PERSISTENCED)
KERNEL = "5.14.0-427.el9"
KNOB = "gpu_stack.driver"
VERSION = "/usr/share/standin/nvidia-version"
SITES_LOCK = "bash-0:5.1.8-9.el9.*\n"
# Like DKMS in the middle of a build; without the file it takes no time. `/root/built` has what was built to the end.
SCRIPTS = """%post -p <lua>
if posix.access("/root/broken") then error("no headers") end
if posix.access("/root/slow") then
  io.open("/root/begun", "w"):close()
  while posix.access("/root/slow") do posix.sleep(1) end
end
local file = io.open("/root/built", "w")
file:write("%{version}")
file:close()
%preun -p <lua>
if posix.access("/root/stuck") then error("in use") end"""
BUILT = "root/built"
MODINFO = f'#!/bin/sh\nread -r version < "$GPUCTL_ROOT{VERSION}" && echo "$version"\n'


@pytest.fixture(scope="module")
def rpm_root(tmp_path_factory: pytest.TempPathFactory) -> RpmRoot:
    """A host with an earlier persistenced and its kernel, and a repository with two versions of the driver."""
    root = RpmRoot(tmp_path_factory.mktemp("dnf"))
    small_server(root.root)
    put(root.root, "/etc/os-release", 'ID=rhel\nVERSION_ID="9.4"\n')
    put(root.root, "/proc/sys/kernel/osrelease", f"{KERNEL}.noarch\n")
    put(root.root, "/root/empty", "")
    program(root.root, "modinfo", MODINFO)
    version, release = KERNEL.split("-")
    kernel = [Rpm("kernel-core", version, release, epoch=0), Rpm(PLUGIN, "4.3.0", epoch=0)]
    rest = [Rpm(PERSISTENCED, EARLIER), Rpm("dkms", "3.2.2", epoch=0)]
    drivers = [
        package
        for version in (OLD, NEW)
        for package in (
            Rpm(DRIVER, version),
            Rpm(MODULE, version, more="Requires: dkms", files={VERSION: version}, scripts=SCRIPTS),
            Rpm(PERSISTENCED, version),
        )
    ]
    of_stream = [package for package in drivers if package.version == NEW]
    root.offer([*kernel, *rest, *drivers], f"nvidia-driver:{NEW[:3]}-open", of_stream)
    root.sign("nvidia")
    root.dnf("install", "kernel-core", f"{PERSISTENCED}-{full(EARLIER)}", PLUGIN)
    put(root.root, LIST, SITES_LOCK)
    return root


@pytest.fixture
def root(rpm_root: RpmRoot, tmp_path: Path) -> Iterator[RpmRoot]:
    """The host as it was before gpuctl, with a lock of the site's."""
    shutil.copytree(rpm_root.root, tmp_path / "before", symlinks=True)
    yield rpm_root
    shutil.rmtree(rpm_root.root)
    shutil.copytree(tmp_path / "before", rpm_root.root, symlinks=True)


def full(version: str) -> str:
    return f"3:{version}-1.el9"


def part(version: str, **more: Any) -> dict[str, Any]:
    versions = {**dict.fromkeys(SET, full(version)), "dkms": "3.2.2-1.el9"}
    holds = [*SET, "kernel*"]
    return {"shown": version, "versions": versions, "named": list(SET), "holds": holds, "driver": version, **more}


def bring(root: RpmRoot, version: str, check: bool = False, **more: Any) -> dict[str, Any]:
    return tune(root.root, {KNOB: part(version, **more)}, scope="gpu_stack", check=check)


def reason(answer: dict[str, Any]) -> str:
    return next(str(knob["reason"]) for knob in answer["knobs"] if knob["knob"] == KNOB)


def state(root: RpmRoot) -> tuple[dict[str, str], list[str], str]:
    """Packages, those that are installed for themselves, and locks."""
    chosen = root.dnf("repoquery", "-q", "-C", "--userinstalled", "--qf", "%{name}").split()
    return root.packages(), sorted(chosen), (root.root / LIST[1:]).read_text()


def locked(version: str) -> str:
    rows = [f"{name}-{full(version)}.*\n" for name in SET]
    return "".join([SITES_LOCK, *rows, f"kernel-core-0:{KERNEL}.*\n"])


def test_a_set_is_installed_locked_upgraded_downgraded_and_taken_back(root: RpmRoot) -> None:
    before = state(root)
    assert states(bring(root, OLD, check=True)) == {KNOB: "differs"}
    assert state(root) == before

    answer = bring(root, OLD)
    assert states(answer) == {KNOB: "ok"}, reason(answer)
    packages, chosen, locks = state(root)
    assert {packages[name] for name in SET} == {full(OLD)}
    assert (set(SET) <= set(chosen), "dkms" in chosen, packages["dkms"]) == (True, False, "0:3.2.2-1.el9")
    assert locks == locked(OLD)
    assert "Nothing to do." in root.dnf("upgrade", "--setopt=*.module_hotfixes=1")
    assert changed(bring(root, OLD)) == set()

    root.dnf("versionlock", "delete", MODULE)
    [knob] = bring(root, OLD, check=True)["knobs"]
    assert [step["setting"] for step in knob["steps"]] == [f"lock:{MODULE}"]

    for version in (NEW, OLD):
        answer = bring(root, version)
        assert states(answer) == {KNOB: "ok"}, reason(answer)
        packages, _, locks = state(root)
        assert {packages[name] for name in SET} == {full(version)}
        assert sorted(locks.splitlines()) == sorted(locked(version).splitlines())

    undone = undo(root.root, allow_busy=True)
    assert set(states(undone).values()) == {"ok"}, undone
    assert state(root) == before
    assert undo(root.root)["knobs"] == []


def kill_in_the_middle(root: RpmRoot, act: Callable[..., object], *arguments: object) -> None:
    """Kill a run and its dnf while the module's package is being installed, before the earlier one is erased."""
    (root.root / "root/slow").write_text("")
    run = multiprocessing.get_context("fork").Process(target=act, args=(root, *arguments))
    run.start()
    wait_until((root.root / "root/begun").exists, 120, "the package is not being installed")
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if pid == run.pid or f"--installroot={root.root}".encode() in words:
            os.kill(pid, signal.SIGKILL)
    run.join()
    for name in ("slow", "begun"):
        (root.root / "root" / name).unlink()


def repair(root: RpmRoot) -> dict[str, Any]:
    return visit({"action": "repair", "actor": "tester"}, TreeHost(root.root))


def built(root: RpmRoot) -> str:
    place = root.root / BUILT
    return place.read_text() if place.exists() else ""


def test_a_first_installation_killed_in_a_script_is_not_ok_before_the_script_has_run(root: RpmRoot) -> None:
    before = state(root)
    kill_in_the_middle(root, bring, NEW)
    # rpm has it, as it would have a package that is complete.
    assert (root.packages()[MODULE], built(root)) == (full(NEW), "")
    assert interrupted_rpms(Host(root.root)) != []
    assert states(bring(root, NEW, check=True)) == {KNOB: "differs"}

    kill_in_the_middle(root, repair)  # in the middle of what is to complete it
    assert built(root) == ""
    assert MODULE in repair(root)["repaired"]
    assert (built(root), interrupted_rpms(Host(root.root)), repair(root)["repaired"]) == (NEW, [], [])

    answer = bring(root, NEW)
    assert states(answer) == {KNOB: "ok"}, reason(answer)
    packages, chosen, _ = state(root)
    assert {packages[name] for name in SET} == {full(NEW)}
    assert (set(SET) <= set(chosen), "dkms" in chosen) == (True, False)
    undone = undo(root.root, allow_busy=True)
    assert set(states(undone).values()) == {"ok"}, undone
    assert state(root) == before


def test_an_upgrade_that_was_killed_is_undone_at_once(root: RpmRoot) -> None:
    before = state(root)
    assert states(bring(root, OLD)) == {KNOB: "ok"}
    kill_in_the_middle(root, bring, NEW)
    assert MODULE in duplicates(Host(root.root))
    undone = undo(root.root, allow_busy=True)
    assert set(states(undone).values()) == {"ok"}, undone
    assert (state(root), interrupted_rpms(Host(root.root))) == (before, [])


def test_a_transaction_that_fails_is_taken_back_and_is_not_ok_later_if_it_cannot_be(root: RpmRoot) -> None:
    before = state(root)
    # The package of a script that fails is there, as rpm has it; the others are, too.
    put(root.root, "/root/broken", "")
    broken = bring(root, NEW)
    assert states(broken) == {KNOB: "failed"}
    assert "cannot change the packages: " in reason(broken)
    assert "the packages are as before" in reason(broken)
    assert state(root) == before

    put(root.root, "/root/stuck", "")
    stuck = bring(root, NEW)
    assert "and it could not be taken back" in reason(stuck)
    assert root.packages()[MODULE] == full(NEW)
    assert states(bring(root, NEW)) == {KNOB: "failed"}
    for name in ("broken", "stuck"):
        (root.root / "root" / name).unlink()
    assert MODULE in repair(root)["repaired"]
    assert built(root) == NEW
    answer = bring(root, NEW)
    assert (states(answer), built(root)) == ({KNOB: "ok"}, NEW), reason(answer)


def test_only_packages_that_the_repositorys_key_has_signed_are_installed(root: RpmRoot) -> None:
    root.rpm("--erase", "gpg-pubkey")
    before = state(root)
    root.trust("stranger")
    refused = bring(root, NEW)
    assert states(refused) == {KNOB: "failed"}
    assert "cannot change" not in reason(refused)
    assert "Public key for " in reason(refused)
    assert "is not installed" in reason(refused)
    assert state(root) == before


def test_efa_is_left_to_its_installer(root: RpmRoot) -> None:
    answer = tune(root.root, {"gpu_stack.efa": {"shown": "1.48.0", "efa": {"version": "1.48.0"}}}, scope="gpu_stack")
    assert [(knob["state"], knob["reason"]) for knob in answer["knobs"]] == [("refused", EFA_BY_DNF)]
