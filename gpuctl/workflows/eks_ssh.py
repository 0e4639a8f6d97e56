"""Files of ours for ssh: entry and host key of each GPU pod, and the line of ~/.ssh/config that includes them."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import config_dir, private, write_atomically
from gpuctl.edges.kube import port_stream
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.processes import Processes
from gpuctl.edges.programs import gpuctl_program, need
from gpuctl.edges.terminal import show
from gpuctl.eks.gpu_pod import model, ssh_files
from gpuctl.eks.gpu_pod.model import read_form
from gpuctl.eks.gpu_pod.scripts import SSH_PORT
from gpuctl.eks.gpu_pod.ssh_files import HostEntry
from gpuctl.workflows.eks_access import Place

VERSION = re.compile(r"OpenSSH_(\d+)\.(\d+)")
SFTP_SINCE, KNOWN_HOSTS_COMMAND_SINCE = (8, 7), (8, 5)  # scp -s; the option KnownHostsCommand
VERSION_S = 10
NOT_INCLUDED = "not-included"
BAD = re.compile(r'["\n\\*?\[\]%$]')  # what Include cannot hold in a path, or expands


def folder() -> Path:
    path = (config_dir() / "ssh").absolute()
    _check_path(path, "set GPUCTL_CONFIG_DIR to a folder of another name")
    return private(path)


def _check_path(path: Path, hint: str) -> None:
    if BAD.search(str(path)):
        raise InvalidInput(f"use {path} with ssh", "ssh's config files cannot name it", hint)


def pattern() -> str:
    return f"{folder()}/*.conf"


def user_config() -> Path:
    return Path.home() / ".ssh/config"


def check_entry(cluster: Cluster, place: Place) -> None:
    """`InvalidInput` if the pod's name for ssh leads to another place already."""
    path = folder() / f"{host_name(place)}.conf"
    before = ssh_files.leads_to(_text(path)) if path.is_file() else ""
    if before and before != (now := _leads_to(cluster, place)):
        hint = f"if that one is no longer needed: `rm {shlex.quote(str(path))}`"
        raise InvalidInput(
            f"reach the pod {place.pod} by ssh", f"{host_name(place)} leads to {before}, not to {now}", hint
        )


def has_entry(cluster: Cluster, place: Place) -> bool:
    """True if the pod's name for ssh leads to it."""
    path = folder() / f"{host_name(place)}.conf"
    return path.is_file() and ssh_files.leads_to(_text(path)) == _leads_to(cluster, place)


def host_name(place: Place) -> str:
    return ssh_files.host_name([place.cluster, place.pod, place.namespace, place.region or place.context])


def _leads_to(cluster: Cluster, place: Place) -> str:
    """The place as a line; EKS's address of a cluster changes when it is made again, its account does not."""
    where = f"AWS account {place.account}, {place.region}" if place.account else cluster.server
    return " ".join(f"{place.pod} in namespace {place.namespace} of {place.cluster} ({where})".split())


def address_of_entry(place: Place) -> str:
    """Address of the load balancer by which the pod's name for ssh leads; "" for none."""
    path = folder() / f"{host_name(place)}.conf"
    return ssh_files.address_of(_text(path)) if path.is_file() else ""


def write_entry(cluster: Cluster, place: Place, pod: dict[str, Any], address: str = "") -> HostEntry:
    """Write the pod's entry and the key of its host, which the API delivered; return the entry.

    `address`: of the pod's load balancer; without one the entry leads through the API.
    """
    check_entry(cluster, place)
    meta = pod["metadata"]
    annotations = meta.get("annotations") or {}
    key = str(annotations.get(model.HOST_KEY) or "")
    if not re.fullmatch(r"[a-z0-9-]+ [A-Za-z0-9+/=]+", key):
        doing = f"reach the pod {place.pod} by ssh"
        raise GpuctlError(doing, "it names no host key", "`gpuctl eks pod --replace` makes it again")
    name = host_name(place)
    files = [word for path in place.files for word in ("--kubeconfig", str(path))]
    if any("\n" in word for word in (place.context, place.namespace, *files)):
        raise InvalidInput(f"reach the pod {place.pod} by ssh", "the kubeconfig's path or context has a line end")
    where = ["--context", place.context, "--namespace", place.namespace, "--pod", place.pod, *files]
    form = read_form(annotations)
    known = folder() / f"{name}.known_hosts"
    entry = HostEntry(
        name,
        ssh_files.alias(meta["uid"]),
        key,
        form is not None and form.root,
        SSH_PORT,
        str(known),
        [gpuctl_program(), "eks", "tunnel", place.cluster, *where],
        _leads_to(cluster, place),
        address,
    )
    write_atomically(known, ssh_files.known_host(entry))
    write_atomically(folder() / f"{name}.conf", ssh_files.entry(entry))
    return entry


