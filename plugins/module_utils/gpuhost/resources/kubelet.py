"""A configuration file of the kubelet: "kubelet:/var/lib/kubelet/config.yaml", text as of a file.

A change stops the kubelet, removes the managers' state files, which another policy does not take, and starts it again.
"""

from __future__ import annotations

import os
import time

from ..host import Host
from ..kubelet import drain, service
from ..model import Unreadable, Unsupported
from .file import File

STEADY = 5.0  # seconds without an exit after which the kubelet counts as running
PATIENCE = 60.0
# One program, which goes on if gpuctl is killed: nothing is half done after it. Arguments: the new file ("" to remove
# it), the file's path, and the state files.
SWAP = """next=$1 path=$2; shift 2
systemctl stop kubelet.service && rm -f -- "$@" &&
if [ -n "$next" ]; then mv -- "$next" "$path"; else rm -f -- "$path"; fi
code=$?
sync "$(dirname "$path")"
systemctl reset-failed kubelet.service
systemctl start kubelet.service || code=$?
exit $code
"""


class KubeletFile:
    """One file that the kubelet reads when it starts."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, host: Host) -> str | None:
        return File(self.path).read(host)

    def write(self, host: Host, text: str | None) -> None:
        properties = service.state(host)
        if properties["LoadState"] == "not-found":  # removed since: its file alone can be restored
            File(self.path).write(host, text)
            return
        kubelet = _running(host)
        if reason := drain.why_not(host, kubelet.options):
            raise RuntimeError(reason)
        before = self.read(host)
        wrong = self._swap(host, text, kubelet.states)
        if wrong:
            still = self._swap(host, before, kubelet.states)
            after = f"it does not run without it, either ({still})" if still else "the file before is back, and it runs"
            raise RuntimeError(f"the kubelet does not run with it ({wrong}): {after}")

    def _swap(self, host: Host, text: str | None, states: tuple[str, ...]) -> str:
        """Change the file under a stopped kubelet; return why it does not run with it, or ""."""
        folder, name = os.path.split(self.path)
        following = f"{folder}/.{name}.gpuctl"  # as Host.replace names it, so that the next run removes a leftover
        if text is not None:
            File(following).write(host, text)
        paths = [host.real(path) for path in (self.path, *states)]
        argv = ("sh", "-c", SWAP, "gpuctl", host.real(following) if text is not None else "", *paths)
        done = host.run(*argv, changes=True, limit=300)
        if done.ok and _is_steady(host):
            return ""
        log = host.run("journalctl", "--unit=kubelet.service", "--lines=1", "--output=cat")
        return done.last_line if not done.ok else log.out.strip()[:300] or "it ended"


def unavailable(host: Host, path: str) -> str:
    """Why the file cannot be changed now: its node is not drained; "" if it can."""
    del path
    try:
        if service.state(host)["LoadState"] == "not-found":
            return ""
    except (Unreadable, Unsupported):
        return ""  # writing reports it
    return drain.why_not(host, _running(host).options)


def _running(host: Host) -> service.Kubelet:
    """The kubelet; without options if it does not run."""
    try:
        return service.read(host)
    except (Unreadable, Unsupported, OSError):
        return service.Kubelet("kubelet", {})


def _is_steady(host: Host) -> bool:
    """True once one main process has run for STEADY seconds; false if none does within PATIENCE."""
    began = since = time.monotonic()
    current = service.state(host)["MainPID"]
    while time.monotonic() - since < STEADY and time.monotonic() - began < PATIENCE:
        time.sleep(0.2)
        now = service.state(host)["MainPID"]
        if now != current or now == "0":
            current, since = now, time.monotonic()
    return current != "0" and time.monotonic() - since >= STEADY
