"""A kernel file with one value: "value:/proc/sys/vm/swappiness"."""

from __future__ import annotations

import errno

from ..host import Host
from ..model import Unsupported


class Value:
    """One kernel file, written by a single write call, as the kernel requires."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, host: Host) -> str | None:
        try:
            return host.value(self.path)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return None  # the files of an offline processor remain, but cannot be read

    def write(self, host: Host, text: str | None) -> None:
        if text is None:
            raise RuntimeError(f"{self.path} is a kernel file and cannot be removed")
        try:
            host.write(self.path, text)
        except OSError as error:
            if error.errno == errno.EPERM:
                raise Unsupported("not permitted (EPERM): the firmware or kernel lockdown prevents it") from error
            raise
