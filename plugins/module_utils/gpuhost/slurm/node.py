"""The slurmd of a host: its files, its node at slurmctld, and whether that node is drained and empty."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Mapping
from typing import NamedTuple

from ..acts.slurm_job import parse
from ..facts import processes
from ..facts.busy import slurm_steps
from ..facts.storage import TYPES as NETWORK_FILE_SYSTEMS
from ..host import Host
from ..model import Refused, Unreadable, Unsupported
from ..resources.unit import ask_systemd, show

UNIT = "slurmd.service"
LOCK = "/run/gpuctl-slurm.lock"  # held while new files are tried
CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf")
LIMIT_S = 30.0
ANSWER_S = 10.0
PROOF_LIMIT_S = 60.0  # slurmd waits for a device file for a while
MARGIN_S = 2.0  # clocks of files and of processes
_DEVICES = re.compile(r"Gres Name=gpu\b.*?\bCount=(\d+)")
_USED = re.compile(r"^SLURM_CONF\s*=\s*(/\S+)", re.MULTILINE)
_ENABLED = re.compile(r"^[^#\n]*enable_configless", re.MULTILINE | re.IGNORECASE)
EMPTY = ("IDLE", "DOWN")  # base states of a node without jobs


class Slurmd(NamedTuple):
    """The slurmd of a host. `pid`: "0" if it does not run; `conf`: path of its slurm.conf; `node`: its node's name."""

    pid: str
    conf: str
    node: str

    @property
    def runs(self) -> bool:
        return self.pid != "0"

    def path(self, name: str) -> str:
        """Path of one of its files: they lie beside slurm.conf."""
        return f"{os.path.dirname(self.conf)}/{name}"


def read(host: Host) -> Slurmd:
    """The slurmd that runs, or is installed; `Unsupported` without one, `Refused` if its files are not of this host."""
    if _is_changing(host):
        raise Unreadable("an earlier change of Slurm's files is still being tried here: wait a few minutes")
    state = show(host, UNIT)[UNIT]
    if state["LoadState"] == "not-found":
        raise Unsupported(f"there is no {UNIT}: install Slurm's slurmd first")
    if state["LoadState"] == "masked":
        raise Unsupported(f"{UNIT} is masked: this host is no node of Slurm")
    pid = state["MainPID"]
    if pid == "0" and state["ActiveState"] not in ("inactive", "failed"):
        raise Unreadable(
            f"{UNIT} is {state['ActiveState']}, as one that ends and is restarted again and again: wait until it "
            f"runs, or end that with `systemctl stop {UNIT}`, and run gpuctl again"
        )
    words = host.read(f"/proc/{pid}/cmdline").split("\0")[:-1] if pid != "0" else []
    return Slurmd(pid, _configuration(host, pid, words), _option(words, "-N") or short_name(host))


