"""A package of rpm: "rpm:nvidia-driver-cuda", text "3:580.178.04-1.el9 manual"; None if it is not installed.

Of the kernel's packages, which stay beside each other, each version is one: "rpm:kernel-devel=5.14.0-427.el9".

The packages of a run change in one transaction of dnf: what dnf resolves must be exactly that change, everything is
downloaded before rpm starts, and a transaction that fails is taken back. Modules and version locks do not bind it, as
its versions are exact; its own locks are set afterwards, see lock.py.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ..host import Host, Result
from ..model import Unreadable
from ..remembered import Remembered
from .deb import UNREPAIRED, version_of

LIMIT_S = 5400.0  # DKMS builds a module for every kernel of the host
DNF = (
    *("dnf", "--allowerasing", "--disableplugin=versionlock"),
    *("--setopt=*.module_hotfixes=1", "--setopt=install_weak_deps=0", "--setopt=clean_requirements_on_remove=0"),
)
DUPLICATE = "duplicate"  # ends the text of a package whose replacement was interrupted
_FORM = "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\t%{ARCH}\t%{INSTALLTIME}\n"
_SECTION = re.compile(r"^(\S.*):$", re.MULTILINE)
# dnf wraps a row after a long name.
_ROW = re.compile(r"^ (\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+[\d.,]+ ?[kMG]?B?\s*$", re.MULTILINE)
_REPLACED = re.compile(r"^     replacing  (\S+)\.\w+ ", re.MULTILINE)
_SCRIPT = re.compile(r"^.*(?:scriptlet failed|Error in \S+ scriptlet).*$", re.MULTILINE)
_UNSIGNED = re.compile(r"^(?:Package \S+ is not signed|Public key for \S+ is not installed).*$", re.MULTILINE)
_PLAIN = re.compile(r"[\w.+:~^-]+")


class Installed(NamedTuple):
    """One row of rpm's database; `version` has its epoch where that is not zero."""

    name: str
    version: str
    architecture: str
    time: int

    @property
    def exact(self) -> str:
        return f"{self.name}-{self.version}.{self.architecture}"


class Change(NamedTuple):
    """Packages to install (name -> version), and to remove (name -> version)."""

    installs: dict[str, str]
    removes: dict[str, str]

    @property
    def script(self) -> str:
        """As `dnf shell` takes it; RuntimeError for a name that is none."""
        verbs = {"install": self.installs, "remove": self.removes}
        specs = {verb: [f"{_name(key)}-{version}" for key, version in rows.items()] for verb, rows in verbs.items()}
        odd = [spec for some in specs.values() for spec in some if not _PLAIN.fullmatch(spec)]
        if odd:
            raise RuntimeError(f"no name of a package: {odd[0]!r}")
        return "".join(f"{verb} {shlex.join(some)}\n" for verb, some in specs.items() if some) + "run\n"


