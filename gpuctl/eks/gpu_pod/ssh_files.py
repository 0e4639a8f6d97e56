"""Text of ssh's files for a GPU pod: a `Host` entry, the key of its host, and the line that includes the entries."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from gpuctl.eks.gpu_pod.scripts import ROOT, USER

FIRST = "# Written by `gpuctl eks pod`, which replaces this file."


@dataclass(frozen=True)
class HostEntry:
    """A pod for ssh. `alias`: the name under which its key is checked. `proxy`: the program that reaches its sshd."""

    host: str
    alias: str
    key: str
    root: bool
    port: int
    known_hosts: str
    proxy: Sequence[str]


def host_name(cluster: str, pod: str) -> str:
    """The name that ssh takes."""
    return f"{cluster}-{pod}"


def alias(uid: str) -> str:
    return f"gpuctl-{uid}"


def entry(host: HostEntry) -> str:
    """A config file of ssh. The user's settings come behind it: OpenSSH takes the first value of each."""
    command = shlex.join(host.proxy).replace("%", "%%")  # ssh expands % in it
    lines = [
        f"HostName {host.host}",
        f"HostKeyAlias {host.alias}",
        f"User {ROOT if host.root else USER}",
        f"Port {host.port}",
        f"ProxyCommand {command}",
        f"UserKnownHostsFile {quoted(host.known_hosts)}",
        "GlobalKnownHostsFile /dev/null",
        "StrictHostKeyChecking yes",
        "UpdateHostKeys no",
        "VerifyHostKeyDNS no",
        "CheckHostIP no",
        "ForwardAgent no",
        "ServerAliveInterval 15",
        "ServerAliveCountMax 3",
    ]
    return "\n".join([FIRST, f"Host {host.host}", *(f"  {line}" for line in lines), ""])


def known_host(host: HostEntry) -> str:
    """The line of known_hosts."""
    return f"{host.alias} {host.key}\n"


def quoted(path: str) -> str:
    """A path in double quotes, as ssh's config files take it."""
    return f'"{path.replace("%", "%%")}"'


def include_line(pattern: str) -> str:
    """The line for ~/.ssh/config. A pattern expands no %."""
    return f'Include "{pattern}"'


def has_include(config: str, pattern: str) -> bool:
    """True if the line stands before the first Host or Match, where it counts for every host."""
    for line in config.splitlines():
        if re.match(r"\s*(host|match)[\s=]", line, re.IGNORECASE):
            return False
        if line.strip() == include_line(pattern):
            return True
    return False


def with_include(config: str, pattern: str) -> str:
    """The config with the line as its first; all else stays byte for byte."""
    return f"{include_line(pattern)}\n{config}"


def wrapper(pattern: str, others: Sequence[str]) -> str:
    """A config file for gpuctl's calls of ssh, which need no line in ~/.ssh/config: our entries, then `others`."""
    return "".join(f"{include_line(path)}\n" for path in (pattern, *others))
