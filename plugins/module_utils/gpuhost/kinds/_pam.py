"""PAM's configuration of sshd: logins get the limits of limits.d only through the module pam_limits."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from ..host import Host
from ..startup.lines import config_lines

SSHD = "/etc/ssh/sshd_config"
FOLDERS = ("/etc/pam.d", "/usr/lib/pam.d")
INCLUDE = re.compile(r"(?:@include|-?session\s+(?:include|substack))\s+(\S+)", re.IGNORECASE)
# With `conf=FILE` it reads that file instead of limits.conf and limits.d.
LIMITS = re.compile(r"-?session\s.*\bpam_limits\.so\b(?!.*\sconf=)", re.IGNORECASE)


def why_ssh_skips_limits(host: Host) -> str:
    """The reason why ssh logins get no limits of limits.d; empty if they do, or if there is no sshd."""
    if not host.exists(SSHD):
        return ""
    uses = next((words[1].lower() for words in _options(host, SSHD) if words[0].lower() == "usepam"), "no")
    if uses != "yes":
        return "sshd runs without PAM (UsePAM in sshd_config)"
    service = "sshd" if _file_of(host, "sshd") else "other"
    return "" if _has_limits(host, service, set()) else f"PAM has no pam_limits for it (/etc/pam.d/{service})"


def _options(host: Host, path: str) -> Iterator[list[str]]:
    """Options of sshd for all logins, in order; the first one for a name counts."""
    for line in (host.read_or_none(path) or "").splitlines():
        words = re.split(r"\s*=\s*|\s+", line.strip(), maxsplit=1)
        if words[0].lower() == "match":
            return
        if len(words) < 2 or words[0].startswith("#"):
            continue
        if words[0].lower() != "include":
            yield [words[0], words[1].strip().strip('"')]
            continue
        for pattern in words[1].split():
            for included in host.glob(posixpath.join(posixpath.dirname(SSHD), pattern)):
                yield from _options(host, included)


def _file_of(host: Host, service: str) -> str:
    return next((path for folder in FOLDERS if host.exists(path := f"{folder}/{service}")), "")


def _has_limits(host: Host, service: str, visited: set[str]) -> bool:
    """True if the service's file, or one that it includes, runs pam_limits for sessions."""
    path = _file_of(host, service)
    if not path or path in visited:
        return False
    visited.add(path)
    for line in config_lines(host, "PAM", path):
        text = line.text.partition("#")[0]
        included = INCLUDE.match(text)
        if LIMITS.match(text) or (included and _has_limits(host, included[1], visited)):
            return True
    return False
