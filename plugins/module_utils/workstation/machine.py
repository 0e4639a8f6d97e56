"""The machine and the user: system, permissions, installed programs and their versions."""

from __future__ import annotations

import os
import platform
import pwd
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..gpuhost.host import PATH, Host, Result

_ARCH = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_FAMILIES = {"apt-get": "debian", "dnf": "redhat", "brew": "brew"}
_BREW = "/opt/homebrew/bin:/home/linuxbrew/.linuxbrew/bin"
# The user's network settings (proxy, certificates, package index), and the folder of zsh's files.
_OUTSIDE = re.compile(r"(https?|all|no)_proxy|SSL_CERT_\w+|(PIP|NPM_CONFIG|NODE)_\w+|ZDOTDIR", re.IGNORECASE)
# These run as root: never from the user's PATH.
_SYSTEM = {"sudo", "apt-get", "apt-cache", "dnf"}
# The program that asks for sudo's password on gpuctl's terminal; set only if there is one.
_ASKPASS = "GPUCTL_ASKPASS"
_ASK_SECONDS = 180
NO_PACKAGES = "packages are disabled (--no-packages)"
NO_SUDO = "installing packages needs root or sudo (with a password: on a terminal): ask the machine's administrator"


class Machine:
    """This machine and the current user's view of it."""

    def __init__(self, home: str, bin_folder: str, without_packages: bool = False, check: bool = False) -> None:
        self.home = home
        self.check = check
        self.bin = bin_folder
        self.host = Host()
        self.os = platform.system().lower()
        self.arch = _ARCH.get(platform.machine().lower(), platform.machine().lower())
        self.is_root = os.geteuid() == 0
        self.without_packages = without_packages
        self.family = self._family()
        self._may: str | None = None
        self._sudo = ["sudo", "-n"]

    def run(self, *argv: str, stdin: str = "", limit: float = 60) -> Result:
        """Run a program with the user's home, proxies and package indexes, for at most `limit` seconds."""
        inherited = {name: value for name, value in os.environ.items() if _OUTSIDE.fullmatch(name)}
        if askpass := os.environ.get(_ASKPASS):
            inherited["SUDO_ASKPASS"] = askpass
        folders = self._folders() if argv[0] in _SYSTEM else self._users_folders()
        environment = {**inherited, "HOME": self.home, "PATH": ":".join(folders), "PYTHONNOUSERSITE": "1"}
        program = _first(argv[0], folders) or argv[0]
        # Proxy and index URLs may contain passwords: they are passed in the environment, which no other user can read.
        return self.host.run(program, *argv[1:], stdin=stdin, limit=limit, environment=environment)

    def which(self, program: str) -> str:
        """Return the user's path of a program, our link folder first; empty if it is not installed."""
        return _first(program, self._users_folders())

    def system(self, program: str) -> str:
        """Return the system-wide path of a program; empty if it is not installed."""
        return _first(program, self._folders())

    def version(self, tool: Mapping[str, Any], path: str) -> str:
        """Return the version that a program prints; empty if it cannot be read."""
        if tool.get("version_arguments") == []:
            return ""
        result = self.run(path, *tool.get("version_arguments", ["--version"]), limit=10)
        match = re.search(str(tool.get("version_pattern") or r"\d+\.\d+[\w.]*"), result.out + result.err)
        return match.group(match.lastindex or 0) if result.ok and match else ""

    def may_install(self) -> str:
        """Return the reason why packages cannot be installed; empty if they can."""
        if self._may is None:
            self._may = self._why_not()
        return self._may

    def as_root(self, argv: Sequence[str]) -> list[str]:
        # Homebrew refuses to run as root, and never needs it.
        return list(argv) if self.is_root or self.family == "brew" else [*self._sudo, *argv]

    def shell(self) -> str:
        """Return the name of the login shell; empty if the user has no passwd entry."""
        try:
            return os.path.basename(pwd.getpwuid(os.geteuid()).pw_shell)
        except KeyError:
            return ""

    def startup_file(self, shell: str) -> str:
        """Return the path of a shell's start-up file; only zsh knows its ZDOTDIR, as .zshenv may set it."""
        if shell == "fish":
            config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(self.home, ".config")
            return os.path.join(config, "fish/config.fish")
        return os.path.join(self._zsh_folder() if shell == "zsh" else self.home, f".{shell}rc")

    def _zsh_folder(self) -> str:
        result = self.run("zsh", "-c", 'printf "\\n%s" "${ZDOTDIR-}"', limit=10)
        reported = result.out.splitlines()[-1:] if result.ok and not result.out.endswith("\n") else []
        return reported[0] if reported else os.environ.get("ZDOTDIR") or self.home

    def _why_not(self) -> str:
        if self.without_packages:
            return NO_PACKAGES
        if not self.family:
            return "this system's package manager is unknown"
        if self.family == "brew":
            return "Homebrew does not run as root" if self.is_root else ""
        if self.is_root or self.run("sudo", "-n", "true", limit=10).ok:
            return ""
        return self._authenticate() if os.environ.get(_ASKPASS) and self.system("sudo") else NO_SUDO

    def _authenticate(self) -> str:
        """Let sudo ask for the password on the user's terminal; a check assumes that the user knows it."""
        if self.check:
            return ""
        self._sudo = ["sudo", "-A"]
        done = self.run("sudo", "-A", "-v", limit=_ASK_SECONDS)
        return "" if done.ok else f"sudo refuses: {done.last_line}"

    def _family(self) -> str:
        return next((family for program, family in _FAMILIES.items() if self.which(program)), "")

    def _folders(self) -> list[str]:
        return [self.bin, *PATH.split(":"), *(_BREW.split(":") if self.os == "darwin" else [])]

    def _users_folders(self) -> list[str]:
        """Return the PATH in the user's order, without the folders of virtual environments."""
        absolute = [f for f in os.environ.get("PATH", "").split(":") if os.path.isabs(f)]
        lasting = [f for f in absolute if not os.path.exists(os.path.join(os.path.dirname(f), "pyvenv.cfg"))]
        return list(dict.fromkeys([self.bin, *lasting, *self._folders()]))


def _first(program: str, folders: Sequence[str]) -> str:
    candidates = (os.path.join(folder, program) for folder in folders)
    return next((c for c in candidates if os.path.isfile(c) and os.access(c, os.X_OK)), "")
