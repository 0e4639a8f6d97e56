"""Drive a real tmux as a person does: a terminal that keys go into and a screen that is read.

`User` has a home folder and a tmux server of their own; `User.terminal` starts a command on a pseudo-terminal whose
screen pyte renders, popups and status bar included (`capture-pane` shows neither).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyte

GPUCTL = Path(sys.executable).with_name("gpuctl")
NAMED = {
    "Enter": "\r",
    "Escape": "\x1b",
    "Space": " ",
    "Tab": "\t",
    "Up": "\x1b[A",
    "Down": "\x1b[B",
    "Right": "\x1b[C",
    "Left": "\x1b[D",
}
PATIENCE = 60.0  # seconds, for a machine that has other things to do


def wait_until(seen: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait until `seen` is true; AssertionError that says what was waited for."""
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.05)


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, argv: list[str], environment: Mapping[str, str], columns: int, rows: int) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self._lock = threading.Lock()
        self._closed = False
        self._master, slave = pty.openpty()
        self._closing = os.eventfd(0)
        self._set_size(columns, rows)
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *argv],
            env={**environment, "TERM": "xterm-256color"},
            cwd=environment["HOME"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=False,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while self._closing not in select.select([self._master, self._closing], [], [])[0]:
                data = os.read(self._master, 65536)  # fails when the other side has gone
                with self._lock:
                    self._stream.feed(data)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        """As a window manager does it."""
        with self._lock:
            self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def press(self, *keys: str) -> None:
        """Press keys: "C-b", "M-1", a name such as "Enter" or "Left", or letters as they are."""
        for key in keys:
            os.write(self._master, _bytes(key))
            time.sleep(0.03)

    def prefix(self, *keys: str) -> None:
        """Press tmux's prefix, then these."""
        self.press("C-b", *keys)

    def type(self, line: str) -> None:
        """Type a line and Enter."""
        self.press(line, "Enter")

    @property
    def lines(self) -> list[str]:
        """What stands on the screen."""
        with self._lock:
            return list(self.screen.display)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)

    @property
    def status_bar(self) -> str:
        return self.lines[-1]

    def colours(self, word: str) -> tuple[str, str]:
        """The colours (letters, ground) of a word on the screen, where it stands lowest."""
        with self._lock:
            for row, line in reversed(list(enumerate(self.screen.display))):
                if word in line:
                    cell = self.screen.buffer[row][line.index(word)]
                    return str(cell.fg), str(cell.bg)
        raise AssertionError(f"{word!r} is not on the screen:\n{self.text}")

    def sees(self, *words: str) -> None:
        """Wait until all of these stand on the screen."""
        try:
            wait_until(lambda: all(word in self.text for word in words), f"the screen shows {words}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from None

    def sees_no_more(self, word: str) -> None:
        """Wait until this has gone from the screen."""
        try:
            wait_until(lambda: word not in self.text, f"{word!r} goes from the screen")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from None

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """As when its window is closed, or the connection breaks."""
        if self._closed:
            return
        self._closed = True
        if not self.ended:
            self._process.send_signal(signal.SIGHUP)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            if not self.ended:
                self._process.kill()
        self._process.wait()
        # A read after close() would take bytes from whatever file has the number by then.
        os.eventfd_write(self._closing, 1)
        self._reader.join()
        os.close(self._master)
        os.close(self._closing)


def _bytes(key: str) -> bytes:
    if found := re.fullmatch(r"C-(.)", key):
        return bytes([ord(found[1].upper()) & 0x1F])
    if found := re.fullmatch(r"M-(.)", key):
        return b"\x1b" + found[1].encode()
    return NAMED.get(key, key).encode()


@dataclass
class User:
    """A home folder, what gpuctl keeps there, and tmux servers that no one else sees."""

    home: Path
    variables: dict[str, str] = field(default_factory=dict)
    terminals: list[Terminal] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """As in a fresh login; gpuctl and programs of the test's own (~/bin) are on the PATH."""
        path = f"{self.home}/bin:{GPUCTL.parent}:{os.defpath}"
        own = {"HOME": str(self.home), "PATH": path, "TMUX_TMPDIR": str(self.home), "SHELL": "/bin/bash"}
        return {**own, "LANG": "C.UTF-8", "PS1": "$ ", **self.variables}

    @property
    def config(self) -> Path:
        return self.home / ".config/gpuctl"

    @property
    def program_path(self) -> Path:
        """The installed gpuctl."""
        return GPUCTL

    def settings(self, text: str) -> None:
        self.config.mkdir(parents=True, exist_ok=True)
        (self.config / "settings.yml").write_text(text)

    def program(self, name: str, text: str) -> Path:
        """Put a program into ~/bin, which comes first on the PATH."""
        path = self.home / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def gpuctl(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run gpuctl without a terminal."""
        return self._run(str(GPUCTL), *map(str, words))

    def tmux(self, *words: object, socket: str = "default") -> str:
        """What a tmux command prints."""
        done = self._run("tmux", "-L", socket, *map(str, words))
        assert done.returncode == 0, f"tmux {words}: {done.stderr}"
        return done.stdout.rstrip("\n")

    def _run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def terminal(self, *argv: str, columns: int = 120, rows: int = 40) -> Terminal:
        """A terminal with a command on it; a shell without one."""
        made = Terminal(list(argv) or ["bash", "--norc"], self.environment, columns, rows)
        self.terminals.append(made)
        return made

    def panes(self, window: str = "tmux-main:0") -> dict[str, tuple[int, int, int, int]]:
        """Title -> left, top, width, height of the panes of a window."""
        form = "#{@gpuctl_title} #{pane_left} #{pane_top} #{pane_width} #{pane_height}"
        rows = [line.rsplit(" ", 4) for line in self.tmux("list-panes", "-t", window, "-F", form).splitlines()]
        return {row[0]: (int(row[1]), int(row[2]), int(row[3]), int(row[4])) for row in rows}

    def told(self, name: str, target: str = "tmux-main:") -> str:
        """A format of tmux, such as pane_index, of the active pane."""
        return self.tmux("display-message", "-p", "-t", target, f"#{{{name}}}")

    def becomes(self, name: str, wanted: object, target: str = "tmux-main:") -> None:
        """Wait until a format of tmux has this value."""
        said = f"{name} of {target} becomes {wanted}"
        wait_until(lambda: self.told(name, target) == str(wanted), said)

    def leave(self) -> None:
        """Close the terminals and end the servers."""
        for terminal in self.terminals:
            terminal.close()
        for socket in (self.home / f"tmux-{os.getuid()}").glob("*"):
            self._run("tmux", "-L", socket.name, "kill-server")


@contextlib.contextmanager
def user(home: Path, **variables: str) -> Iterator[User]:
    """A user whose terminals and servers end with the block."""
    home.mkdir(parents=True, exist_ok=True)
    found = User(home, variables)
    try:
        yield found
    finally:
        found.leave()
