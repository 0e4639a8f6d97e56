"""A package of apt: "deb:nvidia-smi", text "580.178.04-1 manual hold"; None if it is not installed.

The packages of a run change in one transaction, as a whole or not at all: what apt resolves must be exactly that
change, everything is downloaded before dpkg starts, and a transaction that fails is taken back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..host import Host, Result
from ..model import Unreadable
from ..remembered import Remembered
from . import dkms_log

LIMIT_S = 5400.0  # DKMS builds a module for every kernel of the host
MARKS = "/var/lib/apt/extended_states"
REMOVED = "config-files"  # text of a package that was removed and not purged
APT = (
    *("apt-get", "--yes", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"),
    *("-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0", "-o", "Acquire::Retries=2"),
    # A file that somebody has changed stays as it is; nobody is asked.
    *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
)
UNREPAIRED = "the next run repairs it"  # ends the error of a transaction that could not be taken back
_FORM = "${Package}\t${Architecture}\t${Version}\t${db:Status-Want}\t${db:Status-Eflag}\t${db:Status-Status}\n"
_INST = re.compile(r"^Inst (\S+?)(?::\w+)? (?:\[[^\]]+\] )?\((\S+)", re.MULTILINE)
_REMV = re.compile(r"^(?:Remv|Purg) (\S+?)(?::\w+)? ", re.MULTILINE)
# In the output of a package manager that failed, from the most telling to the least.
_REASONS = (r"^E: (?!Sub-process|Unable to fetch some|Failed to fetch)(.*)$", r"^E: (Failed to fetch.*)$")
_DPKG_REASONS = (r"^(?:dpkg: error processing .*:\n )(.*)$", r"^dpkg: error: (.*)$", r"^E: (.*)$")


class Transaction(NamedTuple):
    """Packages to install (name -> version), and to remove."""

    installs: dict[str, str]
    removes: frozenset[str]

    @property
    def specs(self) -> list[str]:
        """As apt-get takes them."""
        return [
            *(f"{name}={version}" for name, version in sorted(self.installs.items())),
            *(f"{name}-" for name in sorted(self.removes)),
        ]


class Deb:
    """One package, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, host: Host) -> str | None:
        return states(host, [self.name])[self.name]

    def write(self, host: Host, text: str | None) -> None:
        wrong = write_debs(host, {self.name: text}).get(self.name)
        if wrong:
            raise RuntimeError(wrong)


class Known(NamedTuple):
    """Packages as dpkg knows them: their texts by name, and names that are held.

    Names are those of the host's architecture, or of all; others have theirs, as in libcuda1:i386. Holds count in every
    state, also of a package that is half done or removed; dpkg does not list those that were never installed.
    """

    texts: dict[str, str]
    holds: list[str]


def states(host: Host, names: Iterable[str]) -> dict[str, str | None]:
    """The texts of packages, by one query to dpkg."""
    names = list(names)
    known = every_state(host) if isinstance(host, Remembered) else _query(host, names).texts
    return {name: known.get(name) for name in names}


def every_state(host: Host) -> Mapping[str, str]:
    """The texts of all packages, by one query to dpkg."""
    return _all(host).texts


def holds(host: Host) -> list[str]:
    """Packages that are held, by the same query."""
    return _all(host).holds


def _all(host: Host) -> Known:
    if not isinstance(host, Remembered):
        return _query(host, [])
    if host.packages is None:
        host.packages, host.holds = _query(host, [])
    return Known(host.packages, host.holds)


def _query(host: Host, names: list[str]) -> Known:
    """These packages, without names all."""
    # The package dpkg names the host's architecture.
    result = host.run("dpkg-query", "-W", "-f", _FORM, *(["--", "dpkg", *names] if names else []))
    if not result.ok and "no packages found" not in result.err:
        raise Unreadable(f"dpkg-query: {result.last_line}")
    rows = [line.split("\t") for line in result.out.splitlines()]
    if any(len(row) != _FORM.count("$") for row in rows):
        raise Unreadable("the list of dpkg-query is not understood")
    native = next((row[1] for row in rows if row[0] == "dpkg"), "")
    marks = re.findall(r"^Package: (\S+)\n((?:.+\n)*?)Auto-Installed: 1$", host.read_or_none(MARKS) or "", re.MULTILINE)
    auto = {
        name
        for name, rest in marks
        if not native or "Architecture: " not in rest or f"Architecture: {native}\n" in rest
    }
    known = Known({}, [])
    for plain, architecture, *row in rows:
        is_foreign = bool(native) and architecture not in (native, "all", "")
        name = f"{plain}:{architecture}" if is_foreign else plain
        text = _text(*row, auto=plain in auto)
        if text is not None:
            known.texts[name] = text
        if row[1] == "hold":
            known.holds.append(name)
    return known


