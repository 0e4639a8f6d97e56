"""A dnf repository of stand-in packages (true names and versions, no content), and a root folder to install into."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SPEC = """Name: {name}
Version: {version}
Release: {release}
Epoch: {epoch}
Summary: stand-in of gpuctl's tests
License: MIT
BuildArch: noarch
AutoReqProv: no
{more}
%description
stand-in of gpuctl's tests
%files
"""
MODULE = """---
document: modulemd
version: 2
data:
  name: {name}
  stream: {stream}
  version: 1
  context: "9"
  arch: noarch
  summary: stand-in of gpuctl's tests
  description: stand-in of gpuctl's tests
  license: {{module: [MIT]}}
  artifacts:
    rpms: [{rpms}]
...
"""
# Only adds where to install and from where; what it is asked for is passed on to the real one.
DNF = """#!/bin/sh
PATH=/usr/sbin:/usr/bin:/sbin:/bin exec {dnf} --installroot={root} --releasever=9 \\
  --setopt=reposdir={root}/etc/yum.repos.d --setopt=module_platform_id=platform:el9 \\
  --setopt=cachedir={root}/var/cache/dnf "$@"
"""
MISSING = [name for name in ("dnf", "rpmbuild", "createrepo_c", "modifyrepo_c") if not shutil.which(name)]


@dataclass(frozen=True)
class Rpm:
    """`more`: lines of the spec, such as Requires."""

    name: str
    version: str
    release: str = "1.el9"
    epoch: int = 3
    more: str = ""

    @property
    def nevra(self) -> str:
        return f"{self.name}-{self.epoch}:{self.version}-{self.release}.noarch"


class RpmRoot:
    """A root folder below which dnf is the real one, installing into that folder only."""

    def __init__(self, folder: Path) -> None:
        self.root, self.repository, self._work = folder / "root", folder / "repository", folder / "build"
        for path in ("usr/bin", "etc/yum.repos.d", "var/cache/dnf", "tmp", "proc/sys/kernel"):
            (self.root / path).mkdir(parents=True)
        self.repository.mkdir()
        self._work.mkdir()
        repo = f"[cuda-rhel9]\nname=stand-in\nbaseurl=file://{self.repository}\ngpgcheck=0\n"
        (self.root / "etc/yum.repos.d/cuda-rhel9.repo").write_text(repo)
        dnf = self.root / "usr/bin/dnf"
        dnf.write_text(DNF.format(dnf=shutil.which("dnf"), root=self.root))
        dnf.chmod(0o755)

    def offer(self, packages: Sequence[Rpm], stream: str = "", of_stream: Sequence[Rpm] = ()) -> None:
        """Add packages to the repository, some of them in a module stream ("nvidia-driver:580-open")."""
        for package in packages:
            spec = self._work / f"{package.name}.spec"
            spec.write_text(SPEC.format(**vars(package)))
            places = [f"--define=_topdir {self._work}", f"--define=_rpmdir {self.repository}"]
            _run("rpmbuild", "-bb", "--quiet", *places, f"--define=_dbpath {self._work}/db", spec)
        _run("createrepo_c", "-q", self.repository)
        if stream:
            name, _, stream = stream.partition(":")
            modules = self._work / "modules.yaml"
            rpms = ", ".join(f'"{package.nevra}"' for package in of_stream)
            modules.write_text(MODULE.format(name=name, stream=stream, rpms=rpms))
            _run("modifyrepo_c", "--mdtype=modules", modules, self.repository / "repodata")
        self.dnf("makecache", "-q", "--refresh")

    def dnf(self, *words: str) -> None:
        _run(self.root / "usr/bin/dnf", "-y", *words)


def _run(*argv: object) -> None:
    subprocess.run([str(word) for word in argv], check=True, capture_output=True, text=True)
