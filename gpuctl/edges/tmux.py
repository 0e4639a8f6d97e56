"""tmux servers, addressed by name instead of by $TMUX."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuctl.core.errors import GpuctlError, InvalidInput

OLDEST = (3, 2)
THEN = "\0"  # separates two commands in one call; no argument can contain it


@dataclass(frozen=True)
class Server:
    """A tmux server. `socket`: its name (`tmux -L`). `config`: the file it reads at its start; "" for none.

    `limit`: seconds for one command, if it may run a user's configuration; None for no limit.
    """

    socket: str = "default"
    config: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    limit: float | None = None

    def argv(self, *arguments: str) -> list[str]:
        """The argument list of a tmux command."""
        return ["tmux", "-L", self.socket, "-f", self.config or os.devnull, *map(_escape, arguments)]

    def try_to(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a tmux command; the caller judges its output and exit status."""
        done = self._run(arguments)
        # A server that is ending still answers with this message for a moment.
        for _ in range(40):
            if "server exited unexpectedly" not in done.stderr or arguments[0] == "kill-server":
                break
            time.sleep(0.05)
            done = self._run(arguments)
        return done

    def _run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        inside = ("TMUX", "TMUX_PANE")  # may name another server, which tmux would then use
        outside = {name: value for name, value in os.environ.items() if name not in inside}
        try:
            return subprocess.run(
                self.argv(*arguments),
                env={**outside, **self.environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=self.limit,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(self.argv(*arguments), 124, "", f"not done within {self.limit:g} s")

    def do(self, *arguments: str) -> str:
        """Run a tmux command and return its output; `GpuctlError` with tmux's message if it fails."""
        done = self.try_to(*arguments)
        if done.returncode:
            wrong = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
            raise GpuctlError(f"have tmux {arguments[0]} (server {self.socket})", wrong)
        return done.stdout

    def runs(self) -> bool:
        """True if the server is running."""
        return self.try_to("list-sessions").returncode == 0

    def has(self, session: str) -> bool:
        return self.try_to("has-session", "-t", f"={session}").returncode == 0


def _escape(argument: str) -> str:
    """Escape a final semicolon, which tmux takes for the end of the command."""
    if argument == THEN:
        return ";"
    return f"{argument[:-1]}\\;" if argument.endswith(";") else argument


def version() -> tuple[int, int]:
    """tmux's version, such as (3, 3); `InvalidInput` if tmux is missing or older than 3.2."""
    doing = "use tmux"
    if shutil.which("tmux") is None:
        raise InvalidInput(doing, "it is not installed", "`gpuctl bootstrap laptop` installs it")
    output = subprocess.run(["tmux", "-V"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"(\d+)\.(\d+)", output)
    if match is None:  # "tmux master", "tmux openbsd-7.5": a development build, newer than any release
        return (99, 0)
    number = (int(match[1]), int(match[2]))
    if number < OLDEST:
        raise InvalidInput(doing, f"this is {output.strip()}, and 3.2 or newer is needed", "install a newer one")
    return number