def _text(version: str, selection: str, flag: str, status: str, *, auto: bool) -> str | None:
    if status == "not-installed":
        return None
    if status == REMOVED:
        return REMOVED
    if status != "installed" or flag != "ok":
        return f"{version} {status}{'' if flag == 'ok' else f' {flag}'}"
    return f"{version} {'auto' if auto else 'manual'}{' hold' if selection == 'hold' else ''}"


def version_of(text: str | None) -> str:
    """The version of an installed package; "" for one that is not, or only in part."""
    words = (text or "").split()
    return words[0] if len(words) > 1 and words[1] in ("auto", "manual") else ""


def removal_leaves(host: Host, name: str) -> str | None:
    """Text of a package once it is removed: dpkg keeps its configuration, if it has any."""
    listed = host.run("dpkg-query", "-W", "-f", "${Conffiles}", "--", name).out.strip()
    return REMOVED if listed or host.exists(f"/var/lib/dpkg/info/{name}.postrm") else None


def write_debs(host: Host, desired: Mapping[str, str | None]) -> dict[str, str]:
    """Change packages in one transaction; return the errors by package, the same for all if it failed as a whole."""
    try:
        _merge_journal(host)
        _complete(host, desired)
        before = states(host, desired)
        _apply(host, before, desired)
    except RuntimeError as error:
        return dict.fromkeys(desired, str(error))
    now = states(host, desired)
    return {
        name: f"asked for {text or 'absent'}, the host holds {now[name] or 'absent'}"
        for name, text in desired.items()
        if now[name] != text
    }


def _complete(host: Host, desired: Mapping[str, str | None]) -> None:
    """Let dpkg complete packages that are to stay as they are; RuntimeError if that fails.

    Of a package that goes, or comes in another version, the script may fail again, after a build of its module that
    takes minutes; apt itself runs triggers that others wait for.
    """
    if any(_stays(name, text or "", desired) for name, text in states(host, interrupted(host)).items()):
        repair(host)


def _stays(name: str, text: str, desired: Mapping[str, str | None]) -> bool:
    """True if an interrupted package must be completed for a change. `text`: its text of `states`."""
    if "triggers-" in text:
        return False
    if name not in desired:
        return True
    version = version_of(desired[name])
    # apt changes nothing beside a package that it must reinstall.
    return bool(version) and (text.partition(" ")[0] == version or "half-installed" in text or "reinstreq" in text)


def _apply(host: Host, before: Mapping[str, str | None], desired: Mapping[str, str | None]) -> None:
    change = transaction(before, desired)
    if change.specs:
        check(host, change)
        _run(host, change, "--download-only", what="cannot download the packages")
        try:
            _run(host, change, what="cannot change the packages")
        except RuntimeError as error:
            _take_back(host, before, desired, str(error))
            raise
    _purge(host, desired)
    _mark(host, desired)


def transaction(now: Mapping[str, str | None], desired: Mapping[str, str | None]) -> Transaction:
    """The change between two states of the same packages."""
    installs = {
        name: version_of(text)
        for name, text in desired.items()
        if version_of(text) and version_of(now[name]) != version_of(text)
    }
    removes = (name for name, text in desired.items() if not version_of(text) and now[name] not in (None, REMOVED))
    return Transaction(installs, frozenset(removes))


def check(host: Host, change: Transaction) -> None:
    """Refuse a change that apt would not make exactly so; RuntimeError with the difference, or apt's reason."""
    result = host.run(*APT, "--simulate", "-o", "Debug::NoLocking=true", "install", "--", *change.specs, limit=120)
    if not result.ok:
        raise RuntimeError(f"apt cannot do this: {_unmet(result) or _reason(result)}")
    installs, removes = dict(_INST.findall(result.out)), set(_REMV.findall(result.out))
    removes -= set(installs)
    differences = [
        *(f"install {name} {version}" for name, version in installs.items() if change.installs.get(name) != version),
        *(f"remove {name}" for name in sorted(removes - change.removes)),
    ]
    if differences:
        shown = ", ".join(differences[:6]) + (" …" if len(differences) > 6 else "")
        raise RuntimeError(f"apt would now do what is not planned: {shown}; plan again")


