"""A rig: a private network with real hosts on this one machine (systemd, sshd, own address), in seconds."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, TypedDict, Unpack

from tests.rig import ground, machines, rootfs
from tests.rig.ground import sh
from tests.rig.host import DROPPED, Facts, TestHost, ssh_options, wait_until
from tests.rig.tree import order

REPOSITORY = Path(__file__).parents[2]
HOSTS_A_NET = 250
AT_ONCE = 6
# Every rig has one; a folder without is not ours to empty.
MARK = "known_hosts"
IN_CGROUP = ("sh", "-c", 'echo 0 > "$0/cgroup.procs"; exec "$@"')


class Wish(TypedDict, total=False):
    """How hosts shall be."""

    machine: str  # whose /sys and /proc they show; without one, those of this machine, read-only
    nat: bool  # they reach the outside
    readonly: bool  # no write to disk, /sys or /proc succeeds
    python: bool  # False: there is none
    binds: Sequence[tuple[str, str]]  # more mounts, (source, target); {name} is the host's


class Rig:
    """Hosts on a bridge of their own. Leaving the context removes all of it.

    Without arguments it takes the first free bridge and network. A rig with a `state` folder of the caller's and
    `lasting` set outlives the process: opening the same folder again continues it.
    """

    def __init__(
        self, state: Path | None = None, bridge: str | None = None, net: str | None = None, lasting: bool = False
    ) -> None:
        state = state and state.resolve()
        if state and state.exists() and any(state.iterdir()) and not (state / MARK).exists():
            raise FileExistsError(f"{state} holds something that no rig made; give it an empty folder")
        self._held: IO[str] | None = None
        continued = ground.lasting(state) if state and lasting else None
        if continued:
            self.plot = continued
        else:
            self.plot, self._held = ground.claim(state, bridge, net, lasting)
        self.state = Path(self.plot.state)
        if not continued:
            self._furnish()

    def _furnish(self) -> None:
        # What lies there, with nobody to claim it, is from before a restart of this machine.
        ground.unmount(self.state)
        shutil.rmtree(self.state, ignore_errors=True)
        (self.state / "hosts").mkdir(parents=True)
        self.state.chmod(0o700)
        _keygen(self.state / "id_ed25519")
        (self.state / MARK).touch()

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop every host and leave the machine as it was."""
        ground.release(self.plot)
        if self._held:
            self._held.close()

    def up(self, names: Iterable[str], **wish: Unpack[Wish]) -> list[TestHost]:
        """Start hosts, several at once, and wait until their sshd answers."""
        base = rootfs.base()
        ground.make_bridge(self.plot, wish.get("nat", False))
        if wish.get("machine"):
            self._serve()
        taken = {host.facts.number for host in self.hosts()}
        free = (number for number in range(1, HOSTS_A_NET * HOSTS_A_NET) if number not in taken)
        hosts = [self._new(name, next(free), wish.get("machine", "")) for name in names]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda host: self._start(host, wish, base), hosts))
        self._write_known_hosts()
        return hosts

    def _new(self, name: str, number: int, machine: str) -> TestHost:
        high, low = divmod(number - 1, HOSTS_A_NET)
        ip, port = f"{self.plot.net}.{1 + high}.{1 + low}", f"{self.plot.bridge}.{number}"
        host = TestHost(self.plot, Facts(name, ip, port, machine, number))
        host.folder.mkdir()
        host.save()
        return host

    def _start(self, host: TestHost, wish: Wish, base: Path) -> None:
        machine = host.facts.machine
        self._mount(host, base, wish)
        self._connect(host)
        if machine:
            order(self.plot.served, "tree", host.name, machine=machine, root=str(host.root))
        cgroup = ground.make_cgroup(self.plot, host.name, "watch", "host")
        environment = {
            "PATH": os.environ["PATH"],
            "ROOT": str(host.root),
            "HOST": host.name,
            "NETNS": self.plot.netns(host.name),
            "CGROUP": str(cgroup),
            "BINDS": "\n".join(f"{source}|{target}" for source, target in self._binds(host, wish)),
            "KEPT": " ".join(machines.KEPT) if machine else "",
            "READONLY": "1" if wish.get("readonly") else "",
            "DROPPED": DROPPED,
            "CONTROL": str(self.plot.served / ".control") if machine else "",
        }
        _leave_running([str(Path(__file__).with_name("boot.sh")), "watch"], environment, host.folder / "console.log")
        host.wait()
        if machine:
            host.tree.clear()

    def _binds(self, host: TestHost, wish: Wish) -> list[tuple[str, str]]:
        fake = machines.BINDS if host.facts.machine else ()
        trees = [(f"{self.plot.served}/{host.name}{path}", path) for path in fake]
        return trees + [(source.replace("{name}", host.name), target) for source, target in wish.get("binds", ())]

    def _mount(self, host: TestHost, base: Path, wish: Wish) -> None:
        for folder in ("upper", "work", "root"):
            (host.folder / folder).mkdir()
        layers = f"lowerdir={base},upperdir={host.folder}/upper,workdir={host.folder}/work,volatile"
        sh("mount", "-t", "overlay", "overlay", "-o", layers, host.root)
        self._personalize(host, wish)
        if wish.get("readonly"):
            sh("mount", "-o", "remount,ro", host.root)

    def _personalize(self, host: TestHost, wish: Wish) -> None:
        """What differs between the disks of two hosts."""
        etc, machine = host.root / "etc", host.facts.machine
        (etc / "hostname").write_text(f"{host.name}\n")
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{host.ip} {host.name}\n")
        shutil.copy(self.state / "id_ed25519.pub", etc / "ssh/authorized_keys")
        _keygen(host.folder / "ssh_host_ed25519_key")
        for key in host.folder.glob("ssh_host_ed25519_key*"):
            shutil.copy(key, etc / "ssh")
        if machine:
            areas = [swap.path for swap in machines.machine(machine).swaps]
            (etc / "fstab").write_text("".join(f"{area} none swap sw 0 0\n" for area in areas))
            # A host with a machine's files is to be taken for that machine.
            (etc / "tmpfiles.d/rig.conf").write_text("r! /run/systemd/container\n")
        if wish.get("nat"):
            shutil.copy(_resolv_conf(), etc / "resolv.conf")
            shutil.copytree(etc / "apt/network", etc / "apt/sources.list.d", dirs_exist_ok=True)
        if not wish.get("python", True):
            for program in (host.root / "usr/bin").glob("python3*"):
                program.unlink()

    def _connect(self, host: TestHost) -> None:
        netns, port = self.plot.netns(host.name), host.facts.port
        sh("ip", "netns", "add", netns)
        sh("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", netns)
        sh("ip", "link", "set", port, "master", self.plot.bridge, "up")
        inside = f"link set lo up\naddr add {host.ip}/16 dev eth0\nlink set eth0 up\n"
        sh("ip", "-n", netns, "-batch", "-", input=f"{inside}route add default via {self.plot.net}.0.1\n")

    def _serve(self) -> None:
        """Start the server of the fake trees, once."""
        if self.plot.served.is_mount():
            return
        self.plot.served.mkdir(exist_ok=True)
        cgroup = ground.make_cgroup(self.plot, "_server", "processes")
        argv = [*IN_CGROUP, f"{cgroup}/processes", sys.executable, "-m", "tests.rig.fakesys", str(self.plot.served)]
        log = self.state / "fakesys.log"
        _leave_running(argv, {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}, log)
        wait_until(self.plot.served.is_mount, 10, f"the server of /sys and /proc does not start; see {log}")

    def hosts(self) -> list[TestHost]:
        """Those that run, in the order they were started."""
        known = [Facts(**json.loads(file.read_text())) for file in (self.state / "hosts").glob("*/host.json")]
        return [TestHost(self.plot, facts) for facts in sorted(known, key=lambda facts: facts.number)]

    def down(self, names: Iterable[str] | None = None) -> None:
        """Stop these hosts, or all; the rig itself stays."""
        wanted = None if names is None else set(names)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(TestHost.stop, [h for h in self.hosts() if wanted is None or h.name in wanted]))
        self._write_known_hosts()

    def _write_known_hosts(self) -> None:
        keys = {host: (host.folder / "ssh_host_ed25519_key.pub").read_text().split()[:2] for host in self.hosts()}
        lines = [f"{host.name},{host.ip} {' '.join(key)}\n" for host, key in keys.items()]
        (self.state / MARK).write_text("".join(lines))

    def ssh_options(self) -> list[str]:
        """Arguments for an OpenSSH client that enters the hosts with the rig's key and checks theirs."""
        return ssh_options(self.plot)

    def inventory(self, groups: Mapping[str, Sequence[str]] | None = None, user: str = "root") -> str:
        """Write an Ansible inventory of the running hosts, and say where; `groups` are names of groups -> of hosts."""
        lines = [f"{host.name} ansible_host={host.ip}" for host in self.hosts()]
        checks = shlex.join(self.ssh_options()[4:])
        lines += [
            "[all:vars]",
            f"ansible_user={user}",
            f"ansible_ssh_private_key_file={self.state}/id_ed25519",
            f'ansible_ssh_common_args="{checks}"',
            "ansible_python_interpreter=/usr/bin/python3",
        ]
        for group, members in (groups or {}).items():
            lines += [f"[{group}]", *members]
        path = self.state / "inventory.ini"
        path.write_text("\n".join(lines) + "\n")
        return str(path)


def _keygen(path: Path) -> None:
    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpuctl-rig", "-f", path)


def _resolv_conf() -> Path:
    # systemd-resolved's own address is this machine's loopback, which a host cannot reach.
    behind = Path("/run/systemd/resolve/resolv.conf")
    return behind if behind.exists() else Path("/etc/resolv.conf")


def _leave_running(argv: list[str], environment: dict[str, str], log: Path) -> None:
    """Start a program that outlives this one; its cgroup is how it is ended."""
    with log.open("wb") as out:
        subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/"
        )
