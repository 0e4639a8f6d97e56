"""Recognise what a reader of one output passes over: other outputs in the same file, and errors in place of values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

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
# Any line that matches one of them has one of these: a search of plain text is quicker.
_MARKS = (
    "GPU", "Link ", "Diagnostic", "NVSMI LOG", "<nvidia_smi_log>", "NVLINK", "Overall Health", "| NVIDIA-SMI", "CA '",
    "Infiniband device", "NIC statistics:", "Mounted on", "stripe_count:", "nable to ", "kernel: ", "NVRM: ", "SXid (",
)  # fmt: skip
_LINE = re.compile("|".join(f"(?P<n{number}>{line})" for number, (_, line) in enumerate(_LINES)))
# Lines of the kernel and of a journal, by what stands before their text; the group is the program.
_PREFIX = re.compile(
    r"(?:<\d+>)?(?:\[ *\d+\.\d+\] |\[\w{3} \w{3} [ \d]\d [\d:]+ \d{4}\] |\d+,\d+,\d+,[^;]*;"
    r"|(?:\d{4}-\d\d-\d\d[T ]\S+|[A-Z][a-z]{2} [ \d]\d (?:\d{4} )?\d\d:\d\d:\d\d\S*) \S+ ([^\s:\[]+)(?:\[\d+\])?: )"
)
_REFUSALS = ("NVML", "NVIDIA-SMI", "device handle", "No devices were found", "GPU is lost")
MOST = 8  # sentences of other programs that are reported
# Readers that judge the sentences by which nvidia-smi refuses.
_JUDGE_FAILURES = frozenset(
    {"nvidia-smi -q -x", "nvidia-smi -L", "nvidia-smi", "nvidia-smi dmon", "nvidia-smi nvlink -c"}
)


def others(name: str, lines: Iterable[str]) -> list[str]:
    """Formats of which a file of the format `name` has lines, too, each once."""
    found: set[str] = {name}
    names = [other for line in lines if (other := _format_of(line, name, found))]
    return list(dict.fromkeys(names))


def _format_of(line: str, name: str, found: set[str]) -> str:
    """Format that a line is of, which is added to those `found`; "" for none, or one of those."""
    other = ""
    if line.startswith("[") or line[:1].isdigit() or any(mark in line for mark in _MARKS):
        match = _LINE.search(line)
        other = _LINES[int((match.lastgroup or "n0")[1:])][0] if match else ""
    if other:
        pass
    elif "nvidia-smi" not in found and name not in _JUDGE_FAILURES and _refuses(line):
        other = "nvidia-smi"
    elif "mount" not in found and "/" in line and storage.is_mounts(line):
        other = "mount"
    elif "nvidia-smi --query-gpu" not in found and "," in line and smi_csv.is_header(line):
        other = "nvidia-smi --query-gpu"
    if other in found:
        return ""
    if other:
        found.add(other)
    return other


def _refuses(line: str) -> bool:
    return any(mark in line for mark in _REFUSALS) and bool(smi_other.failures(line))


def without_log(start: str) -> str:
    """The text without the lines that have what the kernel or a journal puts before its text."""
    lines = start.splitlines(keepends=True)
    return "".join(line for line in lines if not _PREFIX.match(line))


class LogNotes:
    """Notes on the lines of a kernel log: other outputs, and sentences of programs that could not use GPUs."""

    def __init__(self) -> None:
        self._found, self._names = {KERNEL}, list[str]()
        self._refusals: dict[str, Finding] = {}

    def note(self, line: str) -> None:
        prefix = _PREFIX.match(line)
        if _refuses(line) and (prefix is None or prefix[1] not in (None, "kernel")):
            self._note_refusal(line, prefix)
        elif prefix is None and (name := _format_of(line, KERNEL, self._found)):
            self._names.append(name)

    def _note_refusal(self, line: str, prefix: re.Match[str] | None) -> None:
        """FAIL for a line of nvidia-smi; WARN for one of a daemon: it may have been in a container, and long ago."""
        for failure in smi_other.failures(line[prefix.end() :] if prefix else line):
            message = f"{prefix[1]} logged: {failure.message.partition(': ')[2]}" if prefix else failure.message
            # Sentences that many programs write need a name of NVIDIA's.
            if len(self._refusals) < MOST and (not prefix or re.search("nvidia|nvml|gpu", message, re.IGNORECASE)):
                hint = f"if nvidia-smi works on the node, restart that program; else {failure.hint}"
                logged = replace(failure, message=message, verdict=Verdict.WARN, hint=hint)
                self._refusals.setdefault(message, logged if prefix else failure)

    def findings(self) -> list[Finding]:
        return [*self._refusals.values(), *([not_judged(self._names)] if self._names else [])]


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
