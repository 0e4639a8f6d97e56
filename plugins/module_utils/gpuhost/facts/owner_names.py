"""Names of pods, containers, sessions and users, by the ids in control groups, from files of this host."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..host import Host

POD_LOGS, CONTAINER_LOGS = "/var/log/pods", "/var/log/containers"
SESSIONS = "/run/systemd/sessions"
DOCKER = "/var/lib/docker/containers"
PODMAN = "/var/lib/containers/storage/overlay-containers/containers.json"
LARGEST = 2**22  # characters of a runtime's file
_POD = re.compile(r"([^_]+)_([^_]+)_([0-9a-f-]+)")
_LOG = re.compile(r"([^_]+)_([^_]+)_(.+)-([0-9a-f]{64})\.log")
_CONTAINER = re.compile(r"[0-9a-f]{64}")
_SESSION = re.compile(r"session-(\w+)\.scope")
_SESSION_KEYS = {"USER": "user", "SERVICE": "service", "REMOTE_HOST": "remote", "TTY": "tty"}


def pods(host: Host, cgroups: str, uids: Iterable[str], unread: dict[str, str]) -> dict[str, dict[str, str]]:
    """Uid -> {namespace, name}, of the pods in these control groups or with these uids."""
    listed = set(uids)
    try:
        matches = [match for name in host.listdir(POD_LOGS) if (match := _POD.fullmatch(name))]
    except OSError as error:
        unread["pods"] = f"{POD_LOGS}: {error.strerror}"
        return {}
    return {
        uid: {"namespace": namespace, "name": name}
        for namespace, name, uid in (match.groups() for match in matches)
        if uid in listed or uid in cgroups or uid.replace("-", "_") in cgroups
    }


def containers(host: Host, cgroups: str, unread: dict[str, str]) -> dict[str, dict[str, str | None]]:
    """Id -> {name, image} of the containers in these control groups; the image is known for Docker's alone."""
    ids = set(_CONTAINER.findall(cgroups))
    if not ids:
        return {}
    named: dict[str, dict[str, str | None]] = {}
    try:
        for log in host.listdir(CONTAINER_LOGS):
            match = _LOG.fullmatch(log)
            if match and match.group(4) in ids:
                named[match.group(4)] = {"name": match.group(3), "image": None}
        named.update({i: one for i in sorted(ids - set(named)) if (one := _docker(host, i))})
        named.update({i: one for i, one in _podman(host).items() if i in ids})
    except OSError as error:
        unread["containers"] = f"{error.filename}: {error.strerror}"
    return named


def sessions(host: Host, cgroups: str, unread: dict[str, str]) -> dict[str, dict[str, str | None]]:
    """Id -> {user, service, remote, tty} of the login sessions in these control groups."""
    known = {}
    for number in sorted(set(_SESSION.findall(cgroups))):
        try:
            text = host.read_or_none(f"{SESSIONS}/{number}")
        except OSError as error:
            unread["sessions"] = f"{SESSIONS}/{number}: {error.strerror}"
            continue
        if text is not None:
            rows = dict(line.partition("=")[::2] for line in text.splitlines())
            known[number] = {name: rows.get(key) or None for key, name in _SESSION_KEYS.items()}
    return known


def users(host: Host, uids: Iterable[int]) -> dict[str, str]:
    """Uid -> name, of the users whom this host knows."""
    if host.root:
        rows = [line.split(":") for line in _text(host, "/etc/passwd").splitlines()]
        names = {row[2]: row[0] for row in rows if len(row) > 2}
        return {str(uid): names[str(uid)] for uid in uids if str(uid) in names}
    import pwd  # of this machine

    known = {}
    for uid in uids:
        try:
            known[str(uid)] = pwd.getpwuid(uid).pw_name
        except (KeyError, OverflowError):
            continue
    return known


def _text(host: Host, path: str) -> str:
    try:
        return host.read_or_none(path) or ""
    except OSError:
        return ""


def _docker(host: Host, container: str) -> dict[str, str | None] | None:
    """Name and image; the rest of the file, such as the environment, stays on the host."""
    plain = _json(host, f"{DOCKER}/{container}/config.v2.json")
    if not isinstance(plain, Mapping):
        return None
    config = plain.get("Config")
    image = config.get("Image") if isinstance(config, Mapping) else None
    return {"name": _name(plain.get("Name")), "image": image if isinstance(image, str) else None}


def _podman(host: Host) -> dict[str, dict[str, str | None]]:
    plain = _json(host, PODMAN)
    rows = [row for row in plain if isinstance(row, Mapping)] if isinstance(plain, list) else []
    names = {row.get("id"): row.get("names") for row in rows}
    return {
        number: {"name": _name(listed[0]), "image": None}
        for number, listed in names.items()
        if isinstance(number, str) and isinstance(listed, list) and listed
    }


def _name(value: Any) -> str | None:
    return value.lstrip("/") or None if isinstance(value, str) else None


def _json(host: Host, path: str) -> Any:
    text = host.read_or_none(path)
    try:
        return None if text is None or len(text) > LARGEST else json.loads(text)
    except ValueError:  # written at this moment
        return None
