"""Package versions that a host's repositories offer, and its package manager without any write to the host."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from ..host import Host

APT_LISTS = "/var/lib/apt/lists"
DNF_CACHE = "/var/cache/dnf"
LIMIT_S = 90.0
WITHOUT_LOCKS = ("--disableplugin=versionlock",)
# Without these, root's apt writes its cache of packages and a log of the planner even in a simulation.
APT_READ_ONLY = (
    *("-o", "Dir::Cache::pkgcache="),
    *("-o", "Dir::Cache::srcpkgcache="),
    *("-o", "Dir::Log::Planner=/dev/null"),
    *("-o", "Dir::Log::Solver=/dev/null"),
    *("-o", "Debug::NoLocking=true"),
)


def manager(host: Host) -> str:
    """apt or dnf; "" if the host has neither."""
    if host.which("apt-get"):
        return "apt"
    return "dnf" if host.which("dnf") else ""


def offered(host: Host, names: Iterable[str], kernel: str, options: Sequence[str] = ()) -> dict[str, list[str]]:
    """Name -> versions in the host's repositories, the newest first; OSError with the reason if that cannot be read.

    `{kernel}` in a name is the running kernel's release. Versions have their epoch where it is not zero. `options`: of
    apt, for repositories that the host does not have yet.
    """
    versions: dict[str, list[str]] = {name.replace("{kernel}", kernel): [] for name in names}
    if not versions:
        return versions
    result = _apt_versions(host, [*versions], options) if manager(host) == "apt" else _dnf_versions(host, [*versions])
    for name, version in result:
        if version not in versions.setdefault(name, []):
            versions[name].append(version)
    return versions


def _apt_versions(host: Host, names: Sequence[str], options: Sequence[str]) -> Iterator[tuple[str, str]]:
    result = host.run("apt-cache", *APT_READ_ONLY, *options, "madison", *names, limit=LIMIT_S)
    if not result.ok:
        raise OSError(0, result.last_line, "apt-cache madison")
    for line in result.out.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and not cells[2].endswith(" Sources"):
            yield cells[0], cells[1]


def _dnf_versions(host: Host, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    form = "%{name} %{evr}"
    with dnf_read_only(host) as options:
        query = ("repoquery", "--quiet", "--available", "--showduplicates", "--qf", form)
        hidden = ("--setopt=*.module_hotfixes=1", *WITHOUT_LOCKS)  # by streams and locks
        result = host.run("dnf", *options, *hidden, *query, *names, limit=LIMIT_S)
    if not result.ok:
        raise OSError(0, result.without_secrets.last_line, "dnf repoquery")
    rows = [line.split() for line in result.out.splitlines()]
    # dnf sorts by version, the oldest first.
    yield from reversed([(row[0], row[1].removeprefix("0:")) for row in rows if len(row) == 2])


@contextmanager
def dnf_read_only(host: Host) -> Iterator[list[str]]:
    """Options with which dnf uses the host's own metadata, and writes only to a folder that is then removed."""
    with host.scratch_folder() as scratch:
        folders = {name: os.path.join(scratch, name) for name in ("cachedir", "logdir", "persistdir")}
        for path in folders.values():
            os.mkdir(path)
        # Links: dnf -C downloads nothing, and what it computes from the metadata it puts beside them.
        for name in host.listdir(DNF_CACHE):
            os.symlink(host.real(f"{DNF_CACHE}/{name}"), os.path.join(folders["cachedir"], name))
        places = [f"--setopt={name}={path}" for name, path in folders.items()]
        yield ["--cacheonly", *places, "--setopt=clean_requirements_on_remove=0"]


def age_days(host: Host, now: float) -> int | None:
    """Days since the host's package lists were last fetched; None if it has none."""
    if manager(host) == "dnf":
        times = [os.stat(host.real(path)).st_mtime for path in host.glob(f"{DNF_CACHE}/*/repodata/repomd.xml")]
    else:
        lists = host.glob(f"{APT_LISTS}/*_*")
        # A list has the time of its server: when it arrived, its folders and its inode changed.
        folders = [path for path in (APT_LISTS, f"{APT_LISTS}/partial") if lists and host.exists(path)]
        times = [os.stat(host.real(path)).st_mtime for path in folders]
        times += [os.stat(host.real(path)).st_ctime for path in lists]
    return max(0, int((now - max(times)) // 86400)) if times else None
