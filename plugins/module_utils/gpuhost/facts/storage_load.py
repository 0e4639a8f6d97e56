"""Load of a node's storage: counters over some seconds, who uses it, its limits, and a trial of reading a path."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ..host import Host
from ..topology import AMAZON
from . import counters, io_counters, io_limits, lustre, read_trial, storage_users

if TYPE_CHECKING:
    from .answer_types import StorageLoadFacts

ANSWER_S, LFS_S, SPARE_S = 5.0, 10.0, 10.0  # a server that is lost never answers
WINDOW_S, LONGEST_S = 5.0, 60.0
MOST_MOUNTS = 32
FEW_REQUESTS, LATE_MS = 20, 50.0  # as gpuctl/domain/storage_load.py calls a server very slow
NETWORK = ("nfs", "nfs4", "lustre", "beegfs", "gpfs", "ceph", "cifs", "smb3", "wekafs", "9p")
# They accept O_DIRECT and may answer from a cache all the same; so may any file system by FUSE.
CACHED = ("zfs", "tmpfs", "ramfs", "overlay", "9p", "virtiofs")
LUSTRE = ("/proc/fs/lustre", "/sys/kernel/debug/lustre", "/sys/fs/lustre")
NET = "/sys/class/net"
PAGE = 4096


def read(host: Host, request: Mapping[str, Any]) -> StorageLoadFacts:
    """All of StorageLoadFacts.

    Request: `path` (empty: no trial, and the counters of all file systems), `window_s`, and of the trial `read_s` and
    `read_mib`. Counters are rises within `window_s`; those of `trial` rises while it ran. Nothing is written.
    """
    unread: dict[str, str] = {}
    path = request.get("path") or ""
    mounts = _mounts(host)
    mount = None
    if path:
        path, mount = _resolved(host, path, mounts, unread)
    nodes = _nodes(host, path, mount, mounts)
    before, at = _reading(host, nodes, unread), time.monotonic()
    time.sleep(min(float(request.get("window_s") or WINDOW_S), LONGEST_S))
    after, window_s = _reading(host, nodes, unread), time.monotonic() - at
    burdened = _burdened(before, after)
    if mount and burdened:
        unread["trial"] = f"not tried: {burdened}"
    written = {file for process in after["users"].values() for file in process["written"]}
    trial = _trial(host, path, request, {**nodes, "written": written}, unread) if mount and not burdened else None
    if mount and trial and trial["is_direct"] and (mount["type"] in CACHED or mount["type"].startswith("fuse")):
        trial["is_direct"] = False
    if mount is None:
        _blind(mounts, nodes, after, unread)
    answer: StorageLoadFacts = {
        "path": path,
        "mount": mount,
        "window_s": round(window_s, 3),
        **_rise(before, after),  # type: ignore[typeddict-item]
        "pressure": io_counters.pressure(_text(host, "/proc/pressure/io", unread)),
        "users": storage_users.moved(before["users"], after["users"]),
        "hidden": after["hidden"],
        "trial": trial,
        "unread": unread,
    }
    if mount and mount["type"] == "lustre":
        answer["lustre"]["targets"], answer["lustre"]["stripes"] = _layout(host, path, unread)
    return answer


# ---- the path and its devices ----------------------------------------------------------------------------------------


def _mounts(host: Host) -> list[dict[str, Any]]:
    """Mounts in their order; the last one at a place covers the others."""
    mounts = []
    for line in (host.read_or_none("/proc/self/mountinfo") or "").splitlines():
        cells, _, rest = line.partition(" - ")
        row, kind = cells.split(), rest.split(" ")
        if len(row) >= 6 and len(kind) >= 2:
            mount = {"mount_point": io_counters.unescaped(row[4]), "type": kind[0], "device": row[2]}
            mounts.append({**mount, "source": io_counters.unescaped(kind[1])})
    return mounts


def _resolved(
    host: Host, path: str, mounts: list[dict[str, Any]], unread: dict[str, str]
) -> tuple[str, dict[str, Any] | None]:
    """The path without links, and its mount; the mount is None if the path does not answer or does not exist."""

    def look() -> str:
        real = os.path.realpath(host.real(path))
        os.stat(real)
        return real[len(os.path.realpath(host.root)) :] if host.root else real

    done = _within(ANSWER_S, look)
    if isinstance(done, str):
        return done, _mount_of(done, mounts)
    late = f"no answer within {ANSWER_S:g} s"
    unread["path"] = late if done is None else done.strerror or str(done)
    return path, None


def _mount_of(path: str, mounts: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    above = [m for m in mounts if m["mount_point"] in ("/", path) or path.startswith(m["mount_point"] + "/")]
    return max(above, key=lambda mount: len(mount["mount_point"])) if above else None  # of equals: see `_mounts`


def _within(limit_s: float, work: Callable[[], Any]) -> Any:
    """The result of `work`, plain JSON; its OSError, or None if it takes longer.

    It runs in a child, which is killed then: one that waits in the kernel (state D) outlives that, but holds neither
    the end of this program nor its output.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _report(writer, work)
    os.close(writer)
    text, end, is_late = b"", time.monotonic() + limit_s, False
    try:
        while not is_late:
            ready, _, _ = select.select([reader], [], [], max(0.0, end - time.monotonic()))
            is_late = not ready
            part = os.read(reader, 1 << 16) if ready else b""
            if not part:
                break
            text += part
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, os.WNOHANG)
    if not text.endswith(b"\n"):
        return None if is_late else OSError(errno.ECHILD, "the program that reads it was killed")
    kind, value = json.loads(text)
    if kind == "error":
        return OSError(*value)
    if kind == "fault":
        raise ValueError(value)
    return value


