"""An MPS daemon of gpuctl: "mps:train", text "GPU-…,GPU-… 50 10G": GPUs, thread percentage and memory, "-" for none."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ..host import Host
from .services import environment_of
from .unit import show

CONTROL = "nvidia-cuda-mps-control"
UNIT = "gpuctl-mps-{}.service"
PIPES, LOGS = "/run/nvidia-mps/{}", "/var/log/nvidia-mps/{}"
# Variables of the daemon, in the order of the text.
GPUS = "CUDA_VISIBLE_DEVICES"
PERCENTAGE, MEMORY = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
UNLIMITED = "-"
PATIENCE_S = 10.0


def text_of(environment: Mapping[str, str]) -> str:
    """The text of a daemon with this environment."""
    memory = environment.get(MEMORY, "").partition(",")[0].partition("=")[2]
    return " ".join(
        (environment.get(GPUS, "all"), environment.get(PERCENTAGE) or UNLIMITED, memory or UNLIMITED),
    )


def clients(host: Host, name: str) -> list[str]:
    """Programs that use a daemon, as "python3 (pid 42)"; empty if it does not run, or nobody does."""
    environment = {"CUDA_MPS_PIPE_DIRECTORY": PIPES.format(name)}
    servers = host.run(CONTROL, stdin="get_server_list\n", environment=environment, limit=20).out.split()
    pids = [
        pid
        for server in servers
        if server.isdigit()
        for pid in host.run(CONTROL, stdin=f"get_client_list {server}\n", environment=environment, limit=20).out.split()
        if pid.isdigit()
    ]
    return [f"{host.value(f'/proc/{pid}/comm') or 'a program'} (pid {pid})" for pid in pids]


class Mps:
    """One daemon; None if it does not run."""

    def __init__(self, name: str) -> None:
        self.name, self.unit = name, UNIT.format(name)

    def read(self, host: Host) -> str | None:
        pid = show(host, self.unit)[self.unit]["MainPID"]
        environment = environment_of(host, pid) if pid != "0" else {}
        return text_of(environment) if environment else None

    def write(self, host: Host, text: str | None) -> None:
        if text is None:
            done = host.run("systemctl", "stop", "--", self.unit, changes=True, limit=120)
        else:
            host.run("systemctl", "reset-failed", "--", self.unit, changes=True)
            done = host.run("systemctl", "restart", "--", self.unit, changes=True, limit=120)
        if not done.ok:
            raise RuntimeError(f"{self.unit}: {done.last_line}")
        self._wait(host, text)

    def _wait(self, host: Host, text: str | None) -> None:
        end = time.monotonic() + PATIENCE_S
        while self.read(host) != text:
            if time.monotonic() > end:
                raise RuntimeError(f"{self.unit} does not run as it should: `journalctl -u {self.unit}` shows why")
            time.sleep(0.1)
