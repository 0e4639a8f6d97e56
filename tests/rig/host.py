"""One running test host: what a test does with it."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from tests.rig import ground
from tests.rig.disk import kernel_line
from tests.rig.ground import Done, Plot, sh
from tests.rig.tree import FakeTree, order

STANDINS = Path(__file__).parent / "standins"
# With these a host could change what belongs to the whole machine.
DROPPED = "-sys_module,-sys_rawio,-sys_time,-syslog,-mac_admin,-mac_override,-wake_alarm,-block_suspend,-audit_control"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Facts:
    """What the rig's folder keeps of a host, for a later command."""

    name: str
    ip: str
    port: str  # its cable's end on the bridge
    machine: str  # "" where it shows the real /sys and /proc
    number: int


class TestHost:
    """A host with systemd, sshd and an address of its own."""

    __test__: ClassVar[bool] = False  # for pytest: no collection of tests, whatever the name says

    def __init__(self, plot: Plot, facts: Facts) -> None:
        self.plot, self.facts = plot, facts
        self.name, self.ip = facts.name, facts.ip
        self.folder = Path(plot.state, "hosts", facts.name)

    @property
    def tree(self) -> FakeTree:
        """Its fake /sys and /proc; only for a host that was given a machine."""
        if not self.facts.machine:
            raise LookupError(f"{self.name} was started without a machine, so it has no tree of its own")
        return FakeTree(self.plot.served, self.name)

    @property
    def root(self) -> Path:
        """Its disk, as seen from this machine; absolute links in it lead astray."""
        return self.folder / "root"

    def pid1(self) -> int:
        """Its systemd, by this machine's numbering."""
        scope = self.plot.cgroup / self.name / "host/init.scope/cgroup.procs"
        for pid in scope.read_text().split() if scope.exists() else ():
            with contextlib.suppress(FileNotFoundError):
                if re.search(r"^NSpid:.*\t1$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE):
                    return int(pid)
        raise ProcessLookupError(f"{self.name} does not run")

    def processor_seconds(self) -> float:
        """Seconds that its processes have used; without those that `run` starts, which belong to this machine."""
        text = (self.plot.cgroup / self.name / "host/cpu.stat").read_text()
        return next(int(line.split()[1]) / 1e6 for line in text.splitlines() if line.startswith("usage_usec "))

    def run(self, *argv: str, input: str | None = None, check: bool = True) -> Done:  # noqa: A002 as in subprocess
        """Run a program in it as root, without ssh."""
        environment = ["env", "-i", f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8"]
        into = ["nsenter", "--target", str(self.pid1()), "--all", "setpriv", f"--bounding-set={DROPPED}"]
        return sh(*into, *environment, *argv, input=input, check=check)

    def ssh(self, *argv: str, user: str = "root", check: bool = True) -> Done:
        """Run a program in it the way a user does."""
        return sh("ssh", *ssh_options(self.plot), f"{user}@{self.ip}", shlex.join(argv), check=check)

    def read(self, path: str) -> str:
        return self.run("cat", path).stdout

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Put a file on its disk; folders are made."""
        self.run("install", "-D", "-m", f"{mode:o}", "/dev/stdin", path, input=text)

    def exists(self, path: str) -> bool:
        return self.run("test", "-e", path, check=False).returncode == 0

    def standin(self, program: str) -> None:
        """Put standins/standin-PROGRAM where the real program lies, or would."""
        real = self.run("sh", "-c", f"command -v {program}", check=False).stdout.strip()
        self.write(real or f"/usr/bin/{program}", (STANDINS / f"standin-{program}").read_text(), mode=0o755)

    def boots_by_grub(self) -> None:
        """Debian's way to a kernel line: /etc/default/grub, a drop-in as cloud images ship, and update-grub."""
        self.standin("update-grub")
        self.write("/etc/default/grub", 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n')
        cloud = 'GRUB_CMDLINE_LINUX="console=tty0 console=ttyS0,115200n8"\n'
        self.write("/etc/default/grub.d/15_cloud.cfg", cloud)
        self._start_from_disk("update-grub")

    def boots_by_grubby(self) -> None:
        """The RHEL family's way: entries below /boot/loader, changed by grubby."""
        self.standin("grubby")
        for version in ("5.14.0-427.el9.x86_64", "5.14.0-503.el9.x86_64"):
            text = f"title Red Hat Enterprise Linux ({version})\nversion {version}\nlinux /vmlinuz-{version}\n"
            text += f"initrd /initramfs-{version}.img\noptions root=/dev/sda1 ro console=ttyS0,115200n8\n"
            self.write(f"/boot/loader/entries/{version}.conf", text)
        self._start_from_disk("grubby", "--info=ALL")

    def _start_from_disk(self, *program: str) -> None:
        """As if the host had been started by this boot loader."""
        self.run(*program)
        if self.facts.machine:
            self.tree.set("/proc/cmdline", kernel_line(self.root) or "")

    def pause(self) -> None:
        """Pull the cable: the host runs on, nobody reaches it."""
        sh("ip", "link", "set", self.facts.port, "down")

    def resume(self) -> None:
        """Plug it in again; waits for sshd, since neighbours take seconds to find each other."""
        sh("ip", "link", "set", self.facts.port, "up")
        self.wait()

    def reboot(self) -> None:
        """Restart it: the disk stays, everything else is as the machine and that disk make it; waits for sshd."""
        before = self.pid1()
        self.run("systemctl", "reboot", check=False)
        wait_until(lambda: self._runs_anew(before), 30, f"{self.name} does not go down")
        self.wait()

    def _runs_anew(self, before: int) -> bool:
        try:
            return self.pid1() != before
        except OSError:
            return False

    def wait(self, limit_s: float = 30) -> None:
        """Until sshd answers and lets everybody in."""
        log = self.folder / "console.log"
        wait_until(self._lets_in, limit_s, f"no sshd on {self.name} ({self.ip}); see {log}")

    def _lets_in(self) -> bool:
        try:
            if self._is_root_only():  # asked first, as each connection costs an sshd
                return False
            with socket.create_connection((self.ip, 22), timeout=1) as connection:
                return connection.recv(4) == b"SSH-" and not self._is_root_only()
        except OSError:
            return False

    def _is_root_only(self) -> bool:
        """Whether systemd lets nobody but root log in yet."""
        return Path(f"/proc/{self.pid1()}/root/run/nologin").exists()

    def stop(self) -> None:
        """End it and forget its disk, however far its start came."""
        if self.facts.machine:
            # A process in a write that hangs cannot be ended.
            self.tree.release()
        ground.kill(self.plot.cgroup / self.name)
        if self.facts.machine:
            order(self.plot.served, "drop", self.name)
        ground.unmount(self.folder)
        sh("ip", "netns", "del", self.plot.netns(self.name), check=False)
        # The other end goes with the namespace, but not at once.
        sh("ip", "link", "del", self.facts.port, check=False)
        shutil.rmtree(self.folder)

    def save(self) -> None:
        (self.folder / "host.json").write_text(json.dumps(asdict(self.facts)))


def ssh_options(plot: Plot) -> list[str]:
    """Arguments for an OpenSSH client that enters a rig's hosts with its key and checks theirs."""
    strict = ["-o", f"UserKnownHostsFile={plot.state}/known_hosts", "-o", "StrictHostKeyChecking=yes"]
    return ["-F", "/dev/null", "-i", f"{plot.state}/id_ed25519", "-o", "BatchMode=yes", *strict]


def wait_until(done: Callable[[], bool], limit_s: float, otherwise: str) -> None:
    """Look again and again until it is so; TimeoutError with a reason when it never is."""
    end = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(otherwise)
        time.sleep(0.02)
