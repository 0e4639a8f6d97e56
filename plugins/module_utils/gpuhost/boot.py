"""gpuctl-boot: carry out /etc/gpuctl/boot.conf, at boot and whenever a driver was loaded again."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Mapping, Sequence

from .host import Host
from .idle import states, to_switch
from .pinning import look

CONFIG = "/etc/gpuctl/boot.conf"


def main(argv: Sequence[str], host: Host | None = None) -> int:
    """Set what differs; 1 when something could not be set, each with its reason on standard error."""
    host = host or Host(argv[0] if argv else "/")
    # Twice, for one line may stand in another's way: a governor holds its processor's energy preference.
    carry_out_all(host)
    failed = carry_out_all(host)
    for wrong in failed:
        print(wrong, file=sys.stderr)
    return 1 if failed else 0


def carry_out_all(host: Host) -> list[str]:
    """Carry out every line; returns what went wrong."""
    return [wrong for key, value in lines(host) for wrong in _guarded(host, key, value)]


def lines(host: Host) -> Iterator[tuple[str, str]]:
    """(what, value) of each line of the file."""
    for line in (host.read_or_none(CONFIG) or "").splitlines():
        key, _, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            yield key, value.strip()


def _guarded(host: Host, key: str, value: str) -> list[str]:
    """Carry out one line; one that cannot be done keeps none of the others from being done."""
    try:
        return carry_out(host, key, value)
    except (OSError, ValueError) as error:
        return [f"{key} {value}: {error}"]


def carry_out(host: Host, key: str, value: str) -> list[str]:
    """Carry out one line; returns what went wrong."""
    if key == "irq.affinity":
        moves = {v.path: v.wanted for v in look(host, value).vectors if v.now != v.wanted}
        return _set_all(host, moves, managed_is_fine=True)
    if key == "cpu.idle_latency_us":
        return _set_all(host, {s.switch: "0" if s.off else "1" for s in to_switch(host, states(host), int(value))})
    paths = host.glob(key)
    return _set_all(host, dict.fromkeys(paths, value)) if paths else [f"{key}: no such file on this host"]


def _set_all(host: Host, wanted: Mapping[str, str], managed_is_fine: bool = False) -> list[str]:
    failed = []
    for path, value in wanted.items():
        try:
            if _differs(host, path, value):
                host.write(path, value)
        except OSError as error:
            if not (managed_is_fine and error.errno == errno.EIO):  # the kernel keeps some interrupts for itself
                failed.append(f"{path}: cannot write {value}: {error.strerror}")
    return failed


def _differs(host: Host, path: str, value: str) -> bool:
    try:
        return host.value(path) != value
    except OSError as error:
        if error.errno == errno.EBUSY:  # a processor that is switched off still has its files, and answers so
            return False
        raise
