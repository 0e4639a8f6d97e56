"""Folders of gpuctl's files; an environment variable overrides each."""

from __future__ import annotations

import os
from pathlib import Path


def _folder(variable: str, xdg: str, default: str) -> Path:
    if variable in os.environ:
        return Path(os.environ[variable])
    return Path(os.environ.get(xdg) or Path.home() / default) / "gpuctl"


def config_dir() -> Path:
    """The user's own inventories and profiles ($GPUCTL_CONFIG_DIR, else ~/.config/gpuctl)."""
    return _folder("GPUCTL_CONFIG_DIR", "XDG_CONFIG_HOME", ".config")


def state_dir() -> Path:
    """Records of runs and fault logs ($GPUCTL_STATE_DIR, else ~/.local/state/gpuctl)."""
    return _folder("GPUCTL_STATE_DIR", "XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    """Files that may be deleted at any time ($GPUCTL_CACHE_DIR, else ~/.cache/gpuctl)."""
    return _folder("GPUCTL_CACHE_DIR", "XDG_CACHE_HOME", ".cache")


def own_dirs() -> tuple[Path, ...]:
    """The folders in which gpuctl writes its own files."""
    return config_dir(), state_dir(), cache_dir()


def collection_dir() -> Path:
    """The folder of the shipped collection gpuctl.fleet, with its playbooks/ and roles/."""
    from gpuctl.engine import gpuhost

    return Path(gpuhost.__path__[0]).parents[2]


def private(folder: Path) -> Path:
    """Create a folder that only its owner can enter; an existing one is restricted."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    return folder


def write_atomically(path: Path, text: str | bytes, mode: int = 0o600) -> None:
    """Replace a file as a whole or not at all; private by default. Bytes stay as they are."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(text.encode() if isinstance(text, str) else text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a full disk: the system names no file
            error.filename = str(path)
        raise
