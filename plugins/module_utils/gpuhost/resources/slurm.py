"""A part of a file of Slurm: "slurm:/etc/slurm/gres.conf:gpu", with its lines; see slurm/configuration.py.

A change restarts slurmd on a drained and empty node, once for all files. A slurmd that does not run is left stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..host import Host, sync_folder
from ..model import Refused, Unreadable, Unsupported
from ..slurm import configuration, node
from .file import File, described
from .unit import show

FILES = ("gres.conf", "cgroup.conf")
STEADY = 5  # seconds without an exit after which slurmd counts as running
PATIENCE = 60
ANSWER = 5  # seconds for one answer of scontrol, which waits long for a slurmctld that is down
LIMIT = 600.0  # of all together, far above the sum of the limits inside: being killed would leave the new files
BUSY, NOT_KEPT, RETURNED, DOWN = 3, 4, 5, 6
# One program, which goes on if gpuctl is killed: it tries the new files, and returns to the former ones. Arguments:
# a file to lock, seconds to be steady, to wait at most, and for an answer of scontrol, the node's name, and pairs of a
# new file ("" for none) and its path. Success is a slurmd that runs, and that slurmctld has registered anew, and
# does not call invalid if it did not before. Programs are ended by KILL,
# as they inherit that the other signals are ignored.
SWAP = r"""trap '' PIPE HUP INT TERM
exec 9>"$1" && flock -n 9 || exit 3
steady=$2 patience=$3 answer=$4 node=$5; shift 5
former() { echo "$(dirname "$1")/.$(basename "$1").gpuctl-former"; }
absent() { echo "$(dirname "$1")/.$(basename "$1").gpuctl-absent"; }
keep() {
    while [ $# -gt 0 ]; do
        rm -f -- "$(former "$2")" "$(absent "$2")" || return 1
        if [ -e "$2" ]; then
            cp -p -- "$2" "$(former "$2").part" && mv -f -- "$(former "$2").part" "$(former "$2")" || return 1
        else
            : >"$(absent "$2")" || return 1
        fi
        shift 2
    done
}
put() {
    side=$1; shift
    while [ $# -gt 0 ]; do
        from=$1
        [ "$side" = new ] || { from=$(former "$2"); [ -e "$from" ] || from=; }
        if [ -n "$from" ]; then mv -f -- "$from" "$2"; else rm -f -- "$2"; fi || return 1
        sync "$(dirname "$2")" || return 1
        shift 2
    done
}
clear() {
    while [ $# -gt 0 ]; do
        rm -f -- "$(former "$2")" "$(former "$2").part" "$(absent "$2")"
        [ -z "$1" ] || rm -f -- "$1"
        shift 2
    done
}
clock() { read -r seconds rest </proc/uptime; echo "${seconds%.*}"; }
ask() { known=$(timeout -s KILL "$answer" scontrol --oneliner show node "$node" 2>/dev/null) || known=; }
field() { printf '%s' "$known" | tr ' ' '\n' | sed -n "/^$1=/{s///p;q;}"; }
reason() { printf '%s' "$known" | sed -n 's/.* Reason=//p'; }
restart() {
    timeout -s KILL 10 systemctl reset-failed slurmd.service
    timeout -s KILL 90 systemctl restart slurmd.service
}
registered() {
    ask
    case $(field SlurmdStartTime) in
    '' | None | Unknown | "$started") return 1 ;;
    esac
    case $(field State) in
    '' | *'*'*) return 1 ;;
    esac
}
newly_invalid() {
    case $standing in *INVALID_REG*) return 1 ;; esac
    case $(field State) in *INVALID_REG*) return 0 ;; esac
    return 1
}
runs() {
    began=$(clock) before=
    since=$began
    while :; do
        now=$(timeout -s KILL 10 systemctl show --property=MainPID,NRestarts,ActiveState -- slurmd.service) || now=
        at=$(clock)
        [ "$now" = "$before" ] || since=$at
        before=$now
        case $now in
        *MainPID=0*) since=$at ;;
        *ActiveState=active*)
            if [ $((at - since)) -ge "$steady" ]; then
                [ "$1" = new ] || return 0
                if registered; then newly_invalid && return 1 || return 0; fi
            fi ;;
        *) since=$at ;;
        esac
        [ $((at - began)) -lt "$patience" ] || return 1
        sleep 1
    done
}
ask
started=$(field SlurmdStartTime) standing=$(field State)
if [ -z "$started" ]; then
    clear "$@"
    echo "slurmctld does not answer"
    exit 4
fi
if ! keep "$@"; then
    clear "$@"
    exit 4
fi
if put new "$@" && restart && runs new; then
    clear "$@"
    exit 0
