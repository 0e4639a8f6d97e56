#!/usr/bin/env python3
"""A stand-in for systemctl and the package tools in host trees with services, chosen by the name it is called by.

systemctl reads the units below /etc/systemd/system, remembers in run/standin.json what it has read of them, and gives
a service that it starts a process below /proc that maps what its environment preloads.
"""

import json
import os
import re
import sys
from typing import Any

Memory = dict[str, Any]
ROOT = os.environ["GPUCTL_ROOT"]
UNITS = ROOT + "/etc/systemd/system"
MEMORY = ROOT + "/run/standin.json"
LIBRARIES = ROOT + "/usr/lib/x86_64-linux-gnu"
PACKAGES = {
    "libjemalloc2": "libjemalloc.so.2",
    "libtcmalloc-minimal4": "libtcmalloc_minimal.so.4",
    "jemalloc": "libjemalloc.so.2",
}


def read(path: str) -> str:
    if not os.path.exists(path):
        return ""
    with open(path) as stream:
        return stream.read()


def write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as stream:
        stream.write(text)


def drop_ins(unit: str) -> list[str]:
    folder = f"{UNITS}/{unit}.d"
    return (
        sorted(f"/etc/systemd/system/{unit}.d/{name}" for name in os.listdir(folder)) if os.path.isdir(folder) else []
    )


def environment_files(unit: str, loaded: list[str]) -> list[str]:
    text = read(f"{UNITS}/{unit}") + "".join(read(ROOT + path) for path in loaded)
    return re.findall(r"^EnvironmentFile=-?(.+)$", text, re.MULTILINE)


def start(unit: str, memory: Memory) -> bool:
    """Start a unit's program. Comments in the unit choose its behaviour: #dies-with, #deaf, #static."""
    unit_text = read(f"{UNITS}/{unit}")
    files = environment_files(unit, memory["loaded"].get(unit, []))
    environment = "".join(read(ROOT + path) for path in files)
    preload = re.findall(r"^LD_PRELOAD=(.+)$", environment, re.MULTILINE)
    memory["pids"][unit] = pid = str(max(map(int, memory["pids"].values()), default=100) + 1)
    maps = [] if "#static" in unit_text else ["/usr/lib/x86_64-linux-gnu/libc.so.6"]
    maps += [path for path in preload if os.path.exists(ROOT + path) and "#deaf" not in unit_text]
    dies = re.findall(r"#dies-with (\w+)", unit_text)
    if any(name in path for name in dies for path in maps):
        memory["pids"][unit] = "0"
        return False
    row = "7f0000000000-7f0000001000 r-xp 00000000 08:01 4711    {}\n"
    write(f"{ROOT}/proc/{pid}/maps", "".join(row.format(path) for path in ["/usr/bin/python3.11", *maps]))
    write(f"{ROOT}/proc/{pid}/environ", "".join(f"{line}\0" for line in environment.splitlines()))
    return True


def show(unit: str, memory: Memory) -> str:
    exists = os.path.exists(f"{UNITS}/{unit}")
    loaded = memory["loaded"].get(unit, [])
    facts = {
        "LoadState": "loaded" if exists else "not-found",
        "MainPID": memory["pids"].get(unit, "0"),
        "FragmentPath": f"/etc/systemd/system/{unit}" if exists else "",
        "DropInPaths": " ".join(loaded),
    }
    files = environment_files(unit, loaded) if exists else []
    lines = [f"{name}={value}" for name, value in facts.items()]
    return "\n".join(lines + [f"EnvironmentFiles={path} (ignore_errors=yes)" for path in files])


def systemctl(verb: str, names: list[str], memory: Memory) -> None:
    if verb == "show":
        print("\n\n".join(show(unit, memory) for unit in names))
    elif verb == "daemon-reload":
        memory["loaded"] = {name: drop_ins(name) for name in os.listdir(UNITS) if name.endswith(".service")}
    elif verb == "restart":
        failed = [unit for unit in names if not start(unit, memory)]
        if failed:
            print(f"Job for {failed[0]} failed.", file=sys.stderr)
        memory["failed"] = bool(failed)


def packages(program: str, arguments: list[str]) -> None:
    """dpkg-query and rpm -q answer, apt-get and dnf install, dpkg and rpm remove."""
    folder = LIBRARIES if program.startswith(("apt", "dpkg")) else f"{ROOT}/usr/lib64"
    library = f"{folder}/{PACKAGES.get(arguments[-1], '')}"
    installed = os.path.isfile(library)
    if program == "dpkg-query":
        print("installed" if installed else "", end="")
    elif arguments[0] == "-q":
        sys.exit(0 if installed else 1)
    elif arguments[0] == "update":
        write(f"{ROOT}/var/lib/apt/lists/debian", "")
    elif arguments[0] == "install":
        if program == "apt-get" and not os.path.exists(f"{ROOT}/var/lib/apt/lists/debian"):
            sys.exit(f"E: Unable to locate package {arguments[-1]}")
        write(library, "\x7fELF")
    else:
        os.unlink(library)


def main() -> None:
    program = os.path.basename(sys.argv[0])
    if program != "systemctl":
        packages(program, sys.argv[1:])
        return
    memory = json.loads(read(MEMORY) or '{"pids": {}, "loaded": {}, "failed": false}')
    memory["failed"] = False
    systemctl(sys.argv[1], [word for word in sys.argv[2:] if not word.startswith("-")], memory)
    write(MEMORY, json.dumps(memory))
    sys.exit(1 if memory["failed"] else 0)


main()