def is_included() -> bool:
    """True if ~/.ssh/config has our line."""
    path = user_config()
    return path.is_file() and ssh_files.has_include(_text(path), pattern())


def include() -> None:
    """Put our line first into ~/.ssh/config, as a whole or not at all; a link is followed, the mode stays."""
    path = user_config()
    target = path.resolve()
    try:
        target.parent.mkdir(mode=0o700, exist_ok=True)
        before = _text(target) if target.is_file() else ""
        mode = target.stat().st_mode & 0o777 if target.is_file() else 0o600
        write_atomically(target, os.fsencode(ssh_files.with_include(before, pattern())), mode)
    except OSError as error:
        hint = f"put this line first yourself: {ssh_files.include_line(pattern())}"
        raise GpuctlError(f"change {path}", error.strerror or str(error), hint) from error


def include_line() -> str:
    return ssh_files.include_line(pattern())


def was_refused() -> bool:
    """True if the user does not want the line: the question is put once."""
    return (folder() / NOT_INCLUDED).exists()


def refuse() -> None:
    write_atomically(folder() / NOT_INCLUDED, "`gpuctl eks pod --include` adds the line nevertheless.\n")


def _text(path: Path) -> str:
    """Content of a file, of which every byte comes back with `os.fsencode`: line ends and other encodings stay."""
    try:
        return os.fsdecode(path.read_bytes())
    except OSError as error:
        raise GpuctlError(f"read {path}", error.strerror or str(error)) from error


def _config(entry: HostEntry) -> str:
    """A config file with this entry alone and the user's settings; ~/.ssh/config needs no line for it.

    It leads through the API, which this command has just reached: a load balancer may be closed to this machine.
    """
    entry = replace(entry, address="")
    others = [path.absolute() for path in (user_config(), Path("/etc/ssh/ssh_config")) if path.is_file()]
    for other in others:
        _check_path(other, "move it to a folder of another name")
    known_hosts_command = (_version() or (0, 0)) >= KNOWN_HOSTS_COMMAND_SINCE
    text = ssh_files.private_config(entry, [str(other) for other in others], known_hosts_command=known_hosts_command)
    path = folder() / f"{entry.host}.private"
    write_atomically(path, text)
    return str(path)


def _version() -> tuple[int, int] | None:
    """OpenSSH's version; None if it does not print one."""
    version = VERSION.search(Processes().run(["ssh", "-V"], b"", VERSION_S).err)
    return (int(version[1]), int(version[2])) if version else None


def connect(entry: HostEntry, command: Sequence[str]) -> int:
    """Run ssh on this terminal and return its exit status."""
    need("ssh")
    return show(["ssh", "-F", _config(entry), entry.host, *command])


def forward(entry: HostEntry, local: int, remote: int) -> int:
    """Forward a port of this machine's loopback to one of the pod's until ssh ends, and return its exit status."""
    need("ssh")
    argv = ["-N", "-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{local}:127.0.0.1:{remote}"]
    return show(["ssh", "-F", _config(entry), *argv, entry.host])


def copy(entry: HostEntry, sources: Sequence[str], target: str) -> int:
    """Copy files with scp over SFTP, and return its exit status; paths in the pod begin with ":"."""
    need("scp")
    if (_version() or (0, 0)) < SFTP_SINCE:
        hint = "update OpenSSH, or use sftp with the Host entry of the pod"
        raise InvalidInput("copy files", "scp is older than OpenSSH 8.7, and cannot use SFTP", hint)
    argv = [_scp_path(entry, path) for path in (*sources, target)]
    return show(["scp", "-s", "-r", "-p", "-F", _config(entry), "--", *argv])


def tunnel(place: Place) -> None:
    """Connect standard input and output to the pod's sshd, until either side closes; a signal ends it in silence."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # ssh sends SIGHUP at its end
        signal.signal(number, signal.SIG_DFL)
    with contextlib.closing(port_stream.connect(place.connect(), place.pod, SSH_PORT)) as stream:
        stream.pump(sys.stdin.fileno(), sys.stdout.fileno())


def _scp_path(entry: HostEntry, path: str) -> str:
    if path.startswith(":"):
        return f"{entry.host}:{path[1:]}"
    # scp takes a local name with a colon for a host.
    return path if path.startswith("/") else f"./{path}"
