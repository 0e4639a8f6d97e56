"""Let sudo ask for its password once on the user's terminal, although Ansible runs it on another one."""

from __future__ import annotations

import getpass
import os
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# sudo runs this with the prompt as its argument, and reads its output. The pipes are in the same folder.
ASK = """#!/bin/sh
folder=$(dirname "$0")
printf '%s %s' "$PPID" "$1" > "$folder/request"
cat "$folder/answer"
"""


@contextmanager
def asking_for_sudo() -> Iterator[None]:
    """Let sudo inside the block ask for the password on this terminal; does nothing for root or without a terminal."""
    if os.geteuid() == 0 or not (sys.stdin.isatty() and sys.stderr.isatty()):
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as folder:
        script = Path(folder, "ask")
        script.write_text(ASK)
        script.chmod(0o700)
        for pipe in ("request", "answer"):
            os.mkfifo(Path(folder, pipe), mode=0o600)
        threading.Thread(target=_answer, args=[Path(folder)], daemon=True).start()
        os.environ["GPUCTL_ASKPASS"] = str(script)  # inherited by Ansible and the programs it starts here
        try:
            yield
        finally:
            del os.environ["GPUCTL_ASKPASS"]
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)  # in case it was interrupted during the prompt


def _answer(folder: Path) -> None:
    """Ask once and keep the answer in memory: sudo's own cache does not reach programs on another terminal."""
    password = requester = ""
    while True:
        sudo, _, prompt = (folder / "request").read_text().partition(" ")
        if not password or sudo == requester:  # the same sudo asks again: the password was wrong
            password = _typed(prompt)
        requester = sudo
        (folder / "answer").write_text(f"{password}\n")


def _typed(prompt: str) -> str:
    try:
        return getpass.getpass(prompt)
    except EOFError:
        return ""
