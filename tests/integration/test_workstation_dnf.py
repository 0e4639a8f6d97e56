"""The dnf family: a real dnf with a real repository, installing into a root folder of the test's own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.machine import Machine
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.packages import Packages

SPEC = """Name: fzf
Version: 0.60.0
Release: 1
Epoch: 2
Summary: a test
License: MIT
BuildArch: noarch
AutoReqProv: no
%description
a test
%install
mkdir -p %{buildroot}/usr/bin
printf '#!/bin/sh\necho 0.60.0\n' > %{buildroot}/usr/bin/fzf
chmod 755 %{buildroot}/usr/bin/fzf
%files
/usr/bin/fzf
"""
# Only adds where to install and from where; what it is asked for is passed on to the real one.
DNF = """#!/bin/sh
exec {dnf} --installroot={root} --releasever=9 --disablerepo='*' --repofrompath=own,{repo} \\
  --setopt=own.gpgcheck=0 --setopt=cachedir={root}/cache "$@"
"""
MISSING = [name for name in ("dnf", "rpmbuild", "createrepo_c") if not shutil.which(name)]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"the packages dnf, rpm and createrepo-c: no {MISSING}")


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    repo, folder = tmp_path / "repo", tmp_path / "root/usr/bin"
    folder.mkdir(parents=True)
    (tmp_path / "fzf.spec").write_text(SPEC)
    places = [f"--define=_topdir {tmp_path}/build", f"--define=_rpmdir {repo}", f"--define=_dbpath {tmp_path}/db"]
    subprocess.run(["rpmbuild", "-bb", "--quiet", *places, tmp_path / "fzf.spec"], check=True, capture_output=True)
    subprocess.run(["createrepo_c", "-q", repo], check=True)
    (folder / "dnf").write_text(DNF.format(dnf=shutil.which("dnf"), root=tmp_path / "root", repo=repo))
    (folder / "dnf").chmod(0o755)
    machine = Machine(str(tmp_path), str(folder))
    machine.family = "redhat"
    return Packages(machine)


def row(minimal: str, package: str = "fzf") -> dict[str, object]:
    return {"name": "fzf", "minimal": minimal, "packages": {"redhat": package}}


def test_the_version_that_dnf_would_install_decides(packages: Packages) -> None:
    assert packages.why_not(row("0.29"), check=True) == ""
    assert packages.why_not(row("0.61"), check=True) == "the package fzf 0.60.0-1 is older than 0.61"
    assert packages.why_not(row("0.29", "lost"), check=True) == "the package lost is not in the package lists"


def test_dnf_installs_it(packages: Packages) -> None:
    assert packages.install([row("0.29")]) == {}
    assert packages.machine.version(row("0.29"), packages.machine.which("fzf")) == "0.60.0"


def test_what_dnf_cannot_install_says_why(packages: Packages) -> None:
    assert "Unable to find a match: lost" in packages.install([row("0.29", "lost")])["lost"]
