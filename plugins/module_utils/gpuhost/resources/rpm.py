"""A package of rpm: "rpm:nvidia-driver-cuda", text "3:580.178.04-1.el9 manual"; None if it is not installed.

Of the kernel's packages, which stay beside each other, each version is one: "rpm:kernel-devel=5.14.0-427.el9".

The packages of a run change in one transaction of dnf: what dnf resolves must be exactly that change, everything is
downloaded before rpm starts, and a transaction that fails is taken back. Modules and version locks do not bind it, as
its versions are exact; its own locks are set afterwards, see lock.py. Until it has ended well, its packages are in
rpm_journal.py, and their texts are "3:580.178.04-1.el9 unfinished auto", with both versions if rpm has both. Several
versions that gpuctl has not caused are "3:580.178.04-1.el9,3:580.105.08-1.el9 several": those it leaves alone.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..host import Host, Result
from ..model import Unreadable
from . import dkms_log, rpm_journal
from .deb import UNREPAIRED
from .rpm_journal import Journal
from .rpm_packages import (
    OF_KERNEL,
    Installed,
    installed,
    installed_for_themselves,
    key_of,
    mark_of,
    name_of,
    several,
    states,
    version_of,
    versions,
)

LIMIT_S = 5400.0  # DKMS builds a module for every kernel of the host
PAUSE_S, PATIENCE_S = 2.0, 300.0  # with another dnf at work, such as that of a timer
DNF = (
    *("dnf", "--allowerasing", "--disableplugin=versionlock"),
    *("--setopt=*.module_hotfixes=1", "--setopt=install_weak_deps=0", "--setopt=clean_requirements_on_remove=0"),
    # An earlier kernel does not go for a new package of the running one. dnf itself would wait for another without end.
    *("--setopt=installonly_limit=0", "--setopt=exit_on_lock=1"),
)
_SECTION = re.compile(r"^(\S.*):$", re.MULTILINE)
# dnf wraps a row after a long name.
_ROW = re.compile(r"^ (\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+[\d.,]+ ?[kMG]?B?\s*$", re.MULTILINE)
_REPLACED = re.compile(r"^     replacing  (\S+)\.\w+ (\S+)", re.MULTILINE)
_SCRIPT = re.compile(r"^.*(?:scriptlet failed|Error in \S+ scriptlet).*$", re.MULTILINE)
_UNSIGNED = re.compile(r"^(?:Package \S+ is not signed|Public key for \S+ is not installed).*$", re.MULTILINE)
_REASON = re.compile(r"^(?:Error:|Failed(?! loading plugin)|\[Errno \d+\]).*(?:\n[ -].*)*", re.MULTILINE)
_IGNORED = re.compile(r"^Ignoring repositories: (.*)$", re.MULTILINE)
_LOCKED = re.compile(r"already locked by -?\d+|Failed to obtain the transaction lock")
_BEGUN = re.compile(r"^Running transaction$", re.MULTILINE)
_PLAIN = re.compile(r"[\w.+:~^-]+")
_PARALLEL = re.compile(r"(?:installonlypkg|multiversion)\(")


class NotBegun(RuntimeError):
    """dnf stopped before rpm changed anything."""


class Change(NamedTuple):
    """Packages to install (name -> version), to remove, and to install again as they are."""

    installs: Mapping[str, str]
    removes: Mapping[str, str]
    again: Mapping[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.installs or self.removes or self.again)

    @property
    def script(self) -> str:
        """As `dnf shell` takes it; RuntimeError for a name that is none."""
        verbs = {"install": self.installs, "remove": self.removes, "reinstall": self.again}
        specs = {verb: [f"{name_of(key)}-{version}" for key, version in rows.items()] for verb, rows in verbs.items()}
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


def write_rpms(host: Host, desired: Mapping[str, str | None]) -> dict[str, str]:
    """Change packages in one transaction; return the errors by package, the same for all if it failed as a whole.

    Packages that an earlier transaction left half done are completed in the same one.
    """
    try:
        _erase_replaced(host, rpm_journal.load(host))
        before = states(host, desired)
        if wrong := several(before):
            raise RuntimeError(wrong)
        _apply(host, before, desired)
        now = states(host, desired)
    except (RuntimeError, Unreadable) as error:
        return dict.fromkeys(desired, str(error))
    return {
        name: f"asked for {text or 'absent'}, the host holds {now[name] or 'absent'}"
        for name, text in desired.items()
        if now[name] != text
    }


def _apply(host: Host, before: Mapping[str, str | None], desired: Mapping[str, str | None]) -> None:
    earlier = rpm_journal.load(host)
    due = change(before, desired)._replace(again=_half_done(host, earlier, desired))
    marks = {key: f"{version} {earlier.marks.get(key, '')}" for key, version in due.again.items()}
    texts = {**marks, **desired}
    if due:
        _protect(host, due.removes)
        _check(host, due)
        _download(host, due)
        try:
            _run(host, due, texts, what="cannot change the packages")
        except NotBegun as error:
            rpm_journal.save(host, earlier)
            raise RuntimeError(f"{error}; nothing was changed") from error
        except (RuntimeError, Unreadable) as error:
            _take_back(host, before, texts, str(error))
            rpm_journal.save(host, earlier)
            raise RuntimeError(f"{error}; the packages are as before") from error
    _mark(host, texts)
    rpm_journal.save(host, earlier.without({**texts, **_gone(host, earlier)}))


def change(now: Mapping[str, str | None], desired: Mapping[str, str | None]) -> Change:
    """The change between two states of the same packages."""
    return _difference({name: version_of(text) for name, text in now.items()}, desired)


def _difference(now: Mapping[str, str], desired: Mapping[str, str | None]) -> Change:
    versions = {name: version_of(text) for name, text in desired.items()}
    installs = {name: version for name, version in versions.items() if version and now[name] != version}
    return Change(installs, {name: now[name] for name, version in versions.items() if now[name] and not version})


def _protect(host: Host, removes: Mapping[str, str]) -> None:
    """Refuse to remove a package that has the running kernel; RuntimeError with its name."""
    kernel = host.value("/proc/sys/kernel/osrelease") or ""
    images = (f"/lib/modules/{kernel}/vmlinuz", f"/boot/vmlinuz-{kernel}")
    form = "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n"
    shown = host.run("rpm", "-q", "--qf", form, "-f", *images).out if removes else ""
    owners = {tuple(line.replace("\t0:", "\t").split("\t")) for line in shown.splitlines()}
    running = [key for key, version in removes.items() if (name_of(key), version) in owners]
    if running:
        raise RuntimeError(f"{running[0]} has the kernel that runs, {kernel}, and is not removed")


def _check(host: Host, due: Change) -> None:
    """Refuse a change that dnf would not make exactly so; RuntimeError with the difference, or dnf's reason."""
    result = _dnf(host, due, "--assumeno", changes=False)
    installs, removes = resolved(result.out)
    planned = {(name_of(key), version) for rows in (due.installs, due.again) for key, version in rows.items()}
    leaving = {(name_of(key), version) for key, version in due.removes.items()}
    if (installs, removes - installs) == (planned, leaving):
        return
    if reason := _reason(result):
        raise RuntimeError(f"dnf cannot do this: {reason}")
    rows = {
        "install": installs - planned,
        "remove": removes - installs - leaving,
        "not install": planned - installs,
        "not remove": leaving - removes,
    }
    differences = [f"{verb} {name} {version}" for verb, some in rows.items() for name, version in sorted(some)]
    shown = ", ".join(differences[:6]) + (" …" if len(differences) > 6 else "")
    raise RuntimeError(f"dnf would now do what is not planned: {shown}; plan again")


