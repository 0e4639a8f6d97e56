"""Files by which containerd, Docker and CRI-O know NVIDIA's runtime, beside the user's own settings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..host import Host
from ..model import Refused, Unreadable
from ..resources.file import File, described

RUNTIME = "/usr/bin/nvidia-container-runtime"
MARK = "# Written by gpuctl; `gpuctl rollback --only gpu_stack` takes it back.\n"
DOCKER = "/etc/docker/daemon.json"
CRIO = "/etc/crio/crio.conf.d/99-gpuctl-nvidia.toml"
CRIO_TEXT = f'{MARK}[crio.runtime.runtimes.nvidia]\nruntime_path = "{RUNTIME}"\nruntime_type = "oci"\n'
CONTAINERD = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-gpuctl-nvidia.toml"
IMPORT = "/etc/containerd/conf.d/*.toml"
_IMPORTS = re.compile(r"^imports\s*=\s*\[([^\]]*)\][ \t]*\n?", re.MULTILINE)
_VERSION = re.compile(r"^version\s*=\s*(\d+)[ \t]*\n?", re.MULTILINE)
# The plugin that runs pods: of containerd 1.x, and of 2.x.
_HEADER = re.compile(r"""^\s*\[plugins\.["']io\.containerd\.(?:grpc\.v1\.cri|cri\.v1\.runtime)["'](?P<rest>[^\]]*)\]""")
_ANY_HEADER = re.compile(r"^\s*\[")


class Table(NamedTuple):
    """A table of containerd's configuration: its header, the part of it after the plugin's name, and its lines."""

    header: str
    rest: str
    lines: tuple[str, ...]


def files(host: Host) -> dict[str, str]:
    """Path -> text of its `File` setting, for the runtimes that the host has."""
    made: dict[str, str] = {}
    if host.which("dockerd"):
        made[DOCKER] = _docker(host)
    if host.which("crio"):
        made[CRIO] = described(CRIO_TEXT)
    if host.which("containerd"):
        made.update(_containerd(host))
    return made


def _like(host: Host, path: str, content: str) -> str:
    """The text of a file with new content, and the mode and owner that it has."""
    head, separator, _ = (File(path).read(host) or "").partition("\n")
    return f"{head}\n{content}" if separator else described(content)


def _docker(host: Host) -> str:
    """Docker has no folder for drop-ins: its file gets one runtime, and keeps everything else."""
    text = host.read_or_none(DOCKER)
    try:
        settings = json.loads(text or "{}")
        runtimes = settings.setdefault("runtimes", {})
        present = runtimes.setdefault("nvidia", {"path": RUNTIME, "args": []})
    except (ValueError, AttributeError) as error:
        raise Unreadable(f"{DOCKER} is not understood: {error}") from error
    if text and json.loads(text).get("runtimes", {}).get("nvidia") == present:
        return _like(host, DOCKER, text)
    indent = re.search(r"^(\s+)\"", text or "", re.MULTILINE)
    return _like(host, DOCKER, json.dumps(settings, indent=indent[1] if indent else 4) + "\n")


def _containerd(host: Host) -> dict[str, str]:
    """A drop-in with the whole section of pods as it is in force, and the runtime in it.

    containerd 1.x takes a plugin's section from the last file that has one, so a drop-in with the runtime alone would
    set everything else of it back to defaults.
    """
    text = host.read_or_none(CONTAINERD)
    main = "version = 2\n" if text is None else text
    version = _VERSION.search(main)
    if version is None or version[1] == "1":
        raise Refused(f"{CONTAINERD} has the form of version 1: convert it with `containerd config migrate`")
    base = _dump(host, main, [path for path in _imported(host, main) if path != DROP_IN])
    tables = list(_tables(base))
    if any(table.rest.endswith(".runtimes.nvidia") for table in tables):
        return {}  # somebody has set it already
    drop_in = f"{MARK}version = {version[1]}\n" + "".join(_with_runtime(tables))
    imported = _with_import(main, version.end())
    _prove(host, main, drop_in, base)
    return {CONTAINERD: _like(host, CONTAINERD, imported), DROP_IN: described(drop_in)}


def _imported(host: Host, main: str) -> list[str]:
    match = _IMPORTS.search(main)
    patterns = re.findall(r"""["']([^"']+)["']""", match[1]) if match else []
    absolute = (name if name.startswith("/") else f"/etc/containerd/{name}" for name in patterns)
    return [path for pattern in absolute for path in host.glob(pattern)]


def _with_import(main: str, after_version: int) -> str:
    """The main file with the folder of drop-ins among its imports, and every other byte as it is."""
    match = _IMPORTS.search(main)
    if match is None:
        return f'{main[:after_version]}imports = ["{IMPORT}"]\n{main[after_version:]}'
    if IMPORT in match[1] or DROP_IN in match[1]:
        return main
    inside = match[1].rstrip()
    separator = ", " if inside.strip() and not inside.endswith(",") else " " if inside else ""
    return f'{main[: match.start(1)]}{inside}{separator}"{IMPORT}"{main[match.end(1) :]}'


def _dump(host: Host, main: str, imports: Iterable[str], drop_in: str = "") -> str:
    """The configuration that containerd makes of a main file with these imports, and with a drop-in after them."""
    with host.scratch_folder() as scratch:
        paths = [host.real(path) for path in imports]
        if drop_in:
            paths.append(os.path.join(scratch, "drop-in.toml"))
            _put(paths[-1], drop_in)
        listed = ", ".join(f'"{path}"' for path in paths)
        plain = _IMPORTS.sub("", main)
        version = _VERSION.search(plain)
        start = version.end() if version else 0
        _put(os.path.join(scratch, "config.toml"), f"{plain[:start]}imports = [{listed}]\n{plain[start:]}")
        result = host.run("containerd", "--config", os.path.join(scratch, "config.toml"), "config", "dump", limit=20)
    if not result.ok:
        raise Unreadable(f"containerd config dump: {result.last_line}")
    return result.out


def _put(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)


def _tables(dump: str) -> Iterator[Table]:
    """The tables of the plugin that runs pods."""
    header, rest, lines = "", "", list[str]()
    for line in [*dump.splitlines(), "["]:
        if not _ANY_HEADER.match(line):
            lines.append(line)
            continue
        if header:
            yield Table(header, rest, tuple(lines))
        match = _HEADER.match(line)
        header, rest, lines = (line, match["rest"], []) if match else ("", "", [])


def _with_runtime(tables: Iterable[Table]) -> Iterator[str]:
    """Lines of the tables with CDI switched on, and with copies of runc's for NVIDIA's runtime."""
    tables = list(tables)
    options = next((table for table in tables if table.rest.endswith(".runtimes.runc.options")), None)
    for table in tables:
        lines = [re.sub(r"\benable_cdi = false", "enable_cdi = true", line) for line in table.lines if line.strip()]
        yield from (f"{line}\n" for line in (table.header, *lines))
        if table.rest.endswith(".runtimes.runc"):
            header = table.header.replace(".runtimes.runc", ".runtimes.nvidia")
            yield from (f"{line}\n" for line in (header, *lines))
            own = [line for line in (options.lines if options else ()) if line.strip() and "BinaryName" not in line]
            yield from (f"{line}\n" for line in (f"{header[:-1]}.options]", *own, f'  BinaryName = "{RUNTIME}"'))


def _prove(host: Host, main: str, drop_in: str, base: str) -> None:
    """Refuse a drop-in after which containerd would have lost any setting, or not have the runtime."""
    imports = [path for path in _imported(host, main) if path != DROP_IN]
    after = _dump(host, main, imports, drop_in)
    if not any(table.rest.endswith(".runtimes.nvidia") for table in _tables(after)):
        raise Refused("containerd does not read the runtime from its drop-in: it has no runtime runc to copy")
    kept = {line.strip() for line in after.splitlines()}
    lost = [
        line.strip()
        for line in base.splitlines()
        if line.strip() not in kept and not re.search("imports =|enable_cdi =", line)
    ]
    if lost:
        raise Refused(f"containerd would lose settings by a drop-in: {'; '.join(lost[:3])}")