fi
last=$(timeout -s KILL 10 journalctl --unit=slurmd.service --lines=1 --output=cat --no-pager 2>/dev/null)
log="$(field State) $(reason) $last"
code=5
put former "$@" || code=6
restart
runs former || code=6
clear "$@"
echo "$log"
exit $code
"""


class SlurmPart:
    """One part of one file of Slurm."""

    def __init__(self, place: str) -> None:
        self.path, _, self.part = place.partition(":")

    def read(self, host: Host) -> str | None:
        text = host.read_or_none(self.path)
        try:
            return None if text is None else configuration.part_texts(text, self.path).get(self.part)
        except Refused as error:
            raise Unreadable(str(error)) from error

    def write(self, host: Host, text: str | None) -> None:
        write_together(host, {f"slurm:{self.path}:{self.part}": text})


def write_together(host: Host, changes: Mapping[str, str | None]) -> None:
    """Change parts of one or more files, with one restart of slurmd; all of them, or none."""
    paths = dict.fromkeys(setting.split(":", 2)[1] for setting in changes)
    if show(host, node.UNIT)[node.UNIT]["LoadState"] == "not-found":  # removed since: the files alone can be restored
        _write_files(host, paths, changes)
        return
    slurmd = _known(host)
    if any(path != slurmd.path(os.path.basename(path)) for path in paths):
        raise RuntimeError(f"slurmd reads files beside {slurmd.conf} by now: nothing is changed")
    if reason := node.why_not(host, slurmd, node.at_controller(host, slurmd)):
        raise RuntimeError(reason)
    if not slurmd.runs:
        _write_files(host, paths, changes)
        return
    _put_back(host, paths)
    _swap(host, slurmd, _texts(host, changes))


def _write_files(host: Host, paths: Iterable[str], changes: Mapping[str, str | None]) -> None:
    _put_back(host, paths)
    for path, text in _texts(host, changes).items():
        File(path).write(host, text)


class CutOff(NamedTuple):
    """A change that was killed while its files were tried. `copy`: the file with the lines before, None for no file."""

    copy: str
    text: str | None

    @property
    def note(self) -> str:
        """Message for people."""
        what = "the file before" if self.text is not None else "a note that there was no file before"
        return f"an earlier change was cut off: {self.copy} is {what}, and is put back first"


def cut_off(host: Host, path: str) -> CutOff | None:
    """Change of a file that a killed program left untested; None if there is none, or the file is the one before.

    `Refused` if somebody has edited the file since, whose lines must not be lost.
    """
    folder, name = os.path.split(path)
    former, absent = (f"{folder}/.{name}.gpuctl-{word}" for word in ("former", "absent"))
    before, now = host.read_or_none(former), host.read_or_none(path)
    if before == now or (before is None and not host.exists(absent)):
        return None
    left = CutOff(absent if before is None else former, before)
    # The copy is made after gpuctl's lines are written, and before they take the file's place.
    if now is not None and os.stat(host.real(path)).st_mtime_ns > os.stat(host.real(left.copy)).st_ctime_ns:
        raise Refused(
            f"{path} was edited after an earlier change of it was cut off, before which {left.copy} was kept: "
            f"remove {left.copy} to go on from {path} as it is"
        )
    return left


def _put_back(host: Host, paths: Iterable[str]) -> None:
    """Return to the files before a change that was cut off, of both files that one change may have."""
    folders = dict.fromkeys(os.path.dirname(path) for path in paths)
    for path in (f"{folder}/{name}" for folder in folders for name in FILES):
        try:
            left = cut_off(host, path)
        except Refused as error:
            raise RuntimeError(str(error)) from error
        if left is None:
            continue
        if left.text is None:
            host.remove(path)
            host.remove(left.copy)
            continue
        with host.changing(f"put back {path}"):
            os.utime(host.real(left.copy))  # newer than a slurmd that may have read the other lines
            os.replace(host.real(left.copy), host.real(path))
            sync_folder(os.path.dirname(host.real(path)))


def _texts(host: Host, changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """Text of each file after the changes."""
    by_path: dict[str, dict[str, str | None]] = {}
    for setting, text in changes.items():
        _, path, part = setting.split(":", 2)
        by_path.setdefault(path, {})[part] = text
    try:
        return {path: _edited(host, path, parts) for path, parts in by_path.items()}
    except Refused as error:
        raise RuntimeError(str(error)) from error


def _edited(host: Host, path: str, parts: Mapping[str, str | None]) -> str | None:
    """The file's text as of `File` after a change; None if only gpuctl's first line would be left."""
    node.refuse_shared(host, path)
    before = File(path).read(host)
    head, _, content = (before or described(configuration.CREATED)).partition("\n")
    after = configuration.replaced(content, parts, path)
    return None if after == configuration.CREATED else f"{head}\n{after}"


def _known(host: Host) -> node.Slurmd:
    try:
        return node.read(host)
    except (Refused, Unreadable, Unsupported) as error:
        raise RuntimeError(str(error)) from error


def _swap(host: Host, slurmd: node.Slurmd, texts: Mapping[str, str | None]) -> None:
    words = []
    for path, text in texts.items():
        folder, name = os.path.split(path)
        following = f"{folder}/.{name}.gpuctl"  # as Host.replace names it, so that the next run removes a leftover
        if text is not None:
            File(following).write(host, text)
        words += [host.real(following) if text is not None else "", host.real(path)]
    done = host.run(
        "sh",
        "-c",
        SWAP,
        "gpuctl",
        host.real(node.LOCK),
        str(int(STEADY)),
        str(int(PATIENCE)),
        str(int(ANSWER)),
        slurmd.node,
        *words,
        changes=True,
        limit=LIMIT,
        environment={"SLURM_CONF": host.real(slurmd.conf)},
    )
    if done.ok:
        return
    log = done.out.strip()[:300] or done.err.strip()[-300:] or "it ended, or did not register"
    if done.code == BUSY:
        raise RuntimeError("an earlier change of Slurm's files still runs on this host: wait a few minutes")
    if done.code == NOT_KEPT:
        raise RuntimeError(f"the change cannot begin ({log}): nothing is changed")
    if done.code == RETURNED:
        raise RuntimeError(f"slurmd does not run or register with it ({log}): the files before are back, and it runs")
    raise RuntimeError(f"slurmd does not run ({log}): see journalctl -u slurmd, and {', '.join(texts)}")


def unavailable(host: Host) -> str:
    """Why the files cannot change now; "" if they can."""
    try:
        if show(host, node.UNIT)[node.UNIT]["LoadState"] == "not-found":
            return ""
        slurmd = node.read(host)
        return node.why_not(host, slurmd, node.at_controller(host, slurmd))
    except (Refused, Unreadable, Unsupported, OSError) as error:
        return str(error)
