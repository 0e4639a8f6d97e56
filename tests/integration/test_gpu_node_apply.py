"""bootstrap gpu-node on real hosts: stand-in packages with true names, by real apt and dpkg; undo; interruptions."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.hosts.model import HostResult
from gpuctl.workflows import gpu_node_apply, gpu_node_plan
from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl, Said, reach
from tests.rig.host import wait_until
from tests.rig.standin_packages import FOLDER, StandinPackage, be_ubuntu, driver, offer

OLD, NEW = "580.105.08", "580.178.04"
PACKAGES = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe", "standin-dkms")
# Everything but what dpkg and apt write about their own work, and what every boot changes.
STATE = """dpkg --get-selections; apt-mark showauto; apt-mark showhold
find /etc /lib/modules /usr/share/keyrings /opt -xdev \\( -type f -o -type l \\) ! -name 'ld.so.cache' \
    ! -name 'modules.*' ! -path '/opt/site*' ! -path '/opt/mirror*' -exec sha256sum {} + | sort -k2
find /etc /lib/modules -xdev -printf '%p %m %U %G %y\\n' | grep -v modules.[a-z] | sort"""

KILL = "ps axo pid,args | awk '/apt-get|dpkg|python3|postinst|sleep 300/ && !/awk/ {print $1}' | xargs kill -9"


@pytest.fixture(scope="module")
def host(rig: Rig) -> Iterator[TestHost]:
    """A host of Ubuntu's kind with eight T4, no driver, and headers for the running kernel."""
    [host] = rig.up(["gpu1"], machine="g4dn_metal")
    be_ubuntu(host)
    yield host
    rig.down([host.name])


def kernel(host: TestHost) -> str:
    return host.run("uname", "-r").stdout.strip()


def state(host: TestHost) -> str:
    return host.run("sh", "-c", STATE).stdout


def bring(gpuctl: Gpuctl, rig: Rig, tmp_path: Path, stack: str, *words: str) -> Said:
    path = tmp_path / "stack.yml"
    path.write_text(f"gpu_stack: {stack}\n")
    return gpuctl("bootstrap", "gpu-node", "-i", rig.inventory(), "--stack", path, "-o", "json", "--yes", *words)


def undo(gpuctl: Gpuctl, rig: Rig, *words: str) -> Said:
    return gpuctl("rollback", "-i", rig.inventory(), "--only", "gpu_stack", "-o", "json", "--via", "ssh", *words)


def knobs(done: Said, host: TestHost) -> dict[str, dict[str, Any]]:
    assert done.out, done.err
    return {knob["knob"]: knob for knob in done.hosts[host.name]["knobs"]}


def reasons(done: Said, host: TestHost) -> list[str]:
    return [f"{name} {knob['state']}: {knob['reason']}" for name, knob in knobs(done, host).items()]


def versions(host: TestHost) -> dict[str, str]:
    shown = host.run("dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n", *PACKAGES, check=False)
    rows = [line.split() for line in shown.stdout.splitlines()]
    return {row[0]: f"{row[1]} {row[2]}" for row in rows if len(row) == 3}