class Rpm:
    """One package, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, host: Host) -> str | None:
        return states(host, [self.name])[self.name]

    def write(self, host: Host, text: str | None) -> None:
        wrong = write_rpms(host, {self.name: text}).get(self.name)
        if wrong:
            raise RuntimeError(wrong)


def is_kernel(name: str) -> bool:
    """True for a package of which several versions stay installed."""
    return bool(re.match(r"kernel(-|$)", name)) and name != "kernel-headers"


def _name(key: str) -> str:
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
        known = _query(host, {_name(name) for name in names})
    return {name: known.get(name) for name in names}


def _query(host: Host, names: set[str] | None) -> dict[str, str]:
    """Texts of these packages, without names of all."""
    by_name: dict[str, list[str]] = {}
    for row in installed(host) if names is None or names else ():
        if names is None or row.name in names:
            by_name.setdefault(row.name, []).append(row.version)
    chosen = _installed_for_themselves(host) if by_name else frozenset()
    return {key: text for name, rows in by_name.items() for key, text in _texts(name, rows, is_chosen=name in chosen)}


def _texts(name: str, versions: list[str], *, is_chosen: bool) -> Iterator[tuple[str, str]]:
    mark, versions = "manual" if is_chosen else "auto", list(dict.fromkeys(versions))
    if is_kernel(name):
        yield from ((f"{name}={version}", f"{version} {mark}") for version in versions)
    else:
        yield name, f"{versions[0]} {mark}" if len(versions) == 1 else f"{','.join(versions)} {DUPLICATE}"


def _installed_for_themselves(host: Host) -> frozenset[str]:
    with host.scratch_folder() as scratch:
        # dnf's history has the reasons; without repositories there is nothing to download.
        places = [f"--setopt={name}={scratch}" for name in ("cachedir", "logdir")]
        query = ("repoquery", "--quiet", "--userinstalled", "--qf", "%{name}")
        result = host.run("dnf", *places, "--cacheonly", "--disablerepo=*", *query)
    if not result.ok:
        raise Unreadable(f"dnf repoquery: {result.last_line}")
    return frozenset(result.out.split())


def write_rpms(host: Host, desired: Mapping[str, str | None]) -> dict[str, str]:
    """Change packages in one transaction; return the errors by package, the same for all if it failed as a whole."""
    try:
        repair(host, desired)
        before = states(host, desired)
        _apply(host, before, desired)
    except (RuntimeError, Unreadable) as error:
        return dict.fromkeys(desired, str(error))
    now = states(host, desired)
    return {
        name: f"asked for {text or 'absent'}, the host holds {now[name] or 'absent'}"
        for name, text in desired.items()
        if now[name] != text
    }


def _apply(host: Host, before: Mapping[str, str | None], desired: Mapping[str, str | None]) -> None:
    due = change(before, desired)
    if due.installs or due.removes:
        _check(host, due)
        _download(host, due)
        try:
            _run(host, due, desired, what="cannot change the packages")
        except RuntimeError as error:
            _take_back(host, before, desired, str(error))
            raise
    _mark(host, desired)


def change(now: Mapping[str, str | None], desired: Mapping[str, str | None]) -> Change:
    """The change between two states of the same packages."""
    installs = {
        name: version_of(text)
        for name, text in desired.items()
        if version_of(text) and version_of(now[name]) != version_of(text)
    }
    removes = {name: version_of(now[name]) for name, text in desired.items() if not version_of(text)}
    return Change(installs, {name: version for name, version in removes.items() if version})


def _check(host: Host, due: Change) -> None:
    """Refuse a change that dnf would not make exactly so; RuntimeError with the difference, or dnf's reason."""
    result = _dnf(host, due, "--assumeno", changes=False)
    reason = _reason(result)
    if reason:
        raise RuntimeError(f"dnf cannot do this: {reason}")
    installs, removes = resolved(result.out)
    planned = {_name(key): version for key, version in due.installs.items()}
    leaving = {_name(key) for key in due.removes}
    differences = [
        *(f"install {name} {version}" for name, version in installs.items() if planned.get(name) != version),
        *(f"remove {name}" for name in sorted(removes - leaving)),
        *(f"not install {name} {version}" for name, version in planned.items() if name not in installs),
        *(f"not remove {name}" for name in sorted(leaving - removes)),
    ]
    if differences:
        shown = ", ".join(differences[:6]) + (" …" if len(differences) > 6 else "")
        raise RuntimeError(f"dnf would now do what is not planned: {shown}; plan again")


def resolved(text: str) -> tuple[dict[str, str], set[str]]:
    """Packages that dnf's table installs (name -> version), and that it removes."""
    table = text.partition("\nTransaction Summary")[0]
    installs: dict[str, str] = {}
    removes: set[str] = set()
    parts = _SECTION.split(table)
    for title, rows in zip(parts[1::2], parts[2::2]):
        if title.startswith("Removing"):
            removes.update(row[0] for row in _ROW.findall(rows))
        else:
            installs.update({row[0]: row[2] for row in _ROW.findall(rows)})
            removes.update(_REPLACED.findall(rows))
    return installs, removes


def _download(host: Host, due: Change) -> None:
    """Download packages and verify their signatures; a key that dnf has imported in vain goes again."""
    known = _keys(host)
    result = _dnf(host, due, "--assumeyes", "--downloadonly", changes=True)
    reason = _reason(result)
    if reason or not result.ok:
        imported = sorted(_keys(host) - known)
        if imported:
            host.run("rpm", "--erase", "--", *imported, changes=True)
        raise RuntimeError(f"cannot download the packages: {reason or result.last_line}")


def _keys(host: Host) -> set[str]:
    """Keys that rpm has imported, as it calls them."""
    return {f"{row.name}-{row.version}" for row in installed(host) if row.name == "gpg-pubkey"}


