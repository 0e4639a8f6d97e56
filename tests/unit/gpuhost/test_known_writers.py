"""Programs that set kernel parameters by themselves: the kubelet, kube-proxy, Docker and others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rig.trees.host import link, put, small_server, tune

WANTS = "/etc/systemd/system/multi-user.target.wants"
KUBELET = "/usr/lib/systemd/system/kubelet.service"
DROP_IN = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
CONFIG = "/var/lib/kubelet/config.yaml"
OVERCOMMIT = {"sysctl.vm.overcommit_memory": "2"}
CONNTRACK = "sysctl.net.netfilter.nf_conntrack_max"
VOLUMES = "/var/lib/kubelet/pods/0b5b0f4e/volumes/kubernetes.io~configmap"


def knob(root: Path, knobs: dict[str, Any]) -> dict[str, Any]:
    """The knob of a run with one."""
    (row,) = [row for row in tune(root, knobs)["knobs"] if row["knob"] in knobs]
    return dict(row)


def node(root: Path, config: str = "", flags: str = "") -> Path:
    """A node whose kubelet starts at boot."""
    small_server(root)
    put(root, KUBELET, "[Service]\nExecStart=/usr/bin/kubelet $ARGS\n[Install]\nWantedBy=multi-user.target\n")
    put(root, DROP_IN, f'[Service]\nEnvironment="ARGS=--config=/var/lib/kubelet/config.yaml {flags}"\n')
    put(root, CONFIG, f"kind: KubeletConfiguration\n{config}")
    link(root, f"{WANTS}/kubelet.service", KUBELET)
    put(root, "/proc/sys/vm/overcommit_memory", "0\n")
    put(root, "/proc/sys/net/ipv4/ip_forward", "0\n")
    put(root, "/proc/sys/net/netfilter/nf_conntrack_max", "262144\n")
    put(root, "/sys/devices/system/cpu/online", "0-63\n")
    return root


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        ("", ""),
        ("protectKernelDefaults: false\n", ""),
        ("protectKernelDefaults: true\n", "--protect-kernel-defaults=false"),
    ],
)
def test_the_kubelet_sets_its_values_when_it_starts(tmp_path: Path, config: str, flags: str) -> None:
    row = knob(node(tmp_path, config, flags), OVERCOMMIT)
    assert (row["state"], row["now"], row["boot"]) == ("contested", "2", "1")
    assert [(c["owner"], c["where"]) for c in row["conflicts"]] == [("kubelet", KUBELET)]


def test_the_kubelets_value_is_no_conflict_with_itself_nor_with_other_parameters(tmp_path: Path) -> None:
    root = node(tmp_path)
    assert knob(root, {"sysctl.vm.overcommit_memory": "1"})["state"] == "ok"
    assert knob(root, {"sysctl.vm.swappiness": "1"})["state"] == "ok"


@pytest.mark.parametrize(
    ("config", "flags", "where"),
    [
        ("protectKernelDefaults: true\n", "", f"{CONFIG}:2"),
        ('{"protectKernelDefaults": true}\n', "", f"{CONFIG}:2"),
        ("protectKernelDefaults: false\n", "--protect-kernel-defaults", f"{DROP_IN}:2"),
    ],
)
def test_a_value_with_which_the_kubelet_does_not_start_is_refused(
    tmp_path: Path, config: str, flags: str, where: str
) -> None:
    root = node(tmp_path, config, flags)
    row = knob(root, OVERCOMMIT)
    assert row["state"] == "refused"
    assert row["reason"] == (
        f"{where} sets protectKernelDefaults: the kubelet does not start unless vm.overcommit_memory is 1"
    )
    assert (root / "proc/sys/vm/overcommit_memory").read_text() == "0\n"
    assert knob(root, {"sysctl.vm.overcommit_memory": "1"})["state"] == "ok"


def test_a_kubelet_that_does_not_start_at_boot_sets_nothing(tmp_path: Path) -> None:
    root = node(tmp_path, "protectKernelDefaults: true\n")
    (root / f"{WANTS}/kubelet.service".lstrip("/")).unlink()
    assert knob(root, OVERCOMMIT)["state"] == "ok"


def test_a_kubelet_that_another_program_has_started_counts(tmp_path: Path) -> None:
    root = node(tmp_path)
    (root / f"{WANTS}/kubelet.service".lstrip("/")).unlink()
    link(root, "/run/systemd/units/invocation:kubelet.service", "0123456789abcdef")
    assert knob(root, OVERCOMMIT)["state"] == "contested"


@pytest.mark.parametrize(
    ("unit", "path", "text", "state"),
    [
        ("k3s-agent.service", "/etc/rancher/k3s/config.yaml", "node-name: a\n", "contested"),
        ("k3s.service", "/etc/rancher/k3s/config.yaml", "protect-kernel-defaults: true\n", "refused"),
        ("rke2-agent.service", "/etc/rancher/rke2/config.yaml", 'profile: "cis"\n', "refused"),
        ("kubelet.service", "/etc/kubernetes/kubelet/config.json", '{"protectKernelDefaults": true}\n', "refused"),
    ],
)
def test_distributions_of_kubernetes_are_known(tmp_path: Path, unit: str, path: str, text: str, state: str) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/sys/vm/overcommit_memory", "0\n")
    put(root, f"/etc/systemd/system/{unit}", "[Service]\nExecStart=/usr/local/bin/start\n")
    link(root, f"{WANTS}/{unit}", f"/etc/systemd/system/{unit}")
    put(root, path, text)
    assert knob(root, OVERCOMMIT)["state"] == state


KUBE_PROXY = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nconntrack:\n{}kind: KubeProxyConfiguration\n"
DEFAULTS = "  maxPerCore: null\n  min: null\n  tcpEstablishedTimeout: null\n"


@pytest.mark.parametrize(
    ("settings", "desired", "state"),
    [
        (DEFAULTS, "1048575", "contested"),
        (DEFAULTS, "1048576", "contested"),  # only newer versions stop there
        (DEFAULTS, "2097152", "ok"),
        ("  maxPerCore: 0\n", "65536", "ok"),
        ("  maxPerCore: 1000\n  min: 500000\n", "262144", "contested"),
        ("  maxPerCore: 1000\n  min: 131072\n", "262144", "ok"),
    ],
)
def test_kube_proxy_raises_the_limit_of_connections_and_never_lowers_it(
    tmp_path: Path, settings: str, desired: str, state: str
) -> None:
    root = node(tmp_path)
    assert knob(root, {CONNTRACK: desired})["state"] == "ok"
    path = f"{VOLUMES}/kube-proxy/config.conf"
    put(root, path, KUBE_PROXY.format(settings))
    row = knob(root, {CONNTRACK: desired})
    assert row["state"] == state
    assert [(c["owner"], c["where"]) for c in row["conflicts"]] == [("kube-proxy", path)] * (state == "contested")


def test_kube_proxy_is_recognised_by_its_configuration_or_manifest(tmp_path: Path) -> None:
    other, eks, static = (node(tmp_path / name) for name in ("other", "eks", "static"))
    put(other, f"{VOLUMES}/settings/config", "kind: ClientConfiguration\n")
    put(eks, f"{VOLUMES}/settings/config", KUBE_PROXY.format(DEFAULTS))
    put(static, "/etc/kubernetes/manifests/kube-proxy.yaml", "- --conntrack-max-per-core=131072\n")
    timeout = "sysctl.net.netfilter.nf_conntrack_tcp_timeout_established"
    for root, boot in ((other, ""), (eks, "86400"), (static, "86400")):
        put(root, "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established", "432000\n")
        row = knob(root, {timeout: "7200"})
        assert (row["state"], row["boot"]) == (("contested", boot) if boot else ("ok", "7200"))
        assert knob(root, {timeout: "86400"})["state"] == "ok"
    assert knob(static, {CONNTRACK: "4194304"})["boot"] == "8388608 (older versions)"


def test_a_duration_in_kube_proxys_configuration_is_read(tmp_path: Path) -> None:
    root = node(tmp_path)
    put(root, f"{VOLUMES}/kube-proxy/config.conf", KUBE_PROXY.format("  tcpCloseWaitTimeout: 1h30m0s\n"))
    put(root, "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait", "60\n")
    row = knob(root, {"sysctl.net.netfilter.nf_conntrack_tcp_timeout_close_wait": "60"})
    assert (row["state"], row["boot"]) == ("contested", "5400")


FORWARD = {"sysctl.net.ipv4.ip_forward": "0"}


@pytest.mark.parametrize(
    ("unit", "path", "text", "owner"),
    [
        ("docker.service", "/etc/docker/daemon.json", "{}\n", "Docker"),
        ("docker.service", "/etc/docker/daemon.json", '{"ip-forward": false}\n', ""),
        ("docker.service", "/etc/docker/daemon.json", "{ not JSON\n", "Docker"),
        ("x.service", "/etc/docker/daemon.json", "{}\n", ""),
        ("x.service", "/etc/libvirt/qemu/networks/autostart/default.xml", "<forward mode='nat'/>\n", "libvirt"),
        ("x.service", "/etc/libvirt/qemu/networks/autostart/default.xml", "<network/>\n", ""),
        (
            "systemd-networkd.service",
            "/etc/systemd/network/a.network",
            "[Network]\nIPForward=yes\n",
            "systemd-networkd",
        ),
        ("systemd-networkd.service", "/etc/systemd/network/a.network", "[Network]\nIPForward=no\n", ""),
        ("x.service", "/etc/systemd/network/a.network", "[Network]\nIPForward=yes\n", ""),
        ("kubelet.service", "/etc/kubernetes/none", "", "network plug-in of Kubernetes"),
        ("x.service", "/etc/cron.d/a", "@reboot root sysctl net.ipv4.conf.all.forwarding=1\n", "cron"),
    ],
)
def test_forwarding_is_switched_on_by_programs_that_route(
    tmp_path: Path, unit: str, path: str, text: str, owner: str
) -> None:
    root = small_server(tmp_path)
    put(root, "/proc/sys/net/ipv4/ip_forward", "0\n")
    put(root, path, text)
    link(root, f"{WANTS}/{unit}", f"/usr/lib/systemd/system/{unit}")
    row = knob(root, FORWARD)
    assert [c["owner"] for c in row["conflicts"]] == ([owner] if owner else [])
    assert row["state"] == ("contested" if owner else "ok")
    put(root, "/proc/sys/net/ipv4/ip_forward", "1\n")
    if owner != "cron":
        assert knob(root, {"sysctl.net.ipv4.ip_forward": "1"})["state"] == "ok"