def test_a_set_is_installed_held_upgraded_and_taken_back(
    gpuctl: Gpuctl, rig: Rig, host: TestHost, tmp_path: Path
) -> None:
    offer(host, [*driver(OLD, kernel(host)), *driver(NEW, kernel(host))], tmp_path)
    before = state(host)
    checked = bring(gpuctl, rig, tmp_path, f"{{driver: {OLD}}}", "--check")
    assert knobs(checked, host)["gpu_stack.driver"]["state"] == "differs"
    assert state(host) == before

    done = bring(gpuctl, rig, tmp_path, f"{{driver: {OLD}}}")
    assert done.code == 0, reasons(done, host)
    assert knobs(done, host)["gpu_stack.driver"]["state"] == "ok"
    assert versions(host) == {
        **dict.fromkeys(PACKAGES[:3], f"{OLD}-1ubuntu1 hi"),
        "standin-dkms": "3.0.1 ii",
    }
    assert "standin-dkms" in host.run("apt-mark", "showauto").stdout
    assert host.run("modinfo", "-F", "version", "nvidia").stdout.strip() == OLD
    # A newer version is in the repository.
    upgrade = host.run("apt-get", "-s", "full-upgrade").stdout
    assert "Inst " not in upgrade
    assert not any(knob["changed"] for knob in knobs(bring(gpuctl, rig, tmp_path, f"{{driver: {OLD}}}"), host).values())
    inventory = gpuctl.inventory({host.name: reach(host, gpu_stack={"driver": OLD})})
    drift = ("drift", "-i", inventory, "-o", "json", "--via", "ssh")
    assert knobs(gpuctl(*drift), host)["gpu_stack.driver"]["state"] == "ok"
    host.run("apt-mark", "unhold", "nvidia-modprobe")
    [step] = knobs(gpuctl(*drift), host)["gpu_stack.driver"]["steps"]
    assert step["setting"] == "deb:nvidia-modprobe"

    upgraded = bring(gpuctl, rig, tmp_path, f"{{driver: {NEW}}}")
    assert upgraded.code == 0, reasons(upgraded, host)
    assert set(versions(host).values()) == {f"{NEW}-1ubuntu1 hi", "3.0.1 ii"}
    downgraded = bring(gpuctl, rig, tmp_path, f"{{driver: {OLD}}}")
    assert downgraded.code == 0, reasons(downgraded, host)
    assert set(versions(host).values()) == {f"{OLD}-1ubuntu1 hi", "3.0.1 ii"}

    undone = undo(gpuctl, rig)
    assert undone.code == 0, reasons(undone, host)
    assert state(host) == before
    assert json.loads(undo(gpuctl, rig).out or "{}").get("hosts", [{}])[0].get("knobs", []) == []


def test_an_installation_that_was_killed_is_completed_by_the_next_run_and_undone(
    gpuctl: Gpuctl, rig: Rig, host: TestHost, tmp_path: Path
) -> None:
    # Like DKMS in the middle of a build; once the file is gone, it takes no time.
    waiting = f"depmod {kernel(host)}; if [ -e /root/slow ]; then touch /root/begun; sleep 300; fi"
    offer(host, driver(NEW, kernel(host), postinst=waiting), tmp_path)
    before = state(host)
    host.write("/root/slow", "")
    path = tmp_path / "stack.yml"
    path.write_text(f"gpu_stack: {{driver: {NEW}}}\n")
    running = gpuctl.start("bootstrap", "gpu-node", "-i", rig.inventory(), "--stack", path, "--yes")
    wait_until(lambda: host.exists("/root/begun"), 120, "the package is not being configured")
    host.run("sh", "-c", KILL, check=False)
    assert gpuctl.said(running).code == 3
    host.run("rm", "/root/slow")
    assert "nvidia-dkms-580-open" in host.run("dpkg", "--audit").stdout

    checked = bring(gpuctl, rig, tmp_path, f"{{driver: {NEW}}}", "--check")
    assert "interrupted: dpkg was interrupted" in knobs(checked, host)["gpu_stack.driver"]["reason"]
    done = bring(gpuctl, rig, tmp_path, f"{{driver: {NEW}}}")
    assert done.code == 0, reasons(done, host)
    assert set(versions(host).values()) == {f"{NEW}-1ubuntu1 hi", "3.0.1 ii"}
    undone = undo(gpuctl, rig)
    assert undone.code == 0, reasons(undone, host)
    assert state(host) == before