def _unmet(result: Result) -> str:
    """Unmet dependencies, which apt lists before its error."""
    _, _, rest = f"{result.out}{result.err}".partition("unmet dependencies:\n")
    return "; ".join(" ".join(line.split()) for line in rest.splitlines() if line.startswith(" "))


def _run(host: Host, change: Transaction, *options: str, what: str) -> None:
    began = time.time()
    result = host.run(*APT, *options, "install", "--", *change.specs, changes=True, limit=LIMIT_S)
    if not result.ok:
        raise RuntimeError(f"{what}: {_reason(result)}{dkms_log.reason(host, began)}")


def _succeed(result: Result, what: str) -> None:
    if not result.ok:
        raise RuntimeError(f"{what}: {_reason(result)}")


def _reason(result: Result) -> str:
    text = f"{result.out}\n{result.err}"
    patterns = (*_DPKG_REASONS[:2], *_REASONS, _DPKG_REASONS[2]) if "dpkg: error" in text else (*_REASONS, r"^E: (.*)$")
    for pattern in patterns:
        lines = re.findall(pattern, text, re.MULTILINE)
        if lines:
            return "; ".join(dict.fromkeys(" ".join(line.split()) for line in lines[:3]))
    return result.last_line


def _take_back(host: Host, before: Mapping[str, str | None], desired: Mapping[str, str | None], wrong: str) -> None:
    """Return to the packages before a transaction that failed; RuntimeError with both reasons if that fails too."""
    try:
        _complete(host, before)
        if states(host, desired) == before:
            raise RuntimeError(f"{wrong}; nothing was changed")
        back = transaction(states(host, desired), before)
        if back.specs:
            check(host, back)
            _run(host, back, "--fix-broken", what="cannot take it back")
        _purge(host, before)
        _mark(host, before)
    except RuntimeError as error:
        if str(error).startswith(wrong):
            raise
        raise RuntimeError(f"{wrong}; and it could not be taken back ({error}): {UNREPAIRED}") from error
    raise RuntimeError(f"{wrong}; the packages are as before")


def _purge(host: Host, desired: Mapping[str, str | None]) -> None:
    """Remove the configuration of packages that are to be absent."""
    names = [name for name, text in states(host, desired).items() if text == REMOVED and desired[name] is None]
    if names:
        _succeed(host.run("dpkg", "--purge", "--", *names, changes=True, limit=LIMIT_S), "cannot purge packages")


def _mark(host: Host, desired: Mapping[str, str | None]) -> None:
    """Mark packages as held, and as installed for themselves or as a dependency."""
    now = states(host, desired)
    due = {name: (text or "").split() for name, text in desired.items() if version_of(text) and now[name] != text}
    verbs = {
        "manual": [name for name, words in due.items() if "manual" in words],
        "auto": [name for name, words in due.items() if "auto" in words],
        "hold": [name for name, words in due.items() if "hold" in words],
        "unhold": [name for name, words in due.items() if "hold" not in words],
    }
    for verb, names in verbs.items():
        if names:
            _succeed(host.run("apt-mark", verb, "--", *names, changes=True), f"cannot mark packages as {verb}")


def interrupted(host: Host) -> list[str]:
    """Packages that an interrupted or failed dpkg has left half done, and "dpkg" if its journal is not merged."""
    broken = [name for name, text in every_state(host).items() if text != REMOVED and not version_of(text)]
    journal = [name for name in host.listdir("/var/lib/dpkg/updates") if name.isdigit()]
    return [*sorted(broken), *(["dpkg"] if journal else [])]


def _merge_journal(host: Host) -> None:
    """Let an interrupted dpkg's journal become part of its status; any change of selections does that, also none."""
    if "dpkg" in interrupted(host):
        host.run("dpkg", "--set-selections", changes=True)


def repair(host: Host) -> list[str]:
    """Let dpkg complete what it was interrupted in; return the packages, RuntimeError if that fails."""
    broken = interrupted(host)
    if not broken:
        return []
    began = time.time()
    done = host.run("dpkg", "--configure", "-a", "--force-confdef", "--force-confold", changes=True, limit=LIMIT_S)
    if interrupted(host):
        done = host.run(*APT, "--fix-broken", "install", changes=True, limit=LIMIT_S)
    left = interrupted(host)
    if left:
        raise RuntimeError(f"dpkg cannot complete {', '.join(left[:4])}: {_reason(done)}{dkms_log.reason(host, began)}")
    return broken
