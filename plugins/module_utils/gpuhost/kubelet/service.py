"""The kubelet that runs on a host: version, options of its command line, and the configuration that it reads."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..host import Host
from ..model import Unreadable, Unsupported
from ..resources.unit import ask_systemd, show
from . import configuration
from .fields import FLAGS

UNIT = "kubelet.service"
DROP_IN = "99-gpuctl.conf"
ROOT = "/var/lib/kubelet"
SETTLED = 60.0  # seconds of a kubelet that systemd has restarted, after which it counts as running
STATES = ("cpu_manager_state", "memory_manager_state")


class Kubelet(NamedTuple):
    """The kubelet's program and its options by name ("--config"), without their values' quotes."""

    program: str
    options: Mapping[str, str]

    @property
    def config(self) -> str:
        """Path of the main file; "" if it has none."""
        return self.options.get("--config", "")

    @property
    def folder(self) -> str:
        """Path of the folder of drop-ins; "" if it reads none."""
        return self.options.get("--config-dir", "").rstrip("/")

    @property
    def place(self) -> str:
        """Path of the file that gpuctl writes: a drop-in if the kubelet reads some, else the main file."""
        return f"{self.folder}/{DROP_IN}" if self.folder else self.config

    @property
    def states(self) -> tuple[str, ...]:
        """Files in which the managers keep the processors and memory of containers."""
        root = self.options.get("--root-dir", ROOT)
        return tuple(os.path.join(root, name) for name in STATES)

    def drop_ins(self, host: Host) -> list[str]:
        """Drop-ins, in the order in which the kubelet reads them: a later one wins."""
        if not self.folder:
            return []
        paths = {*host.glob(f"{self.folder}/*.conf"), *host.glob(f"{self.folder}/*/*.conf")}
        return sorted(paths, key=lambda path: path.split("/"))


def state(host: Host) -> dict[str, str]:
    """Properties of the kubelet's unit."""
    return show(host, UNIT)[UNIT]


def read(host: Host) -> Kubelet:
    """The kubelet that runs now; `Unsupported` on a host without one, `Unreadable` if it does not run."""
    properties = state(host)
    if properties["LoadState"] == "not-found":
        raise Unsupported(f"there is no {UNIT}: join the host to its cluster first (k3s and RKE2 have no such unit)")
    pid = properties["MainPID"]
    if pid == "0":
        raise Unreadable(
            f"{UNIT} does not run ({properties['ActiveState']}), so its files are not known: see journalctl -u kubelet"
        )
    words = host.read(f"/proc/{pid}/cmdline").split("\0")[:-1]
    kubelet = Kubelet(words[0] if words and words[0].startswith("/") else "kubelet", _options(words[1:]))
    if not kubelet.place.startswith("/"):
        raise Unsupported("the kubelet reads no file: start it with --config and an absolute path")
    return kubelet


def _options(words: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""]):
        if word.startswith("--"):
            name, separator, value = word.partition("=")
            options[name.replace("_", "-")] = value if separator else "" if following.startswith("--") else following
    return options


def version(host: Host, kubelet: Kubelet) -> tuple[int, int]:
    """Major and minor version of the kubelet."""
    result = host.run(kubelet.program, "--version")
    match = re.search(r"v(\d+)\.(\d+)", result.out)
    if match is None:
        raise Unreadable(f"{kubelet.program} --version shows no version: {result.last_line}")
    return int(match[1]), int(match[2])


def unsettled(host: Host) -> str:
    """Why a kubelet with a main process may not work: systemd starts it again and again; "" if it has run for long."""
    names = "--property=ActiveState,NRestarts,ExecMainStartTimestampMonotonic"
    lines = ask_systemd(host, "show", names, "--", UNIT).splitlines()
    known = dict(line.partition("=")[::2] for line in lines)
    if known.get("ActiveState") != "active":
        return f"{UNIT} is {known.get('ActiveState') or 'in no known state'}"
    count, began = known.get("NRestarts", "0"), known.get("ExecMainStartTimestampMonotonic", "0")
    if count == "0":
        return ""
    age = float(host.read("/proc/uptime").split()[0]) - int(began) / 1e6
    return f"systemd has restarted {UNIT} {count} times, {age:.0f} s ago for the last time" if age < SETTLED else ""


