"""Text of ssh's files for a GPU pod: a `Host` entry, the key of its host, and the line that includes the entries."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from gpuctl.eks.gpu_pod.scripts import ROOT, USER

FIRST = "# Written by gpuctl, which replaces it."
LEADS = "# Leads to "
NOT_IN_NAMES, MOST_OF_A_NAME = re.compile(r"[^A-Za-z0-9_-]+"), 60  # characters


@dataclass(frozen=True)
class HostEntry:
    """A pod for ssh. `alias`: the name under which its key is checked. `proxy`: the program that reaches its sshd.

    `leads_to`: the account or server, namespace and pod, on one line.
    """

    host: str
    alias: str
    key: str
    root: bool
    port: int
    known_hosts: str
    proxy: Sequence[str]
    leads_to: str


def host_name(place: Sequence[str]) -> str:
    """The name that ssh takes, such as lab.gpu.default.us-west-2, from cluster, pod, namespace and region or context.

    The first three have no dots, so that no two places have one name; contexts may be alike once they are shortened.
    """
    *names, where = place
    return ".".join([*names, NOT_IN_NAMES.sub("_", where)[:MOST_OF_A_NAME]])


def alias(uid: str) -> str:
    return f"gpuctl-{uid}"


def entry(host: HostEntry) -> str:
    """A config file of ssh. The user's settings come behind it: OpenSSH takes the first value of each."""
    command = shlex.join(host.proxy).replace("%", "%%")  # ssh expands % in it
    lines = [
        f"HostName {host.alias}",  # a ControlPath of the user with %h or %C is then of this pod alone
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
    return "\n".join([FIRST, f"{LEADS}{host.leads_to}", f"Host {host.host}", *(f"  {line}" for line in lines), ""])


def leads_to(config: str) -> str:
    """The place to which an entry leads; "" if it does not name it."""
    return next((line.removeprefix(LEADS) for line in config.splitlines() if line.startswith(LEADS)), "")


def private_config(host: HostEntry, others: Sequence[str], *, known_hosts_command: bool) -> str:
    """A config file for gpuctl's calls of ssh: this entry alone, without a connection or key of elsewhere; `others`.

    `known_hosts_command`: ssh knows this option (OpenSSH 8.5).
    """
    lines = ["ControlMaster no", "ControlPath none", *(["KnownHostsCommand none"] if known_hosts_command else [])]
    head = entry(host) + "".join(f"  {line}\n" for line in lines)
    return head + "Host *\n" + "".join(f"{include_line(path)}\n" for path in others)


def known_host(host: HostEntry) -> str:
    """The line of known_hosts."""
    return f"{host.alias} {host.key}\n"


def quoted(path: str) -> str:
    """A path in double quotes, as ssh's config files take it."""
    return f'"{path.replace("%", "%%")}"'


def include_line(pattern: str) -> str:
    """The line for ~/.ssh/config, for a path without the characters that Include expands."""
    return f'Include "{pattern}"'


def has_include(config: str, pattern: str) -> bool:
    """True if the line stands before the first Host or Match, where it counts for every host."""
    for line in config.split("\n"):  # as ssh does; other separators may be parts of a comment
        if re.match(r"\s*(host|match)[\s=]", line, re.IGNORECASE):
            return False
        if line.strip() == include_line(pattern):
            return True
    return False


def with_include(config: str, pattern: str) -> str:
    """The config with the line as its first; all else stays byte for byte."""
    return f"{include_line(pattern)}\n{config}"
