"""Read `nvidia-smi -q` (text), whole or a part of it (-d ECC)."""

from __future__ import annotations

import re
from functools import cache
from xml.etree import ElementTree as Tree  # elements are made here, none are parsed

from gpuctl.audit.formats.model import Record, doubt
from gpuctl.audit.formats.smi_elements import facts_of
from gpuctl.core.text import plural
from gpuctl.domain.findings import Finding

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_LINE = re.compile(r"( *)(\S.*?)(?:\s*:(?: (.*)|))?$")
_HEAD = ("driver_version", "cuda_version", "attached_gpus", "kmd_version", "cuda_umd_version")
_ELIDED = re.compile(r"\s*(?:\[?\.{3}\]?|…|\[…\])\s*$")
INDENT = 4  # of a GPU's values
# Values that stand above the sections: a part of a log (-d) has none of them.
_OF_WHOLE = ("product_name", "product_brand", "product_architecture", "minor_number", "uuid", "vbios_version")
REASONS = ("clocks_event_reasons", "clocks_throttle_reasons")
# Labels whose element has another name, by the element above: the XML repeats a part of it.
NAMES = {
    ("gpu", "gpu_uuid"): "uuid",
    ("mig_mode", "current"): "current_mig",
    ("mig_mode", "pending"): "pending_mig",
    ("ecc_mode", "current"): "current_ecc",
    ("ecc_mode", "pending"): "pending_ecc",
    ("utilization", "gpu"): "gpu_util",
    ("remapped_rows", "pending"): "remapped_row_pending",
    ("remapped_rows", "remapping_failure_occurred"): "remapped_row_failure",
    ("remapped_rows", "uncorrectable_error"): "remapped_row_unc",
    ("remapped_rows", "correctable_error"): "remapped_row_corr",
    ("remapped_rows", "bank_remap_availability_histogram"): "row_remapper_histogram",
    ("row_remapper_histogram", "none"): "row_remapper_histogram_none",
    ("retired_pages", "pending_page_blacklist"): "pending_blacklist",
    ("retired_pages", "pending"): "pending_retirement",
    ("temperature", "gpu_current_temp"): "gpu_temp",
    ("temperature", "gpu_t_limit_temp"): "gpu_temp_tlimit",
    ("temperature", "gpu_current_t_limit_temp"): "gpu_temp_tlimit",
    ("temperature", "gpu_slowdown_temp"): "gpu_temp_slow_threshold",
    ("temperature", "memory_current_temp"): "memory_temp",
    ("temperature", "memory_max_operating_temp"): "gpu_temp_max_mem_threshold",
    ("max_clocks", "sm"): "sm_clock",
    ("fabric", "clusteruuid"): "clusterUuid",
    ("fabric", "cliqueid"): "cliqueId",
    ("pci_gpu_link_info", "pcie_generation"): "pcie_gen",
    ("pcie_gen", "max"): "max_link_gen",
    ("pcie_gen", "current"): "current_link_gen",
    ("link_widths", "max"): "max_link_width",
    ("link_widths", "current"): "current_link_width",
    ("pci_gpu_link_info", "link_width"): "link_widths",
    ("pci", "gpu_link_info"): "pci_gpu_link_info",
    ("mig_device", "shared_fb_memory_usage"): "fb_memory_usage",
    ("process_info", "process_id"): "pid",
    ("process_info", "name"): "process_name",
    ("process_info", "used_gpu_memory"): "used_memory",
    **{(reasons, "idle"): "gpu_idle" for reasons in REASONS},
}


def matches(start: str) -> bool:
    return "NVSMI LOG" in start or bool(
        re.search(r"^Attached GPUs\s+: ", start, re.MULTILINE)
        and re.search(r"^GPU [0-9A-Fa-f]{4,8}:", start, re.MULTILINE)
    )


def read(text: str) -> Record:
    """Facts of the GPUs; UNKNOWN where the output was cut. A GPU that is not whole counts as not recorded."""
    root, elided, stray = _elements(text)
    gpus = root.findall("gpu")
    selected = bool(gpus) and all(gpu.find(name) is None for gpu in gpus for name in _OF_WHOLE)
    findings = _not_whole(root, selected, elided)
    if stray:
        findings.append(doubt(f"{plural(stray, 'line')} belong to no GPU: its lines are in disorder"))
    if (empty := _without_values(root)) and not elided:
        findings.append(doubt(f"no values stand below {', '.join(empty[:4])}: its lines are in disorder, or cut"))
    kept = len(root.findall("gpu"))
    if findings and kept < len(gpus):
        _set(root, "attached_gpus", str(kept))
    if not kept:
        return Record(findings=tuple(findings) or (doubt("it has no GPU"),))
    return Record(facts_of(root, whole=not selected and not elided), tuple(findings))


