"""A snapshot of the machine that tests run on, and the differences between two: tests must leave it as it was.

A snapshot holds modes and owners of device nodes and kernel files, sysctl values, mounts, cgroups, addresses, and the
files below /etc, in the folders of programs and in the user's configuration. It leaves out whatever other processes
change in normal operation, and whatever belongs to a rig that still runs: that one restores it when it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tests.rig import ground
from tests.rig.rootfs import cache

Section = dict[str, str]  # what it is about -> its state, in words
Snapshot = dict[str, Section]

# Terminals change hands at each login; loop devices and the like come and go with what others mount.
PASSING_DEVICES = re.compile(
    r"/dev/(pts|shm|mqueue|hugepages|char|block|disk|bus|mapper|vcs|tty.|loop|dm-|nbd|ram|zram)"
)
# The kernel itself changes these, or reading one makes it work.
PASSING_SYSCTLS = re.compile(
    r"/(random/|pty/nr$|ns_last_pid$|perf_event_max_sample_rate$|perf_cpu_time_max_percent$|stat_refresh$|binfmt_misc"
    r"|dentry-state$|file-nr$|inode-|aio-nr$|nf_conntrack_count$|sched_domain/|cpu\d)"
)
PASSING_FILES = {"/etc/resolv.conf", "/etc/mtab", "/etc/adjtime", "/etc/ld.so.cache"}
# Mounts elsewhere (/run, /tmp, /mnt, homes, container stores) are made by others at any time.
SYSTEM_MOUNTS = re.compile(
    r"/(|(proc|sys|dev|etc|usr|bin|sbin|lib|lib64|boot|opt|var|root)(/.*)?|run|tmp|home|run/netns)"
)
OTHERS_MOUNTS = re.compile(
    r"/(proc/sys/fs/binfmt_misc|dev/(hugepages|mqueue)|sys/fs/(fuse|bpf|pstore).*|sys/kernel/.*|var/lib/.*|root/.+)"
)
FOLDERS = ("/", "/boot", "/home", "/opt", "/root", "/run", "/tmp", "/srv", "/usr", "/var", "/var/lib", "/var/log")  # noqa: S108 only looked at
CONFIGURATION = ("/etc", "/boot", "/var/spool/cron")
PROGRAMS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/local/etc", "/opt")
AT_HOME = (
    *(".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".gitconfig", ".tmux.conf", ".kube/config"),
    *(".ssh/config", ".ssh/authorized_keys", ".config/gpuctl", ".config/fish", ".config/k9s", ".config/tmux"),
)
DPKG = Path("/var/lib/dpkg/status")
GONE = "gone while it was read"
SETTLE_S = 15.0  # what a process that is just ending leaves for so long is no difference


def take() -> Snapshot:
    """The machine as it is now."""
    return {name: present(section()) for name, section in SECTIONS.items()}


def present(section: Section) -> Section:
    """A section without what was listed but removed before its state was read: that is absent, not in another state."""
    return {subject: state for subject, state in section.items() if state != GONE}


def differences(before: Snapshot, after: Snapshot) -> list[str]:
    """Each thing that was changed, with its state before and after."""
    packages_changed = before["packages"] != after["packages"]
    return [
        line
        for name in SECTIONS
        if name != "packages"
        for line in _section_differences(name, before[name], after[name], packages_changed)
    ]


def _section_differences(name: str, before: Section, after: Section, packages_changed: bool) -> Iterator[str]:
    for subject in sorted({*before, *after}):
        old, new = before.get(subject), after.get(subject)
        if old == new or ((old is None or new is None) and name in ONLY_WHAT_STAYED):
            continue
        # A package manager at work elsewhere replaces files; it does not change the mode of one that stays.
        if packages_changed and name in ("configuration", "program") and _mode_and_owner(old) == _mode_and_owner(new):
            continue
        if packages_changed and name in ("configuration", "program") and (old is None or new is None):
            continue
        yield f"{name} {subject}: {old or 'absent'} before, {new or 'absent'} after"


def _mode_and_owner(state: str | None) -> list[str]:
    return (state or "").split()[:2]


def wait_for_no_difference(before: Snapshot, settle_s: float = SETTLE_S) -> list[str]:
    """The differences to an earlier snapshot that are still there after a while; empty as soon as there are none."""
    end = time.monotonic() + settle_s
    while remaining := differences(before, take()):
        if time.monotonic() > end:
            return remaining
        time.sleep(0.5)
    return []


@contextlib.contextmanager
def unchanged(shared: Path, settle_s: float = SETTLE_S) -> Iterator[None]:
    """Within this block tests may run; the last of several processes that share a folder raises where they differ.

    Nothing is repaired: the test that changed the machine is to be mended.
    """
    baseline = shared / "machine.json"
    with (shared / "machine.users").open("w") as users:
        with _one_process(shared):
            fcntl.flock(users, fcntl.LOCK_SH)
            if not baseline.exists():
                baseline.write_text(json.dumps(take()))
        yield
        with _one_process(shared):
            if not _is_last(users.fileno()):
                return
            remaining = wait_for_no_difference(json.loads(baseline.read_text()), settle_s)
            baseline.unlink()
    if remaining:
        raise AssertionError("the tests changed this machine:\n  " + "\n  ".join(remaining))


def _is_last(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _one_process(shared: Path) -> Iterator[None]:
    with (shared / "machine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ---- what a snapshot holds -------------------------------------------------------------------------------------------


def devices(top: Path = Path("/dev")) -> Section:
    """Type, mode, owner and number of every device node."""
    return {str(path): _state(path) for path in _walk(top) if not PASSING_DEVICES.match(str(path))}


def kernel_files(top: Path = Path("/proc")) -> Section:
    """Mode and owner of the files of /proc that belong to no process."""
    paths = [path for path in top.iterdir() if not path.name.isdecimal()]
    sysctl_files = (path for path in _walk(top / "sys") if not PASSING_SYSCTLS.search(str(path)))
    return {str(path): _state(path) for path in (*paths, *sysctl_files) if not path.is_symlink()}


def sysctls(top: Path = Path("/proc/sys")) -> Section:
    """Values of all that can be set; of those that rigs hold for now, the value that they will restore."""
    held = ground.held_settings()
    values: Section = {}
    for path in _walk(top):
        if PASSING_SYSCTLS.search(str(path)):
            continue
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if path.lstat().st_mode & stat.S_IWUSR:
                values[str(path)] = path.read_text().strip()
    held |= ground.held_settings()  # of a rig that started in between
    return {path: held.get(path, value) for path, value in values.items()}


def mounts() -> Section:
    """What is mounted where, with its options and propagation."""
    states = ground.rig_states()
    text = Path("/proc/self/mountinfo").read_text()
    return system_mounts(text, [Path(state) for state in states], cache())


def system_mounts(mountinfo: str, rigs: Iterable[Path], rig_cache: Path) -> Section:
    """The mounts of /proc/PID/mountinfo that no other process makes or removes in normal operation."""
    section: Section = {}
    for line in mountinfo.splitlines():
        fields, _, source = line.partition(" - ")
        _, _, device, root, point, options, *propagation = fields.split()
        of_a_rig = Path(point).is_relative_to(rig_cache) and not any(Path(point).is_relative_to(rig) for rig in rigs)
        if of_a_rig or (SYSTEM_MOUNTS.fullmatch(point) and not OTHERS_MOUNTS.fullmatch(point)):
            state = " ".join([device, root, options, *propagation, source])
            section[point] = f"{section[point]}, then {state}" if point in section else state
    return section


def cgroups(top: Path = Path("/sys/fs/cgroup")) -> Section:
    """What hierarchies hand down, and cgroups of rigs and test nodes in which nothing runs."""
    rigs = {Path(state).name for state in ground.rig_states()} | ground.rig_bridges()
    hierarchies = [top, *(path for path in top.iterdir() if path.is_dir())]
    section = {
        str(path): path.read_text().strip()
        for hierarchy in hierarchies
        if (path := hierarchy / "cgroup.subtree_control").exists()
    }
    for hierarchy in hierarchies:
        for folder in (*hierarchy.glob("gpuctl-rig/*/"), *hierarchy.glob("real-*/")):
            with contextlib.suppress(OSError):
                if folder.name not in rigs and not _runs_something(folder):
                    section[str(folder)] = "left without a process"
    return section


def _runs_something(cgroup: Path) -> bool:
    return any(path.read_text().strip() for path in cgroup.rglob("cgroup.procs"))


def left_by_rigs() -> Section:
    """Interfaces and network namespaces of rigs that are gone."""
    bridges = ground.rig_bridges()
    names = [path.name for folder in ("/sys/class/net", "/run/netns") for path in Path(folder).glob("gctl*")]
    bridges |= ground.rig_bridges()  # a rig that started in between
    return {name: "present" for name in names if re.split(r"[.-]", name)[0] not in bridges}


def addresses() -> Section:
    """The addresses of each interface, without those that interfaces give themselves."""
    listing = subprocess.run(["ip", "-oneline", "address"], capture_output=True, text=True, check=False).stdout
    section: Section = {}
    for line in listing.splitlines():
        _, interface, *words = re.sub(r"\\.*", "", line).split()
        if "scope link" not in line:
            section[interface] = f"{section.get(interface, '')} {' '.join(words)}".strip()
    return section


def folders() -> Section:
    """Mode and owner of the folders that everybody shares."""
    return {folder: " ".join(_state(Path(folder)).split()[:2]) for folder in FOLDERS if Path(folder).exists()}


def configuration() -> Section:
    """Mode, owner and content of what configures this machine."""
    paths = (path for folder in CONFIGURATION for path in _walk(Path(folder)))
    return {str(path): _with_content(path) for path in paths if str(path) not in PASSING_FILES}


def home() -> Section:
    """Mode, owner and content of the user's own configuration."""
    entries = (Path.home() / name for name in AT_HOME)
    return {str(path): _with_content(path) for entry in entries for path in (entry, *_walk(entry)) if path.is_file()}


