"""Rules on links: NVLink, PCIe, and the counters of network adapters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict, fail, ok, or_ok, warn
from gpuctl.domain.node_facts import Facts, Fleet, equal, get, parts_unread, unread, why

DCGM = "DCGM, health checks"
# nvidia-smi counts good things under names of the same form: packets, bytes, bits that FEC corrected.
NVLINK_FAULTS = ("replay errors", "recovery errors", "link recovery failed events", "malformed packet errors",
                 "buffer overrun errors", "rx errors", "rx remote errors", "rx general errors",
                 "local link integrity errors")  # fmt: skip
NVLINK_CRC = "crc errors"
NVLINK_CORRECTED = ("fec ", "effective ", "symbol ", "ecc ")  # beginnings of names of counters
_NO_ERRORS = re.compile(r"[a-z0-9 ()/,-]+")
# Errors of ports of InfiniBand and RoCE (port_counters of the InfiniBand specification) and of EFA.
PORT_FAULTS = frozenset({
    "symbol_error", "link_error_recovery", "port_rcv_errors", "port_rcv_remote_physical_errors", "port_xmit_discards",
    "port_xmit_constraint_errors", "port_rcv_constraint_errors", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors", "VL15_dropped", "out_of_buffer", "packet_seq_err", "local_ack_timeout_err",
    "rnr_nak_retry_err", "rx_drops", "rdma_read_wr_err", "rdma_write_wr_err", "unresponsive_remote_events",
    "impaired_remote_conn_events", "retrans_timeout_events",
})  # fmt: skip
# Counters of `ethtool -S` that count faults: of the kernel, of Mellanox' driver, and of Amazon's.
ETHTOOL_FAULTS = PORT_FAULTS | {
    "rx_errors", "tx_errors", "rx_crc_errors", "rx_crc_errors_phy", "rx_symbol_err_phy", "rx_pcs_symbol_err_phy",
    "rx_discards_phy", "tx_discards_phy", "tx_errors_phy", "rx_in_range_len_errors_phy", "link_down_events_phy",
    "module_bad_shorted", "tx_timeout", "wd_expired", "reset_fail", "missing_tx_cmpl", "bad_tx_req_id",
    "bad_rx_req_id", "missing_admin_interrupt", "admin_to", "rx_desc_malformed", "tx_desc_malformed",
    "rx_out_of_buffer", "interface_down",
}  # fmt: skip
LINK_DOWN = frozenset({"link_downed", "carrier_down_count"})
LINK_FAULTS = frozenset({"rx_errors", "tx_errors", "rx_crc_errors"})
ALLOWANCE = "_allowance_exceeded"
CABLE = "look at cable, transceiver and switch port"


# ---- NVLink ----------------------------------------------------------------------------------------------------------


def nvlink(fleet: Fleet) -> list[Finding]:
    """Every NVLink is active, has made no errors since the driver was loaded, and all GPUs have as many."""
    findings = [finding for node, facts in fleet.items() for finding in _nvlinks(node, facts)]
    named_already = {finding.subject for finding in findings}
    counts = {node: _link_count(facts) for node, facts in fleet.items() if node not in named_already}
    findings += equal("nvlink", "{} NVLinks", counts, "check nvidia-smi nvlink -s; reset the GPUs of the node together")
    if not findings and not any(counts.values()):
        return [ok("nvlink", "", "not judged: no GPU shows NVLinks, as those without any and those under MIG do not")]
    counted = all(gpu["errors"] is not None for facts in fleet.values() for gpu in get(facts, "nvlink", "gpus") or ())
    errors = "has no errors" if counted else "was not asked for its errors"
    return or_ok("nvlink", "", findings, f"every NVLink is active and {errors}")


def nvlink_errors(fleet: Fleet) -> list[Finding]:
    """No NVLink has made errors since the driver was loaded; for nodes of which the links' state is not known."""
    findings = [one for node, facts in fleet.items() for one in parts_unread("nvlink", node, facts, "nvlink_errors")]
    findings += [
        finding
        for node, facts in fleet.items()
        for gpu in get(facts, "nvlink_errors", "gpus") or ()
        for finding in _nvlinks_of(node, f"GPU {gpu['gpu']}", None, gpu["errors"] or {})
    ]
    return or_ok("nvlink", "", findings, "no errors of NVLinks since the driver was loaded")


def _link_count(facts: Facts) -> int | None:
    gpus = get(facts, "nvlink", "gpus")
    return None if gpus is None else sum(len(gpu["links"] or ()) for gpu in gpus)


