"""Requirements of GPUDirect RDMA: transfers between GPU memory and a network adapter that bypass host memory."""

from __future__ import annotations

import re

PEERMEM = ("nvidia_peermem", "nv_peer_mem")
EFA_PEERMEM = "efa_nv_peermem"
DMABUF = "DMA-BUF"
DMABUF_KERNEL = (5, 12)


def has_dmabuf(kernel: str | None, open_module: bool | None) -> bool | None:
    """True with Linux 5.12 or newer and NVIDIA's open kernel module; None if unknown.

    Source: NCCL's user guide, NCCL_DMABUF_ENABLE.
    """
    release = version(kernel)
    if not release or open_module is None:
        return None
    return open_module and release >= DMABUF_KERNEL


def version(text: str | None) -> tuple[int, ...]:
    """The leading numbers of a version: "5.15.0-91-generic" -> (5, 15, 0); () if there are none."""
    match = re.match(r"\d+(?:\.\d+)*", text or "")
    return tuple(int(part) for part in match.group().split(".")) if match else ()
