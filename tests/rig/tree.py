"""A test's hold on a host's fake /sys and /proc: what was written, and changes or failures from outside."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Write:
    """One write from inside the host; `errno` is 0 where the kernel took it, `by` the program's name."""

    path: str
    text: str
    errno: int
    by: str


class FakeTree:
    """One host's tree. Paths are the host's own: "/proc/sys/vm/swappiness"."""

    def __init__(self, served: Path, host: str) -> None:
        self.served, self.host = served, host
        self.folder = served / host

    def writes(self) -> list[Write]:
        """Every write since the host came up, or since `clear`, refused ones too."""
        return [Write(**json.loads(line)) for line in (self.folder / ".writes").read_text().splitlines()]

    def clear(self) -> None:
        """Forget the writes so far."""
        self._order("clear")

    def read(self, path: str) -> str:
        return (self.folder / path.lstrip("/")).read_text()

    def set(self, path: str, text: str) -> None:
        """Somebody else changes a value: as a write, but not listed in `writes`; also where the host may not write."""
        self._order("set", path=path, text=text)

    def put(self, path: str, text: str, writable: bool = True) -> None:
        """Add a file that takes any text, or none."""
        self._order("put", path=path, text=text, writable=writable)

    def remove(self, path: str) -> None:
        """Take away a file or folder, as when a device goes."""
        real = self.folder / path.lstrip("/")
        folder = real.is_dir() and not real.is_symlink()
        self._order("remove", path=path)
        real.rmdir() if folder else real.unlink()

    def fail(self, path: str, number: int = errno.EIO, times: int = 1) -> None:
        """The next writes to a file are refused."""
        self._order("fail", path=path, number=number, times=times)

    def hang(self, path: str) -> None:
        """Writes to a file do not return until `release`; not even kill -9 ends them before."""
        self._order("hang", path=path)

    def release(self) -> None:
        """Let go all that hangs."""
        self._order("release")

    def _order(self, do: str, **what: object) -> None:
        order(self.served, do, self.host, **what)


def order(served: Path, do: str, host: str, **what: object) -> None:
    """Tell the server of a folder to do something about a host."""
    with (served / ".control").open("w") as control:
        control.write(json.dumps({"do": do, "host": host, **what}))
