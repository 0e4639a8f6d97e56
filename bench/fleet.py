"""Fresh test hosts for a side, and checks that the side did its work on them."""

from __future__ import annotations

import fnmatch
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.measure import Timing, run
from bench.settings import Setting
from tests.rig import Rig
from tests.rig.host import TestHost


class NotDone(Exception):
    """A side did not do the work that was timed."""


@dataclass(frozen=True)
class Fleet:
    """Fresh hosts, and a folder for the side's files."""

    hosts: list[TestHost]
    inventory: Path
    folder: Path

    def timed(  # noqa: PLR0913, PLR0917 - as bench.measure.run
        self,
        argv: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        watch: bool = False,
        stdin: str = "",
        codes: Sequence[int] = (0,),
    ) -> Timing:
        """Run a command until it ends, and measure its processes and those of the hosts."""
        before = self._processor_seconds()
        timing = run(argv, cwd, environment, watch, stdin, codes)
        return replace(timing, hosts_cpu=self._processor_seconds() - before)

    def _processor_seconds(self) -> float:
        """Seconds that all processes of all hosts have used, systemd and sshd among them."""
        return sum(host.processor_seconds() for host in self.hosts)

    def check(self, settings: list[Setting]) -> None:
        """Raise `NotDone` unless every host has every desired value; read without any side."""
        for host in self.hosts:
            wrong = [f"{s.kind}.{s.key}" for s in settings if not _holds(host, s)]
            if wrong:
                raise NotDone(f"{host.name} does not hold {', '.join(wrong)}")

    def forget_writes(self) -> None:
        for host in self.hosts:
            host.tree.clear()

    def check_untouched(self) -> None:
        """Raise `NotDone` if a kernel file was written since `forget_writes`."""
        for host in self.hosts:
            if host.tree.writes():
                raise NotDone(f"{host.name} was written to: {host.tree.writes()[0]}")


def _holds(host: TestHost, setting: Setting) -> bool:
    if setting.kind == "unit":
        return not host.exists(setting.path)
    if "*" in setting.path:
        paths = [setting.path.replace("cpu*", f"cpu{number}") for number in range(64)]
    else:
        paths = [setting.path]
    return all(fnmatch.fnmatch(_shown(host.run("cat", path).stdout), setting.value.strip()) for path in paths)


def _shown(text: str) -> str:
    chosen = text.partition("[")[2].partition("]")[0]
    return chosen or " ".join(text.split())


@contextmanager
def fleet(count: int) -> Iterator[Fleet]:
    """Start fresh hosts with the kernel files of a two-socket server."""
    with Rig() as rig, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        hosts = rig.up([f"h{number:02d}" for number in range(1, count + 1)], machine="generic")
        for host in hosts:  # the tests' hosts agree on keys that are cheap to make, which those of others do not
            host.run("sed", "-i", "/^KexAlgorithms/d", "/etc/ssh/sshd_config.d/10-rig.conf")
            host.run("systemctl", "reload", "ssh")
        yield Fleet(hosts, Path(rig.inventory()), Path(folder))
