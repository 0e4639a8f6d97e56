"""NCCL_DMABUF_ENABLE and NCCL_NVLS_ENABLE: NCCL chooses both well if the node allows them."""

from __future__ import annotations

from gpuctl.domain.gpudirect import DMABUF, version
from gpuctl.nccl.advise.model import Setting, guide
from gpuctl.nccl.topology.adapters import Facts, adapters, peer_memory

SINCE = (2, 13)  # of DMA-BUF in NCCL


def dmabuf(facts: Facts) -> list[Setting]:
    """Leave it to NCCL, and report which path data takes."""
    ports, path = adapters(facts), peer_memory(facts)
    if ports is None or ports.kind not in ("roce", "infiniband"):
        return []
    modules = facts["peer_memory"].get("modules") or []
    old = len(version(facts.get("programs", {}).get("nccl"))) > 0 and version(facts["programs"]["nccl"]) < SINCE
    if path == DMABUF and old:
        loaded = "it uses nvidia_peermem, which is loaded" if "nvidia_peermem" in modules else "modprobe nvidia_peermem"
        why = f"NCCL {facts['programs']['nccl']} knows no DMA-BUF (it came with 2.13): {loaded}."
    elif path == DMABUF:
        why = "Kernel and open driver have DMA-BUF, and NCCL takes it by itself; nvidia_peermem is not needed."
    elif path:
        why = f"No DMA-BUF here (it needs Linux 5.12 and NVIDIA's open module); NCCL takes {path}, which is loaded."
    elif path is None:
        why = "Whether DMA-BUF works here could not be read; NCCL tries it by itself."
    else:
        why = "Neither way is open: modprobe nvidia_peermem. Without it data goes through the host's memory."
    return [Setting("NCCL_DMABUF_ENABLE", None, why, guide("NCCL_DMABUF_ENABLE"))]


def nvls(facts: Facts) -> list[Setting]:
    """NVLink SHARP is on wherever the switches support it."""
    gpus = facts.get("gpu", {}).get("gpus")
    if gpus is None:
        return []
    states = {gpu["fabric_state"] for gpu in gpus if gpu["fabric_state"]}
    source = guide("NCCL_NVLS_ENABLE") + "; nccl-tests#212: H100 about 480 GB/s with it, 370 without"
    if not states:
        return [
            Setting(
                "NCCL_NVLS_ENABLE",
                None,
                "The GPUs report no NVLink fabric; NCCL uses it by itself where the switches have it.",
                source,
            )
        ]
    if states == {"Completed"}:
        return [
            Setting("NCCL_NVLS_ENABLE", None, "NCCL uses it by itself; 0 costs about a quarter on one node.", source)
        ]
    why = f"The NVLink fabric is not up ({', '.join(sorted(states))}): see to the fabric manager first."
    return [Setting("NCCL_NVLS_ENABLE", None, why, source)]