def _report(writer: int, work: Callable[[], Any]) -> NoReturn:
    """Do the work in the child, and write [kind, value] as a line."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        try:
            answer = ["result", work()]
        except OSError as error:
            answer = ["error", [error.errno, error.strerror, error.filename]]
        except Exception as error:  # noqa: BLE001 - it is raised again in the parent
            answer = ["fault", f"{type(error).__name__}: {error}"]
        with os.fdopen(writer, "wb") as stream:
            stream.write(json.dumps(answer).encode() + b"\n")
    finally:
        os._exit(0)


def _nodes(host: Host, path: str, mount: dict[str, Any] | None, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    """Whose counters are read: {mount_points, devices, folder}; devices None for all disks."""
    if mount is None:
        points = [one["mount_point"] for one in mounts if one["type"] in NETWORK][:MOST_MOUNTS]
        return {"mount_points": points, "devices": None, "folders": points, "is_lustre": True}
    device = mount["device"]
    if device.startswith("0:") and mount["source"].startswith("/dev/"):  # btrfs has a device number of its own
        number = _within(ANSWER_S, lambda: _device_number(host.real(mount["source"])))
        device = number if isinstance(number, str) and number else device
    devices = [] if device.startswith("0:") else _beneath(host, device)
    folder = path if mount["mount_point"] == "/" else mount["mount_point"]
    is_lustre = mount["type"] == "lustre"
    return {
        "mount_points": [mount["mount_point"]],
        "devices": devices,
        "folders": [folder],
        "is_lustre": is_lustre,
    }


def _device_number(path: str) -> str:
    """Number of a block device, such as "259:1"; "" if it is none."""
    facts = os.stat(path)
    return f"{os.major(facts.st_rdev)}:{os.minor(facts.st_rdev)}" if stat.S_ISBLK(facts.st_mode) else ""


def _beneath(host: Host, device: str) -> list[str]:
    """A device, with the disk of a partition and the members of a volume."""
    devices: list[str] = []
    rest = [device]
    while rest and len(devices) < MOST_MOUNTS:
        device = rest.pop()
        if device in devices:
            continue
        devices.append(device)
        folder = f"/sys/dev/block/{device}"
        above = [f"{folder}/../dev"] if host.exists(f"{folder}/partition") else []
        texts = (host.read_or_none(file) for file in [*above, *host.glob(f"{folder}/slaves/*/dev")])
        rest += [text.strip() for text in texts if text]
    return devices


# ---- readings --------------------------------------------------------------------------------------------------------


def _text(host: Host, path: str, unread: dict[str, str]) -> str | None:
    try:
        return host.read_or_none(path)
    except OSError as error:
        unread[path] = error.strerror or str(error)
        return None


def _reading(host: Host, nodes: Mapping[str, Any], unread: dict[str, str], *, users: bool = True) -> dict[str, Any]:
    """Counters at one time."""
    mounts = io_counters.nfs_mounts(_text(host, "/proc/self/mountstats", unread) or "")
    disks = io_counters.disks(_text(host, "/proc/diskstats", unread) or "")
    wanted = nodes["devices"]
    names = {device: name for name, device in _disk_names(host).items() if wanted is None or device in wanted}
    processes, hidden = storage_users.read(host, nodes["folders"]) if users else ({}, 0)
    vmstat = io_counters.numbers(_text(host, "/proc/vmstat", unread))
    return {
        "nfs": {point: mounts[point] for point in nodes["mount_points"] if point in mounts},
        "disks": {names[device]: values for device, values in disks.items() if device in names},
        "lustre": _lustre(host, unread) if nodes["is_lustre"] else {},
        "limits": io_limits.read(host, ["self", *processes], wanted),
        "network": _network(host, unread),
        "tcp": io_counters.tcp(_text(host, "/proc/net/snmp", unread) or ""),
        "refaults": vmstat.get("workingset_refault_file"),
        "users": processes,
        "hidden": hidden,
    }


def _blind(
    mounts: Iterable[Mapping[str, Any]], nodes: Mapping[str, Any], now: Mapping[str, Any], unread: dict[str, str]
) -> None:
    """Reasons for file systems whose counters cannot be read, among all that are mounted."""
    kinds = {mount["mount_point"]: mount["type"] for mount in mounts}
    lost = [point for point in nodes["mount_points"] if kinds[point] in ("nfs", "nfs4") and point not in now["nfs"]]
    if lost:
        unread["nfs"] = f"no counters of {', '.join(lost[:4])}"
    if "lustre" in kinds.values() and not (now["lustre"].get("clients") and now["lustre"].get("targets")):
        unread["lustre"] = "its stats are not readable, or missing"


def _rise(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Rises between two readings."""
    refaults = (before["refaults"], after["refaults"])
    return {
        "nfs": {point: _mount_rise(values, before["nfs"].get(point)) for point, values in after["nfs"].items()},
        "disks": _rises(before["disks"], after["disks"]),
        "lustre": _lustre_rise(before["lustre"], after["lustre"]),
        "limits": _limits_rise(before["limits"], after["limits"]),
        "network": {
            name: {"rise": io_counters.change(before["network"][name]["counters"], values["counters"]),
                   "speed_mbps": values["speed_mbps"]}
            for name, values in after["network"].items() if name in before["network"]
        },
        "tcp": io_counters.change(before["tcp"], after["tcp"]) if before["tcp"] and after["tcp"] else None,
        "refaulted_bytes": None if None in refaults else max(0, refaults[1] - refaults[0]) * PAGE,
    }  # fmt: skip


