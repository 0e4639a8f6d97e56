"""`gpu-node verify --nccl`: all_reduce on each idle host by itself, by a real mpirun; the test itself is a stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuctl.hosts.model import Target
from gpuctl.workflows.gpu_node_nccl import run_nccl
from gpuctl.workflows.gpu_node_plan import PlanRequest
from tests.integration.conftest import Hosts
from tests.integration.nccl.cluster import Cluster
from tests.rig import Rig, TestHost

LISTING = "/var/lib/standins/nvidia-smi/q.xml"
GPU = '<gpu id="00000000:{}:00.0"><product_name>Tesla T4</product_name><processes>{}</processes></gpu>'
PROCESS = "<process_info><pid>4711</pid><type>C</type><process_name>train</process_name></process_info>"


def show(host: TestHost, processes: str = "") -> None:
    """Let nvidia-smi list two GPUs."""
    rows = "".join(GPU.format(bus, processes) for bus in ("1a", "1b"))
    log = f"<driver_version>580.178.04</driver_version><attached_gpus>2</attached_gpus>{rows}"
    host.write(LISTING, f"<nvidia_smi_log>{log}</nvidia_smi_log>\n")


def test_idle_hosts_are_tested_each_by_itself(rig: Rig, hosts: Hosts, all_reduce_perf: Path) -> None:
    cluster = Cluster(rig, hosts(4, machine="g4dn_metal"), all_reduce_perf)
    cluster.furnish()
    _, busy, bare, bad = cluster.hosts
    for host in cluster.hosts:
        host.standin("nvidia-smi")
        show(host, PROCESS if host is busy else "")
    cluster.fabric(f"wrong {bad.name} 8388608")
    bare.run("rm", "/usr/local/bin/all_reduce_perf")
    ssh = tuple(rig.ssh_options())
    login: dict[str, Any] = {"user": "root", "ssh_args": ssh, "python": "/usr/bin/python3"}
    targets = [Target(host.name, address=host.ip, **login) for host in cluster.hosts]
    steps: list[str] = []
    findings = run_nccl(targets, PlanRequest(None, ""), (), lambda _: None, steps.append)
    assert findings.keys() == {host.name for host in cluster.hosts}

    (well,), (in_use,), (missing,), (wrong,) = (findings[host.name] for host in cluster.hosts)
    assert (str(well.verdict), well.message[:22], well.message[-14:]) == (
        "OK",
        "all_reduce over 2 GPUs",
        " (no baseline)",
    )
    assert (str(in_use.verdict), "in use: processes on its GPUs: train (4711)" in in_use.message) == ("UNKNOWN", True)
    assert (str(missing.verdict), "all_reduce_perf is not installed there" in missing.message) == ("UNKNOWN", True)
    assert (str(wrong.verdict), wrong.message[:21]) == ("FAIL", "wrong values at 8 MiB")
    assert f"{in_use.subject}: nccl: started" not in steps
    assert not any("all_reduce_perf" in host.run("ps", "-e", "-o", "args").stdout for host in cluster.hosts)
