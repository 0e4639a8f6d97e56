"""The kubelet that runs on a host: version, options of its command line, and the configuration that it reads."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..host import Host
from ..model import Unreadable, Unsupported
from ..resources.unit import show
from . import configuration
from .fields import FLAGS

UNIT = "kubelet.service"
DROP_IN = "99-gpuctl.conf"
ROOT = "/var/lib/kubelet"
STATES = ("cpu_manager_state", "memory_manager_state")
# Configurations by which kubeadm's, EKS' and other kubelets reach the API server, for one that does not run.
KUBECONFIGS = ("/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/kubeconfig", "/etc/kubernetes/kubelet-kubeconfig")


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


def in_force(host: Host, kubelet: Kubelet, *, without: str = "") -> dict[str, Any]:
    """Fields as the kubelet reads them: main file, then drop-ins, then options. `without`: a file to leave out."""
    whole: dict[str, Any] = {}
    for path in [kubelet.config, *kubelet.drop_ins(host)]:
        if path and path != without:
            merge(whole, configuration.fields(host.read(path), path))
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
