"""The rig by hand and for Molecule: python -m tests.rig up NAME… | down | list | inventory | run NAME PROGRAM…

Its folder is $GPUCTL_RIG_STATE; hosts live until `down`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from tests.rig import machines, parts, rootfs
from tests.rig.hosts import Rig


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rig", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start hosts and print them as JSON lines")
    up.add_argument("names", nargs="+")
    up.add_argument("--machine", choices=machines.NAMES, default="", help="give them its /sys and /proc")
    up.add_argument("--nat", action="store_true", help="let them reach the outside")
    up.add_argument("--readonly", action="store_true", help="with a disk that cannot be written")
    up.add_argument("--no-python", action="store_true", help="without Python")
    commands.add_parser("down", help="stop everything and forget the rig").add_argument("names", nargs="*")
    commands.add_parser("list", help="print the hosts as JSON lines")
    commands.add_parser("inventory", help="write an Ansible inventory and print where")
    run = commands.add_parser("run", help="run a program in a host")
    run.add_argument("name")
    run.add_argument("argv", nargs=argparse.REMAINDER)
    if why := parts.missing():
        parser.error(why)
    return act(parser.parse_args())


def act(wanted: argparse.Namespace) -> int:
    rig = Rig(Path(os.environ.get("GPUCTL_RIG_STATE") or rootfs.cache() / "rig-by-hand"), lasting=True)
    if wanted.command == "up":
        rig.up(wanted.names, wanted.machine, nat=wanted.nat, readonly=wanted.readonly, python=not wanted.no_python)
    if wanted.command in ("up", "list"):
        for host in rig.hosts():
            say(json.dumps({**asdict(host.facts), "key": f"{rig.state}/id_ed25519"}))
    if wanted.command == "inventory":
        say(rig.inventory())
    if wanted.command == "run":
        done = next(host for host in rig.hosts() if host.name == wanted.name).run(*wanted.argv, check=False)
        sys.stdout.write(done.stdout)
        sys.stderr.write(done.stderr)
        return done.returncode
    if wanted.command == "down":
        rig.down(wanted.names or None)
        if not rig.hosts():
            rig.close()
    return 0


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


sys.exit(main())
