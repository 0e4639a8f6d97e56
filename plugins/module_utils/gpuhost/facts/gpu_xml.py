"""Parse the output of `nvidia-smi -q -x`, drivers 418 and later: text in, plain values out."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as Tree
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .answer_types import Gpu, GpuProcess, MigInstance, Smi

# The element was renamed with driver 535; the content is equal.
REASONS = ("clocks_event_reasons", "clocks_throttle_reasons")
# Reasons that every driver lists; of these the hardware's covers its kinds.
SLOWED = ("hw_slowdown", "sw_thermal_slowdown")
CAPPED = "sw_power_cap"
# Driver from which on a whole log has a value, if only as N/A: one without it is damaged. Each is the oldest of which a
# whole output with the value is known.
SINCE = {
    **dict.fromkeys(("ecc", "ecc_pending", "uncorrectable", "retire_pending", "margin_c", "memory_c"), 510),
    **dict.fromkeys(("power_limit_w", "default_power_limit_w", "pcie_gen", "most_pcie_gen"), 510),
    **dict.fromkeys(("busy_percent", "performance_state"), 510),
    **dict.fromkeys(("remap_pending", "remap_failure", "remapped", "banks_without_reserve"), 510),
    **dict.fromkeys(("fabric_state", "fabric_status", "sram_threshold"), 535),
    "recovery": 570,
    **dict.fromkeys(("unrepairable", "repair_pending"), 595),
}
# Values of GPUs that remap rows: others need not have them.
REMAPS = ("remap_pending", "remap_failure", "remapped")
OF_REMAPPING = frozenset({*REMAPS, "banks_without_reserve", "unrepairable", "repair_pending", "recovery"})
# Values that a part of a log lacks without a remark.
OPTIONAL = frozenset({"unrepairable", "repair_pending", "banks_without_reserve", "recovery"})
DAMAGED = "nvidia-smi printed no such value, though its driver has one"
# No recorded log has an element without a text: a driver without the value prints N/A.
EMPTY = "nvidia-smi printed nothing in its place"
# The GPU or its driver does not have such a value; nothing is wrong.
UNSUPPORTED = frozenset({"", "n/a", "not supported", "requested functionality has been deprecated"})
# NVML's texts for a GPU that could not answer (nvmlErrorString), as nvidia-smi puts them in place of a value.
MISMATCHES = frozenset({"driver/library version mismatch", "rm has detected an nvml/rm version mismatch"})
ERRORS = MISMATCHES | frozenset(
    {
        "err!",
        "unknown error",
        "gpu requires reset",
        "gpu requires restart",
        "gpu is lost",
        "gpu access blocked",
        "timeout",
        "irq issue",
        "corrupted inforom",
        "uninitialized",
    }
)
# Renamed with drivers 535 and 610.
POWER_LIMITS = (
    ("gpu_power_readings", "current_power_limit"),
    ("gpu_power_readings/gpu_ceiling_power_limit", "current_power_limit"),
    ("power_readings", "power_limit"),
)
LINK_GENERATIONS = "pci/pci_gpu_link_info/pcie_gen"
# Values of fabric/health: of its summary, of its bandwidth, and of its conditions.
FABRIC_FINE = frozenset({"healthy", "full", "false", "none"})
FABRIC_FAULTS = frozenset({"unhealthy", "limited capacity", "degraded", "true"})
DECIMALS_AND_UNIT = r"(?:\.\d+)?(?: ?(?:[A-Za-z]+|bank\(s\)|%))?"  # whatever else follows a number has damaged it
COMPUTE_MODES = frozenset({"Default", "Exclusive_Thread", "Exclusive_Process", "Prohibited"})
ENABLED = frozenset({"Enabled", "Disabled"})
YES_NO = {"Yes": True, "No": False}
ACTIVE = {"Active": True, "Not Active": False}


def mismatch(text: str) -> str:
    """The line by which nvidia-smi refuses to work with a module of another version; "" if it says no such thing."""
    return next((line.strip() for line in text.splitlines() if any(one in line.lower() for one in MISMATCHES)), "")


def parse(text: str) -> Smi:
    """{driver, cuda, attached, gpus, unread}; ValueError if the text is not a complete answer.

    `_gpu` lists a GPU's values. `attached` counts the GPUs that the driver has; `gpus` may be fewer, if
    one does not answer. `unread`: name of the driver's value -> the text in its place, or why there is none.
    """
    return read(elements(text))


def elements(text: str) -> Tree.Element:
    """The XML of a text that may have other lines around it; ValueError if it is not whole."""
    start, (whole, end, _) = text.find("<"), text.rpartition("</nvidia_smi_log>")
    try:
        return Tree.fromstring((whole + end if end else text)[start:] if start >= 0 else "")  # noqa: S314 - the host's own nvidia-smi
    except Tree.ParseError as error:
        last_line = (text.strip().splitlines() or ["nothing"])[-1][:200]
        raise ValueError(f"nvidia-smi -q -x printed no whole XML ({error}): {last_line}") from error


def read(root: Tree.Element, absent: str = "") -> Smi:
    """The result of `parse` for the elements of a log. `absent`: reason for values without an element, if the log may
    be only a part of the driver's.
    """
    cells = _Cells(root, absent)
    driver = cells.text("driver", "driver_version", "kmd_version")
    attached = cells.count("attached", "attached_gpus")
    if driver is None:
        cells.unread.setdefault("driver", "nvidia-smi names no driver version")
    if attached is None:
        cells.unread.setdefault("attached", "nvidia-smi does not state it")
    branch = re.match(r"\d+", driver or "")
    since = int(branch.group()) if branch else 0
    return {
        "driver": driver.split()[0] if driver else None,  # 610 adds a remark
        "cuda": cells.text("cuda", "cuda_version", "cuda_umd_version"),
        "attached": attached,
        "gpus": [_gpu(gpu, absent, since) for gpu in root.findall("gpu")],
        "unread": cells.unread,
    }


def _gpu(gpu: Tree.Element, absent: str, branch: int) -> Gpu:
    """Memory in MiB. None: the GPU has no such value, or it could not be read; then `errors` or `unread` has the text.

    `errors`: path of any element -> the error that stands in place of its value ("GPU requires reset").
    `unread`: name of a value here -> the text that is neither a value nor "N/A".
    """
    cells = _Cells(gpu, absent, branch)
    return {
        "address": gpu.get("id"),
        "minor": cells.count("minor", "minor_number"),
        "uuid": cells.text("uuid", "uuid"),
        "model": cells.text("model", "product_name"),
        "mig": cells.literal("mig", ENABLED, "mig_mode/current_mig"),
        "memory_mib": cells.count("memory_mib", "fb_memory_usage/total"),
        "used_mib": cells.count("used_mib", "fb_memory_usage/used"),
        "busy_percent": cells.count("busy_percent", "utilization/gpu_util"),
        # P0 is the fastest; an idle GPU is at P5 or P8, most of a data centre at P0.
        "performance_state": _performance_state(cells),
        "ecc": cells.text("ecc", "ecc_mode/current_ecc"),
        "ecc_pending": cells.text("ecc_pending", "ecc_mode/pending_ecc"),
        "uncorrectable": _uncorrectable(cells),
        "remap_pending": cells.choice("remap_pending", YES_NO, "remapped_rows/remapped_row_pending"),
        "remap_failure": cells.choice("remap_failure", YES_NO, "remapped_rows/remapped_row_failure"),
        "remapped": cells.count("remapped", "remapped_rows/remapped_row_unc"),
        # GPUs before the A100 retire pages instead of remapping rows.
        "retire_pending": cells.choice(
            "retire_pending", YES_NO, "retired_pages/pending_retirement", "retired_pages/pending_blacklist"
        ),
        "banks_without_reserve": cells.count(
            "banks_without_reserve", "remapped_rows/row_remapper_histogram/row_remapper_histogram_none"
        ),
        "sram_threshold": cells.choice("sram_threshold", YES_NO, "ecc_errors/aggregate/sram_threshold_exceeded"),
        "unrepairable": _repair(cells, "unrepairable", "unrepairable_memory"),
        "repair_pending": _repair(cells, "repair_pending", "channel_repair_pending", "tpc_repair_pending"),
        "recovery": cells.text("recovery", "gpu_recovery_action"),
        "slowed_by": _reasons(cells),
        "persistence": cells.literal("persistence", ENABLED, "persistence_mode"),
        "compute_mode": cells.literal("compute_mode", COMPUTE_MODES, "compute_mode"),
        "temperature_c": cells.degrees("temperature_c", "temperature/gpu_temp"),
        # Degrees left before it slows down, or, of GPUs before Hopper, the temperature at which it does.
        "margin_c": _margin(cells),
        "slow_at_c": cells.degrees("slow_at_c", "temperature/gpu_temp_slow_threshold"),
        # Drivers with margins instead of limits name none for the memory's temperature.
        "memory_c": cells.degrees("memory_c", "temperature/memory_temp"),
        "memory_limit_c": cells.degrees("memory_limit_c", "temperature/gpu_temp_max_mem_threshold"),
        "pcie_gen": cells.count("pcie_gen", f"{LINK_GENERATIONS}/current_link_gen"),
        "most_pcie_gen": cells.count("most_pcie_gen", f"{LINK_GENERATIONS}/max_link_gen"),
        "power_limit_w": cells.count("power_limit_w", *(f"{part}/{name}" for part, name in POWER_LIMITS)),
        "default_power_limit_w": cells.count(
            "default_power_limit_w", *(f"{part}/default_power_limit" for part, _ in POWER_LIMITS)
        ),
        "max_sm_mhz": cells.count("max_sm_mhz", "max_clocks/sm_clock"),
        "fabric_state": cells.text("fabric_state", "fabric/state"),
        "fabric_status": cells.text("fabric_status", "fabric/status"),
        "fabric_faults": _fabric_faults(cells),
        "nvlink_domain": _domain(cells),
        "processes": _processes(cells),
        "displays": _displays(cells),
        "instances": _instances(gpu),
        "errors": _errors(gpu),
        "unread": cells.unread,
    }


class _Cells:
    """Typed access to an element's values; records what could not be read under the name of the value."""

    def __init__(self, element: Tree.Element, absent: str = "", branch: int = 0) -> None:
        self.element, self.absent, self.branch = element, absent, branch
        self.unread: dict[str, str] = {}

    def text(self, name: str, *paths: str) -> str | None:
        """The first of the paths that has a value."""
        for path in paths:
            text = (self.element.findtext(path) or "").strip()
            plain = _plain(text)
            if plain in ERRORS or plain == "insufficient permissions":
                self.unread[name] = text
                return None
            if plain not in UNSUPPORTED:
                return text
        if reason := self.lacking(name, *paths):
            self.unread[name] = reason
        return None

    def lacking(self, name: str, *paths: str) -> str:
        """Reason why none of the paths has a text; "" if one has, or if the driver need not have it."""
        present = [element for element in map(self.element.find, paths) if element is not None]
        if present:
            return "" if self.absent or any((element.text or "").strip() for element in present) else EMPTY
        if self.absent:
            return "" if name in OPTIONAL else self.absent
        return DAMAGED if self._is_due(name) and not any(map(self._is_refused, paths)) else ""

    def _is_due(self, name: str) -> bool:
        """True if a whole log of this driver and this kind of GPU has the value."""
        if self.branch < SINCE.get(name, sys.maxsize):
            return False
        if name in OF_REMAPPING:
            section = self.element.find("remapped_rows")
            # Every whole log has the section: N/A of GPUs that remap no rows.
            return name in REMAPS if section is None else len(section) > 0
        # Drivers print the threshold beside counters that are split; GPUs before the A100 have one for all of SRAM.
        sections = (self.element.find(f"ecc_errors/{span}") for span in ("volatile", "aggregate"))
        tags = [counter.tag for section in sections if section is not None for counter in section]
        return name != "sram_threshold" or any(tag.startswith("sram_uncorrectable_") for tag in tags)

    def _is_refused(self, path: str) -> bool:
        """True if an element above the path is a text, as N/A of a GPU without the whole section."""
        parts = path.split("/")
        above = [self.element.find("/".join(parts[:depth])) for depth in range(1, len(parts))]
        return any(part is not None and not len(part) and (part.text or "").strip() for part in above)

    def count(self, name: str, *paths: str) -> int | None:
        """A count, whatever unit follows it, of the first of the paths that has a value."""
        return self._number(name, r"\d+", *paths)

    def degrees(self, name: str, *paths: str) -> int | None:
        """A temperature or a difference, which may be below zero."""
        return self._number(name, r"-?\d+", *paths)

    def _number(self, name: str, pattern: str, *paths: str) -> int | None:
        text = self.text(name, *paths)
        match = re.match(f"({pattern}){DECIMALS_AND_UNIT}$", text or "", re.ASCII)
        if text is not None and match is None:
            self.unread[name] = text
        return int(match.group(1)) if match else None

    def literal(self, name: str, values: frozenset[str], *paths: str) -> str | None:
        """One of the known values only: any other text is not an answer."""
        text = self.text(name, *paths)
        if text is not None and text not in values:
            self.unread[name] = text
            return None
        return text

    def choice(self, name: str, values: dict[str, bool], *paths: str) -> bool | None:
        """True or False for the known words only: any other text is not an answer."""
        text = self.text(name, *paths)
        if text is not None and text not in values:
            self.unread[name] = text
        return values.get(text or "")


