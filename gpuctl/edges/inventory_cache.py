"""Cache of plain inventory files: reading them costs more than contacting ten hosts.

Only inventories that always give the same hosts are cached: plain text files of the inventory's folder, no programs,
no inventory plugins, nothing encrypted. Only connection variables are stored, never a password.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from gpuctl.core.paths import cache_dir, private, write_atomically
from gpuctl.edges import inventory

Variables = dict[str, Any]
FORM = "7"
OURS = ("host_profile_name", "gpu_settings", "kubelet_resources", "slurm_gres", "gpu_stack", "group_names")
_LARGEST = 4 * 2**20
_SECRET = ("pass", "secret", "token", "vault")


def read(source: Path, limit: str, also: str = "") -> dict[str, Variables]:
    """Like `inventory.read`, from the cache if the files have not changed.

    From the cache, hosts have only connection variables and the one that `also` names.
    """
    try:
        key = _key(source, limit, also)
    except OSError:  # such as a dangling link: Ansible decides what it means
        key = ""
    cached = cache_dir() / "inventories" / f"{key}.json"
    hosts: dict[str, Variables]
    if key and cached.is_file():
        with contextlib.suppress(OSError, ValueError):  # a damaged file is written again
            hosts = json.loads(cached.read_text())
            return hosts
    hosts = inventory.read(source, limit)
    if key:
        with contextlib.suppress(OSError):  # a folder that is not writable costs only time
            private(cached.parent)
            write_atomically(cached, json.dumps({host: _reduced(variables, also) for host, variables in hosts.items()}))
    return hosts


def _reduced(variables: Variables, also: str) -> Variables:
    """The variables needed to select and reach a host; a password is replaced by a note that it exists."""
    used = {n: value for n, value in variables.items() if n.startswith("ansible_") or n in (*OURS, also)}
    return {name: "kept out of the cache" if any(s in name for s in _SECRET) else value for name, value in used.items()}


def _key(source: Path, limit: str, also: str) -> str:
    """A hash of everything the result depends on; "" if that cannot be known."""
    if "@" in limit:  # host names in a file that is not watched
        return ""
    files = _below(source) if source.is_dir() else _beside(source)
    inputs = [
        FORM,
        str(source),
        limit,
        also,
        *(f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("ANSIBLE")),
    ]
    for path in [*files, *(p for p in _configs() if p.is_file())]:
        facts = path.stat()
        if path in files and not _plain(path, facts):
            return ""
        inputs.append(f"{path} {facts.st_mtime_ns} {facts.st_size} {facts.st_ino}")
    return hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:32]


def _beside(source: Path) -> list[Path]:
    """A single file, and the variable folders that Ansible reads next to it."""
    folders = (source.parent / "group_vars", source.parent / "host_vars")
    return [source, *(path for folder in folders for path in _below(folder))]


def _below(folder: Path) -> list[Path]:
    """Every file of a folder, links followed, as Ansible reads them: without hidden ones, such as an editor's locks."""
    files = []
    for at, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(at) / name for name in names if not name.startswith(".")]
    return sorted(files)


def _configs() -> list[Path]:
    named = Path(os.path.expanduser(os.environ.get("ANSIBLE_CONFIG", "")))  # noqa: PTH111 - as Ansible does
    return [
        named,
        named / "ansible.cfg",
        Path.cwd() / "ansible.cfg",
        Path.home() / ".ansible.cfg",
        Path("/etc/ansible/ansible.cfg"),
    ]


def _plain(path: Path, facts: os.stat_result) -> bool:
    if not stat.S_ISREG(facts.st_mode) or os.access(path, os.X_OK) or facts.st_size > _LARGEST:
        return False
    text = path.read_bytes()
    return not any(mark in text for mark in (b"plugin:", b"$ANSIBLE_VAULT", b"!vault", b"lookup("))
