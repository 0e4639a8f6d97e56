"""A file of the kernel that holds one value: "value:/proc/sys/vm/swappiness"."""

from __future__ import annotations

import errno

from ..host import Host
from ..model import Unsupported


class Value:
    """One kernel file; writing is a single write call, as the kernel wants it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, host: Host) -> str | None:
        try:
            return host.value(self.path)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return None  # the files of a processor that is switched off stay, with nothing behind them

    def write(self, host: Host, text: str | None) -> None:
        if text is None:
            raise RuntimeError(f"{self.path} belongs to the kernel and cannot be removed")
        try:
            host.write(self.path, text)
        except OSError as error:
            if error.errno == errno.EPERM:
                raise Unsupported("not permitted (EPERM): the firmware or a lockdown has the last word") from error
            raise