def _plain(text: str) -> str:
    """nvidia-smi puts some of its messages in brackets, depending on version and value."""
    return text.strip().strip("[]").strip().lower()


def _errors(gpu: Tree.Element) -> dict[str, str]:
    """Error texts anywhere but in the list of processes, whose names may be anything."""
    errors: dict[str, str] = {}

    def collect(element: Tree.Element, path: str) -> None:
        text = (element.text or "").strip()
        if _plain(text) in ERRORS:
            errors[path] = text
        for child in element:
            if child.tag != "process_info":
                collect(child, f"{path}/{child.tag}" if path else child.tag)

    collect(gpu, "")
    return errors


def _margin(cells: _Cells) -> int | None:
    """Degrees left; a driver that does not print them prints the temperature at which the GPU slows down."""
    margin = cells.degrees("margin_c", "temperature/gpu_temp_tlimit")
    if (
        cells.unread.get("margin_c") == DAMAGED
        and cells.element.find("temperature/gpu_temp_slow_threshold") is not None
    ):
        del cells.unread["margin_c"]
    return margin


def _performance_state(cells: _Cells) -> str | None:
    state = cells.text("performance_state", "performance_state")
    if state is None or re.fullmatch(r"P\d+", state):
        return state
    cells.unread["performance_state"] = state
    return None


