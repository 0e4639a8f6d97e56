"""Read `nvidia-smi --query-gpu=… --format=csv`, with or without units."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as Tree  # elements are made here, none are parsed

from gpuctl.audit.formats.model import FILE, Record, doubt
from gpuctl.audit.formats.smi_elements import facts_of, put
from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, fail
from gpuctl.domain.gpu_health import LOST, RESET
from gpuctl.engine import gpu_xml

REASON = re.compile(r"clocks_(?:event|throttle)_reasons\.(\w+)$")
# Query fields and their elements; a field without one is searched for errors only.
ELEMENTS = {
    "name": "product_name",
    "uuid": "uuid",
    "persistence_mode": "persistence_mode",
    "compute_mode": "compute_mode",
    "mig.mode.current": "mig_mode/current_mig",
    "memory.total": "fb_memory_usage/total",
    "memory.used": "fb_memory_usage/used",
    "utilization.gpu": "utilization/gpu_util",
    "pstate": "performance_state",
    "ecc.mode.current": "ecc_mode/current_ecc",
    "ecc.mode.pending": "ecc_mode/pending_ecc",
    "ecc.errors.uncorrected.volatile.total": "ecc_errors/volatile/uncorrectable_total",
    "ecc.errors.uncorrected.aggregate.sram.thresholdexceeded": "ecc_errors/aggregate/sram_threshold_exceeded",
    "remapped_rows.pending": "remapped_rows/remapped_row_pending",
    "remapped_rows.failure": "remapped_rows/remapped_row_failure",
    "remapped_rows.uncorrectable": "remapped_rows/remapped_row_unc",
    "retired_pages.pending": "retired_pages/pending_retirement",
    "gpu_recovery_action": "gpu_recovery_action",
    "temperature.gpu": "temperature/gpu_temp",
    "temperature.gpu.tlimit": "temperature/gpu_temp_tlimit",
    "power.limit": "gpu_power_readings/current_power_limit",
    "power.default_limit": "gpu_power_readings/default_power_limit",
    "clocks.max.sm": "max_clocks/sm_clock",
    "fabric.state": "fabric/state",
    "fabric.status": "fabric/status",
    "temperature.memory": "temperature/memory_temp",
    "pcie.link.gen.max": f"{gpu_xml.LINK_GENERATIONS}/max_link_gen",
    "pcie.link.gen.current": f"{gpu_xml.LINK_GENERATIONS}/current_link_gen",
    "pcie.link.width.max": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "pcie.link.width.current": "pci/pci_gpu_link_info/link_widths/current_link_width",
}
ALIASES = {
    "gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id", "clocks.max.graphics": "clocks.max.sm",
}  # fmt: skip
# Bits of clocks_event_reasons.active that are judged (nvml.h).
BITS = {0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown",
        0x80: "hw_power_brake_slowdown"}  # fmt: skip
# Fields of other queries, which list what is not judged.
LISTS = {"pid", "process_name", "used_gpu_memory", "retired_pages.address", "retired_pages.cause"}
_NAMELESS = re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro|A\d{2,3}|GPU-[0-9a-f]{8}-)", re.IGNORECASE)


def matches(start: str) -> bool:
    """True for a line of query fields; for one of values only if it begins with a GPU's name or UUID."""
    lines = [line for line in start.splitlines() if line.strip()]
    return any(is_header(line) for line in lines[:5]) or _has_no_header(lines)


def is_header(line: str) -> bool:
    fields = _fields(line)
    known = [name for name in fields if name in ELEMENTS or name in LISTS or name in {"index", "pci.bus_id"}]
    return bool(known) and all(re.fullmatch(r"[a-z_][a-z0-9_.]*", name) for name in fields)


def _has_no_header(lines: list[str]) -> bool:
    rows = [line for line in lines if "," in line]
    return bool(rows) and rows == lines and all(any(map(_NAMELESS.match, _cells(row)[:3])) for row in rows[:3])


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]


