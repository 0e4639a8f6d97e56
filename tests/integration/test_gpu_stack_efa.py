"""EFA's installer on a real host, in archives that the test has signed: refused, half done, repaired, undone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gpuctl.gpu_node.model import StackPlan
from gpuctl.workflows import gpu_node_apply
from tests.integration.test_gpu_node_apply import Silent
from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl
from tests.rig.standin_efa import TOP, VERSIONS, Signer, build, give_modules, load, mirror, signer
from tests.rig.standin_packages import be_ubuntu

pytestmark = pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed")
OLD, NEW = "1.47.0", "1.48.0"
KNOB = "gpu_stack.efa"
STATE = """dpkg-query -W; find /opt/amazon /etc /usr/src /var/lib/gpuctl/efa* -xdev -type f ! -name ld.so.cache \
    -exec sha256sum {} + 2>/dev/null | sort -k2"""
Knob = Mapping[str, Any]


class Site:
    """A host with one EFA device, a mirror with two versions of the installer, and the key that is pinned."""

    def __init__(self, rig: Rig, host: TestHost, folder: Path, by: Signer) -> None:
        self.rig, self.host, self.folder, self.by = rig, host, folder, by
        self.uri = mirror(host, folder, by)

    def wanted(self, version: str, **more: str) -> Path:
        row = {"driver": "none", "efa": version, "efa_source": self.uri, "efa_key": self.by.fingerprint, **more}
        path = self.folder / "stack.yml"
        path.write_text(f"gpu_stack: {{{', '.join(f'{name}: {text}' for name, text in row.items())}}}\n")
        return path

    def prepare(self, version: str, *, check: bool = False, **more: str) -> gpu_node_apply.Prepared:
        request = gpu_node_apply.ApplyRequest(
            str(self.rig.inventory()), stack=self.wanted(version, **more), check=check
        )
        return gpu_node_apply.prepare(request, date(2026, 11, 27), lambda _: None)

    def plan(self, version: str) -> StackPlan:
        [made] = self.prepare(version, check=True).fleet.plans
        return made

    def bring(self, version: str, *, check: bool = False, **more: str) -> Knob:
        [result] = self.prepare(version, check=check, **more).run.run(Silent())
        return next(knob for knob in result.knobs if knob["knob"] == KNOB)

    def state(self) -> str:
        return self.host.run("sh", "-c", STATE, check=False).stdout

    def archive(self, version: str) -> Path:
        return self.host.root / "opt/mirror-efa" / f"{TOP}-{version}.tar.gz"


@pytest.fixture(scope="module")
def site(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("efa")
    [host] = rig.up(["efa1"], machine="g4dn_metal")
    kernel = be_ubuntu(host)
    give_modules(host)
    with signer(folder / "gnupg") as by:
        for version in VERSIONS:
            build(folder, version, kernel, by)
        yield Site(rig, host, folder, by)
    rig.down([host.name])


def test_nothing_is_unpacked_of_an_archive_that_another_key_or_nobody_has_signed(site: Site, gpuctl: Gpuctl) -> None:
    before = site.state()
    stack = site.folder / "aws.yml"
    stack.write_text(f"gpu_stack: {{driver: none, efa: {NEW}, efa_source: '{site.uri}'}}\n")
    by_aws = gpuctl("bootstrap", "gpu-node", "-i", site.rig.inventory(), "-o", "json", "--yes", "--stack", stack)
    knob = next(knob for knob in by_aws.hosts[site.host.name]["knobs"] if knob["knob"] == KNOB)
    assert by_aws.code == 1
    pinned = "4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC"
    assert f"has the fingerprint {site.by.fingerprint}, pinned is {pinned}" in knob["reason"]

    data = site.archive(NEW).read_bytes()
    site.archive(NEW).write_bytes(data[:2000] + bytes([data[2000] ^ 1]) + data[2001:])
    tampered = site.bring(NEW)
    assert (tampered["state"], "its signature is wrong (BADSIG)" in tampered["reason"]) == ("failed", True)
    site.archive(NEW).write_bytes(data)
    assert site.state() == before


def test_it_is_installed_repaired_downgraded_and_taken_back(site: Site, gpuctl: Gpuctl) -> None:
    before = site.state()
    installed = site.bring(OLD)
    assert (installed["state"], installed["now"]) == ("pending", "1.47.0 full"), installed["reason"]
    load(site.host, OLD)
    again = site.bring(OLD)
    assert (again["state"], again["changed"]) == ("ok", False), again["reason"]

    # A failure in the middle of an upgrade leaves the old record, and packages of both versions.
    site.host.write("/root/standin-efa-fails", "")
    failed = site.bring(NEW)
    assert failed["state"] == "failed"
    assert "EFA is now half installed (efa is 3.3.1-1.amzn1, its record has 2.17.2-1.amzn1" in failed["reason"]
    site.host.run("rm", "/root/standin-efa-fails")
    half = site.plan(OLD)
    assert half.changes
    assert "1.47.0, and not whole" in next(one.message for one in half.findings if one.check == "efa")
    repaired = site.bring(NEW)
    assert (repaired["state"], repaired["now"]) == ("pending", "1.48.0 full"), repaired["reason"]

    # A kernel for which DKMS has built nothing needs no archive.
    load(site.host, NEW)
    kernel = site.host.run("uname", "-r").stdout.strip()
    site.host.run("sh", "-c", f"rm /lib/modules/{kernel}/updates/dkms/efa.ko; depmod {kernel}")
    shutil.move(site.archive(NEW), site.folder / "away")
    rebuilt = site.bring(NEW)
    assert (rebuilt["state"], rebuilt["changed"]) == ("ok", True), rebuilt["reason"]
    assert rebuilt["was"]["now"] == "1.48.0, without its module"

    # The installer itself would skip newer packages, and record the older version all the same.
    assert site.bring(OLD)["now"] == "1.47.0 full"
    assert "2.1.0amzn5.0" in site.host.run("dpkg-query", "-W", "libfabric1-aws").stdout

    undone = gpuctl("rollback", "-i", site.rig.inventory(), "--only", KNOB, "-o", "json", "--via", "ssh")
    assert undone.code == 0, undone.out
    assert site.state() == before
