"""Programs of folders that others may write: one is run only if root alone can replace it."""

from __future__ import annotations

import os

from .host import Host


def on_host(host: Host, real: str) -> str:
    """The host's path of a resolved path on this machine."""
    return f"/{os.path.relpath(real, os.path.realpath(host.real('/')))}"


def unsafe(host: Host, program: str) -> str:
    """Why a program with its resolved path must not be run: others could replace it. "" if it may be."""
    base = os.path.realpath(host.real("/"))
    path = program
    while True:
        status = os.stat(path)
        shown = "/" if path == base else on_host(host, path)
        if status.st_uid not in {0, os.geteuid()}:
            return f"{shown} belongs to another user"
        if status.st_mode & 0o022:
            return f"{shown} can be written by its group or by others"
        if path in {base, "/"}:
            return ""
        path = os.path.dirname(path)