def _run(host: Host, due: Change, desired: Mapping[str, str | None], what: str) -> None:
    """Carry out a change; RuntimeError if packages are not as desired, or a script of one failed."""
    result = _dnf(host, due, "--assumeyes", changes=True)
    left = change(states(host, desired), desired)
    script = _SCRIPT.search(f"{result.out}\n{result.err}")
    if left.installs or left.removes or duplicates(host, desired) or script:
        shown = " ".join(script[0].split()) if script else _reason(result) or result.last_line
        raise RuntimeError(f"{what}: {shown}")


def _dnf(host: Host, due: Change, *options: str, changes: bool) -> Result:
    # One file of commands, as no other command of dnf both installs and removes; it ends with 0 whatever happened.
    with host.scratch_folder() as scratch:
        path = os.path.join(scratch, "transaction")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(due.script)
        return host.run(*DNF, *options, "shell", path, changes=changes, limit=LIMIT_S if changes else 120)


def _reason(result: Result) -> str:
    """The text after "Error:" with the lines below it, "" if nothing failed."""
    if result.code in (124, 125, 126, 127):
        return result.last_line
    text = f"{result.err}\n{result.out}"
    blocks = re.findall(r"^(?:Error|Failed|\[Errno \d+\]).*(?:\n[ -].*)*", text, re.MULTILINE)
    lines = (" ".join(re.sub(r"^Error:", "", block).split()) for block in [*_UNSIGNED.findall(text), *blocks])
    return "; ".join(line for line in dict.fromkeys(lines) if line and line != "Operation aborted.")


def _take_back(host: Host, before: Mapping[str, str | None], desired: Mapping[str, str | None], wrong: str) -> None:
    """Return to the packages before a transaction that failed; RuntimeError with both reasons if that fails too."""
    try:
        repair(host, desired)
        if states(host, desired) == before:
            raise RuntimeError(f"{wrong}; nothing was changed")
        back = change(states(host, desired), before)
        if back.installs or back.removes:
            _check(host, back)
            _run(host, back, before, what="cannot take it back")
        _mark(host, before)
    except (RuntimeError, Unreadable) as error:
        if str(error).startswith(wrong):
            raise
        raise RuntimeError(f"{wrong}; and it could not be taken back ({error}): {UNREPAIRED}") from error
    raise RuntimeError(f"{wrong}; the packages are as before")


def _mark(host: Host, desired: Mapping[str, str | None]) -> None:
    """Mark packages as installed for themselves or as a dependency."""
    now = states(host, desired)
    due = {name: (text or "").split() for name, text in desired.items() if version_of(text) and now[name] != text}
    for verb, mark in (("install", "manual"), ("remove", "auto")):
        names = [_name(name) for name, words in due.items() if mark in words]
        if names:
            done = host.run("dnf", "mark", verb, "--", *names, changes=True, limit=120)
            if not done.ok:
                raise RuntimeError(f"cannot mark packages as {mark}: {done.last_line}")


def duplicates(host: Host, names: Iterable[str] | None = None) -> dict[str, list[Installed]]:
    """Packages in more than one version, as an interrupted rpm leaves them; of each the last one installed comes first.

    `names`: only these.
    """
    asked = None if names is None else {_name(name) for name in names}
    by_name: dict[tuple[str, str], list[Installed]] = {}
    for row in installed(host):
        if not is_kernel(row.name) and row.name != "gpg-pubkey" and (asked is None or row.name in asked):
            by_name.setdefault((row.name, row.architecture), []).append(row)
    several = {key[0]: rows for key, rows in by_name.items() if len({row.version for row in rows}) > 1}
    return {name: sorted(rows, key=lambda row: row.time, reverse=True) for name, rows in several.items()}


def repair(host: Host, names: Iterable[str] | None = None) -> list[str]:
    """Erase the version that an interrupted transaction was replacing; return the packages, RuntimeError on failure."""
    broken = duplicates(host, names)
    old = [row.exact for rows in broken.values() for row in rows[1:]]
    if old:
        # The new version needs no other package to go, and has its files already.
        done = host.run("rpm", "--erase", "--nodeps", "--", *old, changes=True, limit=LIMIT_S)
        if duplicates(host, names):
            raise RuntimeError(f"rpm cannot complete {', '.join(sorted(broken)[:4])}: {done.last_line}")
    return sorted(broken)
