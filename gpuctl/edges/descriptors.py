"""Write to file descriptors."""

from __future__ import annotations

import os


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; OSError as of `os.write`."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