def programs() -> Section:
    """Mode, owner, size and time of programs."""
    return {str(path): _state(path, with_time=True) for folder in PROGRAMS for path in _walk(Path(folder))}


def packages() -> Section:
    """When the package manager last changed what is installed."""
    return {str(DPKG): str(DPKG.stat().st_mtime_ns)} if DPKG.exists() else {}


SECTIONS: Mapping[str, Callable[[], Section]] = {
    "device": devices,
    "kernel file": kernel_files,
    "sysctl": sysctls,
    "mount": mounts,
    "cgroup": cgroups,
    "left by a rig:": left_by_rigs,
    "address of": addresses,
    "folder": folders,
    "configuration": configuration,
    "home": home,
    "program": programs,
    "packages": packages,
}
# A driver, a module or an interface of somebody else brings these along, and takes them away again.
ONLY_WHAT_STAYED = {"kernel file", "sysctl", "address of"}


def _walk(top: Path) -> Iterator[Path]:
    """Everything below a folder on the same file system; links are not followed."""
    with contextlib.suppress(OSError):
        device = top.stat().st_dev
        for folder, names, files in os.walk(top):
            for name in files:
                yield Path(folder, name)
            for name in list(names):
                path = Path(folder, name)
                yield path
                with contextlib.suppress(OSError):
                    if path.is_symlink() or path.lstat().st_dev != device:
                        names.remove(name)


def _state(path: Path, with_time: bool = False) -> str:
    try:
        entry = path.lstat()
    except OSError:
        return GONE
    words = [stat.filemode(entry.st_mode), f"{entry.st_uid}:{entry.st_gid}"]
    if stat.S_ISCHR(entry.st_mode) or stat.S_ISBLK(entry.st_mode):
        words.append(f"{os.major(entry.st_rdev)},{os.minor(entry.st_rdev)}")
    if with_time:
        words += [f"{entry.st_size} bytes", f"changed at {entry.st_mtime_ns}"]
    return " ".join(words)


def _with_content(path: Path) -> str:
    state = _state(path)
    with contextlib.suppress(OSError):
        if path.is_symlink():
            return f"{state} -> {path.readlink()}"
        if path.is_file():
            return f"{state} sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    return state
