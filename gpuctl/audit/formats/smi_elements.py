"""Make the elements of `nvidia-smi -q -x` of other outputs of nvidia-smi, so that one parser reads them all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree as Tree  # elements are made here, none are parsed

from gpuctl.domain.node_facts import ABSENT
from gpuctl.engine import fact_types, gpu_xml, typed_json

LINK_INFO = "pci/pci_gpu_link_info/link_widths"
_LANES = re.compile(r"(\d+)x?$")


def facts_of(root: Tree.Element, whole: bool) -> dict[str, Any]:
    """Subjects "gpu" and "pcie" of a log; values that a log lacks are unread if it is not the `whole` output."""
    parsed = gpu_xml.read(root, "" if whole else ABSENT)
    # A part of a log, or a query, need not state how many GPUs there are.
    unread = {name: why for name, why in parsed["unread"].items() if (name, why) != ("attached", ABSENT)}
    gpu = {**dict.fromkeys(typed_json.fields_of(fact_types.GpuFacts)), **parsed, "unread": unread}
    elements = root.findall("gpu")
    links = [link for element in elements if (link := _link(element))]
    reasons = {f"the width of GPU {e.get('id')}": reason for e in elements if (reason := _unread_lanes(e, whole))}
    return {"gpu": gpu, **({"pcie": {"links": links, "unread": reasons}} if links or reasons else {})}


def _link(gpu: Tree.Element) -> dict[str, Any] | None:
    """Lanes of a GPU's PCIe link, as facts/pcie.py gives them; speeds of an idle GPU are no fault and are left out."""
    widths = {name: _lanes(gpu, f"{name}_link_width") for name in ("max", "current")}
    if widths["max"] is None or widths["current"] is None:
        return None
    keys = ("speed", "most_speed", "port_width", "port_speed")
    errors = dict.fromkeys(("fatal", "nonfatal", "correctable"))
    link = {"address": gpu.get("id") or "?", "kind": "gpu", "width": widths["current"], "most_width": widths["max"]}
    return {**link, **dict.fromkeys(keys), "errors": errors}


def _unread_lanes(gpu: Tree.Element, whole: bool) -> str:
    """Why the lanes of a link are unknown; "" if they are known, or if the GPU or this part of its log has none."""
    texts = [gpu.findtext(f"{LINK_INFO}/{name}_link_width") for name in ("max", "current")]
    if all((text is None and not whole) or (text or "").strip().lower() in {"n/a", "[n/a]"} for text in texts):
        return ""
    if None in texts:
        return "nvidia-smi printed only a part of it"
    odd = [text for text in texts if text is not None and not _LANES.match(text.strip())]
    return f"nvidia-smi prints {odd[0].strip() or 'nothing'}" if odd else ""


def _lanes(gpu: Tree.Element, name: str) -> float | None:
    match = _LANES.match((gpu.findtext(f"{LINK_INFO}/{name}") or "").strip())
    return float(match[1]) if match else None


def put(element: Tree.Element, path: str, text: str) -> None:
    """Set the text of the element at a path, and make what is missing of it."""
    for tag in path.split("/"):
        inner = element.find(tag)
        element = Tree.SubElement(element, tag) if inner is None else inner
    element.text = text


def counts(elements: Iterable[Tree.Element]) -> int:
    """Number of elements with an address."""
    return sum(bool(element.get("id")) for element in elements)
