"""Allocators under real services, also under those that do not bear one."""

from __future__ import annotations

from typing import Any

from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl

PROGRAMS = {
    "plain": "ExecStart=/usr/bin/sleep infinity",
    # Dies at once where anything is preloaded; systemd starts it again and again.
    "brittle": 'ExecStart=/bin/sh -c "test -z \\"$LD_PRELOAD\\" || exit 3; exec sleep infinity"\nRestart=always',
    "clean": "ExecStart=/usr/bin/env -i /usr/bin/sleep infinity",
    # Not root, and a program that makes it so: the loader then heeds no LD_PRELOAD.
    "privileged": "User=nobody\nExecStart=/usr/local/bin/privileged infinity",
    "own": 'ExecStart=/usr/bin/sleep infinity\nEnvironment="TOKEN=secret" LD_PRELOAD=/opt/profiler.so',
}


def test_each_service_runs_with_its_allocator_or_as_before(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    host.standin("nvidia-smi")
    start(host)
    knobs = {f"allocator.{name}.service": {"allocator": "jemalloc", "restart": True} for name in PROGRAMS}
    words = ("--inventory", rig.inventory(), "--via", "ssh", "--output", "json")
    tune = ("tune-nodes", *words, "--profile", gpuctl.profile(knobs))
    said = gpuctl(*tune)
    assert states(said.hosts[host.name]) == {
        "plain": "ok",
        "brittle": "failed",
        "clean": "unsupported",
        "privileged": "unsupported",
        "own": "refused",
    }
    assert "secret" not in said.out
    assert maps(host, "plain").count("libjemalloc.so.2") > 0
    assert all(running(host, name) for name in PROGRAMS)
    assert not host.exists("/etc/systemd/system/brittle.service.d/50-gpuctl-allocator.conf")

    processes = {name: running(host, name) for name in PROGRAMS if name != "brittle"}
    gpuctl(*tune)
    assert {name: running(host, name) for name in processes} == processes

    assert gpuctl("rollback", *words).code == 0
    assert "jemalloc" not in maps(host, "plain")
    assert host.run("sh", "-c", "find /etc -name '*gpuctl*' -type f").stdout == ""
    assert host.run("dpkg-query", "-W", "libjemalloc2", check=False).returncode == 1


def start(host: TestHost) -> None:
    host.run("install", "-m", "4755", "/usr/bin/sleep", "/usr/local/bin/privileged")
    for name, text in PROGRAMS.items():
        host.write(f"/etc/systemd/system/{name}.service", f"[Service]\n{text}\n")
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "start", *(f"{name}.service" for name in PROGRAMS))


def running(host: TestHost, name: str) -> str:
    """The process of a service; empty where it does not run."""
    pid = host.run("systemctl", "show", "--property=MainPID", "--value", f"{name}.service").stdout.strip()
    return "" if pid == "0" else pid


def maps(host: TestHost, name: str) -> str:
    return host.read(f"/proc/{running(host, name)}/maps")


def states(answer: dict[str, Any]) -> dict[str, str]:
    """Service -> how its knob stands."""
    return {knob["knob"].split(".")[1]: knob["state"] for knob in answer["knobs"]}
