"""What `nvidia-smi -q -x` printed, of drivers from 418 on: text in, plain values out."""

from __future__ import annotations

import re
import xml.etree.ElementTree as Tree
from typing import Any

FIELDS = ("driver", "cuda", "attached", "gpus")
# The names changed with 535; both say the same.
REASONS = ("clocks_event_reasons", "clocks_throttle_reasons")


def parse(text: str) -> dict[str, Any]:
    """{driver, cuda, attached, gpus}; ValueError where the text is no whole answer. See `_gpu` for each GPU's values.

    `attached` is how many GPUs the driver has; `gpus` may be fewer, where one does not answer.
    """
    start = text.find("<")
    try:
        root = Tree.fromstring(text[start:] if start >= 0 else "")  # noqa: S314 - the host's own nvidia-smi
    except Tree.ParseError as error:
        said = (text.strip().splitlines() or ["nothing"])[-1][:200]
        raise ValueError(f"nvidia-smi -q -x printed no whole XML ({error}): {said}") from error
    return {
        "driver": _text(root, "driver_version"),
        "cuda": _text(root, "cuda_version"),
        "attached": _number(root, "attached_gpus"),
        "gpus": [_gpu(gpu) for gpu in root.findall("gpu")],
    }


def _gpu(gpu: Tree.Element) -> dict[str, Any]:
    """Memory in MiB; None is "not said", also where the GPU says N/A."""
    return {
        "address": gpu.get("id"),
        "uuid": _text(gpu, "uuid"),
        "model": _text(gpu, "product_name"),
        "mig": _text(gpu, "mig_mode/current_mig"),
        "memory_mib": _number(gpu, "fb_memory_usage/total"),
        "used_mib": _number(gpu, "fb_memory_usage/used"),
        "busy_percent": _number(gpu, "utilization/gpu_util"),
        "ecc": _text(gpu, "ecc_mode/current_ecc"),
        "ecc_pending": _text(gpu, "ecc_mode/pending_ecc"),
        "uncorrectable": _uncorrectable(gpu),
        "remap_pending": _yes(_text(gpu, "remapped_rows/remapped_row_pending")),
        "remap_failure": _yes(_text(gpu, "remapped_rows/remapped_row_failure")),
        "remapped": _number(gpu, "remapped_rows/remapped_row_unc"),
        "retire_pending": _retire_pending(gpu),
        "recovery": _text(gpu, "gpu_recovery_action"),
        "slowed_by": _reasons(gpu),
        "max_sm_mhz": _number(gpu, "max_clocks/sm_clock"),
        "fabric_state": _text(gpu, "fabric/state"),
        "fabric_status": _text(gpu, "fabric/status"),
        "nvlink_domain": _domain(gpu),
        "processes": _processes(gpu),
    }


def _text(element: Tree.Element, path: str) -> str | None:
    text = (element.findtext(path) or "").strip()
    return None if text in ("", "N/A", "[N/A]", "Requested functionality has been deprecated") else text


def _number(element: Tree.Element, path: str) -> int | None:
    match = re.match(r"-?\d+", _text(element, path) or "")
    return int(match.group()) if match else None


def _yes(text: str | None) -> bool | None:
    return None if text is None else text == "Yes"


def _uncorrectable(gpu: Tree.Element) -> int | None:
    """Uncorrectable errors since the driver was loaded: the names of their kinds differ between drivers."""
    volatile = gpu.find("ecc_errors/volatile")
    kinds = [] if volatile is None else [e for e in volatile if "uncorrectable" in e.tag]
    counts = [int(e.text or "") for e in kinds if (e.text or "").strip().isdigit()]
    return sum(counts) if counts else None


def _retire_pending(gpu: Tree.Element) -> bool | None:
    """GPUs before the A100 retire pages instead of remapping rows."""
    return _yes(_text(gpu, "retired_pages/pending_retirement") or _text(gpu, "retired_pages/pending_blacklist"))


def _reasons(gpu: Tree.Element) -> list[str] | None:
    """What holds the clocks down now, without the prefix: "hw_slowdown", "gpu_idle"; None where it is not said."""
    found = next((e for e in map(gpu.find, REASONS) if e is not None), None)
    if found is None or not len(found):
        return None
    return [re.sub(r"^clocks_(event|throttle)_reason_", "", e.tag) for e in found if (e.text or "").strip() == "Active"]


def _domain(gpu: Tree.Element) -> str | None:
    """The NVLink fabric that spans machines, as in an NVL72 rack; inside one machine its id is all zeros."""
    cluster, clique = _text(gpu, "fabric/clusterUuid"), _text(gpu, "fabric/cliqueId")
    return f"{cluster}.{clique}" if cluster and clique and set(cluster) - {"0", "-"} else None


def _processes(gpu: Tree.Element) -> list[dict[str, Any]] | None:
    """Compute processes; type "G" alone is a display's. None where the GPU does not list them."""
    found = gpu.find("processes")
    if found is None or (found.text or "").strip() == "N/A":
        return None
    rows = [e for e in found.findall("process_info") if (e.findtext("type") or "C").strip() != "G"]
    return [
        {"pid": _number(e, "pid"), "name": _text(e, "process_name"), "used_mib": _number(e, "used_memory")}
        for e in rows
    ]
