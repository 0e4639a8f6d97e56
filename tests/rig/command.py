"""`gpuctl` as a user has it: the installed command, a home folder of their own, and nothing else of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.rig import TestHost

GPUCTL = Path(sys.executable).with_name("gpuctl")
# OpenSSH asks the user database, not $HOME, where the user's own configuration is.
AT_HOME = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0/passwd" /etc/passwd && exec "$@"')


@dataclass(frozen=True)
class Said:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def hosts(self) -> dict[str, dict[str, Any]]:
        """What a run with `--output json` says of each host."""
        return {host["host"]: host for host in self.json["hosts"]}


class Gpuctl:
    """The command and its user."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.temporary = home / "tmp"
        self.temporary.mkdir()
        self.limit_s = 120.0  # for one run
        (home / "passwd").write_text(f"root:x:0:0:root:{home}:/bin/sh\n")

    def __call__(self, *words: object, **environment: str) -> Said:
        """Run it to its end."""
        return self.said(self.start(*words, stderr=subprocess.PIPE, **environment))

    def said(self, running: subprocess.Popen[str]) -> Said:
        """Wait for one that was started."""
        out, err = running.communicate(timeout=self.limit_s)
        return Said(running.returncode, out, err)

    def start(self, *words: object, stderr: int = subprocess.PIPE, **environment: str) -> subprocess.Popen[str]:
        """Start it; its process is the command itself."""
        argv = [*AT_HOME, str(self.home), str(GPUCTL), *map(str, words)]
        return subprocess.Popen(
            argv,
            env=self.environment(**environment),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def environment(self, **more: str) -> dict[str, str]:
        """As in a fresh login; the folder that gpuctl lies in is not on the PATH."""
        own = {"HOME": str(self.home), "TMPDIR": str(self.temporary), "LANG": "C.UTF-8"}
        return {"PATH": os.defpath, **own, **more}

    def processes(self) -> list[str]:
        """The command lines of all that runs for this user, without the connections that ssh keeps for a minute."""
        mine = f"\0HOME={self.home}\0".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mine in b"\0" + (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_text().replace("\0", " ").strip())
        return [line for line in found if line and not line.endswith("[mux]")]

    def private_folders(self) -> list[Path]:
        """What ansible-runner works in."""
        return list(self.temporary.glob("gpuctl-*"))

    def inventory(self, hosts: Mapping[str, Mapping[str, object]], name: str = "hosts.yml") -> Path:
        """Write an inventory: host -> its variables."""
        path = self.home / name
        path.write_text(yaml.safe_dump({"all": {"hosts": {host: dict(own) for host, own in hosts.items()}}}))
        return path

    def profile(self, knobs: Mapping[str, object], name: str = "site") -> Path:
        """Write a profile, and say where it is."""
        rows = {knob: {"value": value, "why": "a test", "source": "a test"} for knob, value in knobs.items()}
        path = self.home / f"{name}.yml"
        path.write_text(yaml.safe_dump({"about": "a test", "knobs": rows}, sort_keys=False))
        return path


def reach(host: TestHost, **more: object) -> dict[str, object]:
    """The variables that lead Ansible to a host; `more` are added, or take their place."""
    state = host.plot.state
    checks = f"-o UserKnownHostsFile={state}/known_hosts -o StrictHostKeyChecking=yes"
    return {
        "ansible_host": host.ip,
        "ansible_user": "root",
        "ansible_private_key_file": f"{state}/id_ed25519",
        "ansible_ssh_common_args": checks,
        "ansible_python_interpreter": "/usr/bin/python3",
        **more,
    }
