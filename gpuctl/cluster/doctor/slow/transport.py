"""Transport between pods: RDMA if it was requested, and GPUDirect."""

from __future__ import annotations

import re

from gpuctl.cluster.doctor.hang.log_patterns import lines
from gpuctl.cluster.doctor.hang.settings import used
from gpuctl.cluster.doctor.model import Facts, PodFacts
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn
from gpuctl.domain.gpudirect import EFA_PEERMEM, PEERMEM, has_dmabuf

BY_SOCKET = re.compile(r"via NET/Socket|NET/Socket ?: Using|Using network Socket")
# Names of network plugins: IB, IBext_v8, AWS Libfabric, Libfabric, UCX, …
BY_ADAPTER = re.compile(r"via NET/(?!Socket)|NET/(?!Socket)\w+ ?: Using|Using network (?!Socket)|NET/OFI Selected")
CHANNEL = re.compile(r"via NET/(?!Socket)\S+")
ENABLE_LOG = "set nccl.debug: INFO, deploy, and restart the job: its log then shows it"


def transport(facts: Facts) -> list[Finding]:
    """Compare the transport that NCCL reports with the configured one."""
    check, env = "transport", facts.env
    if not facts.pods:
        return []
    if not env.rdma:
        could = env.cluster.network.rdma.enabled
        message = "it is deployed with TCP, although the cluster has RDMA"
        return or_ok(check, env.name, [warn(check, env.name, message, "deploy with --mode rdma")] if could else [])
    findings, any_reported = [], False
    for name, inside in facts.answered().items():
        settings, output = used(inside), lines(facts, name)
        off = [
            f"{key}={settings[key]}"
            for key, value in (("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket"))
            if settings.get(key) == value
        ]
        if off:
            findings.append(
                fail(check, f"Pod {name}", f"its job has {', '.join(off)}: TCP instead of RDMA", "remove it")
            )
            continue
        by_socket = [line for line in output if BY_SOCKET.search(line)]
        by_adapter = [line for line in output if BY_ADAPTER.search(line)]
        any_reported = any_reported or bool(by_socket or by_adapter)
        if by_socket and not by_adapter:
            message = f"NCCL uses TCP, although RDMA was requested: {by_socket[-1].strip()[:200]}"
            findings.append(
                fail(check, f"Pod {name}", message, "`gpuctl cluster doctor NAME hang` checks its adapters")
            )
    if not (findings or any_reported) and facts.answered():
        findings.append(unknown(check, env.name, "no log says which transport NCCL uses", ENABLE_LOG))
    return or_ok(check, env.name, findings) if facts.answered() else []


def gpudirect(facts: Facts) -> list[Finding]:
    """Check that data goes directly between adapter and GPU, by NCCL's log, else by kernel and driver."""
    if not facts.env.rdma:
        return []
    check, findings = "gpudirect", []
    for name, inside in facts.answered().items():
        channels = [line for line in lines(facts, name) if CHANNEL.search(line)]
        direct = [line for line in channels if "GDRDMA" in line]
        if channels and not direct:
            message = f"NCCL copies data through host memory: {channels[-1].strip()[:200]}"
            hint = "network.rdma.gdr_level and dmabuf; nvidia_peermem on the node"
            if efa := facts.env.cluster.network.rdma.fabric == "efa":
                hint = "only some instance types have GPUDirect RDMA: p4d, p5 and their successors"
            findings.append((warn if efa else fail)(check, f"Pod {name}", message, hint))
        elif not channels:
            findings += _by_modules(f"Pod {name}", inside, efa=facts.env.cluster.network.rdma.fabric == "efa")
    return or_ok(check, facts.env.name, findings) if facts.answered() else []


def _by_modules(subject: str, inside: PodFacts, efa: bool) -> list[Finding]:
    """Judge by kernel and driver, without a log. Older EFA drivers need no module."""
    modules = inside.get("peer_memory", "modules")
    dmabuf = has_dmabuf(inside.get("peer_memory", "kernel"), inside.get("gpu", "open_module"))
    if dmabuf or set(modules or ()) & {*PEERMEM, EFA_PEERMEM}:
        return []
    if modules is None or dmabuf is None or efa:
        return [
            unknown("gpudirect", subject, "neither log nor modules show how data gets from adapter to GPU", ENABLE_LOG)
        ]
    message = "neither DMA-BUF nor a peer memory module: all data is copied through host memory"
    hint = "load nvidia_peermem on the node, or use Linux 5.12 and NVIDIA's open kernel module"
    return [fail("gpudirect", subject, message, hint)]