def _burdened(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Why an NFS server must not get a trial's load, too; "" if nothing speaks against it."""
    for point, values in after["nfs"].items():
        rise = _mount_rise(values, before["nfs"].get(point))
        timeouts = sum(rise.get(f"{kind}.timeouts", 0) for kind in ("reads", "writes", "metadata"))
        if timeouts:
            return f"{timeouts} NFS requests had no answer within the window"
        for kind in ("reads", "writes", "metadata"):
            requests, waited_ms = rise.get(f"{kind}.ops", 0), rise.get(f"{kind}.rtt_ms", 0)
            if requests >= FEW_REQUESTS and waited_ms >= LATE_MS * requests:
                return f"the server of {point} takes {waited_ms / requests:.0f} ms for a request already"
    return ""


def _limits_rise(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    used = {(one["group"], one["device"]): one["used"] for one in before}
    return [
        {**one, "used": io_counters.change(used[one["group"], one["device"]], one["used"])}
        for one in after
        if (one["group"], one["device"]) in used
    ]


def _mount_rise(values: Mapping[str, int], before: Mapping[str, int] | None) -> dict[str, int]:
    return {**io_counters.change(before or {}, values), "connections": values["connections"]}


def _rises(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {name: io_counters.change(before[name], values) for name, values in after.items() if name in before}


def _disk_names(host: Host) -> dict[str, str]:
    """Name -> device number of disks and volumes that hold something, without their partitions."""
    names = {}
    for folder in host.glob("/sys/block/*"):
        name, device = folder.rpartition("/")[2], host.value(f"{folder}/dev")
        if (
            device
            and not name.startswith(("ram", "zram", "sr", "fd"))
            and host.value(f"{folder}/size") not in (None, "0")
        ):
            names[name] = device
    return names


def _network(host: Host, unread: dict[str, str]) -> dict[str, Any]:
    """Interfaces on a bus, or, in a pod, all but the loopback: {counters, speed_mbps}."""
    names = [name for name in host.listdir(NET) if name != "lo"]
    on_bus = [name for name in names if host.exists(f"{NET}/{name}/device")]
    interfaces = {}
    for name in on_bus or names:
        values = {}
        for counter in ("rx_bytes", "tx_bytes", "rx_dropped"):
            text = _value(host, f"{NET}/{name}/statistics/{counter}")
            values.update({counter: int(text)} if text and text.isdigit() else {})
        if _value(host, f"{NET}/{name}/device/vendor") == AMAZON:
            values.update(counters.allowances(host, name, unread))
        speed = _value(host, f"{NET}/{name}/speed")  # the kernel refuses it for interfaces that are down
        is_known = on_bus and speed and speed.isdigit() and int(speed) > 0  # a veth invents 10 Gbit/s
        interfaces[name] = {"counters": values, "speed_mbps": int(speed) if is_known and speed else None}
    return interfaces


def _value(host: Host, path: str) -> str | None:
    try:
        return host.value(path)
    except OSError:
        return None


def _lustre(host: Host, unread: dict[str, str]) -> dict[str, Any]:
    """{clients: file system -> {read_bytes, …}, targets: OST -> …}: counts and sums of events."""
    groups: dict[str, dict[str, Any]] = {"clients": {}, "targets": {}}
    for top in LUSTRE:
        for name, pattern in (("clients", f"{top}/llite/*/stats"), ("targets", f"{top}/osc/*/stats")):
            for path in host.glob(pattern):
                label = path.split("/")[-2].partition("-osc-" if name == "targets" else "-f")[0]
                text = _text(host, path, unread)
                if text:
                    groups[name].setdefault(label, io_counters.lustre_stats(text))
    return groups


def _lustre_rise(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    rises: dict[str, Any] = {
        group: {label: _rises(before[group][label], events) for label, events in after.get(group, {}).items()
                if label in before.get(group, {})}
        for group in ("clients", "targets")
    }  # fmt: skip
    return {"clients": rises["clients"], "osts": rises["targets"], "targets": [], "stripes": None}


def _layout(host: Host, path: str, unread: dict[str, str]) -> tuple[list[Any], int | None]:
    """Usage of the targets of a file system, and the number of stripes of the path; -1 for all targets."""
    full = host.run("lfs", "df", path, limit=LFS_S)
    targets, odd, ends = lustre.parse_df(full.out)
    if not full.ok or odd or not ends:
        unread["lfs df"] = full.last_line if not full.ok else "not understood"
    counted = host.run("lfs", "getstripe", "-c", "-d", path, limit=LFS_S)
    last = counted.out.split()[-1:] if counted.ok else []
    try:
        return targets, int(last[0])
    except (IndexError, ValueError):
        unread["lfs getstripe"] = "not understood" if counted.ok else counted.last_line
        return targets, None


# ---- the trial -------------------------------------------------------------------------------------------------------


def _trial(
    host: Host, path: str, request: Mapping[str, Any], nodes: Mapping[str, Any], unread: dict[str, str]
) -> dict[str, Any] | None:
    """Read files of the path; with the rises of the counters meanwhile. None if that was not possible."""
    limit_s, limit_bytes = float(request.get("read_s") or 0), int(request.get("read_mib") or 0) << 20
    if not limit_s or not limit_bytes:
        return None
    before, began = _reading(host, nodes, unread, users=False), time.monotonic()

    def meter() -> Callable[[], dict[str, Any]]:
        first, at = io_limits.read(host, ["self"], nodes["devices"]), time.monotonic()

        def rise() -> dict[str, Any]:
            counted_s = round(time.monotonic() - at, 6)
            return {"limits": _limits_rise(first, io_limits.read(host, ["self"], nodes["devices"])),
                    "counted_s": counted_s}  # fmt: skip

        return rise

    written = frozenset(map(host.real, nodes["written"]))
    result = _within(limit_s + SPARE_S, lambda: read_trial.read(host.real(path), limit_s, limit_bytes, meter, written))
    seconds = round(time.monotonic() - began, 3)
    if not isinstance(result, dict):
        late = f"reading took longer than {limit_s + SPARE_S:g} s"
        unread["trial"] = late if result is None else result.strerror or str(result)
        return None
    rise = _rise(before, _reading(host, nodes, unread, users=False))
    return {**result, "seconds": seconds, **{name: rise[name] for name in ("nfs", "tcp")}}