def configured(host: Host) -> Kubelet:
    """The kubelet as its unit starts it, running or not; `Unreadable` if the unit does not show it."""
    names = "--property=ExecStart,Environment,EnvironmentFiles"
    lines = [line.partition("=") for line in ask_systemd(host, "show", names, "--", UNIT).splitlines()]
    known: dict[str, str] = {}
    for _, _, text in (line for line in lines if line[0] == "Environment"):
        known.update(_variables(text))
    for _, _, text in (line for line in lines if line[0] == "EnvironmentFiles"):
        for variables in (host.read_or_none(text.partition(" (")[0]) or "").splitlines():
            if not variables.lstrip().startswith(("#", ";")):
                known.update(_variables(variables))
    started = "".join(text for name, _, text in lines if name == "ExecStart")
    match = re.search(r"argv\[\]=(.*?) ; ", started)
    words = [part for word in (match[1].split() if match else []) for part in _expanded(word, known)]
    if not words or not words[0].startswith("/") or os.path.basename(words[0]) != "kubelet":
        raise Unreadable(f"{UNIT} does not run, and does not show the kubelet's command line: start it first")
    return Kubelet(words[0], _options(words[1:]))


def _variables(text: str) -> dict[str, str]:
    """Variables of a line of NAME=value; systemd before 250 shows values with spaces unquoted."""
    known: dict[str, str] = {}
    name = ""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise Unreadable(f"the environment of {UNIT} is not understood: {error}") from error
    for word in words:
        match = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", word, re.DOTALL)
        name = match[1] if match else name
        known[name] = match[2] if match else f"{known.get(name, '')} {word}"
    return known


def _expanded(word: str, known: Mapping[str, str]) -> list[str]:
    """Words as systemd makes them: $NAME becomes several, ${NAME} is part of one, unknown names are empty."""
    alone = re.fullmatch(r"\$(\w+)", word)
    if alone:
        return known.get(alone[1], "").split()
    return [re.sub(r"\$\{(\w+)\}", lambda match: known.get(match[1], ""), word)]


def in_force(host: Host, kubelet: Kubelet, *, place: str = "", content: str | None = None) -> dict[str, Any]:
    """Fields as the kubelet reads them: main file, then drop-ins, then options.

    With `place`, as they are once that file has this content, None without the file.
    """
    whole: dict[str, Any] = {}
    drop_ins = {*kubelet.drop_ins(host), *([place] if place and place != kubelet.config else [])}
    for path in [kubelet.config, *sorted(drop_ins, key=lambda path: path.split("/"))]:
        text = content if path == place else host.read(path) if path else None
        if text is not None:
            merge(whole, configuration.fields(text, path))
    merge(whole, of_options(kubelet))
    return whole


def merge(whole: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add a later file's fields: a mapping joins an earlier one, everything else replaces it."""
    for key, value in more.items():
        both = isinstance(value, Mapping) and isinstance(whole.get(key), Mapping)
        whole[key] = {**whole[key], **value} if both else value


def of_options(kubelet: Kubelet) -> dict[str, Any]:
    """Fields that the command line sets, which no file can change."""
    given = {key: kubelet.options[flag] for key, flag in FLAGS.items() if flag in kubelet.options}
    split = {"kubeReserved": "=", "systemReserved": "=", "evictionHard": "<"}
    return {key: _pairs(text, split[key]) if key in split else text for key, text in given.items()}


def _pairs(text: str, separator: str) -> dict[str, str]:
    """Values by name of an option such as "cpu=500m,memory=1Gi"."""
    return {name: value for name, _, value in (pair.partition(separator) for pair in text.split(",")) if name}