def test_two_flavours_that_a_kill_left_are_one_after_the_next_run(
    gpuctl: Gpuctl, rig: Rig, host: TestHost, tmp_path: Path
) -> None:
    waiting = f"depmod {kernel(host)}; if [ -e /root/slow ]; then touch /root/begun; sleep 300; fi"
    other = StandinPackage("nvidia-dkms-580", f"{NEW}-1ubuntu1")
    offer(host, [*driver(NEW, kernel(host), postinst=waiting), other], tmp_path)
    host.run("sh", "-c", "rm -f /root/begun; apt-get install -qq -y nvidia-dkms-580")
    before = state(host)
    host.write("/root/slow", "")
    path = tmp_path / "stack.yml"
    path.write_text(f"gpu_stack: {{driver: {NEW}}}\n")
    running = gpuctl.start("bootstrap", "gpu-node", "-i", rig.inventory(), "--stack", path, "--yes")
    wait_until(lambda: host.exists("/root/begun"), 120, "the package is not being configured")
    host.run("sh", "-c", KILL, check=False)
    assert gpuctl.said(running).code == 3
    host.run("rm", "/root/slow")
    # apt may remove the other flavour first or last: here both are unpacked.
    host.run("sh", "-c", f"dpkg --force-depends -i {FOLDER}/nvidia-dkms-580_*.deb; dpkg --configure -a")

    one = bring(gpuctl, rig, tmp_path, f"{{driver: {NEW}}}")
    assert one.code == 0, reasons(one, host)
    assert set(versions(host).values()) == {f"{NEW}-1ubuntu1 hi", "3.0.1 ii"}
    assert host.run("dpkg-query", "-W", "nvidia-dkms-580", check=False).returncode != 0
    assert not any(knob["changed"] for knob in knobs(bring(gpuctl, rig, tmp_path, f"{{driver: {NEW}}}"), host).values())
    undone = undo(gpuctl, rig)
    assert undone.code == 0, reasons(undone, host)
    assert state(host) == before
    host.run("apt-get", "purge", "-qq", "-y", "nvidia-dkms-580")


def test_a_package_with_a_wrong_hash_changes_nothing(gpuctl: Gpuctl, rig: Rig, host: TestHost, tmp_path: Path) -> None:
    offer(host, driver(NEW, kernel(host)), tmp_path)
    listing = host.read(f"{FOLDER}/Packages")
    host.write(f"{FOLDER}/Packages", re.sub(r"(?m)^(SHA256|MD5sum|SHA1): .", r"\1: 0", listing))
    host.run("apt-get", "-qq", "update")
    before = state(host)
    done = bring(gpuctl, rig, tmp_path, f"{{driver: {NEW}}}")
    assert done.code == 1
    assert "cannot download the packages" in knobs(done, host)["gpu_stack.driver"]["reason"]
    assert state(host) == before


def test_a_full_disk_and_a_repository_that_vanishes_half_way_leave_the_packages_as_before(
    gpuctl: Gpuctl, rig: Rig, host: TestHost, tmp_path: Path
) -> None:
    offer(host, [*driver(OLD, kernel(host)), *driver(NEW, kernel(host))], tmp_path)
    assert bring(gpuctl, rig, tmp_path, f"{{driver: {OLD}}}").code == 0
    before = state(host)
    modules = f"/lib/modules/{kernel(host)}/updates"
    # Room for the small packages, and not for the module beside the old one.
    host.run("sh", "-c", f"cp -a {modules} /root/updates && mount -t tmpfs -o size=16k,nr_inodes=4 tmpfs {modules}")
    host.run("sh", "-c", f"cp -a /root/updates/. {modules}/")
    try:
        full = bring(gpuctl, rig, tmp_path, f"{{driver: {NEW}}}")
    finally:
        host.run("umount", modules)
    assert full.code == 1
    assert "No space left on device" in knobs(full, host)["gpu_stack.driver"]["reason"]
    assert set(versions(host).values()) == {f"{OLD}-1ubuntu1 hi", "3.0.1 ii"}
    assert state(host) == before

    moved = host.root / f"root/nvidia-modprobe_{NEW}-1ubuntu1_all.deb"
    shutil.move(host.root / FOLDER[1:] / moved.name, moved)
    vanished = bring(gpuctl, rig, tmp_path, f"{{driver: {NEW}}}")
    assert vanished.code == 1
    assert "cannot download the packages" in knobs(vanished, host)["gpu_stack.driver"]["reason"]
    assert state(host) == before
    shutil.move(moved, host.root / FOLDER[1:])
    assert bring(gpuctl, rig, tmp_path, f"{{driver: {NEW}}}").code == 0
    assert set(versions(host).values()) == {f"{NEW}-1ubuntu1 hi", "3.0.1 ii"}
    assert undo(gpuctl, rig).code == 0


