"""Programs that set sysctls by themselves at their start: the kubelet, kube-proxy, Docker, libvirt, networkd.

Their values are in no line of a script; their configuration says whether they set them. What pods and other programs
set cannot be read from files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cached_property

from .model import Conflict
from .resources.unit import FOLDERS
from .startup.lines import in_order
from .startup.search import Search
from .topology import online

# kubernetes/kubernetes pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables.
KUBELET_SETS = {
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "kernel.keys.root_maxkeys": "1000000",
    "kernel.keys.root_maxbytes": "25000000",
}
# Units that are a kubelet or contain one.
KUBELETS = (
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "k0sworker.service",
    "snap.microk8s.daemon-kubelite.service",
    "snap.k8s.kubelet.service",
    "snap.kubelet-eks.daemon.service",
)
KUBELET_FLAGS = (
    "/var/lib/kubelet/kubeadm-flags.env",
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
    "/etc/kubernetes/kubelet.env",
    "/var/snap/microk8s/current/args/kubelet",
    "/var/snap/k8s/common/args/kubelet",
)
KUBELET_CONFIGS = (
    "/var/lib/kubelet/config.yaml",
    "/etc/kubernetes/kubelet/kubelet-config.json",
    "/etc/kubernetes/kubelet/config.json",
    "/etc/kubernetes/kubelet/config.json.d/*",
    "/etc/rancher/k3s/config.yaml",
    "/etc/rancher/k3s/config.yaml.d/*.yaml",
    "/etc/rancher/rke2/config.yaml",
    "/etc/rancher/rke2/config.yaml.d/*.yaml",
)
PROTECT = re.compile(
    r"--protect-kernel-defaults(?:[= ](?P<flag>true|false))?|"
    r"[\"']?protect(?:KernelDefaults|-kernel-defaults)[\"']?\s*[:=]\s*[\"']?(?P<value>true|false)"
)
# kube-proxy raises values and never lowers them: cmd/kube-proxy/app/conntrack.go, setIntSysCtl.
# Its configuration is a volume of its pod, the manifest of a static pod, or a unit.
KUBE_PROXY_CONFIGS = (
    "/var/lib/kubelet/pods/*/volumes/kubernetes.io~configmap/kube-proxy/config.conf",
    "/var/lib/kubelet/pods/*/volumes/kubernetes.io~configmap/*/config",
    "/var/lib/kube-proxy/*",
)
KUBE_PROXY_MANIFESTS = (
    "/etc/kubernetes/manifests/kube-proxy.*",
    "/var/lib/rancher/rke2/agent/pod-manifests/kube-proxy.yaml",
)
CONNTRACK = {
    "net.netfilter.nf_conntrack_max": "max",
    "net.nf_conntrack_max": "max",
    "net.netfilter.nf_conntrack_tcp_timeout_established": "tcpEstablishedTimeout",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait": "tcpCloseWaitTimeout",
}
# kube-proxy's defaults; maxPerCore times processors, at least min, and in newer versions at most MOST.
CONNTRACK_DEFAULTS = {"maxPerCore": 32768, "min": 131072, "tcpEstablishedTimeout": 86400, "tcpCloseWaitTimeout": 3600}
MOST = 1048576
FORWARDING = ("net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding")
DOCKER, DOCKER_UNITS = "/etc/docker/daemon.json", ("docker.service", "docker.socket")
NETWORKD = ("/etc/systemd/network", "/run/systemd/network", "/usr/lib/systemd/network")
FORWARD = re.compile(r"^(?:IPForward|IPv4Forwarding)=(?:yes|true|1|on|ipv4)\b|^IPMasquerade=(?:ipv4|both|yes|true|1)\b")


class KnownWriters:
    """Conflicts with programs, by their configuration on this host. Files are read on first use."""

    def __init__(self, search: Search) -> None:
        self.host, self._search = search.host, search

    def rivals(self, key: str, desired: str) -> list[Conflict]:
        """Programs that give a sysctl another value, after sysctl.d is applied and whenever they start."""
        conflicts: list[Conflict] = []
        if key in KUBELET_SETS and KUBELET_SETS[key] != desired and self.kubelet and not self.protects:
            conflicts.append(Conflict("kubelet", self.kubelet, KUBELET_SETS[key], wins=True))
        if key in CONNTRACK:
            conflicts += self._kube_proxy(key, desired)
        if key in FORWARDING and desired == "0":
            conflicts += self._forwarding()
        return conflicts

    def required(self, key: str, desired: str) -> str:
        """Why the kubelet would not start with this value; empty if it would."""
        if KUBELET_SETS.get(key, desired) == desired or not self.kubelet or not self.protects:
            return ""
        return (
            f"{self.protects} sets protectKernelDefaults: the kubelet does not start unless {key} is "
            f"{KUBELET_SETS[key]}"
        )

    def _starts(self, unit: str) -> bool:
        """True if a unit is started by a link, or runs now: other programs start some at every boot."""
        return unit in self._search.linked or bool(self.host.glob(f"/run/systemd/units/invocation:{unit}"))

    @cached_property
    def kubelet(self) -> str:
        """The file of the unit that starts a kubelet at boot; empty if there is none."""
        name = next((name for name in KUBELETS if self._starts(name)), "")
        paths = (path for folder in FOLDERS if self.host.exists(path := f"{folder}/{name}"))
        return next(paths, name) if name else ""

    @cached_property
    def protects(self) -> str:
        """The place that makes the kubelet check the kernel's values instead of setting them; empty if none does."""
        places = [*self._unit_lines(), *self._lines(KUBELET_FLAGS), *self._lines(self._configs())]
        flags: list[str] = []
        values: list[str] = []
        for where, text in places:
            for match in PROTECT.finditer(text):
                on = (match["value"] or match["flag"]) != "false"
                (values if match["value"] else flags).append(where if on else "")
            if re.match(r"[\"']?profile[\"']?\s*:\s*[\"']?cis", text) and "/rke2/" in where:
                values.append(where)
        chosen = flags or values  # a flag takes precedence over the configuration
        return chosen[-1] if chosen else ""

    def _unit_lines(self) -> Iterator[tuple[str, str]]:
        name = self.kubelet.rpartition("/")[2]
        drop_ins = [path for folder in reversed(FOLDERS) for path in self.host.glob(f"{folder}/{name}.d/*.conf")]
        yield from self._lines((self.kubelet, *drop_ins))

    def _configs(self) -> list[str]:
        texts = [text for _, text in (*self._unit_lines(), *self._lines(KUBELET_FLAGS))]
        named = re.findall(r"--config(-dir)?[= ]([^\s\"']+)", "\n".join(texts))
        return [*KUBELET_CONFIGS, *(f"{path}/*" if folder else path for folder, path in named)]

    def _lines(self, patterns: tuple[str, ...] | list[str]) -> Iterator[tuple[str, str]]:
        paths = [path for pattern in patterns for path in self.host.glob(pattern)]
        for path in dict.fromkeys(paths):
            yield from ((line.where, line.text) for line in self._search.lines("", path))

    def _kube_proxy(self, key: str, desired: str) -> list[Conflict]:
        """kube-proxy raises these values and never lowers them."""
        if self._conntrack is None or not desired.isdigit():
            return []
        where, settings = self._conntrack
        option = CONNTRACK[key]
        value = settings[option] if option != "max" else self._most_connections(settings)
        if int(desired) >= value:
            return []
        text = str(value)
        if option == "max" and "max" not in settings and int(desired) >= MOST:
            text = f"{value} (older versions)"
        return [Conflict("kube-proxy", where, text, wins=True)]

    def _most_connections(self, settings: dict[str, int]) -> int:
        if settings.get("max"):
            return settings["max"]
        per_core = settings["maxPerCore"] * len(online(self.host))
        return max(per_core, settings["min"]) if per_core else 0

    @cached_property
    def _conntrack(self) -> tuple[str, dict[str, int]] | None:
        """Where kube-proxy is configured, and its limits of connections; None if this host has no kube-proxy."""
        for pattern in KUBE_PROXY_CONFIGS:
            for path in self.host.glob(pattern):
                if "KubeProxyConfiguration" in self._search.text(path):
                    return path, _conntrack_of(self._search.text(path))
        manifests = [path for pattern in KUBE_PROXY_MANIFESTS for path in self.host.glob(pattern)]
        for path in manifests:
            return path, _conntrack_of(self._search.text(path))
        name = "kube-proxy.service"
        return (name, _conntrack_of(self._search.unit_text(name))) if self._starts(name) else None

    def _forwarding(self) -> Iterator[Conflict]:
        if any(map(self._starts, DOCKER_UNITS)) and not self._docker_leaves_forwarding():
            where = DOCKER if self.host.exists(DOCKER) else DOCKER_UNITS[0]
            yield Conflict("Docker", where, "1", wins=True)
        if self.kubelet:
            yield Conflict("network plug-in of Kubernetes", self.kubelet, "1", wins=True)
        for path in self.host.glob("/etc/libvirt/qemu/networks/autostart/*.xml"):
            if "<forward" in self._search.text(path):
                yield Conflict("libvirt", path, "1", wins=True)
        if self._starts("systemd-networkd.service"):
            paths = [*in_order(self.host, NETWORKD, ".network"), *self.host.glob("/etc/systemd/networkd.conf*")]
            for where, text in self._lines(paths):
                if FORWARD.match(text):
                    yield Conflict("systemd-networkd", where, "1", wins=True)

    def _docker_leaves_forwarding(self) -> bool:
        try:
            configured = json.loads(self._search.text(DOCKER) or "{}")
        except ValueError:
            return False
        flags = self._search.unit_text(DOCKER_UNITS[0])
        return (isinstance(configured, dict) and configured.get("ip-forward") is False) or bool(
            re.search(r"--ip-forward=false", flags)
        )


def _conntrack_of(text: str) -> dict[str, int]:
    """kube-proxy's limits in its YAML, JSON or flags; the defaults where they are missing or null."""
    settings = dict(CONNTRACK_DEFAULTS)
    for name in ("max", *CONNTRACK_DEFAULTS):
        flag = "--conntrack-" + re.sub(r"([A-Z])", lambda match: f"-{match[1].lower()}", name)
        flag = flag.replace("tcp-established-timeout", "tcp-timeout-established")
        flag = flag.replace("tcp-close-wait-timeout", "tcp-timeout-close-wait")
        match = re.search(rf"(?:^\s*[\"']?{name}[\"']?\s*:\s*|{flag}[= ])[\"']?(\d[\dhms]*)", text, re.MULTILINE)
        if match:
            settings[name] = _seconds(match[1]) if name.startswith("tcp") else int(match[1].rstrip("hms"))
    return settings


def _seconds(text: str) -> int:
    """Seconds of Go's durations, such as 24h0m0s."""
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", text))