def resolved(text: str) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Packages, with their versions, that dnf's table installs, and that it removes."""
    table = text.partition("\nTransaction Summary")[0]
    installs: set[tuple[str, str]] = set()
    removes: set[tuple[str, str]] = set()
    parts = _SECTION.split(table)
    for title, rows in zip(parts[1::2], parts[2::2]):
        some = removes if title.startswith("Removing") else installs
        some.update((row[0], row[2].removeprefix("0:")) for row in _ROW.findall(rows))
        removes.update((name, version.removeprefix("0:")) for name, version in _REPLACED.findall(rows))
    return installs, removes


def _download(host: Host, due: Change) -> None:
    """Download packages and verify their signatures; a key that dnf has imported in vain goes again."""
    if not due.installs and not due.again:
        return
    known = _keys(host)
    # The lists are those that were just checked.
    options = ("--setopt=*.metadata_expire=never", "--assumeyes", "--downloadonly")
    result = _dnf(host, due, *options, changes=True)
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
    """Carry out a change, after it is in the journal; RuntimeError if packages are not as desired, or a script failed.

    `desired`: texts of the packages, for their versions and marks.
    """
    marks = {name: mark_of(text) for name, text in desired.items() if text}
    journal = rpm_journal.load(host).begun({**due.installs, **due.again}, due.removes, marks)
    rpm_journal.save(host, journal)
    began = time.time()
    result = _dnf(host, due, "--cacheonly", "--assumeyes", changes=True)
    script = _SCRIPT.search(f"{result.out}\n{result.err}")
    shown = " ".join(script[0].split()) if script else _reason(result) or result.last_line
    if result.ok and not script and not _BEGUN.search(result.out):
        raise NotBegun(f"{what}: {shown}")
    left = _difference(versions(host, desired), desired)
    is_again = not due.again or re.search(r"^Reinstalled:$", result.out, re.MULTILINE)
    if left or script or not result.ok or not is_again or _replaced(host, journal):
        raise RuntimeError(f"{what}: {shown}{dkms_log.reason(host, began)}")