def _repair(cells: _Cells, name: str, *tags: str) -> bool | None:
    """True if any of the values is Yes; None if the driver, or this part of its output, has none of them."""
    values = [cells.choice(name, YES_NO, f"ecc_errors/{tag}") for tag in tags]
    return any(values) if any(values) or None not in values else None


def _uncorrectable(cells: _Cells) -> int | None:
    """Uncorrectable errors since the driver was loaded; a part that cannot be read leaves the sum unknown.

    The names of the parts differ between drivers; GPUs before the A100 count double-bit errors.
    """
    volatile = cells.element.find("ecc_errors/volatile")
    counters = [] if volatile is None else [e for e in volatile if "uncorrectable" in e.tag]
    if volatile is not None and not counters:
        counters = volatile.findall("double_bit/total")
    refused = volatile is not None and not len(volatile) and (volatile.text or "").strip()
    if not counters and not refused and (reason := cells.lacking("uncorrectable", "ecc_errors/volatile/total")):
        cells.unread["uncorrectable"] = reason
    texts = {counter.tag: (counter.text or "").strip() for counter in counters}
    if counters and not cells.absent:
        texts.update(dict.fromkeys(_uncounted(texts), ""))
    missing = {tag: text for tag, text in texts.items() if not text.isdigit()}
    total = sum(int(text) for tag, text in texts.items() if tag not in missing)
    # None of them: a GPU without ECC, or with MIG. Some of them: only a sum above zero is certain.
    if missing and (len(missing) < len(texts) or not {_plain(text) for text in missing.values()} <= UNSUPPORTED):
        cells.unread["uncorrectable"] = "; ".join(f"{tag}: {text or 'empty'}" for tag, text in missing.items())
    return total if texts and (not missing or total) else None


