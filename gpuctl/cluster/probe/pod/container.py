"""Files, programs, devices and limits of a container, and the trainings that run in it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import resource
import shutil
from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.launch import process_tree

from gpuctl.remote.supervisor import detached, process, protocol

RANK, WORLD = b"RANK", b"WORLD_SIZE"  # every launcher sets these for what it starts
NO_SSH = b"--no_ssh"


def script(path: str) -> dict[str, Any]:
    """Return {sha256, size}, or {why}."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        return {"why": error.strerror or str(error)}
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def text(path: str) -> dict[str, Any]:
    """Return {text}, or {why}."""
    try:
        return {"text": Path(path).read_text(errors="replace")}
    except OSError as error:
        return {"why": error.strerror or str(error)}


def programs(names: list[str]) -> dict[str, str | None]:
    """Look up programs on the container's PATH; None for a missing one."""
    return {name: shutil.which(name) for name in names}


def no_ssh(launcher: str) -> bool | None:
    """Return whether DeepSpeed's launcher supports --no_ssh, from its source; None if that is not found."""
    with contextlib.suppress(OSError, ValueError):
        first = Path(launcher).read_bytes().split(b"\n", 1)[0]
        python = Path(os.fsdecode(first[2:].strip().split()[0]))
        tops = [python.parent.parent, Path("/usr/local"), Path("/usr")]
        places = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages")
        for top in tops:
            for place in places:
                for path in sorted(top.glob(f"{place}/deepspeed/launcher/runner.py")):
                    return NO_SSH in path.read_bytes()
    return None


def devices() -> dict[str, Any]:
    """List the GPUs and RDMA devices of the container."""
    return {
        "gpus": sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*")),
        "infiniband": _names("/sys/class/infiniband"),
        "verbs": [name for name in _names("/dev/infiniband") or [] if name.startswith("uverbs")],
    }


def _names(folder: str) -> list[str] | None:
    try:
        return sorted(path.name for path in Path(folder).iterdir())
    except OSError:
        return None


def shared_memory() -> dict[str, Any]:
    """Return the size and free bytes of /dev/shm."""
    try:
        usage = os.statvfs("/dev/shm")  # noqa: S108
    except OSError as error:
        return {"why": error.strerror or str(error)}
    return {"bytes": usage.f_frsize * usage.f_blocks, "free": usage.f_frsize * usage.f_bavail}


def folder(path: str) -> dict[str, Any]:
    """Return {user, writable}: the container's user id, and whether it may create files there; or {why}."""
    if not Path(path).is_dir():
        return {"why": "the folder does not exist"}
    return {"user": os.getuid(), "writable": os.access(path, os.W_OK | os.X_OK)}


def memlock() -> dict[str, Any]:
    """Return the bytes this user may lock (None: unlimited) and the effective capabilities."""
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    capabilities = re.search(r"^CapEff:\s*(\w+)$", text("/proc/self/status").get("text", ""), re.MULTILINE)
    return {
        "bytes": None if soft == resource.RLIM_INFINITY else soft,
        "capabilities": capabilities[1] if capabilities else "",
    }


def trainings(runs: str) -> list[dict[str, Any]]:
    """List what trains in this pod: supervised runs, and processes that another launcher started."""
    active: list[dict[str, Any]] = []
    tokens = set()
    for state in detached.states(Path(runs)):
        if state["running"]:
            tokens.add(state["token"])
            active.append(
                {"run": state["name"], "actor": state["actor"], "about": state["about"], "began": state["began"]}
            )
    for pid in process_tree.process_ids():
        variables = dict(pair.split(b"=", 1) for pair in process_tree.environment(pid).split(b"\0") if b"=" in pair)
        ours = variables.get(process.MARK.encode(), b"").decode(errors="replace")
        if RANK in variables and WORLD in variables and ours not in tokens:
            command = process_tree.read(f"{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
            token = ours if ours.startswith(protocol.DETACHED) else ""
            active.append({"pid": pid, "command": command[: detached.COMMAND_CHARS], "token": token})
    return active
