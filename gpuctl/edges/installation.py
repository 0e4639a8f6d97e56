"""Origin of the installed gpuctl, and the files of installed packages: kept before an update, and put back."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.processes import Processes

PIP_S = 900.0
DOING = "update gpuctl"
# What installed a package -> how it is updated.
ADVICE = {
    "uv": "uv installed it: uv tool upgrade gpuctl, or uv pip install --upgrade gpuctl",
    "conda": "conda installed it: conda update gpuctl",
    "dpkg": "the distribution installed it: apt-get install --only-upgrade gpuctl",
    "debian": "the distribution installed it: apt-get install --only-upgrade gpuctl",
    "rpm": "the distribution installed it: dnf upgrade gpuctl",
}


@dataclass(frozen=True)
class Environment:
    """A Python and the folder of its packages."""

    python: Path
    site: Path
    prefix: Path

    def packages(self) -> dict[str, metadata.Distribution]:
        """Installed packages by their plain names; remains of packages without metadata are left out."""
        found = metadata.distributions(path=[str(self.site)])
        return {plain(one.metadata["Name"]): one for one in found if "Name" in one.metadata}

    def pip(self, *argv: str) -> str:
        """Standard output of pip, with the user's own configuration; `GpuctlError` with its message."""
        command = [str(self.python), "-m", "pip", "--no-input", "--disable-pip-version-check", *argv]
        done = Processes().run(command, b"", PIP_S)
        if done.code is None:
            raise GpuctlError(DOING, f"pip gave no answer within {PIP_S:g} s", "is the package index reachable?")
        if done.code:
            lines = [line for line in done.err.splitlines() if line.startswith("ERROR:")] or done.err.splitlines()
            wrong = lines[-1].removeprefix("ERROR:").strip() if lines else "pip failed"
            raise GpuctlError(DOING, wrong, "pip's configuration says which index it asks: pip config list")
        return done.out.decode(errors="replace")


@dataclass(frozen=True)
class Install:
    """`checkout`: folder of an editable install, None for a package of an index. `version`: installed."""

    version: str
    checkout: Path | None


def plain(name: str) -> str:
    """Name of a package as indexes compare it."""
    return name.lower().replace("_", "-").replace(".", "-")


def current() -> Environment:
    """The environment that runs gpuctl."""
    home = Path(str(metadata.distribution("gpuctl").locate_file("")))
    return Environment(Path(sys.executable), home, Path(sys.prefix))


def become(environment: Environment, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by the installed gpuctl with these arguments."""
    start = "from gpuctl.cli.entry import main; main()"
    os.execv(environment.python, [str(environment.python), "-c", start, *arguments])  # noqa: S606 - no shell


def examine(environment: Environment, name: str = "gpuctl") -> Install:
    """Origin of an installed package; `InvalidInput` with advice if something other than pip has to update it."""
    found = environment.packages().get(name)
    if found is None:
        raise InvalidInput(DOING, f"{environment.python} has no package {name}", "install it with pip")
    origin: Mapping[str, Any] = json.loads(found.read_text("direct_url.json") or "{}")
    if (origin.get("dir_info") or {}).get("editable"):
        folder = Path(unquote(urlsplit(origin["url"]).path))
        if not (folder / ".git").exists():
            raise InvalidInput(DOING, f"{folder} is no git checkout", "update that folder as you got it")
        return Install(found.version, folder)
    if origin:
        wrong = f"it was installed from {origin.get('url')}, not from a package index"
        raise InvalidInput(DOING, wrong, "run pip install --upgrade with that address")
    if advice := _advice(environment, found):
        raise InvalidInput(DOING, "it is managed by another program", advice)
    return Install(found.version, None)


def _advice(environment: Environment, found: metadata.Distribution) -> str:
    """Advice on the update, if pip may not do it; "" if pip may."""
    if (environment.prefix / "pipx_metadata.json").exists():
        return "pipx installed it: pipx upgrade gpuctl"
    installer = (found.read_text("INSTALLER") or "").strip()
    if installer != "pip":
        return ADVICE.get(installer, f"update it with {installer or 'whatever installed it'}")
    marker = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"
    if marker.exists() and not (environment.prefix / "pyvenv.cfg").exists():
        return "the system's Python is managed by the distribution: install gpuctl with pipx or in a venv"
    if not os.access(environment.site, os.W_OK):
        return f"you have no permission to write to {environment.site}: ask whoever installed it, or use a venv"
    return ""


# ---- files of packages -----------------------------------------------------------------------------------------------


def keep(environment: Environment, names: Iterable[str], archive: Path) -> None:
    """Pack the files of installed packages; names that are not installed are left out."""
    packages = environment.packages()
    with tarfile.open(archive, "w") as tar:
        for name in names:
            if name in packages:
                for path in files_of(environment, packages[name]):
                    tar.add(path, arcname=str(path.relative_to(environment.prefix)), recursive=False)


def files_of(environment: Environment, package: metadata.Distribution) -> list[Path]:
    """Existing files of a package inside the environment."""
    paths = [Path(os.path.normpath(environment.site / str(file))) for file in package.files or ()]
    return [path for path in paths if path.is_relative_to(environment.prefix) and path.is_file()]


def put_back(environment: Environment, names: Iterable[str], archive: Path) -> None:
    """Replace the packages by the packed ones; packages that were not packed are removed."""
    with tarfile.open(archive) as tar:  # a damaged archive is noticed before anything is removed
        members = tar.getmembers()
        packages = environment.packages()
        for name in names:
            if name in packages:
                _remove(environment, packages[name])
        for member in members:
            tar.extract(member, environment.prefix, filter="tar")


def _remove(environment: Environment, package: metadata.Distribution) -> None:
    paths = files_of(environment, package)
    for path in paths:
        path.unlink()
    for folder in {parent for path in paths for parent in path.parents if environment.site in parent.parents}:
        cache = folder / "__pycache__"
        if cache.is_dir() and not any(entry.suffix == ".py" for entry in folder.iterdir() if entry.is_file()):
            shutil.rmtree(cache, ignore_errors=True)
    folders = {parent for path in paths for parent in path.parents if environment.site in parent.parents}
    for folder in sorted(folders, key=lambda one: -len(one.parts)):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
