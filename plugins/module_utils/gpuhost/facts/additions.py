"""Repositories that a host does not have yet: their key, and apt with them, without a write to the host."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..download import download
from ..host import Host
from . import openpgp
from .package_lists import APT_LISTS, manager

SOURCES = "/etc/apt/sources.list.d"
KEYRINGS = "/usr/share/keyrings"
LIMIT_S = 120.0
MARK = "# Written by gpuctl; `gpuctl rollback --only gpu_stack` takes it back.\n"
STANZA = MARK + "Types: deb\nURIs: {uri}\nSuites: {suite}\nSigned-By: {key}\n"
WITHOUT_LOCKS = ("-o", "APT::Get::List-Cleanup=0", "-o", "Debug::NoLocking=true", "-o", "APT::Sandbox::User=root")
ARCHITECTURES = {"x86_64": ("x86_64", "amd64"), "aarch64": ("sbsa", "arm64")}


def fill(template: str, distribution: str, architecture: str) -> str:
    """An address for this host: {distribution} as ubuntu2404, {cuda_architecture} as sbsa, {architecture} as arm64."""
    cuda, plain = ARCHITECTURES.get(architecture, (architecture, architecture))
    names = {"distribution": distribution.replace(".", ""), "cuda_architecture": cuda, "architecture": plain}
    return template.format(**names)


def read(
    host: Host, rows: Sequence[Mapping[str, Any]], distribution: str, architecture: str, present: Sequence[str]
) -> list[dict[str, Any]]:
    """The repositories among `rows` that fit this host and are not `present` (addresses), with their keys.

    A row has `name`, `distributions`, `uri`, `suite`, `key` (address) and `match` (regular expression of addresses that
    count as this repository). A result has `name`, `file`, `text`, `key_file`, `key` (its text), `fingerprints`,
    and `wrong`: why the key could not be fetched, "" if it was.
    """
    if manager(host) != "apt":
        return []
    fitting = [row for row in rows if distribution in row["distributions"]]
    missing = [row for row in fitting if not any(re.search(row["match"], uri) for uri in present)]
    return [_addition(host, row, distribution, architecture) for row in missing]


def _addition(host: Host, row: Mapping[str, Any], distribution: str, architecture: str) -> dict[str, Any]:
    name = f"gpuctl-nvidia-{row['name']}"
    key_file = f"{KEYRINGS}/{name}.asc"
    uri, suite, address = (fill(row[field], distribution, architecture) for field in ("uri", "suite", "key"))
    key, wrong = _fetch(host, address)
    found = openpgp.fingerprints(key)
    return {
        "name": row["name"],
        "file": f"{SOURCES}/{name}.sources",
        "text": STANZA.format(uri=uri, suite=suite, key=key_file),
        "key_file": key_file,
        "key": key,
        "fingerprints": found,
        "wrong": wrong or ("" if found else f"{address} has no OpenPGP key in ASCII armour"),
    }


def _fetch(host: Host, address: str) -> tuple[str, str]:
    """(text of a file at an address, why it could not be fetched)."""
    with host.scratch_folder() as scratch:
        target = os.path.join(scratch, "key")
        wrong = download(host, address, target)
        if wrong:
            return "", wrong
        with open(target, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read(), ""


@contextmanager
def apt_with(host: Host, additions: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Options with which apt also knows these repositories; OSError with apt's reason if their lists cannot be had.

    The host's own lists and sources are linked into a folder in memory, which is then removed.
    """
    if not additions:
        yield ()
        return
    with host.scratch_folder() as scratch:
        lists, sources, new = (_folder(scratch, name) for name in ("lists", "sources", "new"))
        _folder(lists, "partial")
        _link(host, APT_LISTS, lists)
        _link(host, SOURCES, sources)
        for row in additions:
            key = os.path.join(scratch, f"{row['name']}.asc")
            _put(key, row["key"])
            for folder in (sources, new):
                _put(os.path.join(folder, os.path.basename(row["file"])), row["text"].replace(row["key_file"], key))
        known = ("-o", f"Dir::State::Lists={lists}", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")
        only = ("-o", "Dir::Etc::SourceList=/dev/null", "-o", f"Dir::Etc::SourceParts={new}")
        done = host.run("apt-get", *known, *only, *WITHOUT_LOCKS, "--error-on=any", "update", limit=LIMIT_S)
        if not done.ok:
            raise OSError(0, done.last_line, "apt-get update")
        yield (*known, "-o", f"Dir::Etc::SourceParts={sources}")


def _folder(parent: str, name: str) -> str:
    path = os.path.join(parent, name)
    os.mkdir(path)
    return path


def _link(host: Host, source: str, folder: str) -> None:
    """Link the files of a folder of the host."""
    for name in host.listdir(source):
        if name != "lock" and not os.path.isdir(host.real(f"{source}/{name}")):
            os.symlink(host.real(f"{source}/{name}"), os.path.join(folder, name))


def _put(path: str, text: str) -> None:
    """Write a file, in the place of a link of the same name."""
    if os.path.islink(path):
        os.unlink(path)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)
