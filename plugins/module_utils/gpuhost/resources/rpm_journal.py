"""Packages that a transaction of gpuctl is changing, noted on the host until it has ended well.

rpm enters a package into its database before the package's last script runs, and the earlier version stays in it until
all new ones are there. After an interruption, or a script that failed, the database has no sign of what is half done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from ..host import Host
from ..model import Unreadable
from ..record import STATE

PLACE = f"{STATE}/rpm-transaction.json"


class Journal(NamedTuple):
    """`installs`: package -> versions that transactions began to install, the last one last. `removes`: package ->
    version that was to go. `marks`: package -> its mark afterwards, "manual" or "auto". Packages as in rpm.py.
    """

    installs: Mapping[str, list[str]] = {}
    removes: Mapping[str, str] = {}
    marks: Mapping[str, str] = {}

    def has(self, package: str, version: str) -> bool:
        """True if this version of the package may be half installed or half removed."""
        return version in self.installs.get(package, ()) or self.removes.get(package) == version

    def without(self, packages: Mapping[str, object]) -> Journal:
        """A journal in which these packages are complete."""
        return Journal(
            {key: row for key, row in self.installs.items() if key not in packages},
            {key: row for key, row in self.removes.items() if key not in packages},
            {key: row for key, row in self.marks.items() if key not in packages},
        )

    def begun(self, installs: Mapping[str, str], removes: Mapping[str, str], marks: Mapping[str, str]) -> Journal:
        """A journal with one more transaction."""
        later = {
            key: [*(one for one in self.installs.get(key, ()) if one != version), version]
            for key, version in installs.items()
        }
        return Journal({**self.installs, **later}, {**self.removes, **removes}, {**self.marks, **marks})


def load(host: Host) -> Journal:
    """Packages that are not complete; `Unreadable` if their file cannot be parsed."""
    text = host.read_or_none(PLACE)
    if text is None:
        return Journal()
    try:
        journal = Journal(**json.loads(text))
        if not all(isinstance(part, dict) for part in journal):
            raise ValueError("not a mapping")
    except (ValueError, TypeError) as error:
        raise Unreadable(f"{PLACE} cannot be used ({error}): see `dnf check`, and remove it") from error
    return journal


def save(host: Host, journal: Journal) -> None:
    """Write it atomically; a transaction may only begin after that."""
    if journal.installs or journal.removes:
        host.make_private_folder(STATE)
        host.replace(PLACE, json.dumps(journal._asdict(), indent=1) + "\n", mode=0o600)
    elif host.exists(PLACE):
        host.remove(PLACE)