def _uncounted(tags: Iterable[str]) -> list[str]:
    """Counters that a whole log lacks: drivers split those of SRAM, and earlier ones print a total alone."""
    plain = {tag.replace("_", "") for tag in tags}
    if "total" in plain:
        return []
    sram = "sramuncorrectable" in plain or plain >= {"sramuncorrectableparity", "sramuncorrectablesecded"}
    complete = {"dram_uncorrectable": "dramuncorrectable" in plain, "sram_uncorrectable": sram}
    return [tag for tag, is_there in complete.items() if not is_there]


def _reasons(cells: _Cells) -> list[str] | None:
    """Active reasons for low clocks, without the prefix: "hw_slowdown", "gpu_idle"; None if any cannot be read."""
    reasons = next((e for e in map(cells.element.find, REASONS) if e is not None), None)
    if reasons is None or not len(reasons):
        cells.text("slowed_by", *REASONS)
        return None
    rows = [(re.sub(r"^clocks_(event|throttle)_reason_", "", e.tag), (e.text or "").strip()) for e in reasons]
    states = dict(rows)
    unknown = [f"{name}: several values" for name, text in rows if states[name] != text]
    unknown += [f"{name}: {text or 'empty'}" for name, text in states.items() if text not in ACTIVE]
    needed = SLOWED if cells.absent else (*SLOWED, CAPPED)
    unknown += [f"{name}: {cells.absent or 'missing'}" for name in needed if name not in states]
    if unknown:
        cells.unread["slowed_by"] = "; ".join(unknown)
        return None
    return [name for name, text in states.items() if ACTIVE[text]]


