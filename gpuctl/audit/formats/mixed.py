"""Recognise what a reader of one output passes over: other outputs in the same file, and errors in place of values."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuctl.audit.formats import smi_csv, smi_other, storage
from gpuctl.audit.formats.model import Record, doubt
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict

KERNEL = "kernel messages"
APART = "save each output to a file of its own"
_ERROR = re.compile(r"ERR!|Unknown Error|GPU requires re(?:set|start)|GPU is lost|GPU access blocked", re.IGNORECASE)
# Readers that judge errors in place of values of GPUs themselves.
_JUDGE_ERRORS = frozenset({"nvidia-smi -q -x", "nvidia-smi -q", "nvidia-smi --query-gpu", "nvidia-smi"})
# Names of formats -> lines that no other output has. Lists (-L, dmon) have nothing that is judged.
_LINES: tuple[tuple[str, str], ...] = (
    ("nvidia-smi -q -x", r"<nvidia_smi_log>"),
    ("nvidia-smi -q", r"=+NVSMI LOG=+"),
    ("dcgmi diag -j", r'"DCGM (?:GPU )?Diagnostic"'),
    ("dcgmi diag", r"\| Diagnostic +\| Result"),
    ("dcgmi nvlink -e", r"NVLINK Error Counts"),
    ("dcgmi health", r"Overall Health"),
    ("dcgmi discovery", r"^\d+ GPUs? found\.$"),
    ("nvidia-smi topo -m", r"^(?:\x1b\[\d+m)?\s*GPU0\s.*(?:CPU Affinity|GPU1\b)"),
    ("nvidia-smi nvlink -s", r"^\s+Link \d+: (?:[\d.]+ GB/s|<?inactive)"),
    ("nvidia-smi nvlink -e", r"^\s+Link \d+[:,] .+(?:Errors?|Count): "),
    ("nvidia-smi nvlink -c", r"^\s+Link \d+, P2P is supported: "),
    ("nvidia-smi", r"^\| NVIDIA-SMI \d"),
    ("ibstat", r"^\s*CA '[\w.:-]+'|^Infiniband device '"),
    ("ethtool -S", r"NIC statistics:"),
    ("lfs df", r"^UUID\s+.*Mounted on"),
    ("lfs getstripe", r"^\s*(?:lmm_)?stripe_count:"),
    ("dcgmi", r"^Error: unable to establish a connection|^Unable to connect to host engine"),
    (KERNEL, r"^\[ *\d+\.\d+\] |\bkernel: |NVRM: |SXid \(PCI:"),
)
_LINE = re.compile("|".join(f"(?P<n{number}>{line})" for number, (_, line) in enumerate(_LINES)))
# Readers that judge the sentences by which nvidia-smi refuses.
_JUDGE_FAILURES = frozenset(
    {"nvidia-smi -q -x", "nvidia-smi -L", "nvidia-smi", "nvidia-smi dmon", "nvidia-smi nvlink -c"}
)


def others(name: str, lines: Iterable[str]) -> list[str]:
    """Formats of which a file of the format `name` has lines, too, each once."""
    found: dict[str, None] = {}
    for line in lines:
        if match := _LINE.search(line):
            found[_LINES[int((match.lastgroup or "n0")[1:])][0]] = None
        elif name not in _JUDGE_FAILURES and smi_other.failures(line):
            found["nvidia-smi"] = None
        elif storage.is_mounts(line):
            found["mount"] = None
        elif "," in line and smi_csv.is_header(line):
            found["nvidia-smi --query-gpu"] = None
    return [other for other in found if other != name]


def doubts(name: str, text: str, record: Record) -> list[Finding]:
    """UNKNOWN for what the reader of the format `name` has not judged."""
    lines = text.splitlines()
    found = others(name, lines)
    findings = [not_judged(found)] if found else []
    failed = any(finding.verdict is Verdict.FAIL for finding in record.findings)
    unjudged = re.split(r"<gpu |^GPU ", text, maxsplit=1, flags=re.MULTILINE)[0] if name in _JUDGE_ERRORS else text
    if not failed and (line := next(filter(_ERROR.search, unjudged.splitlines()), "")):
        findings.append(doubt(f"an error stands in place of a value: {line.strip()[:120]}", "look for Xids in dmesg"))
    return findings


def not_judged(names: Iterable[str]) -> Finding:
    """UNKNOWN for other outputs in a file."""
    return doubt(f"it has lines of other outputs, which were not judged: {named(names, 4)}", APART)
