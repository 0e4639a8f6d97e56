"""Derive the pins of a new version from its publisher's checksum file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.core.strict_yaml import did_you_mean
from gpuctl.workstation.tools_file import SYSTEMS

_LINE = re.compile(r"([0-9a-fA-F]{64})(?:\s+\*?(\S+))?")
_VERSION = re.compile(r"v?\d[\w.+~-]*")


def hashes(text: str) -> dict[str, str]:
    """Parse file names and their sha256; a bare hash, as kubectl publishes, has the name ''."""
    matches = (_LINE.fullmatch(line.strip()) for line in text.splitlines())
    return {PurePosixPath(m[2] or "").name: m[1].lower() for m in matches if m}


def pins(release: Mapping[str, Any], version: str, text: str, bare: str = "") -> dict[str, str]:
    """Return the pins for a row; `bare` is the system (linux/amd64) that a single bare hash belongs to."""
    by_file = hashes(text)
    if bare and "" in by_file:
        return {bare: by_file[""]}
    pairs = [system.split("/") for system in SYSTEMS]
    named = {f"{system}/{arch}": _file(release, version, system, arch) for system, arch in pairs}
    return {system: by_file[name] for system, name in named.items() if name in by_file}


def require_valid(release: Mapping[str, Any], version: str, system: str) -> None:
    """Raise `InvalidInput` for a malformed version or an unknown system (OS/ARCH, or empty)."""
    if not _VERSION.fullmatch(version):
        raise InvalidInput(f"pin {version}", "a version starts with a digit and has no spaces or slashes", "as 1.35.2")
    if version.startswith("v") and "v{version}" in str(release["url"]):
        raise InvalidInput(f"pin {version}", "its URL already contains the v", f"use {version[1:]}")
    if system and system not in SYSTEMS:
        raise InvalidInput(f"pin for {system}", "unknown system", did_you_mean(system, SYSTEMS))


def shows_version(release: Mapping[str, Any], system: str) -> bool:
    """True if the file name contains the version; a bare hash (for `system`) has no file name."""
    return not system and "{version}" in PurePosixPath(str(release["url"])).name


def _file(release: Mapping[str, Any], version: str, system: str, arch: str) -> str:
    values = {"version": version, "os": release.get("os", {}).get(system, system)}
    url = str(release["url"]).format(**values, arch=release.get("arch", {}).get(arch, arch))
    return PurePosixPath(url).name
