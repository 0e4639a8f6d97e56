"""A repository of apt: "repository:/etc/apt/sources.list.d/nvidia.sources", text as of a file.

Its package lists are fetched with it, and go with it. One whose lists cannot be fetched, as its signature is wrong or
nobody answers, is not kept.
"""

from __future__ import annotations

import re

from ..host import Host
from .file import File

LISTS = "/var/lib/apt/lists"
LIMIT_S = 600.0


class Repository:
    """One file of sources, which gpuctl manages as a whole."""

    def __init__(self, path: str) -> None:
        self.path, self.file = path, File(path)

    def read(self, host: Host) -> str | None:
        return self.file.read(host)

    def write(self, host: Host, text: str | None) -> None:
        before, old = self.file.read(host), _lists(host, self.path)
        self.file.write(host, text)
        if text is not None:
            wrong = _fetch(host, self.path)
            if wrong:
                new = _lists(host, self.path)
                self.file.write(host, before)
                _forget(host, new - old if before else new)
                raise RuntimeError(f"cannot fetch the package lists: {wrong}")
        _forget(host, old - (_lists(host, self.path) if text is not None else set()))


def _options(path: str) -> tuple[str, ...]:
    """Only this file of sources."""
    return (
        *("-o", f"Dir::Etc::SourceList={path}", "-o", "Dir::Etc::SourceParts=-"),
        *("-o", "APT::Get::List-Cleanup=0", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=2"),
    )


def _fetch(host: Host, path: str) -> str:
    """Fetch the lists of one file; return what is wrong, "" if nothing."""
    done = host.run("apt-get", *_options(path), "--error-on=any", "update", changes=True, limit=LIMIT_S)
    if done.ok:
        return ""
    lines = re.findall(r"^[EW]: (?!Some index files failed)(.*)$", f"{done.err}\n{done.out}", re.MULTILINE)
    return " ".join("; ".join(dict.fromkeys(lines[:2])).split()) or done.last_line


def _lists(host: Host, path: str) -> set[str]:
    """Files with the lists of one file of sources, by apt's names for its addresses."""
    uris = re.findall(r"^URIs: *(\S+)", host.read_or_none(path) or "", re.MULTILINE)
    names = (re.sub(r"^[a-z+]+:(//)?", "", uri).rstrip("/") for uri in uris)
    prefixes = [f"{name.replace('_', '%5f').replace('/', '_')}_" for name in names]
    return {file for prefix in prefixes for file in host.glob(f"{LISTS}/{prefix}*")}


def _forget(host: Host, paths: set[str]) -> None:
    for path in sorted(paths):
        host.remove(path)
