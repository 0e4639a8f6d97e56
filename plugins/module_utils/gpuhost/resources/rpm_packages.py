"""Packages that rpm has, as texts of settings: versions, marks, and what a transaction of gpuctl has left half done."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..host import Host
from ..model import Unreadable
from ..remembered import Remembered
from . import rpm_journal
from .rpm_journal import Journal

UNFINISHED, SEVERAL = "unfinished", "several"
OF_KERNEL = re.compile(r"kernel[\d.]*(?:-|$)")
_FORM = "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\t%{ARCH}\t%{INSTALLTIME}\n"
# Packages of a kernel's version of which dnf replaces the earlier one.
_SINGLE = re.compile(r"-(?:cross-)?headers$|-tools(?:-|$)|-(?:doc|abi|livepatch)(?:-|$)|-macros$")


class Installed(NamedTuple):
    """One row of rpm's database; `version` has its epoch where that is not zero."""

    name: str
    version: str
    architecture: str
    time: int

    @property
    def exact(self) -> str:
        return f"{self.name}-{self.version}.{self.architecture}"

    @property
    def key(self) -> str:
        return key_of(self.name, self.version)


def is_kernel(name: str) -> bool:
    """True for a package of a kernel, also of kernel6.12, of which several versions stay installed."""
    return bool(OF_KERNEL.match(name)) and not _SINGLE.search(name)


def key_of(name: str, version: str) -> str:
    """The package as settings name it."""
    return f"{name}={version}" if is_kernel(name) else name


def name_of(key: str) -> str:
    """Name of the package of a key."""
    return key.partition("=")[0]


def installed(host: Host) -> list[Installed]:
    """All packages that rpm has; `Unreadable` with its reason."""
    result = host.run("rpm", "-qa", "--qf", _FORM)
    if not result.ok:
        raise Unreadable(f"rpm: {result.last_line}")
    rows = [line.split("\t") for line in result.out.splitlines()]
    return [
        Installed(row[0], row[1].removeprefix("0:"), row[2], int(row[3]))
        for row in rows
        if len(row) == 4 and row[3].isdigit()
    ]


def states(host: Host, names: Iterable[str]) -> dict[str, str | None]:
    """The texts of packages, by one query to rpm, and one to dnf if any is installed."""
    names = list(names)
    if isinstance(host, Remembered):
        if host.packages is None:
            host.packages = _query(host, None)
        known: Mapping[str, str] = host.packages
    else:
        known = _query(host, {name_of(name) for name in names})
    return {name: known.get(name) for name in names}


def _query(host: Host, names: set[str] | None) -> dict[str, str]:
    """Texts of these packages, without names of all."""
    by_name = _by_name(host, names) if names is None or names else {}
    chosen = installed_for_themselves(host) if by_name else frozenset()
    journal = rpm_journal.load(host)
    return {
        key: text
        for name, versions in by_name.items()
        for key, text in _texts(name, versions, "manual" if name in chosen else "auto", journal)
    }


def _by_name(host: Host, names: set[str] | None) -> dict[str, list[str]]:
    by_name: dict[str, list[str]] = {}
    for row in installed(host):
        if (names is None or row.name in names) and row.version not in by_name.setdefault(row.name, []):
            by_name[row.name].append(row.version)
    return by_name


def versions(host: Host, keys: Iterable[str]) -> dict[str, str]:
    """Package -> its version, "" if it is not installed; without a question to dnf, which takes half a second."""
    keys = list(keys)
    by_name = _by_name(host, {name_of(key) for key in keys})
    known = {key: text for name, rows in by_name.items() for key, text in _texts(name, rows, "", Journal())}
    return {key: version_of(known.get(key)) for key in keys}


def _texts(name: str, versions: Sequence[str], mark: str, journal: Journal) -> Iterator[tuple[str, str]]:
    for key, some in [(key_of(name, one), [one]) for one in versions] if is_kernel(name) else [(name, versions)]:
        if any(journal.has(key, version) for version in some):
            yield key, f"{','.join(some)} {UNFINISHED} {journal.marks.get(key, mark)}"
        else:
            yield key, f"{','.join(some)} {mark if len(some) == 1 else SEVERAL}"


def version_of(text: str | None) -> str:
    """The version in a text, of a package that is half done, too; "" for one that is not installed."""
    return (text or "").partition(" ")[0]


def mark_of(text: str | None) -> str:
    """manual or auto: of an unfinished package, the one that it is to have."""
    return (text or "").rpartition(" ")[2]


def several(states: Mapping[str, str | None]) -> str:
    """Why packages that rpm has in several versions must not be changed; "" if there is none."""
    rows = [f"{key} ({version_of(text)})" for key, text in states.items() if (text or "").endswith(f" {SEVERAL}")]
    hint = "gpuctl has not caused that and leaves them: see `dnf check --duplicates`"
    return f"installed in several versions: {', '.join(rows[:4])}; {hint}" if rows else ""


def installed_for_themselves(host: Host) -> frozenset[str]:
    """Names of packages that are no mere dependencies; `Unreadable` with dnf's reason."""
    with host.scratch_folder() as scratch:
        # dnf's history has the reasons; without repositories there is nothing to download.
        places = [f"--setopt={name}={scratch}" for name in ("cachedir", "logdir")]
        query = ("repoquery", "--quiet", "--userinstalled", "--qf", "%{name}")
        result = host.run("dnf", *places, "--cacheonly", "--disablerepo=*", *query)
    if not result.ok:
        raise Unreadable(f"dnf repoquery: {result.without_secrets.last_line}")
    return frozenset(result.out.split())
