"""A distribution package: "package:libjemalloc2", text "installed" or None."""

from __future__ import annotations

from ..host import Host
from ..model import Unreadable


def _family(host: Host) -> str:
    for family, program in (("deb", "dpkg-query"), ("rpm", "rpm")):
        if host.which(program):
            return family
    raise Unreadable("neither dpkg nor rpm is on this host")


class Package:
    """One package, by its name in the distribution."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, host: Host) -> str | None:
        if _family(host) == "deb":
            status = host.run("dpkg-query", "-W", "-f=${db:Status-Status}", "--", self.name)
            return "installed" if status.out.strip() == "installed" else None
        return "installed" if host.run("rpm", "-q", "--", self.name).ok else None

    def write(self, host: Host, text: str | None) -> None:
        command = self._command(host, text)
        done = host.run(*command, changes=True, limit=600)
        if not done.ok and command[0] == "apt-get":  # the package lists may be missing or outdated
            host.run("apt-get", "update", changes=True, limit=600)
            done = host.run(*command, changes=True, limit=600)
        if not done.ok:
            verb, why = "install" if text else "remove", done.without_secrets.last_line
            raise RuntimeError(f"cannot {verb} {self.name}: {why}")

    def _command(self, host: Host, text: str | None) -> list[str]:
        # dpkg and rpm refuse to remove a package that another one needs; apt and dnf would remove both.
        if _family(host) == "deb":
            if text is None:
                return ["dpkg", "--remove", self.name]
            return [
                "apt-get",
                "install",
                "--yes",
                "--no-install-recommends",
                "-o",
                "DPkg::Lock::Timeout=300",
                self.name,
            ]
        if text is None:
            return ["rpm", "--erase", self.name]
        return ["dnf" if host.which("dnf") else "yum", "install", "-y", self.name]
