"""Download a release archive, verify its pinned sha256, and extract the program."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import tarfile
import time
import urllib.request
import zipfile
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from .model import WorkstationError

_QUIET_SECONDS = 10  # give up on a server that sends nothing for so long
_WHOLE_SECONDS = 300
_MOST_BYTES = 512 << 20


def address(release: Mapping[str, Any], system: str, arch: str, mirror: str) -> str:
    """Return the archive's address; a mirror serves it by original host and path: MIRROR/github.com/derailed/…"""
    values = {"version": release["version"]}
    for kind, value in (("os", system), ("arch", arch)):
        values[kind] = release.get(kind, {}).get(value, value)
    url = str(release["url"]).format(**values)
    return url if not mirror else mirror.rstrip("/") + "/" + url.split("://", 1)[1]


def fetch(url: str, pin: str, into: str) -> None:
    """Download to `into`; a partial or wrong file is removed."""
    digest = hashlib.sha256()
    try:
        with _opened(url) as source, open(into, "xb") as target:
            _copy(source, target, digest, url)
        if digest.hexdigest() != pin:
            raise WorkstationError(f"{url} has the sha256 {digest.hexdigest()}, but {pin} is pinned: refused")
    except BaseException:
        if os.path.exists(into):
            os.unlink(into)
        raise


def program(archive: str, member: str) -> bytes:
    """Return the program's bytes: one member of the archive, or the whole file if `member` is empty."""
    try:
        if not member:
            with open(archive, "rb") as stream:
                return stream.read()
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                return packed.read(member)
        with tarfile.open(archive) as tar:
            stream_of_member = _member(tar, member)
            if stream_of_member is None:
                raise KeyError(member)
            data: bytes = stream_of_member.read()
            return data
    except (KeyError, OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise WorkstationError(f"the archive has no {member or 'program'}: {error}") from error


def _member(tar: tarfile.TarFile, name: str) -> Any:
    # Only this member is read, nothing is unpacked: a path in the archive cannot escape.
    return next((tar.extractfile(m) for m in tar if m.isfile() and m.name.lstrip("./") == name), None)


def _opened(url: str) -> Any:
    if urlsplit(url).scheme not in ("http", "https"):
        raise WorkstationError(f"{url} is not an http or https address")
    request = urllib.request.Request(url, headers={"User-Agent": "gpuctl"})  # noqa: S310 - http only, above
    try:
        return urllib.request.urlopen(request, timeout=_QUIET_SECONDS)  # noqa: S310
    except (URLError, HTTPException, OSError, ValueError) as error:
        why: object = error if isinstance(error, HTTPError) else getattr(error, "reason", None) or error
        if isinstance(why, socket.gaierror):
            why = "its server's name cannot be resolved (GPUCTL_MIRROR can name a reachable server)"
        raise WorkstationError(f"{url} cannot be downloaded: {why}") from error


def _copy(source: Any, target: BinaryIO | io.BufferedWriter, digest: Any, url: str) -> None:
    deadline, received, announced = time.monotonic() + _WHOLE_SECONDS, 0, source.headers.get("Content-Length") or ""
    try:
        while block := source.read(1 << 16):
            received += len(block)
            if time.monotonic() > deadline or received > _MOST_BYTES:
                raise WorkstationError(f"{url} takes too long or is too large")
            digest.update(block)
            target.write(block)
    except (HTTPException, OSError, ValueError) as error:
        raise WorkstationError(f"{url}: the download ended after {received} bytes: {error}") from error
    if announced.isdigit() and received != int(announced):
        raise WorkstationError(f"{url}: the download ended after {received} of {announced} bytes")