def _is_changing(host: Host) -> bool:
    """True while the program that tries new files runs, which goes on if gpuctl is killed."""
    try:
        descriptor = os.open(host.real(LOCK), os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def short_name(host: Host) -> str:
    return (host.value("/proc/sys/kernel/hostname") or os.uname().nodename).partition(".")[0]


def _option(words: list[str], name: str) -> str:
    """Value of an option of one letter, as in "-N n1" and "-Nn1"; "" without it."""
    for word, following in zip(words, [*words[1:], ""]):
        if word == name:
            return following
        if word.startswith(name) and not word.startswith("--"):
            return word[len(name) :]
    return ""


def _configuration(host: Host, pid: str, words: list[str]) -> str:
    if any(word.startswith("--conf-server") for word in words):
        raise Refused("slurmd gets its files from slurmctld (--conf-server): change gres.conf and cgroup.conf there")
    environment = host.read(f"/proc/{pid}/environ").split("\0") if pid != "0" else []
    named = next((text.partition("=")[2] for text in environment if text.startswith("SLURM_CONF=")), "")
    chosen = _option(words, "-f") or named
    conf = chosen or next((path for path in CONFIGURATIONS if host.exists(path)), "")
    if not conf or not host.exists(conf):
        shown = conf or " and ".join(CONFIGURATIONS)
        raise Refused(f"{shown} is missing: slurmd gets its files from slurmctld, or is not configured yet")
    if not conf.startswith("/"):
        raise Unreadable(f"slurmd was started with -f {conf}: give it an absolute path")
    if not chosen and (other := _used_by_programs(host)) not in ("", conf):
        raise Refused(f"slurmd may read {other} and not {conf}: start it with -f, or set SLURM_CONF for {UNIT}")
    if _ENABLED.search(host.read(conf)):
        raise Refused(f"{conf} has enable_configless: slurmctld gives such files to all nodes; change them there")
    return conf


def _used_by_programs(host: Host) -> str:
    """The slurm.conf that Slurm's programs were built to read, as slurmd without -f; "" if scontrol does not say."""
    result = host.run("scontrol", "show", "config", limit=ANSWER_S)
    match = _USED.search(result.out) if result.ok else None
    return match[1] if match else ""


def refuse_shared(host: Host, path: str) -> None:
    """Refuse a file that other nodes read too: on a network file system, or a link."""
    if os.path.islink(host.real(path)):
        raise Refused(f"{path} is a link to {host.readlink(path)}: change that file, or remove the link")
    folder = os.path.realpath(host.real(os.path.dirname(path)))[len(os.path.realpath(host.real("/")).rstrip("/")) :]
    mounts = [line.split()[:3] for line in host.read("/proc/mounts").splitlines()]
    above = [(len(place), kind) for _, place, kind in mounts if f"{folder}/".startswith(f"{place.rstrip('/')}/")]
    kind = max(enumerate(above), key=lambda item: (item[1][0], item[0]))[1][1] if above else ""
    if kind in NETWORK_FILE_SYSTEMS or kind.startswith("fuse"):
        raise Refused(
            f"{path} is on a network file system ({kind}), which other nodes read too: change it there by hand"
        )


def at_controller(host: Host, slurmd: Slurmd) -> tuple[dict[str, str] | None, str]:
    """Fields of the node as slurmctld has them: State, Gres, CPUAlloc …; None with the reason."""
    environment = {"SLURM_CONF": slurmd.conf if not host.root else host.real(slurmd.conf)}
    result = host.run("scontrol", "--oneliner", "show", "node", slurmd.node, limit=LIMIT_S, environment=environment)
    if not result.ok:
        return None, result.last_line
    fields = parse(result.out.strip())  # of a name that occurs twice, as in a reason, the first
    if fields.get("NodeName") != slurmd.node or "State" not in fields:
        return None, f"scontrol printed no node {slurmd.node}"
    return fields, ""


def why_not(host: Host, slurmd: Slurmd, known: tuple[dict[str, str] | None, str]) -> str:
    """Why files of the node cannot change now: jobs would be aborted; "" if it is drained and empty.

    A slurmd that does not run reads its files when it starts; but jobs outlive it.
    """
    steps = slurm_steps(host)
    if steps is None:
        return f"whether jobs run here is not known: {processes.HIDDEN}"
    if steps:
        return f"Slurm runs {steps} job steps here: drain the node {slurmd.node}, and wait for them"
    return _not_drained(slurmd, *known) if slurmd.runs else ""


def _not_drained(slurmd: Slurmd, fields: Mapping[str, str] | None, reason: str) -> str:
    if fields is None:
        return f"whether its node {slurmd.node} is drained is not known: {reason}"
    words = [word.strip("*~#!%$@^-") for word in fields["State"].split("+")]
    if "DRAIN" not in words:
        drain = f"scontrol update NodeName={slurmd.node} State=DRAIN Reason=gres.conf"
        return f"its node {slurmd.node} is {fields['State']}, not drained: {drain}"
    if words[0] not in EMPTY or "COMPLETING" in words or fields.get("CPUAlloc") != "0":
        return f"its node {slurmd.node} is {fields['State']} with jobs: wait until they end"
    return ""


class Proof(NamedTuple):
    """Answer of `slurmd -G`: devices that it would offer, and its message if it would not start ("" if it would)."""

    devices: int
    fault: str
    output: str


def prove(host: Host, slurmd: Slurmd, texts: Mapping[str, str | None]) -> Proof:
    """Let slurmd read its files as they would be; nothing is changed. `texts`: by path, None for no file."""
    folder = os.path.dirname(slurmd.conf)
    with host.scratch_folder() as scratch:
        for name in host.listdir(folder):
            if f"{folder}/{name}" not in texts:
                os.symlink(host.real(f"{folder}/{name}"), f"{scratch}/{name}")
        for path, text in texts.items():
            if text is not None:
                with open(
                    f"{scratch}/{os.path.basename(path)}", "w", encoding="utf-8", errors="surrogateescape"
                ) as new:
                    new.write(text)
        conf = f"{scratch}/{os.path.basename(slurmd.conf)}"
        result = host.run(
            "slurmd", "-G", "-N", slurmd.node, "-f", conf, limit=PROOF_LIMIT_S, environment={"SLURM_CONF": conf}
        )
    output = f"{result.out}\n{result.err}".replace(f"{scratch}/", f"{folder}/")
    faults = [line.partition("fatal: ")[2] for line in output.splitlines() if "fatal: " in line]
    lacking = [line.partition(": ")[2] for line in output.splitlines() if "lib wasn't found" in line]
    fault = "; ".join([*faults, *lacking]) or ("" if result.ok else f"slurmd -G: {result.last_line}")
    return Proof(sum(map(int, _DEVICES.findall(output))), fault, output)


def unread_since(host: Host, slurmd: Slurmd, paths: list[str]) -> str:
    """Name of a file that is newer than the slurmd that runs, which has not read it yet; "" if there is none."""
    if not slurmd.runs:
        return ""
    names = "--property=ExecMainStartTimestampMonotonic"
    known = dict(line.partition("=")[::2] for line in ask_systemd(host, "show", names, "--", UNIT).splitlines())
    began = known.get("ExecMainStartTimestampMonotonic", "")
    if not began.isdigit():
        raise Unreadable(f"systemd shows no start of {UNIT}")
    age = float(host.read("/proc/uptime").split()[0]) - int(began) / 1e6
    start = time.time() - age
    newer = [path for path in paths if host.exists(path) and os.stat(host.real(path)).st_mtime > start + MARGIN_S]
    return os.path.basename(newer[0]) if newer else ""
