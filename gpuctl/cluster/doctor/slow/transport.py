"""The way from pod to pod: RDMA where it was asked for, and past the host's memory."""

from __future__ import annotations

import re

from gpuctl.cluster.doctor.hang.log_patterns import lines
from gpuctl.cluster.doctor.hang.settings import used
from gpuctl.cluster.doctor.model import Facts, Inside
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn
from gpuctl.domain.gpudirect import EFA_PEERMEM, PEERMEM, has_dmabuf

BY_SOCKET = re.compile(r"via NET/Socket|NET/Socket ?: Using|Using network Socket")
# Each plugin has a name of its own: IB, IBext_v8, AWS Libfabric, Libfabric, UCX, …
BY_ADAPTER = re.compile(r"via NET/(?!Socket)|NET/(?!Socket)\w+ ?: Using|Using network (?!Socket)|NET/OFI Selected")
CHANNEL = re.compile(r"via NET/(?!Socket)\S+")
TELL = "set nccl.debug: INFO, deploy, and begin the job anew: its log then tells"


def transport(facts: Facts) -> list[Finding]:
    """What NCCL reports it uses, and what it was configured to use."""
    check, env = "transport", facts.env
    if not facts.pods:
        return []
    if not env.rdma:
        could = env.cluster.network.rdma.enabled
        message = "it is deployed by TCP, and the cluster has RDMA"
        return or_ok(check, env.name, [warn(check, env.name, message, "--mode rdma")] if could else [])
    findings, any_seen = [], False
    for name, inside in facts.asked().items():
        settings, output = used(inside), lines(facts, name)
        off = [
            f"{key}={settings[key]}"
            for key, value in (("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket"))
            if settings.get(key) == value
        ]
        if off:
            findings.append(
                fail(check, f"Pod {name}", f"its job has {', '.join(off)}: TCP, and not RDMA", "take it out")
            )
            continue
        by_socket = [line for line in output if BY_SOCKET.search(line)]
        by_adapter = [line for line in output if BY_ADAPTER.search(line)]
        any_seen = any_seen or bool(by_socket or by_adapter)
        if by_socket and not by_adapter:
            message = f"NCCL uses TCP, and RDMA was asked for: {by_socket[-1].strip()[:200]}"
            findings.append(
                fail(check, f"Pod {name}", message, "`gpuctl cluster doctor NAME hang` looks at its adapters")
            )
    if not (findings or any_seen) and facts.asked():
        findings.append(unknown(check, env.name, "no log says which way NCCL took", TELL))
    return or_ok(check, env.name, findings) if facts.asked() else []


def gpudirect(facts: Facts) -> list[Finding]:
    """Between adapter and GPU without the host's memory."""
    if not facts.env.rdma:
        return []
    check, findings = "gpudirect", []
    for name, inside in facts.asked().items():
        channels = [line for line in lines(facts, name) if CHANNEL.search(line)]
        direct = [line for line in channels if "GDRDMA" in line]
        if channels and not direct:
            message = f"NCCL takes a detour through the host's memory: {channels[-1].strip()[:200]}"
            hint = "network.rdma.gdr_level and dmabuf; nvidia_peermem on the node"
            if efa := facts.env.cluster.network.rdma.fabric == "efa":
                hint = "only some instance types have GPUDirect RDMA (p4d, p5 and newer ones of these): is this one?"
            findings.append((warn if efa else fail)(check, f"Pod {name}", message, hint))
        elif not channels:
            findings += _way(f"Pod {name}", inside, efa=facts.env.cluster.network.rdma.fabric == "efa")
    return or_ok(check, facts.env.name, findings) if facts.asked() else []


def _way(subject: str, inside: Inside, efa: bool) -> list[Finding]:
    """No log tells: whether it could, by kernel and driver. On EFA older drivers needed no module."""
    modules = inside.get("peer_memory", "modules")
    dmabuf = has_dmabuf(inside.get("peer_memory", "kernel"), inside.get("gpu", "open_module"))
    if dmabuf or set(modules or ()) & {*PEERMEM, EFA_PEERMEM}:
        return []
    if modules is None or dmabuf is None or efa:
        return [unknown("gpudirect", subject, "no log and no module says how data gets from adapter to GPU", TELL)]
    message = "neither DMA-BUF nor a peer memory module: every byte takes a detour through the host's memory"
    hint = "modprobe nvidia_peermem on the node, or Linux 5.12 and NVIDIA's open kernel module"
    return [fail("gpudirect", subject, message, hint)]