KEY_ROW = "Signed-By: /usr/share/keyrings/gpuctl-nvidia-cuda.asc"


def signed_mirror(host: TestHost, tmp_path: Path) -> str:
    """Sign the packages of the host's repository, in a mirror with NVIDIA's paths; return the key's fingerprint."""
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--passphrase", ""]
    folder = "/opt/mirror/compute/cuda/repos/ubuntu2404/x86_64"
    host.run("sh", "-c", f"mkdir -p {folder} && cp {FOLDER}/* {folder}/")
    try:
        subprocess.run(
            [*gpg, "--quick-generate-key", "site", "ed25519", "sign", "never"], check=True, capture_output=True
        )
        rows = subprocess.run([*gpg, "--list-keys", "--with-colons"], check=True, capture_output=True, text=True).stdout
        key = subprocess.run([*gpg, "--armor", "--export"], check=True, capture_output=True, text=True).stdout
        host.write(f"{folder}/3bf863cc.pub", key)
        listing = host.read(f"{folder}/Packages").encode()
        entry = f" {hashlib.sha256(listing).hexdigest()} {len(listing)} Packages"
        release = f"Origin: site\nDate: {format_datetime(datetime.now(UTC), usegmt=True)}\nSHA256:\n{entry}\n"
        signed = subprocess.run([*gpg, "--clearsign"], input=release, check=True, capture_output=True, text=True).stdout
        host.write(f"{folder}/InRelease", signed)
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
    return next(row.split(":")[9] for row in rows.splitlines() if row.startswith("fpr"))


class Silent:
    """Receives the progress of a run in this process."""

    def on_result(self, result: HostResult) -> None:
        pass

    def on_change(self, hosts: Iterable[str]) -> None:
        pass


def test_a_repository_comes_with_a_key_of_the_pinned_fingerprint_only(
    gpuctl: Gpuctl, rig: Rig, host: TestHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(host, driver(NEW, kernel(host)), tmp_path)
    fingerprint = signed_mirror(host, tmp_path)
    host.run("sh", "-c", f"rm -rf {FOLDER} /etc/apt/sources.list.d/site.list && apt-get -qq update")
    before = state(host)
    wanted = f"{{driver: {NEW}, source: 'file:/opt/mirror'}}"
    refused = bring(gpuctl, rig, tmp_path, wanted)
    assert refused.code == 1
    assert "fingerprint other than the pinned ones" in knobs(refused, host)["gpu_stack.driver"]["reason"]
    assert state(host) == before

    known = knowledge()
    keys = tuple(replace(key, fingerprint=fingerprint) if key.name == "cuda-apt" else key for key in known.keys)
    for module in (gpu_node_plan, gpu_node_apply):
        monkeypatch.setattr(module, "knowledge", lambda: replace(known, keys=keys))
    request = gpu_node_apply.ApplyRequest(str(rig.inventory()), stack=tmp_path / "stack.yml")
    prepared = gpu_node_apply.prepare(request, date(2026, 11, 27), lambda _: None)
    assert [made.state for made in prepared.fleet.plans] == ["install"]
    assert state(host) == before
    [result] = prepared.run.run(Silent())
    assert {knob["state"] for knob in result.knobs} == {"ok"}, [knob["reason"] for knob in result.knobs]
    assert KEY_ROW in host.read("/etc/apt/sources.list.d/gpuctl-nvidia-cuda.sources")
    assert set(versions(host).values()) == {f"{NEW}-1ubuntu1 hi", "3.0.1 ii"}
    undone = undo(gpuctl, rig)
    assert undone.code == 0, reasons(undone, host)
    assert state(host) == before
    assert "mirror" not in host.run("ls", "/var/lib/apt/lists").stdout
