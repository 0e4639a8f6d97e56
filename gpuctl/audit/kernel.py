"""Judge the kernel messages of nodes: GPU errors by NVIDIA's catalogue, other faults by their meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpuctl.domain import kernel_faults, xid_actions
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.gpu_errors import Catalogue
from gpuctl.domain.node_facts import Facts, Fleet, get, unread
from gpuctl.domain.xid_lines import parse_lines

REBOOT = "-- Reboot --"


def kernel_log(fleet: Fleet, catalogue: Catalogue) -> list[Finding]:
    """Findings for every node; where the boot before cannot be read, an OK says so."""
    return [finding for node, facts in fleet.items() for finding in _node(node, facts, catalogue)]


def _node(node: str, facts: Facts, catalogue: Catalogue) -> Iterator[Finding]:
    boots = {boot["boot"]: boot for boot in get(facts, "kernel_log", "boots") or ()}
    reasons = facts.get("kernel_log", {}).get("unread", {})
    if 0 not in boots:
        reason = reasons.get("boot 0") or reasons.get("*") or "no reason was given"
        yield unread("kernel-log", node, "its kernel messages are", reason, "read them as root")
        return
    earlier = boots.get(-1, {}).get("lines", [])
    log = parse_lines([*earlier, *([REBOOT] if earlier else []), *boots[0]["lines"]])
    found = [_of_node(finding, node) for finding in xid_actions.findings(log, catalogue)]
    found += [*kernel_faults.find(boots[0]["lines"], node), *kernel_faults.find(earlier, node, earlier=True)]
    yield from found
    for number, boot in boots.items():
        if boot["dropped"]:
            which = "this boot" if number == 0 else "the boot before"
            message = f"{boot['dropped']} messages of {which} were not judged: there are too many"
            yield Finding("kernel-log", node, Verdict.WARN, message, {}, "judge the log as a file: gpuctl audit --from")
    if not found:
        lines = sum(boot["kernel_lines"] for boot in boots.values())
        before = f"; of the boot before nothing can be read: {reasons['boot -1']}" if "boot -1" in reasons else ""
        yield Finding("kernel-log", node, Verdict.OK, f"no fault in {lines} kernel messages{before}")


def _of_node(finding: Finding, node: str) -> Finding:
    """The finding for the node by its name in the inventory, which may differ from the one in its log."""
    return replace(finding, subject=subject_of(finding, node))


def subject_of(finding: Finding, node: str) -> str:
    """The node, and the part of it that the finding is about."""
    part = re.search(r"\b(?:GPU|NVSwitch) .+", finding.subject)
    return f"{node} {part[0]}" if part else node
