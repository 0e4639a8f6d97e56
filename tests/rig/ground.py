"""What rigs stand on, and share with each other: names and networks, cgroups, the bridge, limits of the machine.

Everything a rig makes carries the name of its bridge, so that all of it can be found and removed by name alone, also
when the process that made it is gone. A rig holds the lock on its entry below /run for as long as it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from tests.rig.rootfs import cache

REGISTRY = Path("/run/gpuctl-rig")
Done = subprocess.CompletedProcess[str]
# Every systemd takes several inotify instances: the usual 128 end at about twenty hosts.
LIMITS = {"/proc/sys/fs/inotify/max_user_instances": "8192"}
FORWARDING = {"/proc/sys/net/ipv4/ip_forward": "1"}
# The kernel sets these, too, when forwarding is switched.
FOLLOW_FORWARDING = ("all/accept_redirects", "default/forwarding", "*/forwarding")
NAMESPACES = Path("/run/netns")


@dataclass(frozen=True)
class Plot:
    """A rig's share of the machine: its folder, its bridge, the first two numbers of its addresses.

    A `lasting` one is not swept when nobody holds its lock: it lives from one command to the next.
    """

    state: str
    bridge: str
    net: str
    lasting: bool = False

    @property
    def cgroup(self) -> Path:
        unified = Path("/sys/fs/cgroup/unified")
        return (unified if (unified / "cgroup.procs").exists() else unified.parent) / "gpuctl-rig" / self.bridge

    @property
    def served(self) -> Path:
        """Where the fake /sys and /proc of its hosts are mounted."""
        return Path(self.state, "fakesys")

    def netns(self, host: str) -> str:
        return f"{self.bridge}-{host}"


def sh(*argv: str | Path, input: str | None = None, check: bool = True) -> Done:  # noqa: A002 subprocess calls it so
    """Run a program of this machine; its own words in the error where it fails."""
    done = subprocess.run([str(arg) for arg in argv], input=input, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stderr.strip() or done.returncode}")
    return done


@contextlib.contextmanager
def _registry() -> Iterator[None]:
    """One at a time: rigs that start, end or sweep."""
    REGISTRY.mkdir(mode=0o755, exist_ok=True)
    with (REGISTRY / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def claim(state: Path | None, bridge: str | None, net: str | None, lasting: bool) -> tuple[Plot, IO[str]]:
    """A plot nobody else has, and the open file that holds it; what crashed rigs left is removed on the way."""
    with _registry():
        _sweep()
        net = net or _free_net()
        bridge = bridge or f"gctl{net.rpartition('.')[2]}"
        plot = Plot(str(state or cache() / bridge), bridge, net, lasting)
        try:
            held = (REGISTRY / f"{bridge}.json").open("x")
        except FileExistsError:
            raise RuntimeError(f"another rig has the bridge {bridge}; see {REGISTRY}") from None
        fcntl.flock(held, fcntl.LOCK_EX)
        json.dump(asdict(plot), held)
        held.flush()
        _change(LIMITS)
        _note_namespaces()
        return plot, held


def lasting(state: Path) -> Plot | None:
    """The plot of the lasting rig in a folder, where there is one."""
    return next((plot for plot in _plots() if plot.lasting and plot.state == str(state)), None)


def _free_net() -> str:
    known = [entry.read_text() for entry in REGISTRY.glob("*.json")] + [sh("ip", "-4", "route").stdout]
    nets = (f"10.{number}" for number in range(100, 256))
    return next(net for net in nets if not any(f'"{net}"' in text or f" {net}." in f" {text}" for text in known))


def release(plot: Plot) -> None:
    """Remove everything a rig made."""
    with _registry():
        _tear_down(plot)


def _sweep() -> None:
    for entry in REGISTRY.glob("*.json"):
        with entry.open() as held, contextlib.suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Empty: the process was killed between making the entry and filling it.
            said = held.read()
            plot = Plot(**json.loads(said)) if said else Plot("", entry.stem, "")
            # A lasting rig whose folder is gone can be continued by nobody.
            if not plot.lasting or not Path(plot.state).exists():
                _tear_down(plot)


def _tear_down(plot: Plot) -> None:
    kill(plot.cgroup)
    if plot.state:
        unmount(Path(plot.state))
    for netns in Path("/run/netns").glob(plot.netns("*")):
        sh("ip", "netns", "del", netns.name, check=False)
    for port in Path(f"/sys/class/net/{plot.bridge}/brif").glob("*"):
        # The kernel may be removing it already, as its other end went with the namespace.
        sh("ip", "link", "del", port.name, check=False)
    sh("ip", "link", "del", plot.bridge, check=False)
    sh("nft", "delete", "table", "ip", plot.bridge, check=False)
    if plot.state:
        shutil.rmtree(plot.state, ignore_errors=True)
    (REGISTRY / f"{plot.bridge}.json").unlink(missing_ok=True)
    if not list(REGISTRY.glob("*.json")):
        _restore()


def unmount(folder: Path) -> None:
    """Detach everything mounted below a folder."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in reversed([m for m in mounts if m == str(folder) or m.startswith(f"{folder}/")]):
        sh("umount", "--lazy", mount)


