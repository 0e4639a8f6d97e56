"""gpuctl-boot: apply /etc/gpuctl/boot.conf at boot, and whenever a driver is loaded again."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence

from . import boot_turn
from .host import Host
from .idle import states, to_switch
from .pinning import read_pinning
from .readahead import too_small

CONFIG = "/etc/gpuctl/boot.conf"


def main(argv: Sequence[str], host: Host | None = None) -> int:
    """Set every value that differs; return 1 if any could not be set, with the reasons on standard error."""
    return boot_turn.take(host or Host(argv[0] if argv else "/"), "gpuctl-boot", CONFIG, apply_all)


def apply_all(host: Host) -> list[str]:
    """Apply every line, twice, as one value may block another; return the errors that stay.

    A governor holds its processor's energy preference.
    """
    _apply_once(host)
    return _apply_once(host)


def _apply_once(host: Host) -> list[str]:
    return [wrong for key, value in lines(host) for wrong in _guarded(host, key, value)]


def lines(host: Host) -> Iterator[tuple[str, str]]:
    """(key, value) of each line of the file."""
    for line in (host.read_or_none(CONFIG) or "").splitlines():
        key, _, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            yield key, value.strip()


def _guarded(host: Host, key: str, value: str) -> list[str]:
    """Apply one line; its errors do not stop the others."""
    try:
        return apply(host, key, value)
    except (OSError, ValueError) as error:
        return [f"{key} {value}: {error}"]


def apply(host: Host, key: str, value: str) -> list[str]:
    """Apply one line; return the errors."""
    if key == "irq.affinity":
        moves = {v.path: v.desired for v in read_pinning(host, value).vectors if v.now != v.desired}
        return _set_all(host, moves, managed_is_fine=True)
    if key == "cpu.idle_latency_us":
        return _set_all(host, {s.switch: "0" if s.off else "1" for s in to_switch(host, states(host), int(value))})
    if key == "disk.read_ahead_kb":
        return _set_all(host, dict.fromkeys(too_small(host, int(value)), value))
    paths = host.glob(key)
    return _set_all(host, dict.fromkeys(paths, value)) if paths else [f"{key}: no such file on this host"]


def _set_all(host: Host, desired: Mapping[str, str], managed_is_fine: bool = False) -> list[str]:
    failed = []
    for path, value in desired.items():
        try:
            if _differs(host, path, value):
                host.write(path, value)
        except OSError as error:
            if not (managed_is_fine and error.errno == errno.EIO):  # the kernel manages some interrupts itself
                failed.append(f"{path}: cannot write {value}: {error.strerror}")
    return failed


def _differs(host: Host, path: str, value: str) -> bool:
    try:
        return host.value(path) != value
    except OSError as error:
        if error.errno == errno.EBUSY:  # the files of an offline processor remain
            return False
        raise
