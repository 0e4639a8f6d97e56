"""A user with sudo: real sudo, asked with and without a password, on a terminal and off it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.rig import parts

ROOT = Path(__file__).parents[2]
# Within a mount namespace of its own: a user, their password, and what sudo lets them do.
SETUP = """
set -e
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/shadow" /etc/shadow
mount --bind "$1/sudoers" /etc/sudoers
chown 4242:4242 "$1/home"
shift
exec setpriv --reuid=4242 --regid=4242 --clear-groups "$@"
"""
# What gpuctl does around a bootstrap, and what its module then does with a package; no package is installed by it.
CALL = """
from gpuctl.workstation.sudo_password import asking_for_sudo
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.machine import Machine
import os, sys
with asking_for_sudo():
    machine = Machine(os.environ["HOME"], os.environ["HOME"])
    print("why not:", machine.may_install())
    done = machine.run(*machine.as_root(["id", "-u"]))
    print("ran as:", done.out.strip())
"""
PASSWORD = "correct horse"  # noqa: S105 - of a user who exists in this test alone
pytestmark = [
    pytest.mark.skipif(not shutil.which("sudo"), reason="the package sudo"),
    pytest.mark.skipif(bool(why := parts.missing()), reason=why or ""),
]


class User:
    """Somebody who is not root, in a world of their own."""

    def __init__(self, world: Path, rule: str) -> None:
        self.world = world
        (world / "home").mkdir()
        passwd = Path("/etc/passwd").read_text()
        (world / "passwd").write_text(f"{passwd}operator:x:4242:4242::{world}/home:/bin/sh\n")
        hashed = subprocess.run(
            ["openssl", "passwd", "-6", PASSWORD], capture_output=True, text=True, check=True
        ).stdout.strip()
        (world / "shadow").write_text(f"root:*:19000:0:99999:7:::\noperator:{hashed}:19000:0:99999:7:::\n")
        (world / "shadow").chmod(0o600)
        (world / "sudoers").write_text(f"Defaults !fqdn, !lecture\n{rule}\n")
        (world / "sudoers").chmod(0o440)
        self.argv = ["unshare", "--mount", "sh", "-c", SETUP, "sh", str(world), sys.executable, "-c", CALL]
        self.environment = {
            "HOME": f"{world}/home",
            "PATH": os.defpath,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": f"{world}/home",
        }

    def off_a_terminal(self) -> str:
        return subprocess.run(
            self.argv, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        ).stdout

    def on_a_terminal(self, typed: str) -> str:
        """What is seen there when `typed` is the answer to the question for a password."""
        child, terminal = pty.fork()
        if child == 0:
            os.fchown(0, 4242, 4242)  # a terminal belongs to who logged in on it
            os.execvpe(self.argv[0], self.argv, self.environment)  # noqa: S606
        seen, answered, ends = "", False, time.monotonic() + 60
        while time.monotonic() < ends:
            ready = select.select([terminal], [], [], 1)[0]
            try:
                seen += os.read(terminal, 4096).decode() if ready else ""
            except OSError:  # it has ended
                break
            if "password for" in seen and not answered:
                time.sleep(0.2)
                os.write(terminal, typed.encode() + b"\n")
                answered = True
        os.waitpid(child, 0)
        os.close(terminal)
        return seen


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sudo")
    for path in (folder, *list(folder.parents)[:2]):
        path.chmod(0o755)
    return folder


def test_without_a_question_nothing_is_asked(world: Path) -> None:
    said = User(world, "operator ALL=(ALL) NOPASSWD: ALL").off_a_terminal()
    assert said == "why not: \nran as: 0\n"


def test_off_a_terminal_nobody_is_asked_and_the_reason_is_told(world: Path) -> None:
    said = User(world, "operator ALL=(ALL) ALL").off_a_terminal()
    assert "with a password: on a terminal" in said
    assert said.endswith("ran as: \n")


def test_on_a_terminal_sudo_asks_once_and_does_not_show_the_answer(world: Path) -> None:
    seen = User(world, "operator ALL=(ALL) ALL").on_a_terminal(PASSWORD)
    assert seen.count("password for operator") == 1
    assert PASSWORD not in seen
    assert "ran as: 0" in seen


def test_who_may_not_use_sudo_is_told_so(world: Path) -> None:
    seen = User(world, "# nobody").on_a_terminal(PASSWORD)
    assert "password for operator" in seen
    assert "sudo refuses" in seen
    assert "ran as: 0" not in seen
