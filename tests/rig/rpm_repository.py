"""A dnf repository of stand-in packages (true names and versions, no content), and a root folder to install into."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
{scripts}
%install
mkdir -p %{{buildroot}}
{install}
%files
{files}
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
# --installroot leaves the plugins' configuration as it is, so that the list it names is put below the root, too.
DNF = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
sed 's|^locklist *= *|&{root}|' {root}/etc/dnf/plugins/versionlock.conf > {plugins}/versionlock.conf
exec {dnf} --installroot={root} --releasever=9 \\
  --setopt=reposdir={root}/etc/yum.repos.d --setopt=module_platform_id=platform:el9 \\
  --setopt=cachedir={root}/var/cache/dnf --setopt=pluginconfpath={plugins} "$@"
"""
RPM = '#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin exec {rpm} --root={root} "$@"\n'
KEYS = "etc/pki/rpm-gpg"
LOCKS = "/etc/dnf/plugins/versionlock.list"
MISSING = [name for name in ("dnf", "rpmbuild", "createrepo_c", "modifyrepo_c") if not shutil.which(name)]


@dataclass(frozen=True)
class Rpm:
    """`more`: lines of the spec, such as Requires; `files`: path -> content; `scripts`: sections such as %post."""

    name: str
    version: str
    release: str = "1.el9"
    epoch: int = 3
    more: str = ""
    files: Mapping[str, str] = field(default_factory=dict, hash=False)
    scripts: str = ""

    @property
    def spec(self) -> str:
        install = "".join(
            f"install -D /dev/stdin %{{buildroot}}{path} <<'END'\n{text}\nEND\n" for path, text in self.files.items()
        )
        return SPEC.format(**{**vars(self), "install": install, "files": "\n".join(self.files)})

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
        for name, script in (("dnf", DNF), ("rpm", RPM)):
            program = self.root / "usr/bin" / name
            program.write_text(script.format(**{name: shutil.which(name)}, root=self.root, plugins=self._work))
            program.chmod(0o755)
        plugins = self.root / "etc/dnf/plugins"
        plugins.mkdir(parents=True)
        (plugins / "versionlock.conf").write_text(f"[main]\nenabled = 1\nlocklist = {LOCKS}\n")
        (self.root / LOCKS[1:]).write_text("")

    def offer(self, packages: Sequence[Rpm], stream: str = "", of_stream: Sequence[Rpm] = ()) -> None:
        """Add packages to the repository, some of them in a module stream ("nvidia-driver:580-open")."""
        for package in packages:
            spec = self._work / f"{package.name}.spec"
            spec.write_text(package.spec)
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

    def sign(self, signer: str) -> None:
        """Sign all packages with a key of this name, and let dnf verify them by it."""
        with self._key(signer) as home:
            places = [f"--define=__gpg {shutil.which('gpg')}", f"--define=_gpg_path {home}"]
            _run("rpmsign", *places, f"--define=_gpg_name {signer}", "--resign", *self.repository.rglob("*.rpm"))
        modules = next(self.repository.glob("repodata/*modules.yaml*"), None)
        kept = self._work / modules.name if modules else None
        if modules and kept:
            shutil.copy(modules, kept)
        _run("createrepo_c", "-q", self.repository)
        if kept:
            _run("modifyrepo_c", "--mdtype=modules", kept, self.repository / "repodata")
        self.trust(signer)

    def trust(self, name: str) -> None:
        """Let dnf verify packages by the key of this name alone."""
        with self._key(name):
            pass
        repository = self.root / "etc/yum.repos.d/cuda-rhel9.repo"
        text = repository.read_text().partition("gpgcheck=")[0]
        repository.write_text(f"{text}gpgcheck=1\ngpgkey=file://{self.root}/{KEYS}/{name}.asc\n")
        self.dnf("makecache", "-q", "--refresh")

    @contextmanager
    def _key(self, name: str) -> Iterator[Path]:
        """The folder of gpg while it has a key of this name."""
        home, keys = self._work / "gnupg", self.root / KEYS
        home.mkdir(mode=0o700, exist_ok=True)
        keys.mkdir(parents=True, exist_ok=True)
        gpg = ("gpg", "--homedir", home, "--batch", "--passphrase", "")
        try:
            if not (keys / f"{name}.asc").exists():
                _run(*gpg, "--quick-generate-key", name, "rsa2048", "sign", "never")
                (keys / f"{name}.asc").write_text(_run(*gpg, "--armor", "--export", name))
            yield home
        finally:
            subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)

    def rpm(self, *words: str) -> str:
        return _run(self.root / "usr/bin/rpm", *words)

    def dnf(self, *words: str) -> str:
        return _run(self.root / "usr/bin/dnf", "-y", *words)

    def packages(self) -> dict[str, str]:
        """Name -> version with its epoch, of the packages that are installed."""
        shown = self.rpm("-qa", "--qf", "%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\n")
        return dict(row.split() for row in shown.splitlines())


def _run(*argv: object) -> str:
    return subprocess.run([str(word) for word in argv], check=True, capture_output=True, text=True).stdout
