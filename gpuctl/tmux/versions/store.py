"""Version folders, the link to the current one, and the records of promoted versions."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import config_dir, private, write_atomically
from gpuctl.tmux.paths import current as link
from gpuctl.tmux.versions.changelog import noted
from gpuctl.tmux.versions.model import Version
from gpuctl.tmux.versions.state import Changed


def root() -> Path:
    return config_dir() / "tmux"


@contextmanager
def locked() -> Iterator[None]:
    """Hold the lock for creating or promoting versions."""
    private(root())
    with (root() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ---- versions ----


def every() -> list[Version]:
    """Return all versions, oldest first."""
    folder = root() / "versions"
    folders = [path for path in folder.glob("v*") if re.fullmatch(r"v[1-9]\d*", path.name) and path.is_dir()]
    return sorted(Version(int(path.name[1:]), path) for path in folders)


def current() -> Version | None:
    """Return the version that the link points to, if it exists."""
    if not link().is_symlink():
        return None
    target = link().readlink().name
    return next((version for version in every() if version.name == target), None)


def named(name: str, doing: str) -> Version:
    """Return the version named v2, 2, `current` or `newest`."""
    versions = every()
    if name == "newest" and versions:
        return versions[-1]
    version = current() if name == "current" else None
    full_name = name if name.startswith("v") else f"v{name}"
    version = version or next((version for version in versions if version.name == full_name), None)
    if version is None:
        names = ", ".join(version.name for version in versions) or "none yet; `gpuctl tmux new` creates one"
        wrong = "there is no version" + ("" if name == "newest" else f" {name}")
        raise InvalidInput(doing, wrong, f"versions: {names}")
    return version


def copied(source: Path) -> Version:
    """Create the next version from a folder's files."""
    return _create(lambda folder: shutil.copytree(source, folder, symlinks=True))


def written(files: Mapping[str, str]) -> Version:
    """Create the next version from these files."""

    def write(folder: Path) -> None:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if name.startswith("scripts/") else 0o644)

    return _create(write)


def _create(fill: Any) -> Version:
    """Create a version folder atomically; a number is never reused."""
    versions = private(root() / "versions")
    used = [version.number for version in every()] + [int(name[1:]) for name in released()]
    number = max(used, default=0) + 1
    temporary = versions / f".v{number}.{os.getpid()}"
    try:
        fill(temporary)
        temporary.rename(versions / f"v{number}")
    except OSError as error:
        raise GpuctlError(f"create version v{number}", str(error), f"check that {versions} can be written") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Version(number, versions / f"v{number}")


def point_to(target: str) -> None:
    """Replace the link to the current version atomically; "" removes it."""
    if not target:
        link().unlink(missing_ok=True)
        return
    temporary = link().with_name(f".current.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    try:
        temporary.replace(link())
    except OSError as error:
        temporary.unlink()
        raise GpuctlError(f"make {target} current", str(error), f"{link()} must be a link") from error


def pointed_to() -> str:
    return str(link().readlink()) if link().is_symlink() else ""


def note(version: Version, what: str) -> None:
    """Add a line to CHANGELOG.md."""
    path = root() / "CHANGELOG.md"
    text = path.read_text() if path.is_file() else ""
    write_atomically(path, noted(text, version.name, what, time.strftime("%Y-%m-%d %H:%M:%S")))


# ---- records of promoted versions ----


@dataclass(frozen=True)
class Release:
    """A promoted version: its hash, and the tmux keys and options it changed."""

    sha256: str
    at: str
    changes: Changed = field(default_factory=Changed)


def released() -> dict[str, Release]:
    """Return the releases by name."""
    return {name: _release(entry) for name, entry in _record()["versions"].items()}


def order() -> list[str]:
    """Return the versions that were current, in order, without those rolled back."""
    return list(_record()["order"])


def record_release(version: Version, changes: Changed, order: list[str]) -> None:
    """Record a promotion; the first record of a version counts, as versions never change after it."""
    record = _record()
    if version.name not in record["versions"]:
        entry = asdict(Release(digest(version.folder), time.strftime("%Y-%m-%d %H:%M:%S")))
        plain = {"keys": sorted(changes.keys), "options": sorted(changes.options)}
        record["versions"][version.name] = {**entry, "changes": plain}
    record["order"] = order
    write_atomically(root() / ".released.json", json.dumps(record, indent=1))


def _record() -> dict[str, Any]:
    path = root() / ".released.json"
    if not path.exists():
        return {"versions": {}, "order": []}
    try:
        record = json.loads(path.read_text())
        for entry in record["versions"].values():
            _release(entry)
        return {"versions": dict(record["versions"]), "order": [str(name) for name in record["order"]]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "move it away; every version then counts as never promoted"
        raise GpuctlError("see which versions were promoted", f"{path} cannot be read ({error})", hint) from error


def _release(entry: Mapping[str, Any]) -> Release:
    pairs = {name: frozenset((a, b) for a, b in entry["changes"][name]) for name in ("keys", "options")}
    return Release(entry["sha256"], entry["at"], Changed(**pairs))


def edited(version: Version) -> bool:
    """True if a promoted version's files changed since then."""
    release = released().get(version.name)
    return release is not None and release.sha256 != digest(version.folder)


def digest(folder: Path) -> str:
    """Hash the names, modes and contents of a version, ignoring editor backup files."""
    summed = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if not path.name.startswith(".") and not path.name.endswith("~"):
            mode = "x" if path.stat().st_mode & 0o100 else "-"
            summed.update(f"{path.relative_to(folder)}\0{mode}\0{path.stat().st_size}\0".encode())
            summed.update(path.read_bytes())
    return summed.hexdigest()