def _nvlinks(node: str, facts: Facts) -> Iterator[Finding]:
    gpus = get(facts, "nvlink", "gpus")
    if gpus is None:
        yield unread("nvlink", node, "the state of its NVLinks is", why(facts, "nvlink", "gpus"))
    for name, reason in facts.get("nvlink", {}).get("unread", {}).items():
        if name.startswith("GPU "):
            yield unread("nvlink", node, f"{name.rpartition(' ')[0]}: its NVLink {name.rpartition(' ')[2]} are", reason)
        elif name != "gpus":
            yield unread("nvlink", node, f"{name} is", reason)
    for gpu in gpus or ():
        yield from _nvlinks_of(node, f"GPU {gpu['gpu']}", gpu["links"], gpu["errors"] or {})


def _nvlinks_of(node: str, gpu: str, links: Mapping[str, float] | None, errors: Mapping[str, int]) -> Iterator[Finding]:
    reset = "drain the node and reset its GPUs together; if they return, the field diagnostic"
    inactive = [number for number, speed in (links or {}).items() if not speed]
    if links is not None and not links:
        yield fail("nvlink", node, f"{gpu}: none of its NVLinks is active", reset)
    elif inactive:
        message = f"{gpu}: NVLink {named(inactive)} inactive, {len(links or ()) - len(inactive)} others are active"
        yield fail("nvlink", node, message, reset, inactive=len(inactive))
    speeds = {number: speed for number, speed in (links or {}).items() if speed}
    if slow := [number for number, speed in speeds.items() if speed < max(speeds.values())]:
        message = f"{gpu}: NVLink {named(slow)} at {speeds[slow[0]]:g} GB/s, others at {max(speeds.values()):g}"
        yield fail("nvlink", node, message, reset, slow=len(slow))
    faults = {name: count for name, count in errors.items() if name.lower() in NVLINK_FAULTS and count}
    if strange := [name for name, count in errors.items() if count and not _is_known(name.lower())]:
        yield unread("nvlink", node, f"{gpu}: the counter {named(strange, 4)} is", "no meaning of it is known")
    crc = sum(count for name, count in errors.items() if name.lower() == NVLINK_CRC)
    if faults:
        shown = ", ".join(f"{count} {name.lower()}" for name, count in faults.items())
        hint = "watch whether they rise: nvidia-smi nvlink -e; then reset the GPUs of the node"
        message, numbers = f"{gpu}: {shown} since the driver was loaded", {"errors": sum(faults.values())}
        yield Finding("nvlink", node, Verdict.WARN, message, numbers, hint, DCGM)
    elif crc:
        message = f"{gpu}: {crc} CRC errors since the driver was loaded"
        yield Finding("nvlink", node, Verdict.WARN, message, {"errors": crc}, "watch whether they rise", DCGM)


def _is_known(counter: str) -> bool:
    """True for a counter that is judged, or that counts no fault: packets, rates, and what was corrected."""
    if counter in NVLINK_FAULTS or counter == NVLINK_CRC:
        return True
    return bool(_NO_ERRORS.fullmatch(counter)) and ("error" not in counter or counter.startswith(NVLINK_CORRECTED))


# ---- PCIe ------------------------------------------------------------------------------------------------------------


def pcie(fleet: Fleet) -> list[Finding]:
    """Every GPU and adapter has the lanes that both ends of its link can use, and no uncorrected errors.

    Speeds are judged of adapters only: GPUs lower theirs when they are idle.
    """
    findings = [finding for node, facts in fleet.items() for finding in _links(node, facts)]
    return or_ok("pcie", "", findings, "every GPU and network adapter has all its PCIe lanes")


def lanes(fleet: Fleet) -> list[Finding]:
    """Every GPU has its PCIe lanes, as far as nvidia-smi shows it: it does not name the lanes of the slots.

    Where all GPUs of a node lack lanes, their slots may have no more: a warning.
    """
    findings = []
    for node, facts in fleet.items():
        faults = list(_links(node, facts))
        narrow = [fault for fault in faults if fault.verdict is Verdict.FAIL]
        alike = len(narrow) == len(get(facts, "pcie", "links") or ())
        findings += [
            replace(f, verdict=Verdict.WARN, hint="fine if its slot has no more") if alike and f in narrow else f
            for f in faults
        ]
    return or_ok("pcie", "", findings, "every GPU has all its PCIe lanes")


def _links(node: str, facts: Facts) -> Iterator[Finding]:
    links = get(facts, "pcie", "links")
    if links is None:
        yield unread("pcie", node, "its PCIe links are", why(facts, "pcie", "links"))
    else:
        for name, reason in facts["pcie"].get("unread", {}).items():
            yield unread("pcie", node, f"{name} is", reason, "check lspci -vv")
    for link in links or ():
        yield from _link(node, link)