def _dnf(host: Host, due: Change, *options: str, changes: bool) -> Result:
    # One file of commands, as no other command of dnf both installs and removes; it ends with 0 whatever happened.
    with host.scratch_folder() as scratch:
        path = os.path.join(scratch, "transaction")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(due.script)
        limit, latest = LIMIT_S if changes else 120, time.monotonic() + PATIENCE_S
        while True:
            result = host.run(*DNF, *options, "shell", path, changes=changes, limit=limit).without_secrets
            locked = _LOCKED.search(f"{result.out}\n{result.err}") and not _BEGUN.search(result.out)
            if not locked or time.monotonic() > latest:
                return result
            time.sleep(PAUSE_S)


def _reason(result: Result) -> str:
    """The text after "Error:" with the lines below it, "" if nothing failed."""
    if result.code in (124, 125, 126, 127):
        return result.last_line
    text = f"{result.err}\n{result.out}"
    ignored = {name for names in _IGNORED.findall(text) for name in re.split(r",\s*", names)}
    blocks = [
        block
        for block in _REASON.findall(text)
        # A repository that may be absent is not what failed.
        if not any(f"metadata for repo '{name}'" in block for name in ignored)
    ]
    lines = (" ".join(re.sub(r"^Error:", "", block).split()) for block in [*_UNSIGNED.findall(text), *blocks])
    return "; ".join(line for line in dict.fromkeys(lines) if line and line != "Operation aborted.")


def _take_back(host: Host, before: Mapping[str, str | None], desired: Mapping[str, str | None], wrong: str) -> None:
    """Return to the packages before a transaction that failed; RuntimeError with both reasons if that fails too."""
    try:
        journal = rpm_journal.load(host)
        _erase_replaced(host, journal)
        now = versions(host, desired)
        # What was to go and is still in rpm's database may have lost its files.
        again = {key: version for key, version in journal.removes.items() if version and now.get(key) == version}
        back = _difference(now, before)._replace(again=again)
        if back:
            _check(host, back)
            _download(host, back)
            _run(host, back, before, what="cannot take it back")
        _mark(host, before)
    except (RuntimeError, Unreadable, OSError) as error:
        raise RuntimeError(f"{wrong}; and it could not be taken back ({error}): {UNREPAIRED}") from error


def _mark(host: Host, desired: Mapping[str, str | None]) -> None:
    """Mark packages as installed for themselves or as a dependency."""
    chosen = installed_for_themselves(host)
    due = {name_of(name): mark_of(text) for name, text in desired.items() if text}
    for verb, mark in (("install", "manual"), ("remove", "auto")):
        names = [name for name, desired_mark in due.items() if desired_mark == mark != _mark_now(name, chosen)]
        if names:
            done = host.run("dnf", "mark", verb, "--", *names, changes=True, limit=120)
            if not done.ok:
                raise RuntimeError(f"cannot mark packages as {mark}: {done.without_secrets.last_line}")


def _mark_now(name: str, chosen: frozenset[str]) -> str:
    return "manual" if name in chosen else "auto"


def unfinished(host: Host) -> list[str]:
    """Packages that gpuctl was installing when it was interrupted."""
    journal = rpm_journal.load(host)
    return sorted({row.name for row in installed(host) if row.version in journal.installs.get(row.key, ())})


def duplicates(host: Host) -> list[str]:
    """Packages in two versions, of which one should have replaced the other, whoever did that; none of kernels."""
    rows: dict[tuple[str, str], dict[str, Installed]] = {}
    for row in installed(host):
        if not OF_KERNEL.match(row.name) and row.name != "gpg-pubkey":
            rows.setdefault((row.name, row.architecture), {})[row.version] = row
    doubled = [[*some.values()] for some in rows.values() if len(some) > 1]
    return sorted({some[0].name for some in doubled if not _stays_beside_others(host, some)})


