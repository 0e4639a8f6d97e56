"""A lock of dnf on a package's version: "lock:nvidia-driver-cuda", text "3:580.178.04-1.el9"; None without one.

Locks are lines of the list that the plugin versionlock reads, in the form of `dnf versionlock add`, so that
`dnf versionlock` lists and deletes them. The plugin's configuration names the list, and dnf's may switch it off.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ..host import Host
from ..model import Unreadable

LIST = "/etc/dnf/plugins/versionlock.list"
PLUGIN = "python3-dnf-plugin-versionlock"
DNF = "/etc/dnf/dnf.conf"
_OFF = ("0", "no", "false", "off")


def place(host: Host) -> str:
    """Path of the list that the plugin reads; of the package's configuration, if it is not installed yet."""
    path = _plugin_file(host)
    return _main(host, path).get("locklist") or LIST if host.exists(path) else LIST


def unheeded(host: Host) -> str:
    """Why dnf does not obey locks, by its configuration; "" if it does, once the plugin is installed."""
    dnf, path = _main(host, DNF), _plugin_file(host)
    if dnf.get("plugins", "1").lower() in _OFF:
        return f"{DNF} has plugins={dnf['plugins']}: dnf obeys no locks before it is 1"
    plugin = _main(host, path)
    if plugin.get("enabled", "1").lower() in _OFF:
        return f"{path} has enabled={plugin['enabled']}: dnf obeys no locks before it is 1"
    if host.exists(path) and not plugin.get("locklist", "").startswith("/"):
        return f"{path} names no list of locks: set locklist = {LIST}"
    return ""


def _plugin_file(host: Host) -> str:
    folders = _main(host, DNF).get("pluginconfpath", os.path.dirname(LIST))
    return os.path.join(re.split(r"[\s,]+", folders.strip())[0], "versionlock.conf")


def _main(host: Host, path: str) -> Mapping[str, str]:
    """Options of the section main; `Unreadable` if the file cannot be parsed."""
    import configparser  # slow to load, and only hosts with dnf need it

    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(host.read_or_none(path) or "")
    except configparser.Error as error:
        raise Unreadable(f"{path} cannot be parsed: {str(error).splitlines()[0]}") from error
    return parser["main"] if parser.has_section("main") else {}


class Lock:
    """One package, by its name; other lines of the list stay as they are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._line = re.compile(rf"{re.escape(name)}-(\d+:[^-\s]+-[^-\s]+)\.\*\n?")

    def read(self, host: Host) -> str | None:
        versions = [match[1] for line in _lines(host) if (match := self._line.fullmatch(line.strip("\n"))) is not None]
        return ",".join(version.removeprefix("0:") for version in versions) or None

    def write(self, host: Host, text: str | None) -> None:
        path = place(host)
        lines = [line for line in _lines(host) if not self._line.fullmatch(line)]
        if text is not None:
            if lines and not lines[-1].endswith("\n"):
                lines[-1] += "\n"
            versions = (version if ":" in version else f"0:{version}" for version in text.split(","))
            lines += [f"{self.name}-{version}.*\n" for version in versions]
        mode, owner = 0o644, (0, 0)
        if host.exists(path):
            facts = os.stat(host.real(path))
            mode, owner = facts.st_mode & 0o7777, (facts.st_uid, facts.st_gid)
        host.replace(path, "".join(lines), mode, owner)


def _lines(host: Host) -> list[str]:
    return (host.read_or_none(place(host)) or "").splitlines(keepends=True)