def _link(node: str, link: Mapping[str, Any]) -> Iterator[Finding]:
    name = f"{'GPU' if link['kind'] == 'gpu' else 'adapter'} {link['address']}"
    reseat = "drain the node; reseat the card, riser or cable"
    width = _possible(link["most_width"], link["port_width"])
    if width is not None and link["width"] is None:
        yield unread(
            "pcie", node, f"{name}: the width of its link is", "the kernel does not report it", "check lspci -vv"
        )
    elif width is not None and link["width"] < width:
        message = f"{name} has {link['width']:g} PCIe lanes of {width:g}"
        yield fail("pcie", node, message, reseat, lanes=link["width"], most_lanes=width)
    speed = _possible(link["most_speed"], link["port_speed"])
    if link["kind"] != "gpu" and speed is not None and link["speed"] is not None and link["speed"] < speed:
        message = f"{name} runs its PCIe link at {link['speed']:g} GT/s of {speed:g}"
        yield fail("pcie", node, message, reseat, speed_gts=link["speed"], most_speed_gts=speed)
    errors = {kind: link["errors"][kind] for kind in ("fatal", "nonfatal") if link["errors"][kind]}
    if errors:
        shown = " and ".join(f"{count} {kind}" for kind, count in errors.items())
        yield warn("pcie", node, f"{name}: {shown} PCIe errors since boot", "read dmesg for AER; " + reseat, **errors)


def _possible(device: float | None, port: float | None) -> float | None:
    """What both ends can; None if the device does not say."""
    return None if device is None else device if port is None else min(device, port)


# ---- counters --------------------------------------------------------------------------------------------------------


def counters(fleet: Fleet) -> list[Finding]:
    """No error counter of a network adapter rises while it is watched."""
    findings = [finding for node, facts in fleet.items() for finding in _rising(node, facts)]
    windows = [window for facts in fleet.values() if (window := get(facts, "counters", "window_s")) is not None]
    return or_ok("counters", "", findings, f"no error counter rose within {min(windows, default=0):.0f} s")


def _rising(node: str, facts: Facts) -> Iterator[Finding]:
    window = get(facts, "counters", "window_s")
    for kind in ("ports", "links"):
        adapters = get(facts, "counters", kind)
        if adapters is None:
            yield unread("counters", node, f"the counters of its {kind} are", why(facts, "counters", kind, "ports"))
        for adapter, values in (adapters or {}).items():
            rises = {name: value["after"] - value["before"] for name, value in values.items()}
            rose = {name: rise for name, rise in rises.items() if rise > 0}
            yield from _risen(node, adapter, rose, window)
    for name, reason in facts.get("counters", {}).get("unread", {}).items():
        if get(facts, "counters", "ports") is not None:
            yield unread("counters", node, f"{name} is", reason)


def _risen(node: str, adapter: str, rose: Mapping[str, int], window: float) -> Iterator[Finding]:
    down = {name: count for name, count in rose.items() if name in LINK_DOWN}
    faults = {name: count for name, count in rose.items() if name in PORT_FAULTS | LINK_FAULTS}
    allowances = {name: count for name, count in rose.items() if name.endswith(ALLOWANCE)}
    if down:
        message = f"{adapter}: its link went down within {window:.0f} s"
        yield fail("counters", node, message, CABLE, **down, window_s=window)
    if faults:
        shown = ", ".join(f"{name} +{count}" for name, count in faults.items())
        yield warn("counters", node, f"{adapter}: {shown} within {window:.0f} s", CABLE, **faults, window_s=window)
    if allowances:
        names = named(name.removesuffix(ALLOWANCE) for name in allowances)
        message = f"{adapter}: beyond the instance's allowance of {names} within {window:.0f} s"
        hint = "packets are dropped or delayed: a larger instance type, or less traffic over this interface"
        yield warn("counters", node, message, hint, **allowances, window_s=window)


def totals(fleet: Fleet) -> list[Finding]:
    """Counters of adapters in one reading: nobody can see when they grew, so that none is worse than WARN."""
    findings = [one for node, facts in fleet.items() for one in parts_unread("counters", node, facts, "totals")]
    findings += [
        finding
        for node, facts in fleet.items()
        for adapter in get(facts, "totals", "adapters") or ()
        for finding in _totals(node, adapter)
    ]
    return or_ok("counters", "", findings, "no error counter has risen since the driver was loaded")


def _totals(node: str, adapter: Mapping[str, Any]) -> Iterator[Finding]:
    counters = adapter["counters"]
    faults = {name: count for name, count in counters.items() if name in ETHTOOL_FAULTS and count}
    allowances = {name: count for name, count in counters.items() if name.endswith(ALLOWANCE) and count}
    for what, values in (("errors", faults), ("beyond the instance's allowance", allowances)):
        if values:
            shown = named((f"{name} {count}" for name, count in values.items()), 6)
            message = f"{adapter['name'] or 'adapter'}: {what} since the driver was loaded: {shown}"
            yield warn("counters", node, message, "see whether they rise: take it again a minute later", **values)
