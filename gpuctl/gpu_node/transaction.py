"""Parse resolved transactions: the output of `apt-get -s install` and `dnf install --assumeno`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# apt: Inst name [old version] (new version origin:release/suite [arch]) [packages that are broken meanwhile]
_APT = re.compile(r"Inst (?P<name>\S+) (?:\[(?P<old>[^\]]+)\] )?\((?P<new>\S+)[^)]*\)")
_APT_REMOVE = re.compile(r"(?:Remv|Purg) (?P<name>\S+) \[(?P<old>[^\]]+)\]")
_APT_END = re.compile(r"\d+ upgraded, \d+ newly installed, (?:\d+ downgraded, )?\d+ to remove and \d+ not upgraded\.")
_DNF_HEADER = re.compile(r"\s*Package\s+Arch(itecture)?\s+Version\s+Repo(sitory)?\s+Size\s*")
_DNF_RULE = re.compile(r"=+")
_DNF_REPLACED = re.compile(r"     replacing  (?P<name>\S+)\.\w+ (?P<version>\S+)\s*")
_DNF_ROW = re.compile(r" (?P<name>\S+)\s+(?P<arch>\S+)\s+(?P<version>\S+)\s+(?P<repository>\S+)\s+[\d.,]+ ?[kMG]?B?\s*")
REMOVES = ("Removing", "Removing dependent packages", "Removing unused dependencies")
INSTALLS = (
    "Installing",
    "Installing dependencies",
    "Installing weak dependencies",
    "Upgrading",
    "Downgrading",
    "Reinstalling",
)
STREAMS = ("Enabling module streams", "Switching module streams")
OTHERS = (
    "Skipping packages with conflicts",
    "Skipping packages with broken dependencies",
    "Installing group/module packages",
)


@dataclass(frozen=True)
class Transaction:
    """Packages that a package manager would install and remove, with full versions, and module streams to enable."""

    installs: Mapping[str, str]
    removes: Mapping[str, str]
    streams: Mapping[str, str]  # module -> stream; of a switch "old -> new"

    def after(self, installed: Mapping[str, str]) -> dict[str, str]:
        """Packages on the host after the transaction."""
        kept = {name: version for name, version in installed.items() if name not in self.removes}
        return {**kept, **self.installs}


class Unresolvable(ValueError):
    """The package manager cannot install the packages; the message has its reason."""


def apt(text: str) -> Transaction:
    """Parse the output of `apt-get -s`; Unresolvable with apt's reason, or ValueError if it is not whole."""
    errors = [line[3:].strip() for line in text.splitlines() if line.startswith("E: ")]
    if errors:
        raise Unresolvable(f"apt-get resolves nothing: {'; '.join([*errors, *_unmet(text)])}")
    installs, removes = {}, {}
    for line in text.splitlines():
        if line.startswith("Inst "):
            match = _matched(_APT, line)
            installs[_plain_name(match["name"])] = match["new"]
        elif line.startswith(("Remv ", "Purg ")):
            match = _matched(_APT_REMOVE, line)
            removes[_plain_name(match["name"])] = match["old"]
    if not _APT_END.search(text):
        raise ValueError("the output of apt-get has no count of packages, so it is not whole")
    return Transaction(installs, removes, {})


def _unmet(text: str) -> list[str]:
    """The lines after "unmet dependencies", which are indented by their package."""
    _, _, rest = text.partition("have unmet dependencies:\n")
    lines = [line for line in rest.splitlines() if line.startswith(" ")]
    return [" ".join(line.split()) for line in lines]


def _plain_name(name: str) -> str:
    """The name without the architecture that apt adds to foreign packages."""
    return name.partition(":")[0]


def _matched(pattern: re.Pattern[str], line: str) -> re.Match[str]:
    match = pattern.match(line)
    if match is None:
        raise ValueError(f"apt-get printed a line of unknown form: {line}")
    return match


def dnf(text: str) -> Transaction:
    """Parse the output of `dnf install --assumeno` (dnf 4); Unresolvable with dnf's reason, or ValueError if it is not
    whole.

    Versions have their epoch where it is not zero, as in 3:580.178.04-1.el9.
    """
    lines = text.splitlines()
    reason = _dnf_error(lines)
    if reason:
        raise Unresolvable(f"dnf resolves nothing: {reason}")
    if "Nothing to do." in lines:
        return Transaction({}, {}, {})
    if "Transaction Summary" not in lines:
        raise ValueError("the output of dnf has no summary, so it is not whole")
    tables: dict[str, dict[str, str]] = {"installs": {}, "removes": {}, "streams": {}}
    for section, row in _dnf_rows(lines[: lines.index("Transaction Summary")]):
        if section not in OTHERS:
            table, name, version = _dnf_entry(section, row)
            tables[table][name] = version
    return Transaction(**tables)


def _dnf_entry(section: str, row: str) -> tuple[str, str, str]:
    """Field of `Transaction`, name and version of a row."""
    replaced = _DNF_REPLACED.fullmatch(row)
    if replaced is not None:  # by a package of another name, which obsoletes it
        return "removes", replaced["name"], replaced["version"]
    if section in STREAMS:
        module, _, stream = row.strip().partition(" ")
        return "streams", module, " ".join(stream.split())
    match = _DNF_ROW.fullmatch(row)
    if match is None:
        raise ValueError(f"dnf printed a row of unknown form: {row.strip()}")
    return "installs" if section in INSTALLS else "removes", match["name"], match["version"]


def _dnf_error(lines: list[str]) -> str:
    """The text after "Error:", in one line, with the problems below it; "" if nothing failed."""
    start = next((number for number, line in enumerate(lines) if line.startswith("Error:")), None)
    if start is None:
        return ""
    indented = itertools.takewhile(lambda line: line.startswith(" "), lines[start + 1 :])
    reasons = (" ".join(line.split()).lstrip("- ") for line in (lines[start].removeprefix("Error:"), *indented))
    # The answer to --assumeno is an "error", too.
    return "; ".join(reason for reason in reasons if reason and reason != "Operation aborted.")


def _dnf_rows(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Rows of the table with the name of their section; a row that dnf wraps after the name is joined."""
    start = next((number for number, line in enumerate(lines) if _DNF_HEADER.fullmatch(line)), None)
    if start is None:
        raise ValueError("the output of dnf has no table of packages")
    section, pending = "", ""
    for line in (line for line in lines[start + 1 :] if line.strip() and not _DNF_RULE.fullmatch(line)):
        if line.endswith(":") and not line.startswith(" "):
            section = line[:-1]
            if section not in INSTALLS + REMOVES + STREAMS + OTHERS:
                raise ValueError(f"dnf printed an unknown section: {section}")
        elif section not in STREAMS and not pending and len(line.split()) == 1:
            pending = line.rstrip()
        else:
            yield section, f"{pending} {line.strip()}" if pending else line
            pending = ""
    if pending:
        raise ValueError(f"dnf printed a row of unknown form: {pending.strip()}")
