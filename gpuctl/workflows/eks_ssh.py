"""Files of ours for ssh: entry and host key of each GPU pod, and the line of ~/.ssh/config that includes them."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import config_dir, private, write_atomically
from gpuctl.edges.kube import port_stream
from gpuctl.edges.processes import Processes
from gpuctl.edges.programs import need
from gpuctl.edges.terminal import show
from gpuctl.eks.gpu_pod import model, ssh_files
from gpuctl.eks.gpu_pod.model import read_form
from gpuctl.eks.gpu_pod.scripts import JUPYTER_PORT, SSH_PORT
from gpuctl.eks.gpu_pod.ssh_files import HostEntry
from gpuctl.workflows.eks_access import Place, program

VERSION = re.compile(r"OpenSSH_(\d+)\.(\d+)")
SFTP_SINCE = (8, 7)  # scp -s
NOT_INCLUDED = "not-included"
BAD = re.compile(r'["\n\\]')  # ssh's config files cannot hold these in a path


def folder() -> Path:
    path = private(config_dir() / "ssh")
    if BAD.search(str(path)):
        raise InvalidInput(f"use the folder {path}", "ssh's config files cannot name it", "set GPUCTL_CONFIG_DIR")
    return path


def pattern() -> str:
    return f"{folder()}/*.conf"


def user_config() -> Path:
    return Path.home() / ".ssh/config"


def write_entry(place: Place, pod: dict[str, Any]) -> HostEntry:
    """Write the pod's entry and the key of its host, which the API delivered; return the entry."""
    meta = pod["metadata"]
    annotations = meta.get("annotations") or {}
    key = str(annotations.get(model.HOST_KEY) or "")
    doing = f"reach the pod {place.pod} by ssh"
    if not re.fullmatch(r"[a-z0-9-]+ [A-Za-z0-9+/=]+", key):
        raise GpuctlError(doing, "it names no host key", "`gpuctl eks pod --replace` makes it again")
    name = ssh_files.host_name(place.cluster, place.pod)
    files = [word for path in place.files for word in ("--kubeconfig", str(path))]
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
        [*program(), "eks", "tunnel", place.cluster, *where],
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
        write_atomically(target, ssh_files.with_include(before, pattern()), mode)
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
    try:
        return path.read_text(errors="surrogateescape")
    except OSError as error:
        raise GpuctlError(f"read {path}", error.strerror or str(error)) from error


def _config() -> str:
    """A config file with our entries and the user's settings, so that ~/.ssh/config needs no line."""
    path = folder() / "config"
    others = [str(one) for one in (user_config(), Path("/etc/ssh/ssh_config")) if one.is_file()]
    write_atomically(path, ssh_files.wrapper(pattern(), others))
    return str(path)


def connect(entry: HostEntry, command: Sequence[str], *, jupyter: int | None = None) -> int:
    """Run ssh on this terminal and return its exit status; `jupyter`: only forward this local port to Jupyter."""
    need("ssh")
    forward = [] if jupyter is None else ["-N", "-L", f"127.0.0.1:{jupyter}:127.0.0.1:{JUPYTER_PORT}"]
    options = [] if jupyter is None else ["-o", "ExitOnForwardFailure=yes"]
    return show(["ssh", "-F", _config(), *options, *forward, entry.host, *command])


def copy(entry: HostEntry, sources: Sequence[str], target: str) -> int:
    """Copy files with scp over SFTP, and return its exit status; paths in the pod begin with ":"."""
    need("scp")
    version = VERSION.search(Processes().run(["ssh", "-V"], b"", 10).err)
    if version is None or (int(version[1]), int(version[2])) < SFTP_SINCE:
        hint = "update OpenSSH, or use sftp with the Host entry of the pod"
        raise InvalidInput("copy files", "scp is older than OpenSSH 8.7, and cannot use SFTP", hint)
    argv = [_scp_path(entry, path) for path in (*sources, target)]
    return show(["scp", "-s", "-r", "-p", "-F", _config(), "--", *argv])


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
