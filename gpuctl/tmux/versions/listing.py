"""List and compare versions."""

from __future__ import annotations

import difflib
import time
from collections import Counter
from collections.abc import Iterator

from gpuctl.tmux.versions import preview, store
from gpuctl.tmux.versions.feedback import entries
from gpuctl.tmux.versions.model import Version


def rows() -> list[dict[str, str]]:
    """Return a row per version, including promoted versions whose files are gone."""
    now, releases = store.current(), store.released()
    log = preview.log()
    feedback_count = Counter(
        entry.version for entry in entries(log.read_text(errors="replace").split("\n") if log.is_file() else ())
    )
    existing = {version.name: version for version in store.every()}
    table = []
    for name in sorted({*existing, *releases}, key=lambda entry: int(entry[1:])):
        version, release = existing.get(name), releases.get(name)
        table.append(
            {
                "version": name,
                "state": _state(version, now, release is not None),
                "changed": _changed(version) if version else "-",
                "promoted": release.at if release else "-",
                "feedback": str(feedback_count[name]),
                "folder": str(version.folder) if version else "-",
            }
        )
    return table


def _state(version: Version | None, now: Version | None, promoted: bool) -> str:
    if version is None:
        return "GONE"
    state = "current" if version == now else ("earlier" if promoted else "draft")
    return f"{state}, EDITED since promotion" if store.edited(version) else state


def _changed(version: Version) -> str:
    newest = max((path.stat().st_mtime for path in version.folder.rglob("*")), default=version.folder.stat().st_mtime)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(newest))


def differences(first: Version, second: Version) -> Iterator[str]:
    """Yield a unified diff of all files."""
    names = {
        str(path.relative_to(version.folder))
        for version in (first, second)
        for path in version.folder.rglob("*")
        if path.is_file()
    }
    for name in sorted(names):
        yield from difflib.unified_diff(
            _lines(first, name), _lines(second, name), f"{first.name}/{name}", f"{second.name}/{name}", lineterm=""
        )


def _lines(version: Version, name: str) -> list[str]:
    path = version.folder / name
    return path.read_text(errors="replace").splitlines() if path.is_file() else []