def _fabric_faults(cells: _Cells) -> list[str] | None:
    """What the health of the GPU's NVLink fabric has against it: "bandwidth Degraded"; None if the driver has none."""
    health = cells.element.find("fabric/health")
    if health is None:
        return None
    texts = {e.tag.replace("_", " "): (e.text or "").strip() for e in health}
    known = {name: text for name, text in texts.items() if _plain(text) not in UNSUPPORTED}
    unclear = {
        name: text
        for name, text in known.items()
        if _plain(text) not in FABRIC_FINE | FABRIC_FAULTS and name != "incorrect configuration"
    }
    if unclear:
        cells.unread["fabric_faults"] = "; ".join(f"{name}: {text}" for name, text in unclear.items())
    bad = {name: text for name, text in known.items() if _plain(text) not in FABRIC_FINE and name not in unclear}
    return [f"{name} {text}" for name, text in bad.items()]


def _domain(cells: _Cells) -> str | None:
    """The NVLink fabric that spans machines, as in an NVL72 rack; inside one machine its id is all zeros."""
    cluster, clique = cells.text("nvlink_domain", "fabric/clusterUuid"), cells.text("nvlink_domain", "fabric/cliqueId")
    return f"{cluster}.{clique}" if cluster and clique and set(cluster) - {"0", "-"} else None


def _processes(cells: _Cells) -> list[GpuProcess] | None:
    """Compute processes; type "G" alone is a display's. None if the GPU does not list them."""
    rows = _clients(cells)
    return None if rows is None else [row for row in rows if row["type"] != "G"]


def _displays(cells: _Cells) -> list[GpuProcess] | None:
    rows = _clients(cells)
    return None if rows is None else [row for row in rows if row["type"] == "G"]


def _clients(cells: _Cells) -> list[GpuProcess] | None:
    """Processes with a context. `type`: C, G, C+G, or M+C of a client of MPS. `gi`, `ci`: None without MIG."""
    processes = cells.element.find("processes")
    text = "" if processes is None else (processes.text or "").strip()
    if text and _plain(text) not in UNSUPPORTED:
        cells.unread["processes"] = text
    if processes is None or text:
        return None
    rows = [_Cells(e) for e in processes.findall("process_info")]
    return [
        {
            "pid": row.count("pid", "pid"),
            "name": row.text("name", "process_name"),
            "used_mib": row.count("used_mib", "used_memory"),
            "type": row.text("type", "type") or "C",
            "gi": row.count("gi", "gpu_instance_id"),
            "ci": row.count("ci", "compute_instance_id"),
        }
        for row in rows
    ]


def _instances(gpu: Tree.Element) -> list[MigInstance]:
    """MIG devices; empty without MIG, and if no instance was made."""
    rows = [_Cells(e) for e in gpu.findall("mig_devices/mig_device")]
    return [
        {
            "index": row.count("index", "index"),
            "gi": row.count("gi", "gpu_instance_id"),
            "ci": row.count("ci", "compute_instance_id"),
            "uuid": row.text("uuid", "uuid"),
            "memory_mib": row.count("memory_mib", "fb_memory_usage/total"),
            "used_mib": row.count("used_mib", "fb_memory_usage/used"),
        }
        for row in rows
    ]
