"""Outputs of a node's programs, as they print them: evidence for people and for other tools, never judged here."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..host import Host, Result
from .counters import NET

LIMIT_S = 30.0
MOST = 1 << 20  # characters of one output: the XML of eight GPUs has half a million
MOST_OF_ALL = 4 << 20  # an answer of more than 8 MiB is refused
LINES = 5_000  # of a kernel log
AT_A_TIME = 4
_JOURNAL = ("journalctl", "-k", "-o", "short-iso-precise", "--no-pager", "-q", f"--lines={LINES}")
COMMANDS = (
    ("nvidia-smi", "-q", "-x"),
    ("nvidia-smi", "-q"),
    ("nvidia-smi", "topo", "-m"),
    ("nvidia-smi", "nvlink", "-s"),
    ("nvidia-smi", "nvlink", "-e"),
    ("dcgmi", "discovery", "-l"),
    ("ibstat",),
    ("lfs", "df"),
    ("lfs", "df", "-i"),
    ("mount",),
    (*_JOURNAL, "-b", "0"),
    (*_JOURNAL, "-b", "-1"),
    ("dmesg", "--time-format=iso"),
)


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{printed, unread}: outputs in a fixed order, each {command, code, text}; and by command why there is none.

    `text`: standard output, whole, and standard error after it. `printed` is None if nothing printed anything.
    """
    commands = (*COMMANDS, *(("ethtool", "-S", name) for name in _adapters(host)))
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(lambda command: host.run(*command, limit=LIMIT_S), commands))
    printed: list[dict[str, Any]] = []
    unread: dict[str, str] = {}
    room = MOST_OF_ALL
    for command, result in zip(commands, results):
        text, name = _text(result), " ".join(command)
        if not text or (result.code and not result.out):
            unread[name] = result.last_line if result.code else "it printed nothing"
        elif len(text) > min(MOST, room):
            unread[name] = f"left out: {len(text)} characters are more than there is room for"
        else:
            room -= len(text)
            code = result.code if result.code >= 0 else 128 - result.code  # as a shell has it for a signal
            printed.append({"command": name, "code": code, "text": text})
    return {"printed": printed or None, "unread": unread}


def _adapters(host: Host) -> list[str]:
    """Network interfaces of hardware."""
    return [name for name in host.listdir(NET) if host.exists(f"{NET}/{name}/device")]


def _text(result: Result) -> str:
    return result.out + result.err
