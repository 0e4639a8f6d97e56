"""A folder that a run created for its files: "folder:/etc/gpuctl"; undo removes it once it is empty."""

from __future__ import annotations

import os

from ..host import Host

PRESENT = "present"


class Folder:
    """One folder; its text is "present", or None if it does not exist."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, host: Host) -> str | None:
        return PRESENT if os.path.isdir(host.real(self.path)) else None

    def write(self, host: Host, text: str | None) -> None:
        if text is None:
            host.remove_folder(self.path)
        else:
            host.make_folder(self.path)
