"""A host whose files and units are read once, for the time between the last change of a run and its report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from .host import Host, Result


class Remembered(Host):
    """Reads of a host, each file and unit once; only valid while nothing changes. Programs are run each time.

    `units`: unit -> its properties, as `resources.unit.show` has read them. `answers`: those of nvidia-smi, by its
    arguments, as `smi.ask` has read them. `packages`: those of `resources.deb` or `resources.rpm_packages`. `holds`:
    those of the former that are held.
    """

    def __init__(self, host: Host) -> None:
        super().__init__(host.root)
        self._host = host
        self._texts: dict[str, str] = {}
        self.units: dict[str, dict[str, str]] = {}
        self.answers: dict[tuple[str, ...], Result] = {}
        self.packages: dict[str, str] | None = None
        self.holds: list[str] = []

    def read(self, path: str) -> str:
        if path not in self._texts:
            self._texts[path] = self._host.read(path)
        return self._texts[path]

    def run(
        self,
        *argv: str,
        changes: bool = False,
        stdin: str = "",
        limit: float = 60,
        environment: Mapping[str, str] | None = None,
    ) -> Result:
        return self._host.run(*argv, changes=changes, stdin=stdin, limit=limit, environment=environment)

    @contextlib.contextmanager
    def changing(self, what: str) -> Iterator[None]:
        if what:
            raise RuntimeError(f"cannot {what}: its values have been read")
        yield
