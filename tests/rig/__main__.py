"""The rig by hand and for Molecule: `python -m tests.rig --help`. Hosts live until `down`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tests.rig import machines, parts, rootfs, slurm_programs
from tests.rig.hosts import Rig, Wish

FOLDER = "GPUCTL_RIG_STATE"


def main() -> None:
    wanted = parser().parse_args()
    if why := parts.missing():
        sys.exit(why)
    action: Callable[[Rig, argparse.Namespace], None] = wanted.action
    action(Rig(Path(os.environ.get(FOLDER) or rootfs.cache() / "rig-by-hand"), lasting=True), wanted)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m tests.rig", description=__doc__, epilog=f"Its folder is ${FOLDER}.")
    commands = top.add_subparsers(required=True)
    start = commands.add_parser("up", help="start hosts, and list all")
    start.set_defaults(action=up)
    start.add_argument("names", nargs="+")
    start.add_argument("--machine", choices=machines.NAMES, default="", help="give them its /sys and /proc")
    start.add_argument("--nat", action="store_true", help="let them reach the outside")
    start.add_argument("--readonly", action="store_true", help="with a disk that cannot be written")
    start.add_argument("--no-python", dest="python", action="store_false", help="without Python")
    many = commands.add_parser("platforms", help="start Molecule's, read from standard input")
    many.set_defaults(action=platforms)
    stop = commands.add_parser("down", help="stop these hosts, or all of them and the rig")
    stop.set_defaults(action=down)
    stop.add_argument("names", nargs="*")
    for command in (many, stop):
        command.add_argument("--config", type=Path, help="write Molecule's instance config to this file")
    commands.add_parser("list", help="print the hosts as JSON lines").set_defaults(action=show)
    commands.add_parser("inventory", help="write an Ansible inventory, print where").set_defaults(action=inventory)
    enter = commands.add_parser("run", help="run a program in a host")
    enter.set_defaults(action=run)
    enter.add_argument("name")
    enter.add_argument("argv", nargs=argparse.REMAINDER)
    return top


def up(rig: Rig, wanted: argparse.Namespace) -> None:
    rig.up(wanted.names, machine=wanted.machine, nat=wanted.nat, readonly=wanted.readonly, python=wanted.python)
    show(rig, wanted)


def platforms(rig: Rig, wanted: argparse.Namespace) -> None:
    rig.down()  # those that a run which was killed has left
    for platform in json.load(sys.stdin):
        wish = {key: platform[key] for key in Wish.__annotations__ if key in platform}
        for host in rig.up([platform["name"]], **wish):
            for program in platform.get("standins", []):
                host.standin(program)
            if platform.get("slurm"):
                slurm_programs.install(host, platform["slurm"])
    configure(rig, wanted)


def configure(rig: Rig, wanted: argparse.Namespace) -> None:
    """Tell Molecule of the hosts that run; a task of Ansible for it would cost as much as three hosts."""
    if wanted.config:
        login = {"user": "root", "port": 22, "identity_file": f"{rig.state}/id_ed25519"}
        listed = [{"instance": host.name, "address": host.ip, **login} for host in rig.hosts()]
        wanted.config.touch(mode=0o600)
        wanted.config.write_text(json.dumps(listed, indent=2) + "\n")


def show(rig: Rig, wanted: argparse.Namespace) -> None:
    for host in rig.hosts():
        say(json.dumps(asdict(host.facts)))


def inventory(rig: Rig, wanted: argparse.Namespace) -> None:
    say(rig.inventory())


def run(rig: Rig, wanted: argparse.Namespace) -> None:
    done = next(host for host in rig.hosts() if host.name == wanted.name).run(*wanted.argv, check=False)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    sys.exit(done.returncode)


def down(rig: Rig, wanted: argparse.Namespace) -> None:
    rig.down(wanted.names or None)
    configure(rig, wanted)
    if not rig.hosts():
        rig.close()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


main()
