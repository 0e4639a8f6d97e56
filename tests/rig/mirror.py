"""A mirror on loopback: real archives with a program in each, one that is corrupted, one that is not there."""

from __future__ import annotations

import functools
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOST = "releases.example"


def archive(name: str, version: str) -> bytes:
    """A tar.gz with the program `name`, which prints its version."""
    program = f"#!/bin/sh\necho {name} {version}\n".encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for member in ("README", name):
            info = tarfile.TarInfo(member)
            info.size = len(program)
            tar.addfile(info, io.BytesIO(program))
    return packed.getvalue()


class Mirror:
    """A folder laid out as a mirror is: MIRROR/host/path."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def row(self, name: str, version: str, *, serve: str = "whole") -> dict[str, Any]:
        """Serve a tool (whole, corrupted, not at all) and return its row, with the pin of the whole archive."""
        data = archive(name, version)
        path = self.root / HOST / f"{name}-{version}.tar.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        if serve == "whole":
            path.write_bytes(data)
        elif serve == "corrupted":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        pins = {f"linux/{arch}": hashlib.sha256(data).hexdigest() for arch in ("amd64", "arm64")}
        url = f"https://{HOST}/{name}-{{version}}.tar.gz"
        release = {"version": version, "url": url, "member": name, "pins": pins}
        return {"name": name, "why": "a test", "source": "a test", "minimal": version, "release": release}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


@contextmanager
def serving(root: Path) -> Iterator[tuple[Mirror, str]]:
    """The mirror, and its address."""
    root.mkdir(exist_ok=True)
    handler = functools.partial(_Quiet, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Mirror(root), f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