def _stays_beside_others(host: Host, rows: Sequence[Installed]) -> bool:
    """True if one of the packages is of a kernel, or has itself installed beside its other versions."""
    if any(OF_KERNEL.match(row.name) for row in rows):
        return True
    result = host.run("rpm", "-q", "--provides", "--", *(row.exact for row in rows))
    if not result.ok:
        raise Unreadable(f"rpm: {result.last_line}")
    return bool(_PARALLEL.search(result.out))


def repair(host: Host) -> list[str]:
    """Complete the packages that a transaction of gpuctl was installing when it was interrupted, and return them.

    RuntimeError if that fails. Only packages of the journal are touched.
    """
    journal = rpm_journal.load(host)
    if not journal.installs and not journal.removes:
        return []
    _erase_replaced(host, journal)
    due = _half_done(host, journal, {})
    if due:
        _complete(host, due, journal)
    rpm_journal.save(host, journal.without({**due, **_gone(host, journal)}))
    return sorted({name_of(key) for key in due})


def _half_done(host: Host, journal: Journal, desired: Mapping[str, str | None]) -> dict[str, str]:
    """Packages to install again, with their versions: those that `desired` lets go, or changes, need not be completed.

    What was to go may be in no repository: it is completed only if it is to stay now.
    """
    rows = [row for row in installed(host) if journal.has(row.key, row.version)]
    return {
        row.key: row.version
        for row in rows
        if (
            version_of(desired[row.key]) == row.version
            if row.key in desired
            else row.version in journal.installs.get(row.key, ())
        )
    }


def _complete(host: Host, due: Mapping[str, str], journal: Journal) -> None:
    """Install packages once more, as their scripts may not have run, and what they need of the same transaction."""
    begun = {(name_of(key), version) for key, versions in journal.installs.items() for version in versions}
    try:
        installs, _ = resolved(_dnf(host, Change({}, {}, due), "--assumeno", changes=False).out)
        lacking = {key_of(name, version): version for name, version in installs & begun}
        again = Change({key: version for key, version in lacking.items() if key not in due}, {}, due)
        texts = {key: f"{one} {journal.marks.get(key, '')}" for key, one in {**again.installs, **due}.items()}
        _check(host, again)
        _download(host, again)
        _run(host, again, texts, what="dnf reinstall")
        _mark(host, texts)
    except (RuntimeError, Unreadable) as error:
        shown = ", ".join(sorted(due)[:4])
        raise RuntimeError(f"{shown} was interrupted and cannot be completed ({error}): {UNREPAIRED}") from error


def _gone(host: Host, journal: Journal) -> dict[str, str]:
    """Packages of the journal that rpm has no more, or in another version."""
    there = {row.key for row in installed(host) if journal.has(row.key, row.version)}
    return {key: "" for key in (*journal.installs, *journal.removes) if key not in there}


def _replaced(host: Host, journal: Journal) -> list[Installed]:
    """Versions that a transaction of gpuctl was replacing, beside the ones that it has installed."""
    by_name: dict[tuple[str, str], list[Installed]] = {}
    for row in installed(host):
        if row.name in journal.installs:
            by_name.setdefault((row.name, row.architecture), []).append(row)
    old = []
    for (name, _), rows in by_name.items():
        begun = [version for version in journal.installs[name] if version in {row.version for row in rows}]
        old += [row for row in rows if begun and row.version != begun[-1]]
    return old


def _erase_replaced(host: Host, journal: Journal) -> None:
    """Erase what an interrupted transaction was replacing; RuntimeError if that fails, or if it may be a kernel."""
    old = _replaced(host, journal)
    if not old:
        return
    parallel = [row for row in old if _stays_beside_others(host, [row])]
    if parallel:
        raise RuntimeError(f"{parallel[0].exact} may stay beside other versions, and is not erased: remove it by hand")
    _protect(host, {row.name: row.version for row in old})
    # The new version needs no other package to go, and has its files already.
    names = dict.fromkeys(row.exact for row in old)
    done = host.run("rpm", "--erase", "--nodeps", "--allmatches", "--", *names, changes=True, limit=LIMIT_S)
    if _replaced(host, journal):
        shown = ", ".join(sorted({row.name for row in old})[:4])
        raise RuntimeError(f"rpm cannot complete {shown}: {done.last_line}")