def _fields(line: str) -> list[str]:
    """Names of the columns in lower case, without their units."""
    names = [re.sub(r"\s*\[.*\]$", "", cell).lower() for cell in _cells(line)]
    return [ALIASES.get(name, name) for name in names]


def read(text: str) -> Record:
    """Facts of the GPUs, one a row. Without a header only errors can be judged: no number has a name."""
    lines = [line for line in text.splitlines() if line.strip()]
    at = next((number for number, line in enumerate(lines) if is_header(line)), None)
    if at is None:
        return Record(findings=(*_errors(lines), _no_header()))
    fields = _fields(lines[at])
    if fields and LISTS & set(fields):
        return Record(judged="lists processes or retired pages", findings=tuple(_errors(lines)))
    root, odd = Tree.Element("nvidia_smi_log"), []
    for number, line in enumerate(lines[at + 1 :], start=at + 2):
        cells = _cells(line)
        if len(cells) == len(fields):
            _row(root, dict(zip(fields, cells, strict=True)))
        elif not is_header(line):
            odd.append(number)
            if len(cells) * 2 > len(fields):  # whose values these are is not known: a GPU without any
                Tree.SubElement(root, "gpu")
    return _record(root, fields, odd, _errors(lines) if odd else [])


def _record(root: Tree.Element, fields: Sequence[str], odd: Sequence[int], errors: Sequence[Finding]) -> Record:
    gpus, findings = root.findall("gpu"), [*errors]
    if odd:
        shown = named(map(str, odd), 8)
        findings.append(doubt(f"line {shown} does not have {plural(len(fields), 'value')} as the header has"))
    ids = [gpu.findtext("uuid") or gpu.get("id") or "" for gpu in gpus]
    if len(set(filter(None, ids))) < len([one for one in ids if one]):
        findings.append(doubt("a GPU is listed several times: save one reading", "leave out --loop"))
    attached = root.findtext("attached_gpus") or ""
    if attached.isdigit() and int(attached) > len(gpus) and not odd:
        findings.append(doubt(f"it has {plural(len(gpus), 'GPU')} of {attached}"))
    if not gpus:
        return Record(findings=tuple(findings) or (doubt("it has no GPU"),))
    if odd or attached.isdigit():
        for element in root.findall("attached_gpus"):
            element.text = str(len(gpus))
    return Record(facts_of(root, whole=False), tuple(findings))


def _row(root: Tree.Element, cells: Mapping[str, str]) -> None:
    gpu = Tree.SubElement(root, "gpu", id=cells.get("pci.bus_id", ""))
    for field, text in cells.items():
        reason = REASON.match(field)
        if reason and reason[1] == "active":
            _active(gpu, text)
        elif reason and reason[1] != "supported":
            put(gpu, f"clocks_event_reasons/{reason[1]}", text)
        elif field == "driver_version" and root.find("driver_version") is None:
            put(root, "driver_version", text)
        elif field == "count" and root.find("attached_gpus") is None:
            put(root, "attached_gpus", text)
        else:
            put(gpu, ELEMENTS.get(field) or f"queried/{field}", text)


def _active(gpu: Tree.Element, text: str) -> None:
    """Bits of the mask become the reasons by name, unless the query has them, too."""
    if not re.fullmatch(r"0x[0-9A-Fa-f]{1,16}", text):
        put(gpu, "clocks_event_reasons", text)
        return
    for bit, name in BITS.items():
        if gpu.find(f"clocks_event_reasons/{name}") is None:
            put(gpu, f"clocks_event_reasons/{name}", "Active" if int(text, 16) & bit else "Not Active")


def _errors(lines: Sequence[str]) -> list[Finding]:
    """FAIL for error texts in place of values, wherever they stand."""
    texts = {
        cell.strip("[] ") for line in lines for cell in _cells(line) if cell.strip("[] ").lower() in gpu_xml.ERRORS
    }
    return [
        fail(FILE, "", f'nvidia-smi reports "{text}" in place of a value', RESET if "reset" in text.lower() else LOST)
        for text in sorted(texts)
    ]


def _no_header() -> Finding:
    return doubt("it has values without their names", "leave out noheader: --format=csv")
