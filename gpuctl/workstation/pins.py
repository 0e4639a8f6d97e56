"""Make the pins of a new version out of the checksum file that its maker publishes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

_LINE = re.compile(r"([0-9a-fA-F]{64})(?:\s+\*?(\S+))?")
_SYSTEMS = [(system, arch) for system in ("linux", "darwin") for arch in ("amd64", "arm64")]


def hashes(text: str) -> dict[str, str]:
    """File name -> sha256; a bare hash, as kubectl's, has the name ''."""
    found = (_LINE.fullmatch(line.strip()) for line in text.splitlines())
    return {PurePosixPath(m[2] or "").name: m[1].lower() for m in found if m}


def pins(release: Mapping[str, Any], version: str, text: str, bare: str = "") -> dict[str, str]:
    """The pins for a row; `bare` is the system (linux/amd64) that a file with one bare hash is for."""
    known = hashes(text)
    if bare and "" in known:
        return {bare: known[""]}
    named = {f"{system}/{arch}": _file(release, version, system, arch) for system, arch in _SYSTEMS}
    return {system: known[name] for system, name in named.items() if name in known}


def _file(release: Mapping[str, Any], version: str, system: str, arch: str) -> str:
    words = {"version": version, "os": release.get("os", {}).get(system, system)}
    url = str(release["url"]).format(**words, arch=release.get("arch", {}).get(arch, arch))
    return PurePosixPath(url).name