def _not_whole(root: Tree.Element, selected: bool, elided: bool) -> list[Finding]:
    """Doubts about what is missing; GPUs that are not whole are removed."""
    gpus, attached = root.findall("gpu"), root.findtext("attached_gpus") or ""
    cut = [gpu for gpu in gpus if not (_has_section(gpu) if selected or elided else _is_whole(gpu))]
    if selected and len(gpus) > 1:  # the same selection has the same lines for every GPU
        tags = [sorted(element.tag for element in gpu.iter()) for gpu in gpus]
        cut = [gpu for gpu, own in zip(gpus, tags, strict=True) if own != max(tags, key=len)]
    for gpu in cut:
        root.remove(gpu)
    findings = [doubt(f"GPU {gpu.get('id')} is not whole, and was not judged") for gpu in cut]
    if len({gpu.get("id") for gpu in gpus}) < len(gpus):
        findings.append(doubt("a GPU is listed several times: save one reading"))
    if not attached.isdigit():
        findings.append(doubt("how many GPUs it should have is not in it"))
    elif int(attached) > len(gpus):
        message = f"it has {plural(len(gpus), 'GPU')} of {attached}: the output is cut, or a GPU did not answer"
        findings.append(doubt(message))
        _set(root, "attached_gpus", str(len(gpus) - len(cut)))
    elif int(attached) < len(gpus):
        findings.append(doubt(f"it has {len(gpus)} GPUs, and states {attached}: several outputs are mixed"))
    if elided:
        findings.append(doubt("parts of it were left out"))
    return findings


def _has_section(gpu: Tree.Element) -> bool:
    """True for a part of a GPU's log, such as that of -d ECC: a section with values, or one that it lacks (N/A)."""
    return any(len(section) or section.text for section in gpu)


def _is_whole(gpu: Tree.Element) -> bool:
    """True if the log of a GPU has its name, which begins it, and the last line of its list of processes."""
    rows = gpu.findall("processes/process_info")
    listed = gpu.find("processes") is not None and all(row.find("used_memory") is not None for row in rows)
    return listed and gpu.find("product_name") is not None


def _set(root: Tree.Element, tag: str, text: str) -> None:
    element = root.find(tag)
    if element is not None:
        element.text = text


def _without_values(root: Tree.Element) -> list[str]:
    """Headings with nothing below: a section that a GPU lacks has N/A beside its name."""
    below = [element for gpu in root.findall("gpu") for element in gpu.iter() if element is not gpu]
    return [element.tag for element in below if element.text is None and not len(element)]


def _elements(text: str) -> tuple[Tree.Element, bool, int]:
    """The log as elements, True if somebody left out parts of it, and the number of values that belong to no GPU.

    The text of a heading is None, that of a line without a value is empty.
    """
    root, elided, stray = Tree.Element("nvidia_smi_log"), False, 0
    stack: list[tuple[int, Tree.Element]] = []
    for line in (raw.expandtabs().rstrip() for raw in text.splitlines()):
        if head := _GPU.match(line):
            stack = [(0, Tree.SubElement(root, "gpu", id=head[1]))]
        elif _ELIDED.match(line) and line.strip():
            elided = True
        elif line and (match := _LINE.match(line)):
            indent, label, value = len(match[1]), _tag(match[2]), (match[3] or "").strip()
            if indent == 0 or not stack:
                stack, stray = [], stray + (indent >= INDENT and match[3] is not None)
                if label in _HEAD and root.find(label) is None:
                    Tree.SubElement(root, label).text = value
                continue
            while stack[-1][0] >= indent:
                stack.pop()
            stack.append((indent, _added(stack[-1][1], label, value if ":" in line else None)))
    return root, elided, stray


def _added(above: Tree.Element, label: str, value: str | None) -> Tree.Element:
    """The element of a line below another; lists of processes and of MIG devices get their elements."""
    if above.tag == "processes" and label in {"gpu_instance_id", "compute_instance_id", "process_id"}:
        above = _process(above, label)
    elif label == "mig_device" and above.tag == "gpu":
        devices = above.find("mig_devices")
        above = Tree.SubElement(above, "mig_devices") if devices is None else devices
    element = Tree.SubElement(above, NAMES.get((above.tag, label), label))
    element.text = "" if (element.tag, value) == ("processes", "None") else value
    if element.tag in {"hw_slowdown", "pid"}:  # the lines below it are its siblings in the XML
        return above
    return element


def _process(processes: Tree.Element, label: str) -> Tree.Element:
    rows = processes.findall("process_info")
    is_next = not rows or rows[-1].find("pid") is not None or rows[-1].find(label) is not None
    return Tree.SubElement(processes, "process_info") if is_next else rows[-1]


@cache
def _tag(label: str) -> str:
    """ "SRAM Uncorrectable SEC-DED" -> "sram_uncorrectable_sec_ded"."""
    return re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")
