"""A configuration file of the kubelet, or a field of one.

"kubelet:/etc/kubernetes/kubelet.conf.d/99-gpuctl.conf" is a file, with text as of a file;
"kubelet:/var/lib/kubelet/config.yaml:cpuManagerPolicy" a field, with its lines or its JSON.

A change stops the kubelet, removes the managers' state files, which another policy does not take, and starts it again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ..host import Host
from ..kubelet import configuration, drain, service
from ..model import Unreadable, Unsupported
from .file import File

STEADY = 5  # seconds without an exit after which the kubelet counts as running
PATIENCE = 60
LIMIT = 900.0
NOT_STOPPED, NOT_REPLACED, RETURNED, DOWN = 3, 4, 5, 6
# One program, which goes on if gpuctl is killed: it tries the new file, and returns to the former one. Arguments: the
# new file ("" to remove it), the file's path, seconds to be steady and to wait at most, the CPU manager's policies with
# the new and with the former file, and the state files, that of the CPU manager first.
SWAP = r"""trap '' PIPE HUP INT TERM
next=$1 path=$2 steady=$3 patience=$4 due=$5 due_before=$6; shift 6
folder=$(dirname "$path") former=
replace() {
    rm -f -- "$@" || return 1
    if [ -n "$new" ]; then mv -f -- "$new" "$path"; else rm -f -- "$path"; fi || return 1
    sync "$folder" && { [ ! -d "$(dirname "$1")" ] || sync "$(dirname "$1")"; }
}
start() {
    systemctl reset-failed kubelet.service
    systemctl start kubelet.service
}
runs() {
    waited=0 since=0 before=
    while :; do
        now=$(systemctl show --property=MainPID,NRestarts,ActiveState -- kubelet.service) || now=
        [ "$now" = "$before" ] || since=$waited
        before=$now
        case $now in
        *MainPID=0*) since=$waited ;;
        *ActiveState=active*)
            [ $((waited - since)) -ge "$steady" ] && grep -qis "\"policyName\": *\"$due\"" "$1" && return 0 ;;
        *) since=$waited ;;
        esac
        [ "$waited" -lt "$patience" ] || return 1
        sleep 1
        waited=$((waited + 1))
    done
}
if [ -e "$path" ]; then
    former=$folder/.$(basename "$path").gpuctl-former
    cp -p -- "$path" "$former" || { rm -f -- "$next" "$former"; echo "$path cannot be copied"; exit 4; }
fi
if ! systemctl stop kubelet.service; then
    rm -f -- "$next" "$former"
    systemctl start kubelet.service
    exit 3
fi
new=$next code=0 log=
if replace "$@"; then
    start && runs "$1" && { rm -f -- "$former"; exit 0; }
    log=$(journalctl --unit=kubelet.service _COMM=kubelet --lines=1 --output=cat --no-pager 2>/dev/null)
    code=5
    systemctl stop kubelet.service
else
    code=4
fi
rm -f -- "$next"
new=$former due=$due_before
replace "$@" || code=6
start
runs "$1" || code=6
echo "$log"
exit $code
"""


class KubeletPart:
    """One file that the kubelet reads when it starts, or one field of it."""

    def __init__(self, place: str) -> None:
        self.path, _, self.key = place.partition(":")

    def read(self, host: Host) -> str | None:
        text = File(self.path).read(host)
        if text is None or not self.key:
            return text
        return configuration.texts(text.partition("\n")[2], self.path).get(self.key)

    def write(self, host: Host, text: str | None) -> None:
        write_together(host, self.path, {self.key: text})


def write_together(host: Host, path: str, changes: Mapping[str, str | None]) -> None:
    """Change several fields of one file, or the file as a whole (key ""), under a kubelet that is stopped once."""
    before = File(path).read(host)
    after = changes[""] if "" in changes else _edited(before, changes, path)
    if service.state(host)["LoadState"] == "not-found":  # removed since: its file alone can be restored
        if before is not None or "" in changes:
            File(path).write(host, after)
        return
    kubelet = _known(host)
    if not _is_read(kubelet, path):  # its command line has other files by now
        File(path).write(host, after)
        return
    if reason := drain.why_not(host, kubelet.options):
        raise RuntimeError(reason)
    _swap(host, kubelet, path, before, after)


def _edited(before: str | None, changes: Mapping[str, str | None], path: str) -> str | None:
    if before is None:
        if any(text is not None for text in changes.values()):
            raise RuntimeError(f"{path} is missing")
        return None
    head, _, content = before.partition("\n")
    return f"{head}\n{configuration.replaced(content, changes, path)}"


def _is_read(kubelet: service.Kubelet, path: str) -> bool:
    return path == kubelet.config or (bool(kubelet.folder) and path.startswith(f"{kubelet.folder}/"))


def _swap(host: Host, kubelet: service.Kubelet, path: str, before: str | None, after: str | None) -> None:
    """Try a file; RuntimeError with the reason if the kubelet does not run with it, after the former one is back."""
    folder, name = os.path.split(path)
    following = f"{folder}/.{name}.gpuctl"  # as Host.replace names it, so that the next run removes a leftover
    policies = [_policy(host, kubelet, path, text) for text in (after, before)]
    if after is not None:
        File(following).write(host, after)
    paths = [host.real(place) for place in kubelet.states]
    times = (str(int(STEADY)), str(int(PATIENCE)))
    new = host.real(following) if after is not None else ""
    done = host.run(
        "sh", "-c", SWAP, "gpuctl", new, host.real(path), *times, *policies, *paths, changes=True, limit=LIMIT
    )
    if done.ok:
        return
    log = done.out.strip()[:300] or done.err.strip()[-300:] or "it ended, or wrote no state file"
    if done.code == NOT_STOPPED:
        raise RuntimeError(f"the kubelet is not stopped ({log}): nothing is changed")
    if done.code == NOT_REPLACED:
        raise RuntimeError(f"the file cannot be replaced ({log}): the file before is there, and it runs")
    if done.code == RETURNED:
        raise RuntimeError(f"the kubelet does not run with it ({log}): the file before is back, and it runs")
    raise RuntimeError(f"the kubelet does not run ({log}): see journalctl -u kubelet, and {path}")


def _policy(host: Host, kubelet: service.Kubelet, path: str, text: str | None) -> str:
    """The CPU manager's policy once the file has this text."""
    content = None if text is None else text.partition("\n")[2]
    policy = str(service.in_force(host, kubelet, place=path, content=content).get("cpuManagerPolicy") or "none")
    if not re.fullmatch(r"[A-Za-z-]+", policy):
        raise Unreadable(f"cpuManagerPolicy of the kubelet's files is not understood: {policy[:60]!r}")
    return policy


def unavailable(host: Host) -> str:
    """Why the file cannot be changed now: its node is not drained, or not known; "" if it can."""
    try:
        if service.state(host)["LoadState"] == "not-found":
            return ""
        return drain.why_not(host, _known(host).options)
    except (Unreadable, Unsupported, OSError) as error:
        return str(error)


def _known(host: Host) -> service.Kubelet:
    """The kubelet that runs, else as its unit starts it."""
    if service.state(host)["MainPID"] != "0":
        return service.read(host)
    return service.configured(host)