def kill(cgroup: Path, patience_s: float = 20) -> None:
    """End every process in a cgroup and below, and remove it."""
    if not cgroup.exists():
        return
    (cgroup / "cgroup.kill").write_text("1")
    end = time.monotonic() + patience_s
    while "populated 1" in (cgroup / "cgroup.events").read_text():
        if time.monotonic() > end:
            raise RuntimeError(f"processes in {cgroup} do not end")
        time.sleep(0.01)
    for folder, _, _ in os.walk(cgroup, topdown=False):
        Path(folder).rmdir()
    with contextlib.suppress(OSError):
        cgroup.parent.rmdir()


def make_cgroup(plot: Plot, host: str, *leaves: str) -> Path:
    """A host's cgroup with its leaves, and every controller that the machine hands down."""
    for folder in (plot.cgroup.parent, plot.cgroup, plot.cgroup / host):
        folder.mkdir(exist_ok=True)
        for controller in (folder / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    for leaf in leaves:
        (folder / leaf).mkdir(exist_ok=True)
    return folder


def make_bridge(plot: Plot, nat: bool) -> None:
    """The network of a rig's hosts; with `nat` they reach what this machine reaches."""
    if not Path(f"/sys/class/net/{plot.bridge}").exists():
        sh("ip", "link", "add", plot.bridge, "type", "bridge", "forward_delay", "0")
        sh("ip", "addr", "add", f"{plot.net}.0.1/16", "dev", plot.bridge)
        sh("ip", "link", "set", plot.bridge, "up")
    if nat:
        with _registry():
            _change(FORWARDING)
        chain = "type nat hook postrouting priority srcnat;"
        rule = f'ip saddr {plot.net}.0.0/16 oifname != "{plot.bridge}" masquerade'
        sh("nft", f"table ip {plot.bridge} {{ chain out {{ {chain} {rule}; }}; }}")


def _change(limits: dict[str, str]) -> None:
    """Set limits of the machine, and keep their values for when the last rig goes."""
    before = held_settings()
    for path, wanted in limits.items():
        now = Path(path).read_text().strip()
        if int(now) < int(wanted):
            followers = _following() if limits is FORWARDING else {}
            before = {path: now, **followers, **before}
            _write_whole(REGISTRY / "before", json.dumps(before))
            Path(path).write_text(wanted)


def _following() -> dict[str, str]:
    files = (file for name in FOLLOW_FORWARDING for file in Path("/proc/sys/net/ipv4/conf").glob(name))
    return {str(file): file.read_text().strip() for file in files}


def _restore() -> None:
    for path, value in held_settings().items():
        with contextlib.suppress(FileNotFoundError):  # an interface that is gone
            Path(path).write_text(value)
    (REGISTRY / "before").unlink(missing_ok=True)
    _remove_namespaces_folder()


def held_settings() -> dict[str, str]:
    """Settings of the machine that rigs have changed for now, with the values they will restore."""
    try:
        held: dict[str, str] = json.loads((REGISTRY / "before").read_text())
    except FileNotFoundError:
        return {}
    return held


def rig_states() -> set[str]:
    """The folders of all rigs that are registered."""
    return {plot.state for plot in _plots()}


def rig_bridges() -> set[str]:
    """The bridges of all rigs that are registered."""
    return {entry.stem for entry in REGISTRY.glob("*.json")}


def _plots() -> Iterator[Plot]:
    for entry in REGISTRY.glob("*.json"):
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):  # it ends, or is about to be filled
            yield Plot(**json.loads(entry.read_text()))


def _write_whole(path: Path, text: str) -> None:
    """So that whoever reads it finds all of it."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.rename(path)


@contextlib.contextmanager
def network_namespaces() -> Iterator[None]:
    """For network namespaces outside of a rig: the mount that `ip netns add` leaves goes with the last of them."""
    with _registry():
        _note_namespaces()
    yield
    with _registry():
        if not list(REGISTRY.glob("*.json")):
            _remove_namespaces_folder()


def _note_namespaces() -> None:
    if not NAMESPACES.exists():
        (REGISTRY / "netns").touch()


def _remove_namespaces_folder() -> None:
    """The first `ip netns add` of a machine mounts /run/netns on itself, for good."""
    if (REGISTRY / "netns").exists() and not any(NAMESPACES.glob("*")):
        unmount(NAMESPACES)
        with contextlib.suppress(OSError):
            NAMESPACES.rmdir()
        (REGISTRY / "netns").unlink()
